// Cosines and sines of rotary positions, plain or stretched by YaRN (arXiv 2309.00071, as Transformers computes it
// for the DeepSeek models).
#pragma once

#include <vector>

#include "heddle/model/model_config.h"

namespace heddle::model {

/// 0.1·x·ln(factor) + 1, or 1 for factors up to 1.
double yarn_mscale(double factor, double x);

/// [sequence, r], r = rotary_width(): r/2 cosines, then r/2 sines, scaled by Yarn::rotary_scale.
std::vector<double> rope_table(const ModelConfig& config, int64_t sequence);

}  // namespace heddle::model
