// Time of work on one accelerator: matrix products by shape, attention, and everything that only moves bytes.
#pragma once

#include "heddle/cost/accelerator.h"

namespace heddle::cost {

/// Parts of its rated peaks that a generation sustains on large work: power and issue limits, from published
/// library benchmarks. Calibration multiplies step times, so that only the ratios between them matter there.
struct Sustained {
  double bf16 = 0.8, fp8 = 0.7, mxfp8 = 0.65, nvfp4 = 0.6;
  double attention = 0.6;  // part of the BF16 peak, fused, forward, long sequences
  double memory = 0.8;     // part of the memory's rate, streaming
  double tile_m = 128, tile_n = 256;
  double half_k = 500;            // inner length at which half of the rate is lost to filling and draining a tile
  double half_m = 0;              // as half_k, for rows
  double half_keys = 700;         // positions seen at which half of attention's rate is lost
  double attention_backward = 3;  // time of attention's backward over its forward's
};
Sustained sustained(const Accelerator& device);

/// Products y[m,n] = x[m,k] w[k,n], `groups` of them in one launch (experts); seconds. Whole waves of tiles are
/// paid.
double product_s(const Accelerator& device, Precision precision, double m, double n, double k, double groups = 1);

/// Causal fused attention forward of `flops`; `keys` positions a head sees at most, `head_dim` its width.
double attention_s(const Accelerator& device, double flops, double keys, double head_dim);

/// Work that reads and writes `bytes`.
double traffic_s(const Accelerator& device, double bytes);

}  // namespace heddle::cost
