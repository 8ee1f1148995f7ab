// What the ops of one rank of several last on this machine, its kernels run for real while no other rank is there:
// instead of what the others would send comes what it would send them.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "bench/paced_run.h"
#include "heddle/comm/threads/thread_world.h"

namespace heddle::bench {

/// A group of which one rank is there.
class LoneCommunicator : public comm::Communicator {
 public:
  explicit LoneCommunicator(const comm::Communicator& of) : rank_(of.rank()), size_(of.size()) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node_of(int) const override { return 0; }
  void exchange(const void* send, std::span<const comm::Piece> sends, void* receive,
                std::span<const comm::Piece> receives) override {
    std::map<int, std::vector<comm::Piece>> to;
    for (const comm::Piece& piece : sends) to[piece.peer].push_back(piece);
    std::map<int, size_t> met;
    for (const comm::Piece& piece : receives) {
      const std::vector<comm::Piece>& own = to[piece.peer].empty() ? to[to.begin()->first] : to[piece.peer];
      char* const at = static_cast<char*>(receive) + piece.offset;
      const size_t nth = met[piece.peer]++;
      const int64_t there = nth < own.size() ? std::min(own[nth].bytes, piece.bytes) : 0;
      if (there > 0) std::memmove(at, static_cast<const char*>(send) + own[nth].offset, static_cast<size_t>(there));
      std::memset(at + there, 0, static_cast<size_t>(piece.bytes - there));
    }
  }
  void send(const void*, int64_t, int) override {}
  void receive(void* data, int64_t bytes, int) override { std::memset(data, 0, static_cast<size_t>(bytes)); }
  comm::Traffic traffic() const override { return {}; }
  void abort(const std::string&) override {}

 private:
  int rank_, size_;
};

/// Microseconds of each op, by listing, the quickest of so many steps: what else this machine does only lengthens
/// them. Of the first rank, on one thread.
inline std::vector<std::vector<double>> kernel_us(const model::ModelConfig& config, const plan::Plan& plan,
                                                  int rounds) {
  comm::ThreadWorlds board(plan.ranks());
  const std::unique_ptr<comm::World> world = board.world(0);
  std::vector<std::unique_ptr<LoneCommunicator>> lone;
  PacedRun run(config, plan, *world, [&](const std::string&, comm::Communicator* own) {
    lone.push_back(std::make_unique<LoneCommunicator>(*own));
    return lone.back().get();
  });
  std::vector<std::vector<double>> us;
  for (const ir::Listing& listing : run.program().listings)
    us.emplace_back(listing.ops.size(), std::numeric_limits<double>::max());
  run.executor().set_trace(true);
  for (int round = 0; round < rounds; ++round) {
    run.step();
    const size_t streams = run.executor().walk().streams().names().size();
    for (size_t i = 0; i < streams; ++i) {
      for (const device::Span& span : run.executor().stream(static_cast<int>(i)).take_spans()) {
        double& least = us[static_cast<size_t>(span.listing)][span.op_index];
        least = std::min(least, static_cast<double>(span.end_ns - span.start_ns) * 1e-3);
      }
    }
  }
  for (std::vector<double>& of : us) std::ranges::replace(of, std::numeric_limits<double>::max(), 0.0);  // none ran
  return us;
}

}  // namespace heddle::bench
