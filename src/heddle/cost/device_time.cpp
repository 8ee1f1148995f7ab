#include "heddle/cost/device_time.h"

#include <algorithm>
#include <cmath>

namespace heddle::cost {

namespace {

const Sustained& of_family(Family family) {
  static const Sustained ampere{0.88, 0.88, 0.88, 0.88, 0.9, 0.85, 128, 256, 685, 93.8};
  static const Sustained hopper{0.75, 0.9, 0.9, 0.8, 0.62, 0.85, 128, 256, 1500, 317, 2500};
  // BF16 on B200: SimuMax 1.2 measured 0.39 to 0.66 of the peak on the products of Llama-3-70B at four tensor
  // degrees, and takes 0.49 for others (configs/system/b200_bf16_ceperm.json).
  static const Sustained blackwell{0.52, 0.5, 0.48, 0.41, 0.7, 0.85, 256, 256, 56.7, 0};
  static const Sustained ascend{0.66, 0.66, 0.66, 0.66, 0.42, 0.6, 128, 256, 400};
  // hipBLASLt on MI300X and MI355X: 51 to 60 % and 52 to 65 % of the peak; FP8 71 %. Flash attention on MI355X: 730
  // TFLOP/s forward and 210 backward.
  static const Sustained cdna3{0.55, 0.5, 0.5, 0.4, 0.4, 0.8, 256, 256, 400, 0, 700, 6};
  // Gaudi 2 reaches 99 % of its peak on the largest products (stas00/ml-engineering, table of achievable FLOPS).
  // Softmax runs on the vector cores beside. Of Gaudi 3 Intel prints their rate, 28.7 of 1,835 TFLOP/s in BF16 (Hot
  // Chips 2024). Of Gaudi 2 it follows from 24 cores of 2,048 bits (TPC User Guide), two operations a lane and an
  // assumed 1.8 GHz: 11 of 432. How much of it attention needs is an assumption.
  static const Sustained gaudi{0.9, 0.8, 0.8, 0.8, 0.25, 0.8, 256, 256, 100};
  static const Sustained tpu{0.85, 0.6, 0.6, 0.6, 0.5, 0.85, 128, 128, 50};
  static const Sustained other{0.7, 0.65, 0.6, 0.55, 0.45, 0.75, 128, 256, 400};
  switch (family) {
    case Family::ampere: return ampere;
    case Family::hopper: return hopper;
    case Family::blackwell: return blackwell;
    case Family::ascend: return ascend;
    case Family::cdna3: return cdna3;
    case Family::gaudi: return gaudi;
    case Family::tpu: return tpu;
    case Family::other: break;
  }
  return other;
}

}  // namespace

Sustained sustained(const Accelerator& device) {
  Sustained s = of_family(device.family);
  // H20 has Hopper's power and memory for a seventh of its units: nothing throttles them.
  if (device.name == "H20")
    s.bf16 = 0.95, s.fp8 = s.mxfp8 = 0.95, s.attention = 0.75, s.half_k = 300, s.half_m = 60;
  // FP8 of hipBLASLt: MI300X 955 to 1,159 of 2,615 TFLOP/s, MI355X 3,564 of 5,033 where BF16 reaches 65 %.
  if (device.name == "MI300X" || device.name == "MI325X") s.fp8 = 0.43;
  if (device.name == "MI350X" || device.name == "MI355X") s.fp8 = 0.6;
  // B300 and GB300 have 1,400 W for the units of 1,000 and 1,200 W parts.
  if (device.name == "B300" || device.name == "GB300")
    s.fp8 *= 1.12, s.mxfp8 *= 1.12, s.bf16 *= 1.1, s.attention *= 1.3;
  return s;
}

double product_s(const Accelerator& a, Precision p, double m, double n, double k, double groups) {
  if (m <= 0 || n <= 0 || k <= 0 || groups <= 0) return 0;
  const Sustained s = sustained(a);
  const double fraction = p == Precision::nvfp4                             ? s.nvfp4
                          : p == Precision::fp8                             ? s.fp8
                          : p == Precision::mxfp8 || p == Precision::block8 ? s.mxfp8
                                                                            : s.bf16;
  // Two units share a 256-row tile on Blackwell: a wave holds half as many.
  const double slots = a.units * 128.0 * 256 / (s.tile_m * s.tile_n);
  // The library picks among tiles; smaller ones waste less at the edges and run at a lower rate.
  double best = 0;
  for (const double shrink : {1.0, 0.5}) {
    const double tiles = std::ceil(m / s.tile_m) * std::ceil(n / (s.tile_n * shrink)) * groups;
    const double whole = std::ceil(tiles / slots) * slots;
    const double useful = m * n * groups / (whole * s.tile_m * s.tile_n * shrink);
    best = std::max(best, useful * (shrink < 1 ? 0.88 : 1));
  }
  const double width = p == Precision::nvfp4 ? 0.5 : p == Precision::bf16 || p == Precision::fp16 ? 2 : 1;
  const double rate = a.flops(p) * fraction * best * k / (k + s.half_k / width * 2) * m / (m + s.half_m);
  const double bytes = groups * (width * (m * k + n * k) + 2 * m * n);
  return std::max(2 * m * n * k * groups / rate, bytes / (a.memory_bytes_per_s * s.memory));
}

double attention_s(const Accelerator& a, double flops, double keys, double head_dim) {
  if (flops <= 0) return 0;
  const Sustained s = sustained(a);
  // Short sequences leave the diagonal's half-empty tiles; narrow heads leave the product units waiting for
  // softmax.
  const double length = keys / (keys + s.half_keys), width = std::min(1.0, 0.4 + 0.6 * head_dim / 128);
  return flops / (a.bf16_flops * s.attention * length * width);
}

double traffic_s(const Accelerator& a, double bytes) {
  return bytes / (a.memory_bytes_per_s * sustained(a).memory);
}

}  // namespace heddle::cost
