// A sample of a token file as a part of a sequence: its ids, and their marks.
#pragma once

#include <cstdint>
#include <span>

#include "heddle/data/sequence_source.h"
#include "heddle/data/token_file.h"

namespace heddle::data {

/// True if an id but the first is a target. Nothing is learnt of the first, for before it stands another sample, or
/// nothing.
bool has_target(std::span<const float> weights);

/// Puts up to `most` ids of a document from place `at` on, with their marks; returns how many. ConfigError if an id
/// is negative or not below `vocabulary`.
int64_t read_sample(const TokenFile& file, int64_t document, int64_t vocabulary, int64_t most, size_t at,
                    std::span<int32_t> tokens, const SequenceMarks& marks);

/// Pads behind the last sample; padding is nobody's target and sees none of the samples.
void pad_samples(size_t at, std::span<int32_t> tokens, const SequenceMarks& marks);

}  // namespace heddle::data
