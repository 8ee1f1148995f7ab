// Hash of a token file's content: the ids, their weights and where the documents begin. Names and places of the
// files don't matter, nor whether ids are stored in two bytes or four.
#pragma once

#include <cstdint>

#include "heddle/data/token_file.h"

namespace heddle::data {

/// In files up to kTokensHashedWhole tokens every id counts; in longer ones evenly spread parts of as many in all,
/// the first and the last among them.
inline constexpr int64_t kTokensHashedWhole = 256 << 20;

uint64_t content_hash(const TokenFile& file);

}  // namespace heddle::data
