// The text form of listings, blocks and actions: one op a line, stable, the stream at the end. A listing's can be
// read back (ir/parse.h). Behind the stream stand the op's part of the layer and its chunk, where it has them:
// "@router #1".
#pragma once

#include <string>

#include "heddle/ir/program.h"

namespace heddle::ir {

/// The first word of a row of the table of inputs.
inline constexpr std::string_view kTakes = "takes";

/// "1", "0.25", "rows"; a word that would be read as something else stands in quotes.
std::string text_of(const Attributes::Item& item);
/// " {epsilon 1e-06, wide 1}"; "" where there are none.
std::string text_of(const Attributes& attributes);
/// "bf16[2048, 256] packed in 1048576 bytes host of listing 0", dynamic dims as "rows n"; instead of "host" it
/// may say "shared", and before it "frozen".
std::string text_of(const Listing& listing, const Value& value);
/// "y, rstd = rms_norm x, w {epsilon 1e-06}  compute". Behind flags stands the condition, "if n > 4096"; a stream
/// that isn't the usual one has "on" before it, and behind it the group whose channel the op uses: "on comm.b over
/// tp".
std::string text_of(const Listing& listing, const Op& op);
/// The table of inputs, that of persistent values and of those that are written in parts, then the ops of each
/// phase under their layers. Of the ops of two phases it doesn't say how they stand in the one list.
std::string text_of(const Listing& listing);
std::string text_of(const StepProgram& program);
/// The training actions of a rank about the one that holds this op of this microbatch, which stands between > and
/// <: "… F0.4 >F0.5|IW0.2< IW0.3 …". "" when there is none.
std::string text_around(const StepProgram& program, int rank, int listing, uint32_t op, int microbatch);

}  // namespace heddle::ir
