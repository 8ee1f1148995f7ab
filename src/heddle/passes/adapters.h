// Low-rank adapters beside frozen weights (LoRA, Hu et al., arXiv 2106.09685):
//
//   y = x wᵀ   becomes   y = x wᵀ + s · (x Aᵀ) Bᵀ,   A [r, K], B [N, r], s = alpha ÷ r
//
// The linear maps that are chosen have adapters; those of experts have matrices for each expert. All other weights
// are frozen: what computes and keeps their gradients, masters and moments falls away (ir/gradient,
// passes/update/update). A and B are parameters like any other, with what is left of the weight's cuts, so that
// every layout has them. Where tp cuts the weight's rows, B is cut and the gradient of A is summed over the group.
// Where it cuts the columns, A is cut, and what B makes of the partial sums is reduced with the weight's own. A
// weight of two released matrices (gate and up) has adapters for each: their A are one parameter.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ir/axes.h"
#include "heddle/model/text/rank_text.h"
#include "heddle/passes/options/adapters.h"

namespace heddle::passes {

/// The names of what A and B are called beside a released module.
inline constexpr std::string_view kAdapterDown = ".lora_A.weight", kAdapterUp = ".lora_B.weight";

/// The forward listings of all pipeline ranks, with adapters in the first `layers` layers. `place`: the mesh's
/// degrees. ConfigError for a target that the model has not, and where something else than a linear map reads its
/// weight.
void adapters(std::vector<model::RankText>& texts, const Adapters& chosen, const ir::Coordinates& place,
              int64_t layers);

}  // namespace heddle::passes
