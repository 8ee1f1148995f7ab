// The attributes of router ops, read once a piece.
#pragma once

#include "heddle/device/kernel_call.h"

namespace heddle::kernels::host {

/// Scores of a token stand on the stack.
constexpr int64_t kMostExperts = 1024;
/// Keeps a token whose scores are all zero from dividing by zero.
constexpr float kLeastSum = 1e-20f;

struct RouterChoice {
  explicit RouterChoice(const device::KernelCall& call)
      : E(call.in[0].columns()),
        top_k(call.op->attributes.integer("top_k")),
        groups(call.op->attributes.integer("groups")),
        top_groups(call.op->attributes.integer("top_groups")),
        group_score_top(call.op->attributes.integer("group_score_top")) {}
  int64_t E, top_k, groups, top_groups, group_score_top;
};

struct RouterGate {
  RouterGate() = default;
  explicit RouterGate(const device::KernelCall& call)
      : normalize(call.op->attributes.integer("normalize") != 0),
        scale(static_cast<float>(call.op->attributes.number("scale"))) {}
  bool normalize = false;
  float scale = 1;
};

enum class Scores { sigmoid, softmax, root_softplus };

inline Scores scores_of(const device::KernelCall& call) {
  const std::string& word = call.op->attributes.word("function");
  return word == "softmax" ? Scores::softmax : word == "root_softplus" ? Scores::root_softplus : Scores::sigmoid;
}

}  // namespace heddle::kernels::host
