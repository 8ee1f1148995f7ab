// Bytes that a token leaves in memory between the forward and the backward of each block, in closed form, and what
// a parameter costs while it is trained.
//
// BF16 activations, one rank. Without fused attention and with dropout this is the sum of arXiv 2205.05198. It is
// s·b·h·(10 + 24/t + 5·a·s/(h·t)) a layer, and 34·s·b·h/t with sequence parallelism and the scores recomputed.
#pragma once

#include <initializer_list>

#include "heddle/model/shapes/shape.h"
#include "heddle/passes/options/op_group.h"

namespace heddle::search {

using passes::GroupName;

/// The groups that the backward computes again instead of keeping. `layer` keeps only the input of each layer;
/// other software than Heddle has `attention`, its scores.
struct Recompute : passes::GroupSet {
  double every = 1;  // part of a stage's layers that `layer` applies to

  constexpr Recompute() = default;
  constexpr Recompute(std::initializer_list<GroupName> groups, double of_layers = 1)
      : GroupSet(groups), every(of_layers) {}
  bool operator==(const Recompute&) const = default;
};

struct Saving {
  Recompute recompute;
  bool fused_attention = true;
  bool sequence_parallel = true;
  bool dropout = false;
  bool narrow_gates = false;   // inputs of SwiGLU in experts too, as DeepSeek-V3 keeps them
  bool narrow_inputs = false;  // 8-bit copies of the inputs of linears are kept in place of 16-bit ones
  double tp = 1, etp = 1;
  double imbalance = 1;           // rows of the fullest rank over the mean
  bool gates_before_down = true;  // combine weights applied before the second product: its output needn't be kept
};

/// Bytes a token in each kind of block.
struct SavedBytes {
  double attention = 0, dense = 0, moe = 0, mamba = 0;
};
SavedBytes saved_bytes(const model::Shape& shape, const Saving& saving, double sequence);

/// Bytes a token of the head: logits, and their fp32 copies without a fused loss.
double head_bytes(const model::Shape& shape, double tp, bool fused_loss);

/// Bytes a parameter on a rank: weight, gradient, and fp32 master weight with two moments spread over `shards`.
double static_bytes_per_parameter(double weight_bytes, double gradient_bytes, double state_bytes, double shards);

}  // namespace heddle::search
