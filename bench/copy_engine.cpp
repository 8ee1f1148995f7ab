// What moving messages costs products that run beside it: by the copy engine (device.copy_engine), and by the usual
// transport, whose threads take turns with the products' on the same cores.
//
// Real: products of one thread on the cores that are left to computing, while two ranks as threads of this process
// exchange messages without pause by the engine; the same products with as many messages moved the usual way; and
// alone before and after each. Time is that of cores (bench/support/core_time.h), so that other programs count
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
//   build/bench_copy_engine [--json] [--rounds N] [--megabytes X] [--share X] [--stretch X] [--real] [--paced]
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/paced_ranks.h"
#include "bench/published_models.h"
#include "bench/support/core_time.h"
#include "bench/support/main.h"
#include "heddle/comm/engine/copy_core.h"
#include "heddle/comm/engine/engine_world.h"
#include "heddle/kernels/host/gemm/gemm.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool json = false, real = false, paced = false;
  int rounds = 9;
  double megabytes = 8;
  double share = 20.0 / 132;  // 16 to 24 of an H100's multiprocessors
  double stretch = 25;
};

/// Products of one thread, in a row.
class Products {
 public:
  Products() {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = value(i);
    std::vector<float> master(kN * kK);
    for (size_t i = 0; i < master.size(); ++i) master[i] = value(i + 11);
    const int64_t packed = kernels::host::packed_bytes(Dtype::f32, 1, kN, kK);
    w_.resize(static_cast<size_t>(std::max<int64_t>(packed, kN * kK * 4) / 4 + 16));
    at_ = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(w_.data()) + 63) / 64 * 64);
    if (packed > 0) {
      kernels::host::pack_weights(Dtype::f32, master.data(), Dtype::f32, 1, kN, kK, at_);
    } else {
      std::copy(master.begin(), master.end(), at_);
    }
  }
  void run() {
    kernels::host::linear_forward(
        {.groups = kernels::host::RowGroups::one(kT),
         .n = kN,
         .k = kK,
         .x = {x_.data(), Dtype::f32},
         .w = {at_, Dtype::f32, kernels::host::packed_bytes(Dtype::f32, 1, kN, kK) > 0},
         .y = {y_.data(), Dtype::f32},
         .scratch = {scratch_.data(), std::ssize(scratch_)}});
  }

 private:
  static constexpr int64_t kT = 1024, kN = 1024, kK = 1024;
  static float value(size_t i) { return static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64; }
  std::vector<float> x_ = std::vector<float>(kT * kK), y_ = std::vector<float>(kT * kN), w_;
  std::vector<std::byte> scratch_ =
      std::vector<std::byte>(static_cast<size_t>(kernels::host::gemm_scratch_bytes(1, 1)) + 64);
  float* at_ = nullptr;
};

struct Pass {
  double products_s = 0, callers_s = 0, wall_s = 0;
  int64_t messages = 0;
};

/// Two ranks that exchange messages while they are told to.
class Exchanges {
 public:
  Exchanges(comm::ThreadBoard& board, int64_t bytes) : bytes_(bytes) {
    for (int r = 0; r < 2; ++r) {
      threads_.emplace_back([this, &board, r] {
        const comm::OffCopyCore off;
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
          // Both stop at the same message: rank 0 says with each whether there is another.
          for (std::byte goes_on{1};; ++sent) {
            std::byte says{static_cast<unsigned char>(most_ > 0 ? sent < most_ : !stop_)};
            const std::vector<comm::Piece> told{{0, 0, 1}};
            std::vector<comm::Piece> tell;
            if (r == 0) tell = {{0, 0, 1}, {1, 0, 1}};
            usual->exchange(&says, tell, &goes_on, told);
            if (goes_on == std::byte{0}) break;
            const std::vector<comm::Piece> pieces{{1 - r, 0, bytes_}};
            by.exchange(from.data(), pieces, to.data(), pieces);
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

Json real(const Options& options) {
  if (const Support there = comm::copy_core_available(); !there) config_error("--real: {}", there.reason);
  comm::ThreadBoard board(2);
  const auto bytes = static_cast<int64_t>(options.megabytes * 1e6);
  Exchanges exchanges(board, bytes);
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
          {"message_MB", options.megabytes}};
}

Json paced(const Options& options) {
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
      return std::make_unique<bench::PacedRanks>(bench::layers_of_llama_2_70b(kTokens), plan, options.stretch, false);
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
                     {"engine_step_gain_foretold", usual->foretold_ms() / engine->foretold_ms() - 1},
                     {"processor_use", use},
                     {"believable", use <= device::kMostPacedUse}});
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
  arguments.number("--share", options.share);
  arguments.number("--stretch", options.stretch, 1);
  arguments.read();
  const bool both = !options.real && !options.paced;
  Json found;
  if (options.real || both) found["real"] = real(options);
  if (options.paced || both) found["paced"] = paced(options);
  fmt::print("{}\n", found.dump(options.json ? -1 : 2));
  return 0;
}

}  // namespace heddle
