// The experts' product on the CPU, three ways: grouped, batched and one after the other, at equal rows.
//
//   bench_experts_product [--json] [--rounds 10] [--only SUBSTRING]
//
// The ways take turns; ratios are medians of the turns' own ratios, for clocks of shared machines wander. Weights
// are packed where the engine packs. `chosen` is what moe.product = "auto" takes of equal groups where nothing else
// is configured: batched. Shapes are those of a rank: few of V2-Lite's and V3's experts, whole widths.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/kernels/host/gemm/gemm.h"

namespace heddle::bench {
namespace {

using namespace kernels::host;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;
/// Bytes that are small numbers in bf16 and fp32 alike.
Bytes filled(int64_t bytes) {
  Bytes memory(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))));
  auto* halves = reinterpret_cast<uint16_t*>(memory.get());
  for (int64_t i = 0; i < bytes / 2; ++i) halves[i] = static_cast<uint16_t>(0x3c00 + i * 40503 % 512);
  return memory;
}

struct Shape {
  const char* name;
  int64_t experts, rows, n, k;  // rows of each
};
constexpr Shape kShapes[] = {
    {"demo up", 16, 160, 512, 256},
    {"demo down", 16, 160, 256, 256},
    {"V2-Lite up, 32 rows", 8, 32, 2816, 2048},
    {"V2-Lite up", 8, 240, 2816, 2048},
    {"V2-Lite down", 8, 240, 2048, 1408},
    {"V2-Lite up, 600 rows", 4, 600, 2816, 2048},
    {"V3 up", 2, 160, 4096, 7168},
    {"V3 down", 2, 160, 7168, 2048},
};
enum Kind : int { forward, dgrad, wgrad };
constexpr const char* kKinds[] = {"forward", "input gradient", "weight gradient"};

class Product {
 public:
  Product(const Shape& s, Dtype dtype)
      : s_(s),
        dtype_(dtype),
        packed_(packed_bytes(dtype, s.experts, s.n, s.k) > 0),
        x_(filled(s.experts * s.rows * s.k * size_of(dtype))),
        dy_(filled(s.experts * s.rows * s.n * size_of(dtype))),
        y_(filled(s.experts * s.rows * std::max(s.n, s.k) * size_of(dtype))),
        w_(filled(s.experts * s.n * s.k * size_of(dtype))),
        dw_(filled(s.experts * s.n * s.k * 4)),
        scratch_(filled(gemm_scratch_bytes(s.experts))) {
    for (int64_t e = 0; e <= s.experts; ++e) offsets_.push_back(static_cast<int32_t>(e * s.rows));
    if (!packed_) return;
    Bytes form = filled(packed_bytes(dtype, s.experts, s.n, s.k));
    pack_weights(dtype, w_.get(), dtype, s.experts, s.n, s.k, form.get());
    w_ = std::move(form);
  }
  double flops() const {
    return 2.0 * static_cast<double>(s_.experts * s_.rows) * static_cast<double>(s_.n * s_.k);
  }
  void grouped(Kind kind) { run(kind, RowGroups(offsets_), 0); }
  void batched(Kind kind) { run(kind, RowGroups::equal(s_.experts, s_.rows), 0); }
  void serial(Kind kind) {
    for (int64_t e = 0; e < s_.experts; ++e) run(kind, RowGroups::one(s_.rows), e);
  }

 private:
  void run(Kind kind, const RowGroups& groups, int64_t expert) {
    const int64_t size = size_of(dtype_), row = expert * s_.rows, n = s_.n, k = s_.k;
    const int64_t each = packed_ ? packed_bytes(dtype_, 1, n, k) : n * k * size;
    const Weights w{w_.get() + expert * each, dtype_, packed_};
    const Rows x{x_.get() + row * k * size, dtype_}, dy{dy_.get() + row * n * size, dtype_};
    const Scratch scratch{scratch_.get(), gemm_scratch_bytes(s_.experts)};
    switch (kind) {
      case forward:
        return linear_forward({.groups = groups,
                               .n = n,
                               .k = k,
                               .x = x,
                               .w = w,
                               .y = {y_.get() + row * n * size, dtype_},
                               .scratch = scratch});
      case dgrad:
        return linear_dgrad({.groups = groups,
                             .n = n,
                             .k = k,
                             .dy = dy,
                             .w = w,
                             .dx = {y_.get() + row * k * size, dtype_},
                             .scratch = scratch});
      case wgrad:
        return linear_wgrad({.groups = groups,
                             .n = n,
                             .k = k,
                             .dy = dy,
                             .x = x,
                             .dw = reinterpret_cast<float*>(dw_.get()) + expert * n * k,
                             .overwrite = true,
                             .scratch = scratch});
    }
  }

  Shape s_;
  Dtype dtype_;
  bool packed_;
  Bytes x_, dy_, y_, w_, dw_, scratch_;
  std::vector<int32_t> offsets_;
};

template <class Run>
double seconds_of(const Run& run) {
  run();  // what another way has left in the caches counts for none
  const double began = now_s();
  run();
  return now_s() - began;
}

}  // namespace

int run(Arguments& arguments) {
  bool json = false;
  int rounds = 10;
  std::string only;
  arguments.flag("--json", json);
  arguments.number("--rounds", rounds);
  arguments.word("--only", "SUBSTRING", only);
  arguments.read();
  const char* comma = "";
  if (json) fmt::print("{{\"rows\": ["), so_far("]}");
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    for (const Shape& shape : kShapes) {
      if (std::string(shape.name).find(only) == std::string::npos) continue;
      Product product(shape, dtype);
      for (const Kind kind : {forward, dgrad, wgrad}) {
        std::vector<double> grouped_s, batched, serial, chosen_over_best;
        for (int round = 0; round <= rounds; ++round) {
          // In either order, as often.
          double g = 0, b = 0;
          const auto time_grouped = [&] { g = seconds_of([&] { product.grouped(kind); }); };
          const auto time_batched = [&] { b = seconds_of([&] { product.batched(kind); }); };
          if (round % 2 == 0)
            time_grouped(), time_batched();
          else
            time_batched(), time_grouped();
          const double s = seconds_of([&] { product.serial(kind); });
          if (round == 0) continue;
          grouped_s.push_back(g);
          batched.push_back(g / b);
          serial.push_back(s / g);
          chosen_over_best.push_back(b / std::min({g, b, s}));
        }
        const double rate = product.flops() / median(grouped_s) * 1e-9;
        if (json) {
          fmt::print(
              "{}\n {{\"shape\": \"{}\", \"product\": \"{}\", \"dtype\": \"{}\", \"grouped_gflops\": {:.0f}, "
              "\"batched_over_grouped\": {:.3f}, \"serial_over_grouped\": {:.3f}, \"chosen_over_best\": {:.3f}}}",
              comma, shape.name, kKinds[kind], name_of(dtype), rate, median(batched), median(serial),
              median(chosen_over_best));
        } else {
          fmt::print(
              "{:22} {:16} {:5} {:6.0f} GFLOP/s  batched_over_grouped {:.3f}  serial_over_grouped {:.3f}  "
              "chosen_over_best {:.3f}\n",
              shape.name, kKinds[kind], name_of(dtype), rate, median(batched), median(serial),
              median(chosen_over_best));
        }
        comma = ",";
      }
    }
  }
  if (json) fmt::print("]}}\n");
  return 0;
}

}  // namespace heddle::bench
