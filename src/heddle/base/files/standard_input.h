// The standard input instead of a file: "-" on the command line.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

inline constexpr const char* kStandardInput = "-";

/// All of it, read once and kept, since whoever reads a file may read it again. Says on standard error that it
/// waits where a terminal is to be typed into. ConfigError if it has more than `most_bytes`, SystemError if a read
/// fails.
const std::string& standard_input(int64_t most_bytes);

/// Copies it to `folder`/input.txt, or input.jsonl where it begins as JSON does, and returns that path.
std::string keep_standard_input(const std::string& folder);

}  // namespace heddle
