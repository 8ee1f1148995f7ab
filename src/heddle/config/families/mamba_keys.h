// Keys of Mamba-2 that several families have.
#pragma once

#include "heddle/config/families/family.h"

namespace heddle::config {

/// "time_step_limit": the least and the largest time step. Infinity, or as Transformers 5 writes that, is no bound.
/// It says "linear_step_most" too.
PublishedKey time_step_limit_key();

}  // namespace heddle::config
