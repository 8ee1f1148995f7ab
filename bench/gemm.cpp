// Matrix products of the CPU backend beside oneDNN's matmul, on shapes of dense layers and of experts.
//
//   bench_gemm [--json] [--repeats 21] [--only SUBSTRING] [--cpu-time]
//
// Where fp32 runs on bf16 tiles (amx-bf16x3), the best engine of fp32 multiply-adds takes its turn too: "native".
// Clocks of shared machines wander, so ours, oneDNN's and a roof probe (independent multiply-adds from registers:
// for bf16 AMX tiles or dot products of pairs, where there are any, else fp32 vectors) take turns and medians are
// printed; compare within a row only. oneDNN gets its best case: primitives made beforehand, weights in its own
// format, an exact primitive for each group. Weight gradients are added to (its post-op sum). --cpu-time counts the
// process's time on a core instead of the wall's, for a machine that others load too; it means something with
// OMP_NUM_THREADS=1. Results are checked against each other before any time is taken.
#include "heddle/kernels/host/gemm/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/kernels/host/cpu_features.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {
using namespace heddle;
using namespace heddle::kernels::host;

struct Buffer {
  explicit Buffer(int64_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64)))) {
    std::memset(data, 0, static_cast<size_t>(bytes));
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(data); }
  std::byte* data;
};

struct Shape {
  std::string name;
  std::vector<int32_t> offsets;
  int64_t n, k;
  int64_t experts() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t rows() const { return offsets.back(); }
  double flops() const {
    return 2.0 * static_cast<double>(rows()) * static_cast<double>(n) * static_cast<double>(k);
  }
};

Shape dense(int32_t t, int64_t n, int64_t k) { return {fmt::format("{}x{}x{}", t, n, k), {0, t}, n, k}; }

/// Rows fall on experts as tokens do: unevenly, some experts with few.
Shape grouped(int32_t rows, int experts, int64_t n, int64_t k) {
  std::mt19937 random(7);
  std::vector<double> popularity(static_cast<size_t>(experts));
  for (double& p : popularity) p = std::exp(std::normal_distribution<double>(0, 0.5)(random));
  std::discrete_distribution<int> pick(popularity.begin(), popularity.end());
  std::vector<int32_t> offsets(static_cast<size_t>(experts) + 1);
  for (int32_t r = 0; r < rows; ++r) ++offsets[static_cast<size_t>(pick(random)) + 1];
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  return {fmt::format("E{} {}x{}x{}", experts, rows, n, k), offsets, n, k};
}

void fill(std::byte* to, Dtype dtype, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < count; ++i) {
    const bf16 value(uniform(random));
    if (dtype == Dtype::bf16) {
      reinterpret_cast<bf16*>(to)[i] = value;
    } else {
      reinterpret_cast<float*>(to)[i] = static_cast<float>(value);
    }
  }
}

bool cpu_time = false;

double seconds() {
  if (cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return now_s();
}

#if defined(__x86_64__)
[[gnu::target("amx-tile,amx-bf16")]] double amx_probe_flops(int64_t turns) {
  struct alignas(64) Config {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 8; ++i) config.bytes[i] = 64, config.rows[i] = 16;
  asm volatile("" ::"r"(&config) : "memory");  // GCC 12's intrinsic claims to read 8 bytes only
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < turns; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(turns) * 4 * 2 * 16 * 16 * 32;
}

// Twelve chains: two units of up to six cycles.
#define HEDDLE_PROBE(VECTOR, SET, INSTRUCTION)                                                               \
  const VECTOR factor = SET(1e-3f);                                                                          \
  VECTOR a = factor, b = factor, c = factor, d = factor, e = factor, f = factor;                             \
  VECTOR g = factor, h = factor, i = factor, j = factor, k = factor, l = factor;                             \
  for (int64_t turn = 0; turn < turns; ++turn) {                                                             \
    asm volatile(INSTRUCTION                                                                                 \
                 " %12, %12, %0\n" INSTRUCTION " %12, %12, %1\n" INSTRUCTION " %12, %12, %2\n" INSTRUCTION   \
                 " %12, %12, %3\n" INSTRUCTION " %12, %12, %4\n" INSTRUCTION " %12, %12, %5\n" INSTRUCTION   \
                 " %12, %12, %6\n" INSTRUCTION " %12, %12, %7\n" INSTRUCTION " %12, %12, %8\n" INSTRUCTION   \
                 " %12, %12, %9\n" INSTRUCTION " %12, %12, %10\n" INSTRUCTION " %12, %12, %11\n"             \
                 : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j), \
                   "+v"(k), "+v"(l)                                                                          \
                 : "v"(factor));                                                                             \
  }

[[gnu::target("avx2,fma")]] double avx2_probe_flops(int64_t turns) {
  HEDDLE_PROBE(__m256, _mm256_set1_ps, "vfmadd231ps")
  return static_cast<double>(turns) * 12 * 2 * 8;
}
[[gnu::target("avx512f")]] double avx512_probe_flops(int64_t turns) {
  HEDDLE_PROBE(__m512, _mm512_set1_ps, "vfmadd231ps")
  return static_cast<double>(turns) * 12 * 2 * 16;
}
[[gnu::target("avx512f,avx512bf16")]] double avx512_bf16_probe_flops(int64_t turns) {
  HEDDLE_PROBE(__m512, _mm512_set1_ps, "vdpbf16ps")
  return static_cast<double>(turns) * 12 * 2 * 32;
}
#endif

/// FLOP/s of the arithmetic units alone, all threads; 0 where there is no probe.
double roof(Dtype dtype) {
  double total = 0;
#if defined(__x86_64__)
  const bool tiles = dtype == Dtype::bf16 && amx_bf16(), pairs = dtype == Dtype::bf16 && avx512_bf16();
  if (!avx2_fma()) return 0;
  const double begin = seconds();
#pragma omp parallel reduction(+ : total)
  total += tiles      ? amx_probe_flops(10000)
           : pairs    ? avx512_bf16_probe_flops(400000)
           : avx512() ? avx512_probe_flops(400000)
                      : avx2_probe_flops(400000);
  total /= seconds() - begin;
#endif
  (void)dtype;
  return total;
}

enum class Product { forward, dgrad, wgrad };
constexpr const char* kNames[] = {"forward", "dgrad", "wgrad"};

/// oneDNN's matmul, one primitive a group.
class OneDnn {
 public:
  OneDnn(const Shape& shape, Dtype dtype, Product product, std::byte* x, std::byte* w, std::byte* dy,
         std::byte* out)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    using tag = memory::format_tag;
    const auto type = dtype == Dtype::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const int64_t bytes = size_of(dtype), n = shape.n, k = shape.k;
    for (int64_t e = 0; e < shape.experts(); ++e) {
      const int64_t first = shape.offsets[static_cast<size_t>(e)];
      const int64_t rows = shape.offsets[static_cast<size_t>(e) + 1] - first;
      if (rows == 0) continue;
      memory::desc left, right, result, right_plain;
      std::byte *left_at, *right_at, *result_at;
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      if (product == Product::wgrad) {
        left = {{n, rows}, type, tag::ba};
        right = right_plain = {{rows, k}, type, tag::ab};
        result = {{n, k}, memory::data_type::f32, tag::ab};
        left_at = dy + first * n * bytes;
        right_at = x + first * k * bytes;
        result_at = out + e * n * k * 4;
        dnnl::post_ops add;
        add.append_sum(1.0f);
        attr.set_post_ops(add);
      } else {
        const bool forward = product == Product::forward;
        const int64_t depth = forward ? k : n, columns = forward ? n : k;
        left = {{rows, depth}, type, tag::ab};
        right = {{depth, columns}, type, tag::any};
        right_plain = {{depth, columns}, type, forward ? tag::ba : tag::ab};
        result = {{rows, columns}, type, tag::ab};
        left_at = (forward ? x : dy) + first * depth * bytes;
        right_at = w + e * n * k * bytes;
        result_at = out + first * columns * bytes;
      }
      const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(left, right, result), attr, engine_);
      memory right_memory(right_plain, engine_, right_at);
      if (description.weights_desc() != right_plain) {
        memory own(description.weights_desc(), engine_);
        dnnl::reorder(right_memory, own).execute(stream_, right_memory, own);
        right_memory = own;
      }
      calls_.push_back({dnnl::matmul(description),
                        {{DNNL_ARG_SRC, memory(left, engine_, left_at)},
                         {DNNL_ARG_WEIGHTS, right_memory},
                         {DNNL_ARG_DST, memory(result, engine_, result_at)},
                         {DNNL_ARG_SCRATCHPAD, memory(description.scratchpad_desc(), engine_)}}});
    }
    stream_.wait();
  }
  void run() {
    for (auto& call : calls_) call.primitive.execute(stream_, call.arguments);
    stream_.wait();
  }

 private:
  struct Call {
    dnnl::matmul primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Call> calls_;
};

struct Line {
  std::string shape, product, dtype, engine;
  double ours;          // GFLOP/s
  double onednn;        // 0: it has no such product on this processor
  double roof, native;  // native 0: not measured
};

Line measure(const Shape& shape, Dtype dtype, Product product, int repeats) {
  const int64_t n = shape.n, k = shape.k, rows = shape.rows(), experts = shape.experts(), bytes = size_of(dtype);
  Buffer x(rows * k * bytes), dy(rows * n * bytes), w(experts * n * k * bytes), master(experts * n * k * 4);
  const bool split = best_engine(dtype) == Engine::amx_bf16x3;
  const Engine native = avx512() ? Engine::avx512 : Engine::highway;
  Buffer packed(packed_bytes(dtype, experts, n, k)), scratch(gemm_scratch_bytes(experts));
  Buffer native_packed(split ? packed_bytes(dtype, experts, n, k, native) : 0);
  fill(x.data, dtype, rows * k, 1);
  fill(dy.data, dtype, rows * n, 2);
  fill(w.data, dtype, experts * n * k, 3);
  fill(master.data, Dtype::f32, experts * n * k, 3);
  const auto packs = [&](Engine engine) { return packed_bytes(dtype, 1, n, k, engine) > 0; };
  if (packs(Engine::best)) pack_weights(dtype, master.data, Dtype::f32, experts, n, k, packed.data);
  if (split) {
    pack_weights(dtype, master.data, Dtype::f32, experts, n, k, native_packed.data, native);
  }
  const Dtype out_dtype = product == Product::wgrad ? Dtype::f32 : dtype;
  const int64_t out_count = product == Product::forward ? rows * n
                            : product == Product::dgrad ? rows * k
                                                        : experts * n * k;
  Buffer out(out_count * 4), other(out_count * 4);
  const RowGroups groups{std::span(shape.offsets)};
  const Scratch memory{scratch.data, gemm_scratch_bytes(experts)};
  const auto run = [&](Engine engine, const Buffer& panels) {
    const Weights weights{packs(engine) ? panels.data : w.data, dtype, packs(engine)};
    if (product == Product::forward) {
      linear_forward({.groups = groups,
                      .n = n,
                      .k = k,
                      .x = {x.data, dtype},
                      .w = weights,
                      .y = {out.data, dtype},
                      .scratch = memory,
                      .engine = engine});
    } else if (product == Product::dgrad) {
      linear_dgrad({.groups = groups,
                    .n = n,
                    .k = k,
                    .dy = {dy.data, dtype},
                    .w = weights,
                    .dx = {out.data, dtype},
                    .scratch = memory,
                    .engine = engine});
    } else {
      linear_wgrad({.groups = groups,
                    .n = n,
                    .k = k,
                    .dy = {dy.data, dtype},
                    .x = {x.data, dtype},
                    .dw = reinterpret_cast<float*>(out.data),
                    .scratch = memory,
                    .engine = engine});
    }
  };
  const auto ours = [&] { run(Engine::best, packed); };
  std::optional<OneDnn> onednn;
  try {
    onednn.emplace(shape, dtype, product, x.data, w.data, dy.data, other.data);
  } catch (const dnnl::error& error) {  // without AVX-512 it has no products of bf16
    if (error.status != dnnl_unimplemented) throw;
  }

  ours();
  if (onednn) onednn->run();
  double worst = 0;
  for (int64_t i = 0; onednn && i < out_count; ++i) {
    const auto at = [&](const Buffer& b) -> double {
      if (out_dtype == Dtype::bf16) return reinterpret_cast<const bf16*>(b.data)[i];
      return reinterpret_cast<const float*>(b.data)[i];
    };
    worst = std::max(worst, std::abs(at(out) - at(other)));
  }
  const double depth = static_cast<double>(product == Product::forward ? k : product == Product::dgrad ? n : rows);
  if (!(worst <= std::sqrt(depth) * 0.05)) {
    std::fprintf(stderr, "%s %s: results differ by %g\n", shape.name.c_str(), kNames[int(product)], worst);
    std::exit(1);
  }

  // Short products are repeated within a turn, so that a turn is long against the clock.
  const int inner = static_cast<int>(std::clamp(2e9 / std::max(1.0, shape.flops()), 1.0, 50.0));
  std::vector<double> our_times, native_times, onednn_times, roofs;
  for (int r = 0; r < repeats; ++r) {
    double begin = seconds();
    for (int i = 0; i < inner; ++i) ours();
    our_times.push_back((seconds() - begin) / inner);
    begin = seconds();
    for (int i = 0; i < inner && split; ++i) run(native, native_packed);
    native_times.push_back((seconds() - begin) / inner);
    begin = seconds();
    for (int i = 0; i < inner && onednn; ++i) onednn->run();
    onednn_times.push_back((seconds() - begin) / inner);
    roofs.push_back(roof(dtype));
  }
  return {shape.name,
          kNames[int(product)],
          std::string(name_of(dtype)),
          std::string(name_of(best_engine(dtype))),
          shape.flops() / median(our_times) * 1e-9,
          onednn ? shape.flops() / median(onednn_times) * 1e-9 : 0,
          median(roofs) * 1e-9,
          split ? shape.flops() / median(native_times) * 1e-9 : 0};
}

}  // namespace

int heddle::bench::run(Arguments& arguments) {
  bool json = false;
  int repeats = 21;
  std::string only;
  arguments.flag("--json", json);
  arguments.flag("--cpu-time", cpu_time);
  arguments.number("--repeats", repeats);
  arguments.word("--only", "SUBSTRING", only);
  arguments.read();
  const std::vector<Shape> shapes = {
      dense(1024, 1024, 1024),     dense(4096, 512, 512),       dense(2048, 1536, 512),
      dense(2048, 512, 1536),      dense(4096, 8192, 512),      dense(2048, 256, 256),
      grouped(8192, 32, 512, 512), grouped(8192, 32, 256, 512), grouped(4096, 64, 128, 256),
  };
  std::vector<double> ratios;
  if (json) std::printf("["), so_far("\n]");
  if (!json) {
    std::printf("GFLOP/s, %d threads, medians of %d\n%-5s %-8s %-20s %8s %8s %8s %8s %8s %8s\n",
                omp_get_max_threads(), repeats, "type", "product", "T x N x K", "heddle", "oneDNN", "ratio", "roof",
                "of roof", "native");
  }
  bool first = true;
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    for (const Product product : {Product::forward, Product::dgrad, Product::wgrad}) {
      for (const Shape& shape : shapes) {
        const std::string title = fmt::format("{} {} {}", name_of(dtype), kNames[int(product)], shape.name);
        if (title.find(only) == std::string::npos) continue;
        const Line line = measure(shape, dtype, product, repeats);
        if (line.onednn > 0) ratios.push_back(std::log(line.ours / line.onednn));
        if (json) {
          std::printf(
              "%s\n  {\"dtype\": \"%s\", \"product\": \"%s\", \"shape\": \"%s\", \"engine\": \"%s\", "
              "\"threads\": %d, \"heddle_gflops\": %.1f, \"onednn_gflops\": %.1f, \"roof_gflops\": %.1f, "
              "\"native_gflops\": %.1f}",
              first ? "" : ",", line.dtype.c_str(), line.product.c_str(), line.shape.c_str(), line.engine.c_str(),
              omp_get_max_threads(), line.ours, line.onednn, line.roof, line.native);
        } else {
          const auto or_none = [](double value, int digits, bool there) {
            return there ? fmt::format("{:.{}f}", value, digits) : std::string("-");
          };
          std::printf("%-5s %-8s %-20s %8.0f %8s %8s %8.0f %7.0f%% %8s\n", line.dtype.c_str(), line.product.c_str(),
                      line.shape.c_str(), line.ours, or_none(line.onednn, 0, line.onednn > 0).c_str(),
                      or_none(line.ours / line.onednn, 2, line.onednn > 0).c_str(), line.roof,
                      100 * line.ours / std::max(1.0, line.roof), or_none(line.native, 0, line.native > 0).c_str());
          std::fflush(stdout);
        }
        first = false;
      }
    }
  }
  if (json) {
    std::printf("\n]\n");
  } else if (!ratios.empty()) {
    std::printf("geometric mean of the ratio: %.2f\n",
                std::exp(std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size())));
  }
  return 0;
}
