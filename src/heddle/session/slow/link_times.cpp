#include "heddle/session/slow/link_times.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "heddle/base/hash.h"
#include "heddle/base/statistics.h"
#include "heddle/session/ranks/slow_ranks.h"

namespace heddle::session {

namespace {

using comm::Piece;

// Each rank's list to each, by way of lengths.
template <class T>
std::vector<std::vector<T>> exchanged(comm::Communicator& all, const std::vector<std::vector<T>>& mine) {
  const auto n = mine.size();
  std::vector<int64_t> out(n), in(n, 0);
  std::vector<Piece> numbers;
  for (size_t p = 0; p < n; ++p) {
    out[p] = std::ssize(mine[p]);
    numbers.push_back({static_cast<int>(p), static_cast<int64_t>(p * sizeof(int64_t)), sizeof(int64_t)});
  }
  all.exchange(out.data(), numbers, in.data(), numbers);
  std::vector<T> sent;
  std::vector<Piece> sends, receives;
  int64_t at = 0;
  for (size_t p = 0; p < n; ++p) {
    const auto bytes = static_cast<int64_t>(sizeof(T));
    sends.push_back({static_cast<int>(p), std::ssize(sent) * bytes, out[p] * bytes});
    receives.push_back({static_cast<int>(p), at * bytes, in[p] * bytes});
    sent.insert(sent.end(), mine[p].begin(), mine[p].end());
    at += in[p];
  }
  std::vector<T> received(static_cast<size_t>(at));
  all.exchange(sent.data(), sends, received.data(), receives);
  std::vector<std::vector<T>> theirs(n);
  auto from = received.begin();
  for (size_t p = 0; p < n; ++p) {
    theirs[p].assign(from, from + in[p]);
    from += in[p];
  }
  return theirs;
}

// The rank of a pair that lays both ends side by side: each has half of its pairs.
bool has_pair(int own, int other) { return (own < other) == ((own + other) % 2 == 0); }

}  // namespace

std::vector<LinkTime> times_of_pair(int a, int b, std::span<const SeenCall> own, std::span<const SeenCall> theirs) {
  std::unordered_map<uint64_t, const SeenCall*> of_call;
  for (const SeenCall& seen : theirs) of_call[seen.call] = &seen;
  std::map<uint32_t, std::pair<std::vector<double>, std::vector<double>>> of_kind;  // log_s, log_bytes
  for (const SeenCall& seen : own) {
    const auto other = of_call.find(seen.call);
    if (other == of_call.end()) continue;
    const SeenCall& later = other->second->seconds < seen.seconds ? *other->second : seen;
    auto& [log_s, log_bytes] = of_kind[seen.kind];
    log_s.push_back(std::log(later.seconds));
    log_bytes.push_back(std::log(later.bytes));
  }
  std::vector<LinkTime> times;
  for (const auto& [kind, logs] : of_kind) {
    const auto& [log_s, log_bytes] = logs;
    if (log_s.size() < LinkTimes::kLeastCalls) continue;
    times.push_back({std::min(a, b), std::max(a, b), kind, static_cast<float>(quantile(log_s, 0.5)),
                     static_cast<float>(quantile(log_bytes, 0.5)), static_cast<float>(chance_of(log_s))});
  }
  return times;
}

LinkTimes::LinkTimes(comm::World& world, comm::LinkLog& log) : log_(log) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  all_ = world.communicator(ranks, "comm.links");
  log_.start();
}

std::vector<LinkTime> LinkTimes::gather(const ir::StepProgram& program) {
  const auto n = static_cast<size_t>(all_->size());
  const int me = all_->rank();
  std::vector<std::vector<SeenCall>> of_peer(n), given(n);
  for (const comm::LinkLog::Channel& channel : log_.take()) {
    const uint64_t name = fnv1a(channel.name, kFnvStart);
    const auto* members = reinterpret_cast<const char*>(channel.ranks.data());
    const uint64_t number = fnv1a({members, channel.ranks.size() * sizeof(int)}, name) << 32;
    for (size_t p = 0; p < channel.ranks.size(); ++p) {
      for (const comm::LinkLog::Seen& seen : channel.of_peer[p]) {
        if (seen.listing < 0) continue;  // between the steps
        const ir::Op& op = program.listings[static_cast<size_t>(seen.listing)].ops[seen.op];
        const uint64_t kind = fnv1a(ir::name_of(op.phase), fnv1a(op.kind(), name));
        of_peer[static_cast<size_t>(channel.ranks[p])].push_back(
            {number | seen.call, static_cast<uint32_t>(kind ^ (kind >> 32)), seen.seconds, seen.bytes});
      }
    }
  }
  for (size_t p = 0; p < n; ++p) {
    if (static_cast<int>(p) != me && !has_pair(me, static_cast<int>(p))) given[p] = of_peer[p];
  }
  const std::vector<std::vector<SeenCall>> taken = exchanged(*all_, given);
  std::vector<std::vector<LinkTime>> for_first(n);
  for (size_t p = 0; p < n; ++p) {
    if (static_cast<int>(p) == me || !has_pair(me, static_cast<int>(p))) continue;
    const std::vector<LinkTime> times = times_of_pair(me, static_cast<int>(p), of_peer[p], taken[p]);
    for_first[0].insert(for_first[0].end(), times.begin(), times.end());
  }
  std::vector<LinkTime> all;
  for (const std::vector<LinkTime>& part : exchanged(*all_, for_first))
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace heddle::session
