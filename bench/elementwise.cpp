// The CPU kernels that stream through memory, as a share of the bandwidth of a plain copy.
//
//   bench_elementwise [--json] [--repeats 15] [--only SUBSTRING] [--dtype bf16|f32] [--cpu-time]
//
// Each op runs at two sizes: 4096 tokens, beyond the caches of a core, and 128 tokens, within them. A copy with as
// many bytes read and written, by as many threads, takes turns with it; medians are printed, and the share is the
// median of the pairs. Bytes are those that must move: every operand once, updates twice. --cpu-time counts the
// process's time on a core instead of the wall's, for a machine that others load too; it means something with
// OMP_NUM_THREADS=1.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/margin_bins.h"
#include "heddle/ops/ops.h"

namespace {
using namespace heddle;

bool cpu_time = false;

double seconds() {
  if (cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return now_s();
}
struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;
Bytes allocate(int64_t bytes) {
  Bytes memory(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))));
  std::memset(memory.get(), 0, static_cast<size_t>(bytes));
  return memory;
}

struct Operand {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;     // empty: absent
  std::vector<int32_t> integers;  // contents of an i32 operand
  double low = -1, high = 1;      // contents of a floating one
};

struct Case {
  std::string name, kind;
  std::vector<Operand> in, updates;
  ir::Attributes attributes;
  double bytes = 0;  // 0: as the op's definition says
};

/// A choice of k of E experts a token, sorted.
struct Routing {
  std::vector<int32_t> experts, row_of, token_of, offsets;
  Routing(int64_t T, int64_t k, int64_t E) : row_of(static_cast<size_t>(T * k)), token_of(row_of.size()) {
    std::mt19937 random(5);
    std::vector<int32_t> all(static_cast<size_t>(E));
    std::iota(all.begin(), all.end(), 0);
    for (int64_t t = 0; t < T; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      experts.insert(experts.end(), all.begin(), all.begin() + k);
      std::sort(experts.end() - k, experts.end());
    }
    std::vector<size_t> slots(experts.size());
    std::iota(slots.begin(), slots.end(), size_t{0});
    std::stable_sort(slots.begin(), slots.end(), [&](size_t a, size_t b) { return experts[a] < experts[b]; });
    offsets.resize(static_cast<size_t>(E) + 1);
    for (const int32_t e : experts) ++offsets[static_cast<size_t>(e) + 1];
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    for (size_t row = 0; row < slots.size(); ++row) {
      row_of[slots[row]] = static_cast<int32_t>(row);
      token_of[row] = static_cast<int32_t>(slots[row] / static_cast<size_t>(k));
    }
  }
};

std::vector<int32_t> random_ids(int64_t count, int64_t below) {
  std::mt19937 random(6);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(below));
  return ids;
}

std::vector<Case> cases(Dtype X, int64_t T) {
  const int64_t H = 1024, F = 2048, E = 64, k = 4, h = 16, n = 64, r = 32, v = 64, S = 1024, V = 16384;
  const int64_t loss_rows = T / 4, sequence = std::min(S, T);
  const auto x = [&](int64_t rows, int64_t columns) { return Operand{X, {rows, columns}}; };
  const auto wide = [](std::vector<int64_t> shape) { return Operand{Dtype::f32, std::move(shape)}; };
  const auto positive = [](std::vector<int64_t> shape) {
    return Operand{Dtype::f32, std::move(shape), {}, 0.5, 1};
  };
  const auto whole = [](std::vector<int64_t> shape, std::vector<int32_t> numbers) {
    return Operand{Dtype::i32, std::move(shape), std::move(numbers)};
  };
  const Routing routing(T, k, E);
  const Operand row_of = whole({T, k}, routing.row_of), token_of = whole({T * k}, routing.token_of);
  const Operand experts = whole({T, k}, routing.experts), table = wide({sequence, r});
  const ir::Attributes mla{{"heads", h},           {"nope", n},       {"rope", r}, {"value_dim", v},
                           {"sequence", sequence}, {"interleaved", 1}};
  const ir::Attributes choice{{"function", "sigmoid"}, {"top_k", k},     {"groups", 8}, {"top_groups", 4},
                              {"group_score_top", 2},  {"normalize", 1}, {"scale", 2.5}};
  const Operand ids = whole({T}, random_ids(T, V)), labels = whole({loss_rows}, random_ids(loss_rows, V));
  const int64_t weights = T * H;
  const Operand clip{Dtype::f64, {1}, {}, 1, 1}, hyper{Dtype::f64, {3}, {}, 0.1, 0.1};
  const double dx_bytes = static_cast<double>(T * H * size_of(X));
  return {
      {"rms_norm", "rms_norm", {x(T, H), wide({H})}, {}, {{"epsilon", 1e-6}}},
      {"add_rms_norm", "add_rms_norm", {x(T, H), x(T, H), wide({H})}, {}, {{"epsilon", 1e-6}}},
      {"rms_norm_dgrad", "rms_norm_dgrad", {x(T, H), x(T, H), wide({H}), positive({T}), x(T, H)}, {}, {}},
      {"add", "add", {x(T, H), x(T, H)}, {}, {}},
      {"concat", "concat", {x(T, H), x(T, 128)}, {}, {{"first", H}, {"second", 128}}},
      {"swiglu", "swiglu", {x(T, 2 * F)}, {}, {}},
      {"swiglu_dgrad", "swiglu_dgrad", {x(T, F), x(T, 2 * F)}, {}, {}},
      {"gelu", "gelu", {x(T, F)}, {}, {}},
      {"gelu_dgrad", "gelu_dgrad", {x(T, F), x(T, F)}, {}, {}},
      {"rope",
       "rope",
       {x(T, h * (n + r)), table},
       {},
       {{"heads", h},
        {"head_dim", n + r},
        {"rope_dim", r},
        {"sequence", sequence},
        {"interleaved", 1},
        {"inverse", 0}}},
      {"mla_rope", "mla_rope", {x(T, h * (n + r)), x(T, h * (n + v)), x(T, r), table}, {}, mla},
      {"mla_rope_dgrad", "mla_rope_dgrad", {x(T, h * (n + r)), x(T, h * (n + r)), x(T, h * v), table}, {}, mla},
      {"permute", "permute", {x(T, H), row_of, token_of, experts}, {}, {}},
      {"permute_dgrad", "permute_dgrad", {x(T * k, H), row_of, experts}, {}, {}},
      {"unpermute", "unpermute", {x(T * k, H), positive({T, k}), row_of, experts, x(T, H)}, {}, {}},
      {"unpermute_dgrad", "unpermute_dgrad", {x(T, H), x(T * k, H), positive({T, k}), row_of}, {}, {}},
      {"apply_capacity",
       "apply_capacity",
       {positive({T, k}), row_of, token_of, whole({E + 1}, routing.offsets)},
       {},
       {{"places", std::max<int64_t>(1, T * k * 3 / 4 / E)}, {"ranks", 1}, {"slices", 1}}},
      {"apply_capacity_dgrad", "apply_capacity_dgrad", {wide({T, k}), row_of}, {}, {}},
      {"count_dropped", "count_dropped", {row_of}, {Operand{Dtype::f64, {1}}}, {}},
      {"count_margins",
       "count_margins",
       {positive({T, E}), wide({E})},
       {Operand{Dtype::f64, {E, kMarginBins}}},
       {{"top_k", k}}},
      {"router", "router", {wide({T, E}), wide({E})}, {}, choice},
      {"router_dgrad", "router_dgrad", {wide({T, k}), {}, positive({T, E}), experts}, {}, choice},
      {"sequence_aux_loss",
       "sequence_aux_loss",
       {positive({T, E}), wide({1})},
       {},
       {{"top_k", k}, {"sequence", sequence}, {"alpha", 1e-4}, {"scale_index", 0}}},
      {"embedding", "embedding", {ids, x(V, H)}, {}, {}, 2 * dx_bytes},
      {"embedding_wgrad",
       "embedding_wgrad",
       {x(T, H), ids},
       {wide({V, H})},
       {},
       dx_bytes + static_cast<double>(T * H * 8)},
      {"cross_entropy", "cross_entropy", {x(loss_rows, V), labels, wide({1})}, {}, {{"scale_index", 0}}},
      {"cross_entropy_dgrad",
       "cross_entropy_dgrad",
       {x(loss_rows, V), labels, {Dtype::f32, {loss_rows}, {}, 10, 10}, wide({1})},
       {},
       {{"scale_index", 0}}},
      {"grad_square_sum", "grad_square_sum", {wide({weights})}, {}, {}},
      {"adamw",
       "adamw",
       {clip, hyper, wide({weights})},
       {wide({weights}), wide({weights}), positive({weights}), Operand{X, {weights}}},
       {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", 1}}},
      {"cast_weight", "cast_weight", {wide({weights})}, {Operand{X, {weights}}}, {}},
  };
}

/// A case with memory, ready to run.
class Ready {
 public:
  explicit Ready(const Case& c) {
    ir::Op op;
    op.def = &ops::find(c.kind);
    op.attributes = c.attributes;
    for (const Operand& operand : c.in) op.in.push_back(add(operand, ir::Role::activation));
    for (const Operand& operand : c.updates) op.updates.push_back(add(operand, ir::Role::accumulator));
    std::vector<std::string> names(op.def->infer(stage_, op).size(), "out");
    const std::vector<ir::ValueId> out = stage_.append(std::move(op), names);
    const ir::FixedRows rows;
    for (const ir::ValueId id : out) views_[0].push_back(view(id, ir::none));
    for (const ir::ValueId id : appended().in)
      views_[1].push_back(id == ir::none ? device::TensorView{} : view(id, id));
    for (const ir::ValueId id : appended().updates) views_[2].push_back(view(id, id));
    kernel_ = &backends::named("host").select_kernel(stage_, appended());
    const int64_t scratch = kernel_->scratch_bytes ? kernel_->scratch_bytes(stage_, appended(), rows) : 0;
    memory_.push_back(allocate(scratch));
    scratch_ = memory_.back().get();
    bytes_ = c.bytes > 0 ? c.bytes : appended().def->cost(stage_, appended(), rows).bytes;
  }
  void run() const {
    kernel_->run({.op = &appended(), .in = views_[1], .out = views_[0], .updates = views_[2], .scratch = scratch_});
  }
  double bytes() const { return bytes_; }
  std::string kernel() const { return fmt::format("{}.{}", kernel_->backend, kernel_->name); }

 private:
  const ir::Op& appended() const { return stage_.ops.back(); }

  ir::ValueId add(const Operand& operand, ir::Role role) {
    if (operand.shape.empty()) return ir::none;
    ir::Value value{.name = fmt::format("value{}", stage_.values.size()), .dtype = operand.dtype, .role = role};
    for (const int64_t dim : operand.shape) value.shape.push_back({dim, ir::none});
    const ir::ValueId id = stage_.add_value(std::move(value));
    const int64_t count = stage_.elements(id, ir::FixedRows());
    memory_.push_back(allocate(count * size_of(operand.dtype)));
    filled_.resize(static_cast<size_t>(id) + 1);
    filled_[static_cast<size_t>(id)] = memory_.back().get();
    std::mt19937 random(static_cast<unsigned>(id) + 1);
    std::uniform_real_distribution<float> uniform(0, 1);
    std::byte* to = memory_.back().get();
    for (int64_t i = 0; i < count; ++i) {
      const double number = operand.low + (operand.high - operand.low) * uniform(random);
      switch (operand.dtype) {
        case Dtype::f64: reinterpret_cast<double*>(to)[i] = number; break;
        case Dtype::f32: reinterpret_cast<float*>(to)[i] = static_cast<float>(number); break;
        case Dtype::bf16: reinterpret_cast<bf16*>(to)[i] = bf16(static_cast<float>(number)); break;
        default: reinterpret_cast<int32_t*>(to)[i] = operand.integers[static_cast<size_t>(i)];
      }
    }
    return id;
  }

  device::TensorView view(ir::ValueId id, ir::ValueId filled) {
    const ir::Value& value = stage_.value(id);
    device::TensorView v{.dtype = value.dtype};
    if (filled == ir::none) {
      memory_.push_back(allocate(stage_.bytes(id, ir::FixedRows())));
      v.data = memory_.back().get();
    } else {
      v.data = filled_[static_cast<size_t>(filled)];
    }
    v.rank = static_cast<int8_t>(value.shape.size());
    for (size_t i = 0; i < value.shape.size(); ++i) v.dims[i] = value.shape[i].count;
    return v;
  }

  ir::Listing stage_;
  std::vector<Bytes> memory_;
  std::vector<std::byte*> filled_;
  std::vector<device::TensorView> views_[3];  // out, in, updates
  const kernels::KernelEntry* kernel_ = nullptr;
  std::byte* scratch_ = nullptr;
  double bytes_ = 0;
};

/// Reads and writes half of `bytes` each, all threads.
class Copy {
 public:
  explicit Copy(double bytes)
      : half_(static_cast<int64_t>(bytes / 2)), from_(allocate(half_)), to_(allocate(half_)) {}
  void run() const {
    const int64_t threads = half_ < (64 << 10) ? 1 : omp_get_max_threads();
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t begin = half_ * i / threads, end = half_ * (i + 1) / threads;
      std::memcpy(to_.get() + begin, from_.get() + begin, static_cast<size_t>(end - begin));
    }
  }

 private:
  int64_t half_;
  Bytes from_, to_;
};

struct Line {
  double gb_per_s, copy_gb_per_s, share, us;
};

Line measure(const Ready& ready, int repeats) {
  const Copy copy(ready.bytes());
  ready.run();
  copy.run();
  // A turn is long against the clock.
  const int inner = static_cast<int>(std::clamp(5e7 / ready.bytes(), 1.0, 500.0));
  const auto time = [&](const auto& what) {
    const double begin = seconds();
    for (int i = 0; i < inner; ++i) what.run();
    return (seconds() - begin) / inner;
  };
  std::vector<double> ours, copies, shares;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    ours.push_back(time(ready));
    copies.push_back(time(copy));
    shares.push_back(copies.back() / ours.back());
  }
  const double us = median(ours);
  return {ready.bytes() / us * 1e-9, ready.bytes() / median(copies) * 1e-9, median(shares), us * 1e6};
}

}  // namespace

int heddle::bench::run(Arguments& arguments) {
  bool json = false;
  int repeats = 15;
  std::string only;
  Dtype dtype = Dtype::bf16;
  arguments.flag("--json", json);
  arguments.flag("--cpu-time", cpu_time);
  arguments.number("--repeats", repeats);
  arguments.word("--only", "SUBSTRING", only);
  arguments.dtype("--dtype", dtype);
  arguments.read();
  if (!json) {
    std::printf("%s, %d threads, medians of %d\n%-20s %6s %9s %9s %8s %8s %8s\n",
                std::string(name_of(dtype)).c_str(), omp_get_max_threads(), repeats, "op", "tokens", "MB", "us",
                "GB/s", "copy", "share");
  }
  const char* separator = "[";
  if (json) so_far("[]");
  for (const int64_t T : {int64_t{4096}, int64_t{128}}) {
    for (const Case& c : cases(dtype, T)) {
      if (c.name.find(only) == std::string::npos) continue;
      const Ready ready(c);
      const Line line = measure(ready, repeats);
      if (json) {
        std::printf(
            "%s\n  {\"op\": \"%s\", \"kernel\": \"%s\", \"dtype\": \"%s\", \"tokens\": %lld, \"threads\": %d, "
            "\"bytes\": %.0f, \"us\": %.2f, \"gb_per_s\": %.2f, \"copy_gb_per_s\": %.2f, \"share\": %.3f}",
            separator, c.name.c_str(), ready.kernel().c_str(), std::string(name_of(dtype)).c_str(),
            static_cast<long long>(T), omp_get_max_threads(), ready.bytes(), line.us, line.gb_per_s,
            line.copy_gb_per_s, line.share);
        separator = ",";
        so_far("\n]");
      } else {
        std::printf("%-20s %6lld %9.2f %9.1f %8.1f %8.1f %7.0f%%\n", c.name.c_str(), static_cast<long long>(T),
                    ready.bytes() * 1e-6, line.us, line.gb_per_s, line.copy_gb_per_s, 100 * line.share);
        std::fflush(stdout);
      }
    }
  }
  if (json) std::printf("%s]\n", *separator == '[' ? "[" : "\n");
  return 0;
}
