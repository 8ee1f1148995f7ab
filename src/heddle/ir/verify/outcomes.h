// Whether every read finds what it reads, whichever way the conditions of a listing turn out, part by part; and
// whether ranks that communicate under a condition come to the same decision.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::ir {

/// InternalError where in some outcome an op reads, or drops, what is not there, or writes what is there already;
/// where a condition asks for rows that the host hasn't read by then; or where an op that several ranks must run
/// together is run by the word of one.
void verify_outcomes(const Listing& listing);

/// Whether all ranks of the program count the same there: what a collective of the world leaves alike, or what is
/// worked out from such.
bool alike_on_all(const Listing& listing, ValueId counted);

/// InternalError where an op reads, in its phase, what is written in one that comes later, or of which only one
/// runs for each microbatch; the end may read what the check has written.
void verify_phases(const Listing& listing, const Op& reader, const Value& value, Phase written);

}  // namespace heddle::ir
