// The axes of a mesh of ranks, and where one rank stands on each.
//
// Attention layout: tp × cp × dp. Expert layout, folded independently on the same ranks: etp × ep × edp. Both times
// pp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace heddle::ir {

enum class Axis : uint8_t {
  tp,   // heads, widths and vocabulary; tokens between the blocks (sequence parallel)
  cp,   // positions of a sequence
  dp,   // sequences of the batch
  pp,   // layers
  ep,   // experts
  etp,  // widths of an expert
  edp,  // copies of an expert
};
constexpr int kAxes = 7;
constexpr std::string_view name_of(Axis axis) {
  constexpr std::string_view names[kAxes] = {"tp", "cp", "dp", "pp", "ep", "etp", "edp"};
  return names[static_cast<int>(axis)];
}

/// Index of a rank along each axis, and how long the axis is.
struct Coordinates {
  std::array<int, kAxes> index{};
  std::array<int, kAxes> degree{1, 1, 1, 1, 1, 1, 1};
  int at(Axis axis) const { return index[static_cast<size_t>(axis)]; }
  int of(Axis axis) const { return degree[static_cast<size_t>(axis)]; }
  bool operator==(const Coordinates&) const = default;
};

/// The position of a sequence of `length` that row j of a cp rank's share holds. A rank has two chunks of the 2·cp,
/// the i-th from either end, so that all have equal work under a causal mask; with one rank it is j.
constexpr int64_t position(int64_t j, int64_t length, int index, int cp) {
  const int64_t chunk = length / (2 * cp);
  if (cp == 1) return j;
  return j < chunk ? index * chunk + j : (2 * cp - 1 - index) * chunk + (j - chunk);
}

/// The rank of cp whose keys rank `index` has in a turn of the ring: those of the rank so many places before it. In
/// runs of `inner` neighbours a turn goes one place on in the run, and after a whole round on to the run before.
constexpr int owner_in_turn(int64_t index, int64_t turn, int64_t cp, int64_t inner) {
  const int64_t runs = cp / inner, run = (index / inner + runs - turn / inner) % runs;
  return static_cast<int>(run * inner + (index % inner + inner - turn % inner) % inner);
}

}  // namespace heddle::ir
