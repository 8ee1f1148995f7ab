// Names of tensors in released folders: respelt piece by piece, and the number of an expert among them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::config {

/// `name` with the first place of each `from` replaced by its `to`, in this order.
std::string respelt(std::string name,
                    std::initializer_list<std::pair<std::string_view, std::string_view>> replacements);

/// "model.layers.3.mlp.experts.5.up_proj.weight" in its pieces: "model.layers.3.", 5, "up_proj.weight". Nothing
/// where the name is no routed expert's.
struct ExpertName {
  std::string_view layer, tensor;
  int64_t expert = 0;
};
std::optional<ExpertName> expert_name(std::string_view name);

}  // namespace heddle::config
