// Names of tensors in released folders: respelt piece by piece, and the number of an expert among them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// `name` with the first place of each `from` replaced by its `to`, in this order.
std::string respelt(std::string name,
                    std::initializer_list<std::pair<std::string_view, std::string_view>> replacements);

/// Mixtral's names of the router and of expert e, whose matrices are w1 (gate), w3 (up) and w2 (down).
std::string spelt_block_sparse(std::string name);

/// "model.layers.3.mlp.experts.5.up_proj.weight" in its pieces: "model.layers.3.", 5, "up_proj.weight". Nothing
/// where the name is no routed expert's.
struct ExpertName {
  std::string_view layer, tensor;
  int64_t expert = 0;
};
std::optional<ExpertName> expert_name(std::string_view name);

/// The place of a routed expert's matrix in folders where gate and up of all experts of a layer are one tensor, and
/// their last maps another: `folder` + "gate_up_proj" or "down_proj" of the layer, such as "mlp.experts.". Nothing
/// for other names.
std::optional<ReleasedPlace> stacked_expert(std::string_view name, const std::vector<int64_t>& shape,
                                            int64_t experts, std::string_view folder);

/// stacked_expert() of folders that transpose each matrix, where gate and up lie side by side.
std::optional<ReleasedPlace> stacked_turned_expert(std::string_view name, const std::vector<int64_t>& shape,
                                                   int64_t experts, std::string_view folder);

}  // namespace heddle::config
