// Checks of a TOML text before the library may parse it.
//
// The library, toml++ 3.3, looks non-ASCII letters outside of quotes up in tables that it leaves uninitialised
// (undefined behaviour), and takes tables apart by recursion. TOML 1.0 has such letters in strings and comments
// alone.
#pragma once

#include <string>
#include <string_view>

namespace heddle::formats {

/// ConfigError "place:line:column: not TOML: …" for bytes that are no UTF-8, control characters, letters other than
/// ASCII outside of strings and comments, and keys of more than 32 parts.
void check_toml(std::string_view text, const std::string& place);

/// The library's complaint as the end of a message of ours: "not TOML: train.schedule = cosine: a text stands in
/// quotes, "cosine"". `line` counts from 1.
std::string toml_complaint(std::string_view description, std::string_view text, size_t line);

}  // namespace heddle::formats
