// Reads what ir/print writes: a listing out of its text, for tests of passes and for tools.
//
// The text is bounded in size, and so is each dim; every name must be known where it is read. A stream may be left
// out where an op computes or copies. Sections of a phase may come in any order and more than once: the list of ops
// is in the order of the text.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::ir {

/// The definition of a kind (ops::find, a floor above). InternalError when there is none.
using FindOp = std::function<const OpDef&(std::string_view kind)>;

/// The value of an attribute's text: an integer where it is one, else a number, else a word. A number without a
/// fraction comes back as an integer, which Attributes::number takes as well.
Attributes::Item item_of(std::string_view text);
/// The listing of such a text. Roles of what ops make, and the accumulators of weights, follow from definitions and
/// names ("grad.NAME", "grad.NAME.use2"). ConfigError with line, found and expected.
Listing parse_listing(std::string_view text, const FindOp& find_op);
/// All listings of a program's text, such as `heddle inspect --program` prints; what ranks do with them is left
/// out.
std::vector<Listing> parse_listings(std::string_view text, const FindOp& find_op);

}  // namespace heddle::ir
