// ZB-1p, ZB-2p and what lies between: one stage a rank, backward split. A heuristic finds the order for given times
// under a memory limit.
//
// Source: Zero Bubble Pipeline Parallelism (arXiv 2401.10241), section 3.1, and the binary choices of the authors'
// public scheduler (sail-sg/zero-bubble-pipeline-parallelism). Before its first I a rank runs as many forwards as
// memory allows without delaying that I, or once more than that. Then it alternates one F and one I, fills waiting
// with W, and runs a W early where memory asks for it. Each of three choices is tried both ways:
//   `eager_warm_up`   One forward more before the first I, though it delays that I.
//   `backward_first`  Skip a forward where the next rank has had two fewer and would have to wait for its I.
//   `fill_small_gaps` Put a W in a gap though it is shorter than the W and no longer than other ranks' worst
//                     bubble.
// Of a layer of the paper's models, 32 of 34 + 5as/h bytes (a heads, s tokens, h hidden; no flash attention) stay
// until W: 0.43 of the activations of all but the smallest, the default here. With flash attention nearly all stay,
// and 2p then leaves a bubble of 6 to 10 % at the paper's times.
// Constraints: the cap holds at least a microbatch's activations. Peak: at most the cap, P (1p) or 2P (2p)
// microbatches. Weights once. Bubble: that of ZB-H1 for 1p, near zero (staggered) for 2p.
#pragma once

#include "heddle/schedule/timing.h"

namespace heddle::schedule {

struct ZeroBubbleOptions {
  int ranks = 1, microbatches = 1;
  std::vector<StageTimes> times;  // of each stage, or one for all; all-to-alls are added where they are exposed
  double hop = 0;                 // from rank to rank, in the unit of the times
  double cap = 1;                 // of each rank, in activations of one microbatch of one stage
  double kept_for_w = .43;        // the share of the activations that stays until W
};

/// Throws ConfigError for sizes, times or a cap that can't be.
Schedule zero_bubble(const ZeroBubbleOptions& options, const char* name = "zero_bubble");
/// With the caps P and 2P; `options.cap` is ignored.
Schedule zb_1p(ZeroBubbleOptions options);
Schedule zb_2p(ZeroBubbleOptions options);

}  // namespace heddle::schedule
