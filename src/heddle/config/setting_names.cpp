#include "heddle/config/setting_names.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/run_config.h"

namespace heddle::config {

std::string section_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(key.substr(0, dot));
}

namespace {

std::string leaf_of(std::string_view key) { return std::string(key.substr(key.rfind('.') + 1)); }
// Near in the same section.
std::string sibling(const std::string& key) {
  const std::string section = section_of(key);
  std::vector<std::string> names;
  for (const std::string& other : setting_keys())
    if (section_of(other) == section) names.push_back(leaf_of(other));
  const std::string near = nearest_name(leaf_of(key), names);
  return near.empty() || section.empty() ? near : section + "." + near;
}

}  // namespace

std::vector<std::string> keys_called(std::string_view word) {
  const std::string leaf = leaf_of(word), section = section_of(word);
  std::vector<std::string> here, anywhere;
  for (const Setting& s : settings()) {
    const bool named = same_name(leaf_of(s.key), leaf) || same_name(s.key, word) ||
                       std::any_of(s.synonyms.begin(), s.synonyms.end(),
                                   [&](const std::string& name) { return same_name(name, leaf); });
    if (named) (section_of(s.key) == section ? here : anywhere).push_back(s.key);
  }
  return here.empty() ? anywhere : here;
}

std::string did_you_mean_key(const std::string& found) {
  if (const std::vector<std::string> meant = keys_called(found); !meant.empty())
    return fmt::format(", did you mean '{}'?", fmt::join(meant, "' or '"));
  if (const std::string near = sibling(found); !near.empty()) return fmt::format(", did you mean '{}'?", near);
  // A near last part, or a near name of another trainer's.
  std::vector<std::string> names;
  for (const Setting& s : settings()) {
    names.push_back(leaf_of(s.key));
    names.insert(names.end(), s.synonyms.begin(), s.synonyms.end());
  }
  if (const std::string near = nearest_name(leaf_of(found), names); near.size() > 3)
    return fmt::format(", did you mean '{}'?", fmt::join(keys_called(near), "' or '"));
  return did_you_mean(found, setting_keys());
}

}  // namespace heddle::config
