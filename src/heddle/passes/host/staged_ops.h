// An op whose operands lie on the host, out of its reach: they come and go by copies beside it.
#pragma once

#include <string_view>

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// op_beside on the same condition, that says the bytes of a packed weight: a kernel can't work them out.
ir::Op copy_beside(std::string_view kind, const ir::Listing& listing, ir::ValueId value, const ir::Op& beside);

/// Appends an op. What it reads on the host is brought as "NAME.back". What it updates there is brought as
/// "NAME.new", or only has room made for it where the op overwrites it, and goes back behind the op. What it may
/// reach on the host (OpDef::reaches_host) and copies stay as they are.
void append_staged(ir::Listing& listing, ir::Op op);

/// Moves a value that persists, and its parts, to the host or back.
void set_space(ir::Listing& listing, ir::ValueId id, ir::Space space);

}  // namespace heddle::passes
