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

}  // namespace heddle::config
