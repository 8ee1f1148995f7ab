// What moving messages costs products that run beside it: by the copy engine (device.copy_engine), and by the usual
// transport, whose threads take turns with the products' on the same cores.
//
// Real: products of one thread on the cores that are left to computing, while two ranks as threads of this process
// exchange messages by the engine, with a pause (--pause, ms) between them and without one, so that copies have all
// of the memory's rate that they can get; the same products with as many messages moved the usual way; and alone
// before and after each. Time is that of cores (bench/support/core_time.h), so that other programs count
// little: what products of one pass take, and what the ranks' threads take beside them from the same cores.
//
//   copy_engine_slowdown = (products' time beside the engine + its callers') ÷ products' time alone − 1
//   usual_slowdown       = likewise beside the usual transport
//
// Paced: a step of a tensor parallel model at an H100 node's rates (bench/paced_ranks.h), where the usual transport
// takes `--share` of the multiprocessors while it moves a message, and without; and what the simulator foretells.
//
//   engine_step_gain = step with the usual transport ÷ step with the engine − 1
//
//   build/bench_copy_engine [--json] [--rounds N] [--megabytes X] [--pause MS] [--share X] [--stretch X] [--real]
//   [--paced]
#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "bench/paced_ranks.h"
#include "bench/published_models.h"
#include "bench/support/core_time.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/comm/engine/copy_core.h"
#include "heddle/comm/engine/engine_world.h"
#include "heddle/device/host/host_arena.h"
#include "heddle/kernels/host/gemm/gemm.h"
#include "tests/support/paced_time.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool json = false, real = false, paced = false;
  int rounds = 9;
  double megabytes = 16;
  double pause_ms = 20;
  double share = 20.0 / 132;  // 16 to 24 of an H100's multiprocessors
  double stretch = 25;
};

/// Products of one thread, in a row.
class Products {
 public:
  Products() : arena_(kBytes) {
    arena_.reach(kBytes);
    auto* at = reinterpret_cast<float*>(arena_.base());
    const auto take = [&](int64_t bytes) { return std::exchange(at, at + (bytes + 4095) / 4096 * 1024); };
    x_ = take(kT * kK * 4);
    y_ = take(kT * kN * 4);
    scratch_ = take(scratch_bytes_);
    float* const rows = take(kN * kK * 4);
    for (int64_t i = 0; i < kT * kK; ++i) x_[i] = value(i);
    for (int64_t i = 0; i < kN * kK; ++i) rows[i] = value(i + 11);
    w_ = packed_bytes_ > 0 ? take(packed_bytes_) : rows;
    if (packed_bytes_ > 0) kernels::host::pack_weights(Dtype::f32, rows, Dtype::f32, 1, kN, kK, w_);
  }
  void run() {
    kernels::host::linear_forward({.groups = kernels::host::RowGroups::one(kT),
                                   .n = kN,
                                   .k = kK,
                                   .x = {x_, Dtype::f32},
                                   .w = {w_, Dtype::f32, packed_bytes_ > 0},
                                   .y = {y_, Dtype::f32},
                                   .scratch = {reinterpret_cast<std::byte*>(scratch_), scratch_bytes_}});
  }

 private:
  static constexpr int64_t kT = 1024, kN = 1024, kK = 1024, kBytes = 64 << 20;
  static float value(int64_t i) { return static_cast<float>(i * 37 % 101 - 50) / 64; }
  const int64_t packed_bytes_ = kernels::host::packed_bytes(Dtype::f32, 1, kN, kK);
  const int64_t scratch_bytes_ = kernels::host::gemm_scratch_bytes(1, 1);
  device::HostArena arena_;
  float *x_ = nullptr, *y_ = nullptr, *scratch_ = nullptr, *w_ = nullptr;
};

struct Pass {
  double products_s = 0, callers_s = 0, wall_s = 0;
  int64_t messages = 0;
};

// At real-time priority equals take turns of 100 ms: threads that wake for a moment go before those that compute,
// as they do at usual priority.
void go_before_others() {
  sched_param now{};
  int policy = 0;
  if (pthread_getschedparam(pthread_self(), &policy, &now) != 0 || policy == SCHED_OTHER) return;
  ++now.sched_priority;
  pthread_setschedparam(pthread_self(), policy, &now);
}

/// Two ranks that exchange messages while they are told to.
class Exchanges {
 public:
  /// `pause_s`: between messages.
  Exchanges(comm::ThreadWorlds& board, int64_t bytes, double pause_s) : bytes_(bytes), pause_s_(pause_s) {
    for (int r = 0; r < 2; ++r) {
      threads_.emplace_back([this, &board, r] {
        const comm::OffCopyCore off;
        go_before_others();
        const auto world = board.world(r);
        comm::EngineWorld engine(*world, comm::CopyWorker::of_process(), 1, comm::find_reach(*world));
        const auto usual = world->communicator({0, 1}, "bench.usual");
        const auto moved = engine.communicator({0, 1}, "bench.engine");
        std::vector<std::byte> from(static_cast<size_t>(bytes_), std::byte{1}), to(from.size(), std::byte{2});
        for (uint64_t seen = 0;;) {
          turn_.wait(seen);
          seen = turn_.load();
          if (ends_) return;
          comm::Communicator& by = by_engine_ ? *moved : *usual;
          const int64_t began = bench::core_ns();
          int64_t sent = 0;
          // Both stop at the same message: rank 0 says in its first byte whether there is another.
          for (bool goes_on = true; goes_on; ++sent) {
            goes_on = most_ > 0 ? sent + 1 < most_ : !stop_;
            from[0] = std::byte{goes_on};
            const std::vector<comm::Piece> pieces{{1 - r, 0, bytes_}};
            by.exchange(from.data(), pieces, to.data(), pieces);
            if (r == 1) goes_on = to[0] == std::byte{1};
            if (pause_s_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause_s_));
          }
          callers_ns_ += bench::core_ns() - began;
          if (r == 0) sent_ = sent;
          if (++ready_ == 2) ready_.notify_all();
        }
      });
    }
  }
  ~Exchanges() {
    ends_ = true;
    ++turn_;
    turn_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  /// `most` 0: until `stop`.
  void start(bool by_engine, int64_t most) {
    by_engine_ = by_engine;
    most_ = most;
    stop_ = false;
    ready_ = 0;
    callers_ns_ = 0;
    ++turn_;
    turn_.notify_all();
  }
  void stop(Pass& pass) {
    stop_ = true;
    for (int seen = ready_; seen < 2; seen = ready_) ready_.wait(seen);
    pass.callers_s = static_cast<double>(callers_ns_) * 1e-9;
    pass.messages = sent_;
  }

 private:
  int64_t bytes_;
  double pause_s_;
  std::vector<std::thread> threads_;
  std::atomic<uint64_t> turn_{0};
  std::atomic<bool> stop_{false}, ends_{false}, by_engine_{false};
  std::atomic<int> ready_{0};
  std::atomic<int64_t> most_{0}, callers_ns_{0}, sent_{0};
};

Json quartiles(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  const auto at = [&](double share) { return of[static_cast<size_t>(share * static_cast<double>(of.size() - 1))]; };
  return {{"median", median(of)}, {"quartiles", {at(0.25), at(0.75)}}};
}

Json real(const Options& options, double pause_s) {
  if (const Support there = comm::copy_core_available(); !there) config_error("--real: {}", there.reason);
  comm::ThreadWorlds board(2);
  const auto bytes = static_cast<int64_t>(options.megabytes * 1e6);
  Exchanges exchanges(board, bytes, pause_s);
  const comm::OffCopyCore off;
  omp_set_num_threads(1);
  Products products;
  int count = 1;
  const auto pass = [&](bool beside, bool by_engine, int64_t most) {
    Pass found;
    if (beside) exchanges.start(by_engine, most);
    const double wall = now_s();
    const int64_t began = bench::core_ns();
    for (int i = 0; i < count; ++i) products.run();
    found.products_s = static_cast<double>(bench::core_ns() - began) * 1e-9;
    if (beside) exchanges.stop(found);
    found.wall_s = now_s() - wall;
    return found;
  };
  constexpr double kPass_s = 0.25;
  for (double took = pass(false, false, 0).products_s; took < kPass_s; took = pass(false, false, 0).products_s)
    count *= 2;
  std::vector<double> engine, usual, engine_products, usual_products, rate, engine_wall, usual_wall;
  for (int round = 0; round <= options.rounds; ++round) {
    const Pass before = pass(false, false, 0), by_engine = pass(true, true, 0), between = pass(false, false, 0),
               by_threads = pass(true, false, by_engine.messages), after = pass(false, false, 0);
    if (round == 0) continue;
    const double alone = (before.products_s + between.products_s) / 2,
                 alone_after = (between.products_s + after.products_s) / 2;
    engine.push_back((by_engine.products_s + by_engine.callers_s) / alone - 1);
    usual.push_back((by_threads.products_s + by_threads.callers_s) / alone_after - 1);
    engine_products.push_back(by_engine.products_s / alone - 1);
    usual_products.push_back(by_threads.products_s / alone_after - 1);
    engine_wall.push_back(2 * by_engine.wall_s / (before.wall_s + between.wall_s) - 1);
    usual_wall.push_back(2 * by_threads.wall_s / (between.wall_s + after.wall_s) - 1);
    rate.push_back(2 * static_cast<double>(by_engine.messages * bytes) / by_engine.products_s * 1e-9);
  }
  return {{"copy_engine_slowdown", quartiles(engine)},
          {"usual_slowdown", quartiles(usual)},
          {"products_alone_engine", quartiles(engine_products)},
          {"products_alone_usual", quartiles(usual_products)},
          {"wall_engine", quartiles(engine_wall)},
          {"wall_usual", quartiles(usual_wall)},
          {"moved_GB_a_product_second", quartiles(rate)},
          {"message_MB", options.megabytes},
          {"pause_ms", pause_s * 1e3}};
}

/// `found`: what was measured before.
Json paced(const Options& options, Json found) {
  Json cases = Json::array();
  constexpr int64_t kTokens = 4096;
  for (const char* overlap : {"off", "tiles"}) {
    const auto run = [&](double share) {
      plan::Plan plan;
      plan.mesh.tp = 8;
      plan.sequences = 1;
      plan.sequence_length = kTokens;
      plan.microbatches = 2;
      plan.dtype = Dtype::bf16;
      plan.rates = bench::rates_of(bench::kLinkedDevices[0]);
      plan.rates.message_bytes_per_us = 360e3;  // NVLink, four fifths of what is rated
      plan.rates.message_latency_us = 3;
      plan.rates.message_share = share;
      plan.parallel.tp_overlap = from_word<plan::TpOverlap>(overlap);
      return std::make_unique<bench::PacedRanks>(bench::layers_of_llama_2_70b(kTokens), plan, options.stretch,
                                                 false);
    };
    const auto usual = run(options.share), engine = run(0);
    for (int round = 0; round <= options.rounds; ++round) {
      usual->step(round > 0);
      engine->step(round > 0);
    }
    const double use = std::max(usual->use(), engine->use());
    cases.push_back({{"model", "LLaMA-2-70B, 4 layers, tp 8, NVLink"},
                     {"tp_overlap", overlap},
                     {"share", options.share},
                     {"usual_ms", usual->ms()},
                     {"engine_ms", engine->ms()},
                     {"engine_step_gain", usual->ms() / engine->ms() - 1},
                     {"engine_step_gain_foretold", usual->predicted_ms() / engine->predicted_ms() - 1},
                     {"processor_use", use},
                     {"believable", use <= kMostPacedUse}});
    found["paced"] = cases;
    bench::so_far(found.dump(options.json ? -1 : 2));
  }
  return cases;
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.flag("--real", options.real);
  arguments.flag("--paced", options.paced);
  arguments.number("--rounds", options.rounds);
  arguments.number("--megabytes", options.megabytes);
  arguments.number("--pause", options.pause_ms);
  arguments.number("--share", options.share);
  arguments.number("--stretch", options.stretch, 1);
  arguments.read();
  const bool both = !options.real && !options.paced;
  Json found;
  if (options.real || both) {
    found["real"] = real(options, options.pause_ms * 1e-3);
    so_far(found.dump(options.json ? -1 : 2));
    found["real_without_pause"] = real(options, 0);
    so_far(found.dump(options.json ? -1 : 2));
  }
  if (options.paced || both) found["paced"] = paced(options, found);
  fmt::print("{}\n", found.dump(options.json ? -1 : 2));
  return 0;
}

}  // namespace heddle
