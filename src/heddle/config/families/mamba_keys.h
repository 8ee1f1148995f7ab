// Keys of Mamba-2 that several families have.
#pragma once

#include "heddle/config/families/family.h"

namespace heddle::config {

/// "time_step_limit": the least and the largest time step. Infinity, or as Transformers 5 writes that, is no bound.
/// It says "linear_step_most" too.
PublishedKey time_step_limit_key();

/// Keys of Bamba's code, which Granite 4 and Falcon-H1 have too: heads, groups, widths, biases, time steps. The
/// inner width is "mamba_expand" times that of the stream.
void add_mamba_keys(Family& family);
/// Reads the width of a head, where all heads together are `inner` wide. "auto" is what follows. `said` is what
/// says that width.
void read_mamba_width(const JsonKeys& keys, int64_t inner, const char* said, model::ModelConfig& config);

}  // namespace heddle::config
