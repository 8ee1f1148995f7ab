// Keys that older versions had. A file that an older version wrote names every key, so each of these is still read
// where it has the value that means nothing.
#pragma once

#include <string_view>

namespace heddle::config {

struct RetiredKey {
  std::string_view key;
  std::string_view usual;  // the only value that is read, as TOML writes it
  std::string_view why;    // advice for whoever gives another
};

/// Null for a key that is not retired.
const RetiredKey* find_retired_key(std::string_view key);

}  // namespace heddle::config
