// The costs of a model, read off its step program: parameters by part, FLOPs by kind of product, persistent bytes
// by role.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/plan/plan.h"

namespace heddle::plan {

/// Trained parameters of a part of the model; `active` are those that one token passes through.
struct PartParameters {
  std::string part;  // "embedding", "attention", "experts", …
  int64_t total = 0;
  int64_t active = 0;
};
/// In a fixed order, parts without parameters left out. Layers that predict further tokens are a part of their own.
std::vector<PartParameters> parameters_by_part(const model::ModelConfig& config, const plan::Lowered& lowered);

/// FLOPs of matrix products (attention included) of one token: forward, and forward with backward as the program
/// runs it (what a fused op computes again counts).
struct KindFlops {
  std::string kind;  // "attention", "experts", "output head", "other products"
  double forward = 0;
  double training = 0;
};
/// The forward is that of the evaluation program: lower with Plan::evaluates. Of a step of so many microbatches;
/// the program's first stands for each.
std::vector<KindFlops> flops_by_kind(const plan::Plan& plan, const plan::Lowered& lowered, int64_t microbatches);

struct RoleBytes {
  ir::Role role;
  int64_t bytes = 0;
};
/// Persistent bytes of one memory.
std::vector<RoleBytes> persistent_by_role(const ir::StepProgram& program, int rank,
                                          ir::Space space = ir::Space::device);

}  // namespace heddle::plan
