#include "heddle/config/retired_keys.h"

#include <algorithm>
#include <array>

namespace heddle::config {

namespace {
constexpr std::array kRetired{
    RetiredKey{
        "parallel.ahead_of_norm", "false",
        "updates that run ahead of the norm were removed; leave the key out (parallel.schedule = \"zb_h1\" or "
        "\"dual_pipe_v\" has the smallest bubble without them)"},
};
}  // namespace

const RetiredKey* find_retired_key(std::string_view key) {
  const auto at = std::find_if(kRetired.begin(), kRetired.end(), [&](const RetiredKey& k) { return k.key == key; });
  return at == kRetired.end() ? nullptr : &*at;
}

}  // namespace heddle::config
