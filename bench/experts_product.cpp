// The experts' product on the CPU, three ways: grouped, batched and one after the other, at equal rows.
//
//   bench_experts_product [--json] [--rounds 10] [--only SUBSTRING]
//   bench_experts_product --paced [--json] [--rounds 10]
//
// `--paced`: a device's launches on the engine's stream. A product lasts, asleep, as long as search prices it on
// that device (cost::product_s: tiles, waves, bytes), and the host spends the device's time of issue on each
// launch. 32 experts of DeepSeek-V3 in one launch, as even as a capacity makes them, or a launch for each.
//
// The ways take turns; ratios are medians of the turns' own ratios, for clocks of shared machines wander. Weights
// are packed where the engine packs. `chosen` is what moe.product = "auto" takes of equal groups where nothing else
// is configured: batched. Shapes are those of a rank: few of V2-Lite's and V3's experts, whole widths.

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
#include "heddle/cost/accelerator.h"
#include "heddle/cost/device_time.h"
#include "heddle/device/host/host_stream.h"
#include "heddle/kernels/host/gemm/gemm.h"
#include "tests/support/paced_kernel.h"
#include "tests/support/paced_time.h"

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

// The products of a rank's experts of a layer, forward and backward, on a device that is stated.
struct PacedProducts {
  const char* device;
  double serial_s = 0, batched_s = 0, processor_use = 0;
};
PacedProducts paced(const char* name, int rounds) {
  const cost::Accelerator& device = *cost::accelerator_named(name);
  constexpr int kExperts = 32;
  constexpr double kRows = 4096.0 * 8 / kExperts, kWidth = 2048, kHidden = 7168;  // of DeepSeek-V3 at ep 8
  struct Dims {
    double m, n, k;
  };
  std::vector<Dims> products;
  for (const auto& [n, k] : {std::pair{2 * kWidth, kHidden}, {kHidden, kWidth}})
    products.insert(products.end(), {{kRows, n, k}, {kRows, k, n}, {n, k, kRows}});
  const PacedTimer timer;
  const auto measured = [&](int experts) {
    std::vector<PacedKernel> kernels(products.size());
    for (size_t i = 0; i < kernels.size(); ++i) {
      const Dims& d = products[i];
      kernels[i].pace_ns =
          static_cast<int64_t>(1e9 * cost::product_s(device, cost::Precision::bf16, d.m, d.n, d.k, experts));
    }
    device::HostStream stream("products", 1);
    std::vector<double> took_s;
    for (int round = 0; round <= rounds; ++round) {
      const double began_s = now_s();
      for (PacedKernel& kernel : kernels) {
        for (int e = 0; e < kExperts / experts; ++e) {
          const double issued_s = now_s() + 1e-6 * device.host_us;
          while (now_s() < issued_s) continue;
          device::Launch launch;
          launch.run = [](const device::KernelCall&) {};
          kernel.put_around(launch);
          stream.launch(launch);
        }
      }
      stream.synchronize(0);
      if (round > 0) took_s.push_back(now_s() - began_s);
    }
    return median(took_s);
  };
  PacedProducts of{name};
  of.serial_s = measured(1);
  of.batched_s = measured(kExperts);
  of.processor_use = timer.elapsed().processor_use();
  return of;
}

void tell_paced(bool json, int rounds) {
  const char* comma = "";
  if (json) fmt::print("{{\"rows\": [");
  for (const char* name : {"C500", "Ascend-910B", "H100"}) {
    const PacedProducts of = paced(name, rounds);
    const double gain = of.serial_s / of.batched_s - 1;
    if (json) {
      fmt::print(
          "{}\n {{\"device\": \"{}\", \"serial_ms\": {:.3f}, \"batched_ms\": {:.3f}, \"gain\": {:.4f}, "
          "\"processor_use\": {:.3f}}}",
          comma, of.device, 1e3 * of.serial_s, 1e3 * of.batched_s, gain, of.processor_use);
    } else {
      fmt::print("{:12} a launch for each {:.3f} ms  one launch {:.3f} ms  gain {:.4f}  {:.3f} of the cores\n",
                 of.device, 1e3 * of.serial_s, 1e3 * of.batched_s, gain, of.processor_use);
    }
    comma = ",";
  }
  if (json) fmt::print("]}}\n");
}

template <class Run>
double seconds_of(const Run& run) {
  run();  // what another way has left in the caches counts for none
  const double began = now_s();
  run();
  return now_s() - began;
}

}  // namespace

int run(Arguments& arguments) {
  bool json = false, is_paced = false;
  int rounds = 10;
  std::string only;
  arguments.flag("--json", json);
  arguments.flag("--paced", is_paced);
  arguments.number("--rounds", rounds);
  arguments.word("--only", "SUBSTRING", only);
  arguments.read();
  if (is_paced) {
    tell_paced(json, rounds);
    return 0;
  }
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
