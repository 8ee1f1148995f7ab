// Sequences of token ids that a user has written down, and which of them are labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::cli {

using TokenRows = std::vector<std::vector<int32_t>>;

/// [[id, …], …] of a JSON file: sequences of one length, two ids or more. ConfigError.
TokenRows read_token_rows(const std::string& path);

/// Returns 1 for each token whose label is none, −100, else 0. Labels of another file are the tokens themselves, in
/// their places.
std::vector<std::vector<uint8_t>> read_label_mask(const std::string& path, const TokenRows& tokens);

}  // namespace heddle::cli
