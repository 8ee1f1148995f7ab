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

std::optional<ReleasedPlace> stacked_expert(std::string_view name, const std::vector<int64_t>& shape,
                                            int64_t experts, std::string_view folder) {
  const std::optional<ExpertName> of = expert_name(name);
  if (!of || shape.size() != 2) return std::nullopt;
  const bool up = of->tensor == "up_proj.weight", down = of->tensor == "down_proj.weight";
  if (!up && !down && of->tensor != "gate_proj.weight") return std::nullopt;
  const int64_t rows = shape[0] * (down ? 1 : 2), first = of->expert * rows + (up ? shape[0] : 0);
  return ReleasedPlace{.name = std::string(of->layer).append(folder) + (down ? "down_proj" : "gate_up_proj"),
                       .shape = {experts, rows, shape[1]},
                       .first = first * shape[1],
                       .row_step = shape[1],
                       .is_whole = false};
}

}  // namespace heddle::config
