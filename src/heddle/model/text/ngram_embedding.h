// Embeddings of hashed n-grams, which some layers add to the streams of the residual (Qwen4). Each rank of tp has a
// part of the rows of a layer's tables.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// The streams x with what layer `index`, whose names have `prefix`, adds to them.
ir::ValueId add_ngrams(Writer& writer, int64_t index, ir::ValueId x, const std::string& prefix);

}  // namespace heddle::model
