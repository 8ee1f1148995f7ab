// Results of a simulation: times, memory and use of each kind of rank, the longest chain, and who is stuck.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/ir/print.h"
#include "heddle/simulate/running.h"

namespace heddle::simulate {

namespace {

std::string absent_peers(const Running& running, int kind, const RecordedOp& recorded) {
  const ir::Op& op = running.program.listings[recorded.listing].ops[recorded.op];
  const int channel = running.table.channel_of(recorded.listing, recorded.op);
  const Member& member = running.ranks[static_cast<size_t>(kind)].members[channel];
  const GroupQueue& group_queue = running.group_queues[member.group];
  if (!op.def->collective) {
    const int64_t peer = member.position + op.attributes.integer("step");
    return fmt::format("a send of rank {}", running.first_of(group_queue.kinds[peer]));
  }
  std::string absent;
  const size_t turn = group_queue.met.at(kind) - 1;
  for (const auto& [other, met] : group_queue.met) {
    if (met <= turn) absent += fmt::format("{}{}", absent.empty() ? "rank " : ", ", running.first_of(other));
  }
  return absent;
}

std::string deadlock(const Running& running, const Simulation& result) {
  std::string report;
  for (size_t r = 0; r < running.ranks.size(); ++r) {
    const RankState& run = running.ranks[r];
    const auto name = [&](uint32_t index) {
      const SimulatedOp& op = result.ranks[r].ops[index];
      const ir::Listing& listing = running.program.listings[op.listing];
      return fmt::format("'{}' of {}, microbatch {}", running.op_of(op).kind(), listing.name, op.microbatch);
    };
    for (size_t s = 0; s < run.lanes.size(); ++s) {
      const Lane& lane = run.lanes[s];
      if (lane.next == lane.ops.size()) continue;
      const uint32_t index = lane.ops[lane.next];
      const RecordedOp& op = run.recording->ops[index];
      std::string why;
      if (index >= run.issued) {
        why = fmt::format("the host, which waits for {}", name(static_cast<uint32_t>(run.stalled_on)));
      }
      for (uint32_t w = op.first_wait; why.empty() && w < op.first_wait + op.waits; ++w) {
        const ir::Wait& wait = run.recording->waits[w];
        const Lane& other = run.lanes[wait.stream];
        if (other.next < wait.count) {
          why = fmt::format("{} on {}", name(other.ops[wait.count - 1]), run.recording->streams[wait.stream]);
        }
      }
      if (why.empty()) why = absent_peers(running, static_cast<int>(r), op);
      report += fmt::format("rank {}, {}: {} waits for {}\n", running.fold.first[r], run.recording->streams[s],
                            name(index), why);
    }
  }
  return report;
}

}  // namespace

Simulation report_of(Running& running) {
  Simulation result;
  result.kind_of = running.fold.kind_of;
  OpRef last = kNobody;
  for (size_t r = 0; r < running.ranks.size(); ++r) {
    RankState& run = running.ranks[r];
    RankResult& rank = result.ranks.emplace_back();
    rank.rank = running.fold.first[r];
    rank.count = running.fold.count[r];
    for (uint32_t i = 0; i < run.ops.size(); ++i) {
      const SimulatedOp& op = run.ops[i];
      if (!op.ran) continue;
      rank.end_us = std::max(rank.end_us, op.end_us);
      if (last.rank < 0 || op.end_us > result.step_us) {
        result.step_us = op.end_us;
        last = {static_cast<int>(r), i};
      }
    }
    rank.host_stalled_us = run.stalled_us;
    rank.persistent_bytes = run.recording->persistent_bytes;
    rank.peak_live_bytes = run.recording->peak_live_bytes;
    rank.reserved_bytes = run.recording->reserved_bytes;
    rank.live_at_peak = run.recording->live_at_peak;
    rank.caching_reserved_bytes = run.recording->caching_reserved_bytes;
    rank.ops = std::move(run.ops);
  }
  for (size_t r = 0; r < running.ranks.size(); ++r) {
    for (size_t s = 0; s < running.ranks[r].lanes.size(); ++s) {
      const Lane& lane = running.ranks[r].lanes[s];
      const double idle_us = std::max(0.0, result.step_us - lane.busy_us - lane.waiting_us);
      result.ranks[r].streams.push_back(
          {running.ranks[r].recording->streams[s], lane.busy_us, lane.waiting_us, idle_us});
    }
  }
  for (OpRef at = last; at.rank >= 0; at = running.ranks[at.rank].cause[at.index]) {
    result.critical_path.push_back({running.first_of(at.rank), at.index});
  }
  std::reverse(result.critical_path.begin(), result.critical_path.end());
  result.deadlock = deadlock(running, result);
  return result;
}

}  // namespace heddle::simulate
