// Sizes that a config.json may leave out.
#pragma once

#include "heddle/config/families/family.h"

namespace heddle::config {

/// Gives the positions, the number of key heads and their width the values that Transformers' configuration class
/// of the family has for absent keys. Null stands for as many key heads as heads, and for heads that share the
/// width.
void give_absent_sizes(Family& family);

}  // namespace heddle::config
