#include "heddle/cost/device_time.h"

#include <algorithm>
#include <cmath>

namespace heddle::cost {

const Sustained& sustained(Family family) {
  static const Sustained ampere{0.88, 0.88, 0.88, 0.88, 0.9, 0.85, 128, 256, 685, 93.8};
  static const Sustained hopper{0.75, 0.9, 0.9, 0.8, 0.44, 0.85, 128, 256, 1500, 317};
  static const Sustained blackwell{0.78, 0.5, 0.48, 0.41, 0.7, 0.85, 256, 256, 56.7, 0};
  static const Sustained ascend{0.75, 0.75, 0.75, 0.75, 0.5, 0.75, 128, 256, 400};
  static const Sustained cdna3{0.55, 0.5, 0.5, 0.5, 0.4, 0.75, 256, 256, 400};
  static const Sustained other{0.7, 0.65, 0.6, 0.55, 0.45, 0.75, 128, 256, 400};
  switch (family) {
    case Family::ampere: return ampere;
    case Family::hopper: return hopper;
    case Family::blackwell: return blackwell;
    case Family::ascend: return ascend;
    case Family::cdna3: return cdna3;
    case Family::other: break;
  }
  return other;
}

double product_s(const Accelerator& a, Precision p, double m, double n, double k, double groups) {
  if (m <= 0 || n <= 0 || k <= 0 || groups <= 0) return 0;
  const Sustained& s = sustained(a.family);
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
  const Sustained& s = sustained(a.family);
  // Short sequences leave the diagonal's half-empty tiles; narrow heads leave the product units waiting for
  // softmax.
  const double length = keys / (keys + 700), width = std::min(1.0, 0.4 + 0.6 * head_dim / 128);
  return flops / (a.bf16_flops * s.attention * length * width);
}

double traffic_s(const Accelerator& a, double bytes) {
  return bytes / (a.memory_bytes_per_s * sustained(a.family).memory);
}

}  // namespace heddle::cost
