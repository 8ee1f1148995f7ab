// What a product knows of the whole when it is run on some of its rows (ir::OpDef::by_pieces).
#pragma once

#include <string_view>

namespace heddle::kernels {

/// Attribute, in no text, of a product that an op runs by pieces: how many rows all pieces have. A row must have
/// the bits that it has when all are multiplied at once, which a library that chooses by their number has to be
/// told.
inline constexpr std::string_view kRowsInAll = "rows_in_all";

}  // namespace heddle::kernels
