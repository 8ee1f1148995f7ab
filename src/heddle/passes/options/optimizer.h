// The user's choices for the end of a step: the optimizer and what limits its updates.
#pragma once

#include <cstdint>

#include "heddle/base/words.h"

namespace heddle::passes {

/// The rule by which parameters move.
enum class OptimizerRule : uint8_t {
  adamw,
  muon,  // matrices of hidden layers; all else by AdamW (passes/muon)
};
constexpr auto words_of(OptimizerRule) {
  return std::to_array<Word<OptimizerRule>>({{OptimizerRule::adamw, "adamw"}, {OptimizerRule::muon, "muon"}});
}

/// The type of AdamW's moments between steps. A step computes them in fp32 and rounds what it keeps.
enum class Moments : uint8_t {
  fp32,
  bf16,  // DeepSeek-V3's (arXiv 2412.19437, 3.3.2)
  fp8,   // the first as an e4m3 in units of the second's root (ops/moment_byte.h), the second as bf16
};
constexpr auto words_of(Moments) {
  return std::to_array<Word<Moments>>({{Moments::fp32, "fp32"}, {Moments::bf16, "bf16"}, {Moments::fp8, "fp8"}});
}

/// The choices of the optimizer.
struct Optimizer {
  OptimizerRule rule = OptimizerRule::adamw;
  double momentum = 0.95;  // Muon's
  Moments moments = Moments::fp32;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: off
  // The most that the norm and the loss of a step may be, over the medians of recent ones; a step above is left
  // out. 0: off.
  double skip_norm_above = 0, skip_loss_above = 0;
  int64_t bucket_bytes = int64_t{16} << 20;  // of gradients in one reduction
  double average_decay = 0;                  // of the average of masters that is kept beside them; 0: none is
  double qk_clip = 0;  // the most that a head's attention logit may be before its weights shrink; 0: off
  bool skips_outliers() const { return skip_norm_above > 0 || skip_loss_above > 0; }
  bool operator==(const Optimizer&) const = default;
};

}  // namespace heddle::passes
