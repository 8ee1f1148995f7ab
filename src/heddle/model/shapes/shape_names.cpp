#include "heddle/model/shapes/shape_names.h"

#include <cctype>

#include "heddle/base/error.h"

namespace heddle::model {

std::string squeezed_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string names_like(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kMostBytes = 200, kLeastBytes = 2, kMostNames = 12;
  const std::string_view own = name.substr(name.rfind('/') + 1).substr(0, kMostBytes);
  const std::string text = squeezed_name(own);
  if (text.size() < kLeastBytes) return "";
  std::vector<std::string> holding;
  std::string begun;
  for (const std::string& each : known) {
    const std::string one = squeezed_name(each);
    if (one.find(text) != std::string::npos) holding.push_back(each);
    if (text.starts_with(one) && one.size() > squeezed_name(begun).size()) begun = each;
  }
  if (holding.size() == 1) return fmt::format(", did you mean '{}'?", holding.front());
  if (holding.size() > kMostNames) {
    const size_t more = holding.size() - kMostNames;
    holding.resize(kMostNames);
    return fmt::format(", may be any of {} and {} more", fmt::join(holding, ", "), more);
  }
  if (!holding.empty()) return fmt::format(", may be any of {}", fmt::join(holding, ", "));
  if (!begun.empty()) return fmt::format(", did you mean '{}'?", begun);
  return did_you_mean(own, known);
}

}  // namespace heddle::model
