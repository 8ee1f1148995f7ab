// Zero Bubble (Qi et al., arXiv 2401.10241): profiled times and the bubble rates printed for them, staggered, at
// the smallest number of microbatches of each model.
#pragma once

namespace heddle::schedule {

struct ZeroBubbleRow {
  const char* model;
  int ranks, microbatches;
  double forward_ms, input_grad_ms, weight_grad_ms, hop_ms;
  double rate_1f1b, rate_interleaved;
  int interleaved_chunks;
  double rate_zb_h1, rate_zb_h2, rate_zb_1p, rate_zb_2p;
};

inline constexpr ZeroBubbleRow kZeroBubbleRows[] = {
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1055, 3, 0.1585, 0.1083, 0.1585, 0.0433},
    {"6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.0808, 4, 0.1323, 0.0698, 0.1323, 0.0029},
    {"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1104, 3, 0.1397, 0.0672, 0.1397, 0.0066},
    {"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1493, 2, 0.1421, 0.0641, 0.1421, 0.0038},
};

}  // namespace heddle::schedule
