// JSON out of files: parsed within bounds, refused by one line of ours.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace heddle::formats {

/// ConfigError "place:line:column: not JSON: …" with what was found and what is expected there; or when it is
/// nested deeper than `most_depth`. Columns count bytes. Of a text that does not even begin as JSON nothing is
/// shown.
nlohmann::json parse_json(std::string_view text, const std::string& place, int most_depth);

/// A value as it may stand in a message: its JSON on one line, escaped, cut at 100 bytes.
std::string shown(const nlohmann::json& value);

}  // namespace heddle::formats
