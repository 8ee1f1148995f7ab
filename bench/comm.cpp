// What a communicator costs: microseconds of small messages, bytes a second of big ones beside memcpy, and how much
// of a core the progress thread of MPI takes. Under mpirun the ranks are its processes, else threads.
//
//   mpirun -np 2 --bind-to none build/bench_comm [--json]
//   build/bench_comm [--json]
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/comm/threads/thread_world.h"

namespace heddle::comm {
namespace {

void sleep_seconds(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

/// Seconds of CPU that the progress thread of this process has used, from the kernel's account; 0 without one.
double progress_seconds() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    double ns = 0;
    if (name == "heddle-mpi" && std::ifstream(task.path() / "schedstat") >> ns) return ns * 1e-9;
  }
  return 0;
}

struct Bench {
  World& world;
  std::unique_ptr<Communicator> group;
  nlohmann::ordered_json found;

  explicit Bench(World& world) : world(world) {
    std::vector<int> ranks(static_cast<size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    group = world.communicator(ranks, "bench");
  }

  void together() {
    std::vector<std::byte> data(2 * static_cast<size_t>(group->size()));
    std::vector<Piece> pieces;
    for (int p = 0; p < group->size(); ++p) pieces.push_back({p, p, 1});
    group->exchange(data.data(), pieces, data.data() + group->size(), pieces);
  }

  double median_seconds(int rounds, const std::function<void()>& body) {
    std::vector<double> took;
    for (int i = 0; i < rounds; ++i) {
      together();
      const double began = now_s();
      body();
      took.push_back(now_s() - began);
    }
    return median(took);
  }

  /// Every rank sends `bytes` to each other rank, in `pieces` pieces that lie in another order at the receiver.
  double exchange_seconds(int64_t bytes, int pieces, int rounds) {
    const int n = group->size();
    std::vector<std::byte> from(static_cast<size_t>(n * bytes), std::byte{1}), to(from.size(), std::byte{2});
    std::vector<Piece> sends, receives;
    const int64_t piece = bytes / pieces;
    for (int k = 0; k < pieces; ++k) {
      for (int p = 0; p < n; ++p) {
        if (p == group->rank()) continue;
        sends.push_back({p, p * bytes + k * piece, piece});
        receives.push_back({p, pieces == 1 ? p * bytes : (k * n + p) * piece, piece});
      }
    }
    return median_seconds(rounds, [&] { group->exchange(from.data(), sends, to.data(), receives); });
  }

  void tell() const {
    if (group->rank() == group->size() - 1) bench::so_far(found.dump(2));
  }

  /// Share of a core of the progress thread while `body` runs.
  double share(const std::function<void()>& body) {
    together();
    const double cpu = progress_seconds(), began = now_s();
    body();
    return (progress_seconds() - cpu) / (now_s() - began);
  }

  void run() {
    const int n = group->size(), me = group->rank();
    found["ranks"] = n;
    found["world"] = launched_by_mpi() ? "mpi" : "threads";
    std::byte letter[8] = {};
    const double trip = median_seconds(500, [&] {
      if (me == 0) group->send(letter, 8, 1), group->receive(letter, 8, 1);
      if (me == 1) group->receive(letter, 8, 0), group->send(letter, 8, 0);
    });
    found["letter_us"] = trip * 1e6 / 2;
    found["exchange_8_bytes_us"] = exchange_seconds(8, 1, 500) * 1e6;
    // Probes before and after: the machine may change its speed in between.
    const int64_t big = 64 << 20;
    std::vector<std::byte> a(static_cast<size_t>(big), std::byte{1}), b(a.size(), std::byte{2});
    const auto copy = [&] { return median_seconds(7, [&] { std::memcpy(b.data(), a.data(), b.size()); }); };
    const double copy_before = copy();
    for (const auto& [name, bytes, rounds] : {std::tuple{"4_KiB", int64_t{4} << 10, 300},
                                              {"64_KiB", int64_t{64} << 10, 200},
                                              {"1_MiB", int64_t{1} << 20, 60},
                                              {"16_MiB", int64_t{16} << 20, 11},
                                              {"64_MiB", big, 5}}) {
      const double took = exchange_seconds(bytes, 1, rounds);
      found["exchange_us"][name] = took * 1e6;
      found["exchange_gb_per_s"][name] = static_cast<double>(bytes * (n - 1)) / took * 1e-9;
      tell();
    }
    found["memcpy_gb_per_s"] = {static_cast<double>(big) / copy_before * 1e-9,
                                static_cast<double>(big) / copy() * 1e-9};
    found["exchange_64_pieces_of_8_KiB_us"] = exchange_seconds(512 << 10, 64, 100) * 1e6;
    found["exchange_1_piece_of_512_KiB_us"] = exchange_seconds(512 << 10, 1, 100) * 1e6;

    tell();
    if (!launched_by_mpi()) return;
    auto& cpu = found["progress_thread_core_share"];
    cpu["nothing_under_way"] = share([&] { sleep_seconds(1); });
    cpu["waiting_1_s_for_8_bytes"] = share([&] {
      if (me == 0) sleep_seconds(1), group->send(letter, 8, 1);
      if (me == 1) group->receive(letter, 8, 0);
    });
    cpu["8_bytes_each_ms"] = share([&] {
      for (int i = 0; i < 500; ++i) sleep_seconds(1e-3), together();
    });
    std::vector<Piece> pieces;
    for (int p = 0; p < n; ++p) {
      if (p != me) pieces.push_back({p, 0, 1 << 20});
    }
    if (n == 2) {
      cpu["1_MiB_each_10_ms"] = share([&] {
        for (int i = 0; i < 100; ++i) sleep_seconds(10e-3), group->exchange(a.data(), pieces, b.data(), pieces);
      });
      cpu["1_MiB_without_pause"] = share([&] {
        for (int i = 0; i < 1000; ++i) group->exchange(a.data(), pieces, b.data(), pieces);
      });
    }
  }
};

}  // namespace
}  // namespace heddle::comm

int heddle::bench::run(Arguments& arguments) {
  bool json = false;
  arguments.flag("--json", json);
  arguments.read();
  const auto measure = [&](comm::World& world) {
    comm::Bench bench(world);
    bench.run();
    if (world.rank() == world.size() - 1) fmt::print("{}\n", bench.found.dump(json ? -1 : 2));
  };
  if (comm::launched_by_mpi()) {
    measure(*comm::mpi_world());
  } else {
    comm::run_on_threads(2, measure);
  }
  return 0;
}
