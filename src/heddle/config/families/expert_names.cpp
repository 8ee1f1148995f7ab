#include "heddle/config/families/expert_names.h"

#include <charconv>

namespace heddle::config {

std::string respelt(std::string name,
                    std::initializer_list<std::pair<std::string_view, std::string_view>> replacements) {
  for (const auto& [from, to] : replacements) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

std::string spelt_block_sparse(std::string name) {
  if (name.find(".mlp.gate.") == std::string::npos && name.find(".mlp.experts.") == std::string::npos) return name;
  return respelt(
      std::move(name),
      {{".mlp.", ".block_sparse_moe."}, {".gate_proj.", ".w1."}, {".up_proj.", ".w3."}, {".down_proj.", ".w2."}});
}

std::optional<ExpertName> expert_name(std::string_view name) {
  constexpr std::string_view kExperts = "mlp.experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kExperts.size());
  ExpertName parts{.layer = name.substr(0, at)};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), parts.expert);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') return std::nullopt;
  parts.tensor = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  return parts;
}

namespace {

std::optional<ReleasedPlace> stacked_either_way(std::string_view name, const std::vector<int64_t>& shape,
                                                int64_t experts, std::string_view folder, bool turned) {
  const std::optional<ExpertName> of = expert_name(name);
  if (!of || shape.size() != 2) return std::nullopt;
  const bool up = of->tensor == "up_proj.weight", down = of->tensor == "down_proj.weight";
  if (!up && !down && of->tensor != "gate_proj.weight") return std::nullopt;
  const int64_t outputs = shape[0] * (down ? 1 : 2), inputs = shape[1], before = up ? shape[0] : 0;
  ReleasedPlace place{.name = std::string(of->layer).append(folder) + (down ? "down_proj" : "gate_up_proj"),
                      .shape = {experts, outputs, inputs},
                      .first = (of->expert * outputs + before) * inputs,
                      .row_step = inputs,
                      .is_whole = false};
  if (turned) {
    place.shape = {experts, inputs, outputs};
    place.first = of->expert * inputs * outputs + before;
    place.row_step = 1;
    place.column_step = outputs;
  }
  return place;
}

}  // namespace

std::optional<ReleasedPlace> stacked_expert(std::string_view name, const std::vector<int64_t>& shape,
                                            int64_t experts, std::string_view folder) {
  return stacked_either_way(name, shape, experts, folder, false);
}
std::optional<ReleasedPlace> stacked_turned_expert(std::string_view name, const std::vector<int64_t>& shape,
                                                   int64_t experts, std::string_view folder) {
  return stacked_either_way(name, shape, experts, folder, true);
}

}  // namespace heddle::config
