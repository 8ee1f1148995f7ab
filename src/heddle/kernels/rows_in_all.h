// Facts of the whole for a product that is run on some of its rows (ir::OpDef::by_pieces).
#pragma once

#include <string_view>

namespace heddle::kernels {

/// Attribute, in no listing, of a product that an op runs by pieces: the number of rows that all pieces have. A row
/// must have the bits that it has when all are multiplied at once. A library that chooses by their number needs it.
inline constexpr std::string_view kRowsInAll = "rows_in_all";

}  // namespace heddle::kernels
