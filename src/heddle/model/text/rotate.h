// Rotary positions of queries and keys.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// x [U, heads · head_dim] with rotary_width() elements of each head rotated by their positions: the last
/// ones, or the first of grouped attention. `back` turns them the other way. With learned positions x as it is.
ir::ValueId rotate(Writer& writer, ir::ValueId x, int64_t heads, int64_t head_dim, const std::string& name,
                   bool back = false);

/// q [U, heads · head_dim], each row times the factor of its position, in layers that have it; else q as it is.
ir::ValueId scaled_queries(Writer& writer, ir::ValueId q);

}  // namespace heddle::model
