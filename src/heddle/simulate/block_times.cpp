#include "heddle/simulate/block_times.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/plan/costs/durations.h"

namespace heddle::simulate {

namespace {

using ir::Op;
using ir::ValueId;

/// From one pipeline rank to another: activations (F) or gradients (I).
using Channel = std::tuple<int, int, ir::Phase>;
/// A message of a block to another rank; times count from the block's begin.
struct Sent {
  Channel channel;
  double at_us = 0;
};
/// A value of a microbatch that came from another rank.
using Arrival = std::tuple<int, ValueId, int>;  // listing, value, microbatch

/// A block by itself.
struct BlockTime {
  double compute_us = 0;                   // when its computation has ended
  double all_us = 0;                       // and everything
  double copy_in_us = 0, copy_out_us = 0;  // duration of its copies
  std::vector<Sent> sent;
  std::vector<std::pair<uint8_t, ValueId>> needed;  // values that another block receives, by slot
  bool receives = false;
  Channel from;
};

class Timer {
 public:
  Timer(const ir::StepProgram& program, const passes::Durations& duration_us)
      : program_(program), duration_us_(duration_us), known_(program.blocks.size()) {
    for (const ir::Listing& listing : program.listings) {
      rows_.push_back(plan::balanced_rows(listing));
      std::vector<bool>& from_others = received_.emplace_back(listing.values.size(), false);
      for (const Op& op : listing.ops) {
        if (op.def->moves != ir::Moves::from_neighbour) continue;
        for (const ValueId id : op.out) from_others[id] = true;
      }
    }
  }

  BlockTimes run() {
    const auto ranks = static_cast<int>(program_.actions[0].size());
    std::vector<Rank> all(static_cast<size_t>(ranks));
    BlockTimes times;
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < ranks; ++r) {
        while (advance(r, all[r])) moved = true;
      }
    }
    double last_us = 0;
    for (int r = 0; r < ranks; ++r) {
      Rank& rank = all[r];
      HEDDLE_CHECK(is_at_end(r, rank), "pipeline rank {} waits for what no rank sends", r);
      last_us = std::max({last_us, rank.free_us, rank.copy_in_us, rank.copy_out_us});
      times.busy_us.push_back(rank.busy_us);
    }
    // The norm of all gradients is needed before any weight is updated.
    for (int r = 0; r < ranks; ++r) {
      const std::vector<ir::Action>& actions = actions_of(r);
      for (size_t i = all[r].next; i < actions.size(); ++i)
        times.end_us = std::max(times.end_us, of(r, actions[i].block).all_us);
    }
    times.step_us = last_us + times.end_us;
    return times;
  }

 private:
  struct Rank {
    size_t next = 0;
    double free_us = 0;  // when the next block may begin
    double busy_us = 0;
    double copy_in_us = 0, copy_out_us = 0;  // until when the copies' streams are busy
    std::map<Arrival, double> arrived;
  };

  const std::vector<ir::Action>& actions_of(int rank) const { return program_.actions[0][rank]; }
  bool is_at_end(int r, const Rank& rank) const {
    const std::vector<ir::Action>& actions = actions_of(r);
    if (rank.next >= actions.size()) return true;
    const ir::Block& block = program_.blocks[actions[rank.next].block];
    return !block.steps.empty() && op_of(block, block.steps[0]).phase == ir::Phase::end;
  }
  const Op& op_of(const ir::Block& block, const ir::Step& step) const {
    return program_.listings[block.listings[step.slot]].ops[step.op];
  }

  // Advances a rank; true if there was something to do that could be done.
  bool advance(int r, Rank& rank) {
    if (is_at_end(r, rank)) return false;
    const ir::Action& action = actions_of(r)[rank.next];
    const ir::Block& block = program_.blocks[action.block];
    const BlockTime& time = of(r, action.block);
    if (time.receives) {
      std::deque<double>& queue = messages_[time.from];
      if (queue.empty()) return false;
      for (const ValueId id : op_of(block, block.steps[0]).out)
        rank.arrived[{block.listings[0], id, action.microbatches[0]}] =
            queue.front();  // as late as its send has ended
      queue.pop_front();
      ++rank.next;
      return true;
    }
    double begin_us = rank.free_us;
    for (const auto& [slot, id] : time.needed) {
      const auto at = rank.arrived.find({block.listings[slot], id, action.microbatches[slot]});
      if (at != rank.arrived.end()) begin_us = std::max(begin_us, at->second);
    }
    for (const Sent& sent : time.sent) messages_[sent.channel].push_back(begin_us + sent.at_us);
    rank.free_us = begin_us + time.compute_us;
    rank.busy_us += time.compute_us;
    rank.copy_in_us = std::max(rank.copy_in_us, begin_us) + time.copy_in_us;
    rank.copy_out_us = std::max(rank.copy_out_us, begin_us) + time.copy_out_us;
    ++rank.next;
    return true;
  }

  const BlockTime& of(int rank, int block) {
    std::optional<BlockTime>& at = known_[block];
    if (!at) at = worked_out(rank, program_.blocks[block]);
    return *at;
  }

  BlockTime worked_out(int rank, const ir::Block& block) const {
    BlockTime time;
    std::map<std::string, double> free_us;                  // of each stream
    std::map<std::pair<int, ValueId>, double> ready, read;  // by slot and value: written; read for the last time
    std::map<std::pair<int, ValueId>, double> ready_in, ready_as_whole;  // a base's parts; itself
    for (const ir::Step& step : block.steps) {
      const int listing_index = block.listings[step.slot];
      const ir::Listing& listing = program_.listings[listing_index];
      const Op& op = listing.ops[step.op];
      if (op.def->drops || op.def->flips || (op.condition && !op.condition.holds(rows_[listing_index]))) continue;
      const auto key = [&](ValueId id) {
        return std::pair(ir::is_persistent(listing.value(id).role) ? -1 - listing_index : int{step.slot}, id);
      };
      const double us = duration_us_(listing, op);
      double& stream_us = free_us[stream_of(op)];
      double begin_us = stream_us;
      // A copy's place is free when the computation ahead of it has come so far.
      if (ir::is_copy(op.def->moves)) begin_us = std::max(begin_us, free_us[""]);
      const auto after = [&](const auto& times, const std::pair<int, ValueId>& at) {
        if (const auto found = times.find(at); found != times.end()) begin_us = std::max(begin_us, found->second);
      };
      const auto written = [&](ValueId id) {
        after(ready, key(id));
        after(ready_as_whole, key(listing.base(id)));
        if (listing.base(id) == id) after(ready_in, key(id));
      };
      for (const ValueId id : op.in) {
        if (id == ir::none) continue;
        written(id);
        if (received_[listing_index][id] && op.def->moves != ir::Moves::from_neighbour && !ready.contains(key(id)))
          time.needed.emplace_back(step.slot, id);
      }
      for (const std::vector<ValueId>* ids : {&op.updates, &op.out}) {
        for (const ValueId id : *ids) {
          if (id == ir::none) continue;
          written(id);
          after(read, key(id));
        }
      }
      const double end_us = begin_us + us;
      stream_us = end_us;
      for (const ValueId id : op.in) {
        if (id == ir::none) continue;
        double& last = read[key(id)];
        last = std::max(last, end_us);
      }
      for (const std::vector<ValueId>* ids : {&op.updates, &op.out}) {
        for (const ValueId id : *ids) {
          if (id == ir::none) continue;
          ready[key(id)] = end_us;
          double& of_base = listing.base(id) == id ? ready_as_whole[key(id)] : ready_in[key(listing.base(id))];
          of_base = std::max(of_base, end_us);
        }
      }
      time.all_us = std::max(time.all_us, end_us);
      if (op.def->stream == ir::StreamKind::compute) time.compute_us = std::max(time.compute_us, end_us);
      if (op.def->moves == ir::Moves::from_host) time.copy_in_us += us;
      if (op.def->moves == ir::Moves::to_host) time.copy_out_us += us;
      if (!ir::is_message(op.def->moves)) continue;
      const int there = rank + static_cast<int>(op.attributes.integer("step"));
      if (op.def->moves == ir::Moves::to_neighbour) {
        time.sent.push_back({{rank, there, op.phase}, end_us});
      } else {
        time.receives = true;
        time.from = {there, rank, op.phase};
      }
    }
    return time;
  }

  static std::string stream_of(const Op& op) {
    if (op.def->stream == ir::StreamKind::compute) return "";
    return op.stream.empty() ? fmt::format("{} {}", static_cast<int>(op.def->stream), op.group) : op.stream;
  }

  const ir::StepProgram& program_;
  const passes::Durations& duration_us_;
  std::vector<std::optional<BlockTime>> known_;  // by block
  std::vector<int64_t> rows_;                    // by listing
  std::vector<std::vector<bool>> received_;      // by listing and value
  std::map<Channel, std::deque<double>> messages_;
};

}  // namespace

BlockTimes time_blocks(const ir::StepProgram& program, const passes::Durations& duration_us) {
  return Timer(program, duration_us).run();
}

}  // namespace heddle::simulate
