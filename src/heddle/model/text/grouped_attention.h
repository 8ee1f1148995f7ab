// Grouped-query attention (Ainslie et al., arXiv 2305.13245), with norms on the heads of queries and keys where the
// model has them (Qwen3, arXiv 2505.09388).
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// From the normed rows of a layer to what is added to its residual stream.
ir::ValueId grouped_attention(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model
