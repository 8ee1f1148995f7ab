// JSON with its own checksum: read back, it must be the text that was written, so that nothing can stand in it
// beside what it says.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace heddle::train {

/// A CRC-32C as files of checkpoints have it: eight hexadecimal digits.
std::string checksum_text(uint32_t sum);

std::string checked_text(const nlohmann::json& state);
/// ConfigError naming `path` where it is damaged.
nlohmann::json checked_json(const std::string& text, const std::string& path);

}  // namespace heddle::train
