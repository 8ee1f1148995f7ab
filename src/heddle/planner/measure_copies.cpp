#include "heddle/planner/measure_copies.h"

#include <time.h>

#include <array>
#include <atomic>
#include <vector>

#include "heddle/base/statistics.h"
#include "heddle/comm/engine/copy_core.h"
#include "heddle/comm/engine/engine_world.h"
#include "heddle/comm/threads/thread_world.h"

namespace heddle::planner {

namespace {

constexpr int64_t kLeast = 4 << 10, kMost = 4 << 20;

double processor_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

// The processor time of this rank's thread for an exchange; median.
double caller_us(comm::Communicator& group, std::vector<std::byte>& from, std::vector<std::byte>& to,
                 int64_t bytes) {
  constexpr int kRounds = 15;
  const std::vector<comm::Piece> pieces{{1 - group.rank(), 0, bytes}};
  std::vector<double> us;
  for (int round = 0; round < kRounds; ++round) {
    const double began = processor_us();
    group.exchange(from.data(), pieces, to.data(), pieces);
    us.push_back(processor_us() - began);
  }
  return median(us);
}

}  // namespace

double engine_from_bytes() {
  if (!comm::copy_core_available()) return 0;
  std::atomic<int64_t> least{kLeast};
  comm::run_on_threads(2, [&](comm::World& world) {
    const comm::OffCopyCore off;
    comm::EngineWorld engine(world, comm::CopyWorker::of_process(), 1, comm::find_reach(world));
    const auto usual = world.communicator({0, 1}, "profile.usual");
    const auto moved = engine.communicator({0, 1}, "profile.engine");
    std::vector<std::byte> from(kMost, std::byte{1}), to(kMost, std::byte{2});
    for (int64_t bytes = kLeast; bytes <= kMost; bytes *= 2) {
      const double threads_us = caller_us(*usual, from, to, bytes), engine_us = caller_us(*moved, from, to, bytes);
      if (world.rank() == 0 && engine_us >= threads_us) least = 2 * bytes;  // beyond the largest that doesn't pay
    }
  });
  return static_cast<double>(least.load());
}

}  // namespace heddle::planner
