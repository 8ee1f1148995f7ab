// Tables that follow from the configuration. Cosines and sines of rotary positions, plain or stretched for longer
// contexts (model_config.h: RopeType), as Transformers computes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/model/model_config.h"

namespace heddle::model {

/// The parameters that hold them: of all layers, and of those with a window where they have positions of their own.
inline constexpr const char *kRopeTable = "rope_table", *kWindowRopeTable = "rope_table_of_windows";
/// The one that holds the rows that a rank of tp has of its group.
inline constexpr const char* kOwnRopeTable = "rope_table_of_own_rows";

/// The one that holds a row an entry of so many tokens, by the position of the first of them. Every rank has all
/// rows.
inline constexpr std::string_view kEntryRopeTable = "rope_table_of_entries_of_";
inline std::string rope_table_name(int64_t entry_tokens) {
  return std::string(kEntryRopeTable) + std::to_string(entry_tokens);
}

/// The gain of a norm of that width that has none of its own: ones.
inline constexpr std::string_view kUnitGain = "unit_gain_of_";
inline std::string unit_gain(int64_t width) { return std::string(kUnitGain) + std::to_string(width); }
inline bool is_unit_gain(std::string_view parameter) { return parameter.starts_with(kUnitGain); }
/// The bias of a LayerNorm of that width that has none of its own: zeros.
inline constexpr std::string_view kZeroBias = "zero_bias_of_";
inline std::string zero_bias(int64_t width) { return std::string(kZeroBias) + std::to_string(width); }
inline bool is_zero_bias(std::string_view parameter) { return parameter.starts_with(kZeroBias); }

/// 0.1·x·ln(factor) + 1, or 1 for factors up to 1.
double yarn_mscale(double factor, double x);

/// [sequence, r], r = rotary_width(): r/2 cosines, then r/2 sines, scaled by RopeScaling::rotary_scale. By longrope
/// the length chooses the factors, for all rows alike.
std::vector<double> rope_table(const ModelConfig& config, int64_t sequence);

}  // namespace heddle::model
