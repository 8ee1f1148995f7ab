// The root-mean-square norm of all heads of a token as one row.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Heads are cut among tp: there each rank norms whole rows of a part of the tokens, and they go back by heads.
/// `name` is the gain's.
ir::ValueId norm_of_all_heads(Writer& writer, ir::ValueId x_UD, const std::string& name, const std::string& out,
                              double epsilon);

}  // namespace heddle::model
