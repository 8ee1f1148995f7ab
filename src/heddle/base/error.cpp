#include "heddle/base/error.h"

#include <algorithm>

namespace heddle {

namespace {

// Levenshtein distance with adjacent transpositions counted as one edit.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

void throw_config_error(fmt::string_view text, fmt::format_args args) {
  throw ConfigError(fmt::vformat(text, args));
}

void throw_internal_error(fmt::string_view text, fmt::format_args args, std::string_view file, int line,
                          std::string_view condition) {
  if (const size_t ours = file.rfind("heddle/"); ours != std::string_view::npos) file.remove_prefix(ours);
  std::string message = fmt::vformat(text, args);
  if (!condition.empty()) message += fmt::format(" [{}]", condition);
  throw InternalError(fmt::format("{} ({}:{})", message, file, line));
}

std::string nearest_name(std::string_view found, const std::vector<std::string>& accepted) {
  std::string best;
  size_t least = std::max<size_t>(2, found.size() / 3) + 1;
  for (const std::string& name : accepted) {
    const size_t distance = edit_distance(found, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view found, const std::vector<std::string>& accepted) {
  const std::string best = nearest_name(found, accepted);
  return best.empty() ? "" : fmt::format(", did you mean '{}'?", best);
}

}  // namespace heddle
