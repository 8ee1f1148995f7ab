// The inputs of a listing that follow from a microbatch's tokens (runtime/microbatch.h gives them).
#pragma once

#include <string_view>

namespace heddle::model {

// clang-format off
/// The owner of these inputs (ir::Input::owner). Their attribute `what` says which numbers they have, one a row
/// unless stated; S is `sequence`, the positions of a sequence, whose rows `cp` and `tp` ranks share:
///   ids         token s + distance, −1 where it is padding            distance sequence width cp tp
///   labels      the same, −1 where it is no label                     distance sequence width cp
///   weights     how much that label counts                            distance sequence width cp
///   starts      the last position up to s where a document begins     sequence document_end?
///   starts      the same, counted from the first of a rank's piece    sequence cp document_end?
///   starts      the first position of s's chunk of its sequence, or   sequence chunk apart? document_end?
///               of its document if `apart`
///   positions   s, counted in its document if `apart`                 sequence cp tp apart? document_end?
///   positions   the same of a row in the cache, if `cached`           sequence cached
///   query_scales  1 + beta·ln(1 + ⌊(position + first) ÷ length⌋), of the same positions
///   tokens      number in the whole batch: sequence · S + position    sequence cp tp
///   places      place in the cache: sequence · S + position, or −1
///   ngrams      `each` rows of tables a row, by the hashes of its n-grams (model/ngrams.h)
///               sequence width cp before? apart? document_end? vocabulary size heads base seed end index
///   references  of each sequence: its summed loss under another model
/// `width` are the ids of a sequence. Behind an id `document_end` a document begins; where there is no such id the
/// microbatch marks beginnings.
// clang-format on
inline constexpr std::string_view kMicrobatchOwner = "microbatch";

}  // namespace heddle::model
