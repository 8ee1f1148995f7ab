// A sample of a token file as a part of a sequence: its ids, and what is told of them.
#pragma once

#include <cstdint>
#include <span>

#include "heddle/data/sequence_source.h"
#include "heddle/data/token_file.h"

namespace heddle::data {

/// Whether an id but the first is a target: of the first nothing is learnt, for before it stands another sample, or
/// nothing.
bool has_target(std::span<const float> weights);

/// Puts up to `most` ids of a document from place `at` on, with their marks; returns how many. ConfigError if an id
/// is negative or not below `vocabulary`.
int64_t read_sample(const TokenFile& file, int64_t document, int64_t vocabulary, int64_t most, size_t at,
                    std::span<int32_t> tokens, const SequenceMarks& marks);

/// What stands behind the last sample: padding, which is nobody's target and sees none of the samples.
void pad_samples(size_t at, std::span<int32_t> tokens, const SequenceMarks& marks);

}  // namespace heddle::data
