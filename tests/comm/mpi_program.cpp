// One rank of the MPI tests, started by mpirun through mpi_test.py:
//
//   comm_mpi cases SEED             the cases that hold for every world
//   comm_mpi links BYTES            exchanges timed by peer: the median of each, in microseconds
//   comm_mpi mismatch               two sides that disagree on a length
//   comm_mpi abort                  one rank gives up while others wait
//   comm_mpi piece                  one rank's work on a piece fails while others wait for it
//   comm_mpi pieces                 exchanges by pieces for ever
//   comm_mpi unequal_pieces         two sides that disagree on the length of a piece
//   comm_mpi late_pieces            one rank does not come to an exchange by pieces
//   comm_mpi full                   one rank does not come, and the others' pieces have no room
//   comm_mpi leave                  one rank's exception ends its world
//   comm_mpi wait                   exchanges for ever; somebody outside will kill or stop a rank
//   comm_mpi busy                   rank 0 computes for ever, the others wait for it
//   comm_mpi late                   one rank does not come to an exchange
//   comm_mpi hang                   the same, once all have become impatient
//   comm_mpi absent                 rank 1 starts MPI and never comes to the roll call
//   comm_mpi stuck                  as abort, and one rank's program never ends
//
// HEDDLE_ENGINE: bytes of a message from which the copy engine moves it; not set: there is none.
// HEDDLE_WINDOW: how many neighbouring ranks share memory for exchanges by pieces; not set: all of a node.
// HEDDLE_TIMEOUT, HEDDLE_SILENCE and HEDDLE_GRACE set limits in seconds, HEDDLE_PART the bytes of a part.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/calls/noted_world.h"
#include "heddle/comm/engine/engine_world.h"
#include "heddle/comm/mpi_world.h"
#include "tests/comm/world_cases.h"

namespace heddle::comm {
namespace {

double setting(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atof(text) : otherwise;
}

void say(int rank, const std::string& what) {
  const std::string line = fmt::format("[{}] {}\n", rank, what);
  std::fwrite(line.data(), 1, line.size(), stdout);  // one write, so that ranks' lines don't mix
  std::fflush(stdout);
}

std::vector<int> everybody(const World& world) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
  return ranks;
}

void sleep_seconds(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

// Of both ends the one that entered later has not waited: its time is the shorter. Rank 0 puts them side by side.
void time_links(World& world, int64_t bytes) {
  CallLog log(world.rank(), world.size(), "host", 0);
  NotedWorld noted(world, log);
  log.links().start();
  const int me = world.rank(), n = world.size();
  const auto group = noted.communicator(everybody(world), "comm.timed");
  std::vector<std::byte> from(static_cast<size_t>(bytes)), to(static_cast<size_t>(bytes * n));
  std::vector<Piece> sends, receives;
  for (int p = 0; p < n; ++p) {
    sends.push_back({p, 0, bytes});
    receives.push_back({p, bytes * p, bytes});
  }
  constexpr size_t kCalls = 40;
  for (size_t call = 0; call < kCalls; ++call) group->exchange(from.data(), sends, to.data(), receives);
  const LinkLog::Channel channel = log.links().take().at(0);
  std::vector<double> own(static_cast<size_t>(n) * kCalls, 0), all(own.size() * static_cast<size_t>(n));
  for (int p = 0; p < n; ++p) {
    for (const LinkLog::Seen& seen : channel.of_peer[static_cast<size_t>(p)]) {
      HEDDLE_CHECK(static_cast<int64_t>(seen.bytes) == bytes, "{} bytes of rank {}", seen.bytes, p);
      own[static_cast<size_t>(p) * kCalls + seen.call] = seen.seconds;
    }
  }
  const auto whole = static_cast<int64_t>(own.size() * sizeof(double));
  const Piece mine{0, 0, whole};
  std::vector<Piece> from_all;
  for (int r = 0; r < n && me == 0; ++r) from_all.push_back({r, r * whole, whole});
  group->exchange(own.data(), {&mine, 1}, all.data(), from_all);
  for (int a = 0; a < n && me == 0; ++a) {
    for (int b = a + 1; b < n; ++b) {
      std::vector<double> later_us;
      for (size_t call = 0; call < kCalls; ++call) {
        const auto of = [&](int rank, int peer) {
          return all[static_cast<size_t>(rank) * own.size() + static_cast<size_t>(peer) * kCalls + call];
        };
        HEDDLE_CHECK(of(a, b) > 0 && of(b, a) > 0, "ranks {} and {} have not timed call {}", a, b, call);
        later_us.push_back(1e6 * std::min(of(a, b), of(b, a)));
      }
      say(me, fmt::format("link {} {} {:.1f}", a, b, median(later_us)));
    }
  }
}

void run(World& world, const std::string& scenario, uint64_t seed) {
  const int me = world.rank(), n = world.size();
  if (scenario == "cases") {
    for (const WorldCase& one : world_cases()) {
      one.run(world, seed);
      if (me == 0) say(me, fmt::format("ok {}", one.name));
    }
    return;
  }
  if (scenario == "links") return time_links(world, static_cast<int64_t>(seed));
  const auto group = world.communicator(everybody(world), "comm.test");
  std::vector<std::byte> from(1000), to(1000 * static_cast<size_t>(n));
  std::vector<Piece> sends, receives;
  for (int p = 0; p < n; ++p) {
    sends.push_back({p, 0, 1000});
    receives.push_back({p, 1000 * p, 1000});
  }
  say(me, fmt::format("pid {}", getpid()));  // before the exchange, so that all have said it when one fails
  group->exchange(from.data(), sends, to.data(), receives);
  if (scenario == "mismatch") {
    if (me == 0) receives[1].bytes = setting("HEDDLE_EXPECTED", 999);
    group->exchange(from.data(), sends, to.data(), receives);
    if (me == 0) say(me, "went through");
    for (;;) group->exchange(from.data(), sends, to.data(), receives);
  }
  if (scenario == "abort" || scenario == "stuck") {
    if (me == n - 1) {
      sleep_seconds(0.2);
      world.abort(fmt::format("rank {} had enough", me));
    }
    if (scenario == "stuck" && me == 0) sleep_seconds(1000);
    group->receive(to.data(), 10, (me + 1) % n);
  }
  if (scenario == "piece") {
    group->exchange_by_pieces({.send = from.data(),
                               .sends = sends,
                               .receive = to.data(),
                               .receives = receives,
                               .ready =
                                   [&](size_t i) {
                                     if (me == 1 && i == 1) throw SystemError(0, "a kernel of rank 1 fails");
                                   },
                               .arrived = nullptr});
  }
  const auto exchange_pieces = [&] {
    group->exchange_by_pieces({.send = from.data(),
                               .sends = sends,
                               .receive = to.data(),
                               .receives = receives,
                               .ready = nullptr,
                               .arrived = nullptr});
  };
  if (scenario == "unequal_pieces") {
    if (me == 0) receives[1].bytes = 999;
    exchange_pieces();
  }
  if (scenario == "late_pieces") {
    exchange_pieces();
    std::ifstream maps("/proc/self/maps");
    int windows = 0;
    for (std::string line; std::getline(maps, line);) windows += line.find("heddle-window") != std::string::npos;
    say(me, fmt::format("maps {} windows", windows));
    if (me != n - 1) exchange_pieces();
  }
  if (scenario == "full") {
    exchange_pieces();  // with rings that are as small as they get
    from.resize(10 << 20);
    sends.clear();
    receives.clear();
    for (int p = 0; p < n; ++p) sends.push_back({p, 0, p == n - 1 ? std::ssize(from) : 0});
    if (me != n - 1) exchange_pieces();
  }
  if (scenario == "shown") {
    // Rank 1 soon has what it is shown, and says so. It is killed while rank 0 still reads the same bytes again.
    from.resize(16 << 20);
    to.resize(16 << 20);
    sends.assign(me == 1 ? 2000 : me == 0 ? 1 : 0, {1 - me, 0, me == 1 ? std::ssize(from) : 1000});
    receives.assign(me == 1 ? 1 : me == 0 ? 2000 : 0, {1 - me, 0, me == 1 ? 1000 : std::ssize(to)});
    if (me == 2) group->receive(to.data(), 10, 1);
  }
  while (scenario == "pieces") {
    exchange_pieces();
    sleep_seconds(0.01);
  }
  if (scenario == "leave") {
    if (me == 0) throw std::runtime_error("a mistake of rank 0");
    group->receive(to.data(), 10, 0);
  }
  if (scenario == "hang") world.set_patience(2);
  if ((scenario == "late" || scenario == "hang") && me != n - 1)
    group->exchange(from.data(), sends, to.data(), receives);
  if (scenario == "late" || scenario == "late_pieces" || scenario == "full" || scenario == "hang" ||
      (scenario == "busy" && me == 0))
    sleep_seconds(1000);
  for (;;) {
    group->exchange(from.data(), sends, to.data(), receives);
    sleep_seconds(0.01);
  }
}

int main(int argc, char** argv) {
  if (argc < 2 || !launched_by_mpi()) {
    fmt::print(stderr, "usage: mpirun -np N comm_mpi SCENARIO [SEED]\n");
    return 2;
  }
  MpiOptions options;
  options.timeout_seconds = setting("HEDDLE_TIMEOUT", 60);
  options.silence_seconds = setting("HEDDLE_SILENCE", 10);
  options.grace_seconds = setting("HEDDLE_GRACE", 10);
  options.part_bytes = static_cast<int64_t>(setting("HEDDLE_PART", 256 << 10));
  options.window_ranks = static_cast<int>(setting("HEDDLE_WINDOW", options.window_ranks));
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  options.report = [&](const std::string& reason, int) { say(rank ? std::atoi(rank) : -1, "failed: " + reason); };
  if (std::string_view(argv[1]) == "absent" && launched_rank() == 1) {
    MPI_Init(nullptr, nullptr);
    sleep_seconds(1000);
  }
  try {
    const auto world = mpi_world(options);
    const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (std::getenv("HEDDLE_ENGINE") == nullptr) {
      run(*world, argv[1], seed);
      return 0;
    }
    Reach reach = find_reach(*world);
    if (!reach.near) throw std::runtime_error(reach.near.reason);
    EngineWorld engine(*world, CopyWorker::of_process(), static_cast<int64_t>(setting("HEDDLE_ENGINE", 1)),
                       std::move(reach));
    run(engine, argv[1], seed);
    const EngineTally tally = engine.tally();
    say(world->rank(), fmt::format("moved {} messages, {} bytes", tally.messages, tally.bytes));
  } catch (const InternalError& error) {
    say(rank ? std::atoi(rank) : -1, fmt::format("InternalError: {}", error.what()));
    return 1;
  } catch (const SystemError& error) {
    say(rank ? std::atoi(rank) : -1, fmt::format("SystemError({}): {}", error.rank, error.what()));
    return 1;
  } catch (const std::exception& error) {
    say(rank ? std::atoi(rank) : -1, fmt::format("exception: {}", error.what()));
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace heddle::comm

int main(int argc, char** argv) { return heddle::comm::main(argc, argv); }
