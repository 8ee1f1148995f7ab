// The check that every read finds what it reads, whichever way the conditions of a listing turn out, part by part.
// Ranks that communicate under a condition must come to the same decision.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::ir {

/// InternalError where in some outcome an op reads or drops a value that is not there, or writes one that is there
/// already. Also where a condition asks for rows that the host hasn't read by then, or where one rank's word
/// decides over an op that several ranks must run together.
void verify_outcomes(const Listing& listing);

/// InternalError where an op reads, in its phase, what a later phase writes. Also where only one of reader and
/// writer runs for each microbatch; the end may read what the check has written.
void verify_phases(const Listing& listing, const Op& reader, const Value& value, Phase written);

}  // namespace heddle::ir
