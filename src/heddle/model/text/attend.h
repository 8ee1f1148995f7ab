// The core of attention, on one rank or with the keys and values of each sequence spread over the ranks of cp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Heads of this rank, their widths, and their sinks, if they have any. Sinks are those of a tp rank. Where heads
/// are cut among neighbours of cp, each takes its part of them.
struct HeadSizes {
  int64_t heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1;
  ir::ValueId sinks = ir::none;
};
/// The output of attention, and the ln of each row's and head's sum of exponentials.
struct Attended {
  ir::ValueId o = ir::none, lse = ir::none;
};
/// Attention of queries to the keys and values of whole sequences that this rank has.
Attended attend(Writer& writer, ir::ValueId q, ir::ValueId k, ir::ValueId v, const HeadSizes& sizes,
                const std::string& name);

/// Attention of this text's rows to what the cache holds of their sequences up to them. Without `values`, the first
/// value_dim elements of a key are its value.
ir::ValueId attend_cached(Writer& writer, ir::ValueId q, ir::ValueId keys, ir::ValueId values,
                          const HeadSizes& sizes);

/// The values of a token that go between ranks: rows of this rank's share of each sequence.
struct Travelling {
  ir::ValueId rows = ir::none;
  std::string name;
};
/// Keys and values out of what travelled.
using MakeKeys = std::function<std::vector<ir::ValueId>(const std::vector<ir::ValueId>& rows)>;

/// Attention of this rank's queries to the keys of the whole sequence (cp > 1), in the way of parallel.context.
/// What travels is gathered, or goes round the ranks that have other rows. `ulysses` and `hybrid` first change rows
/// for heads: `sizes` and `keys_values` are those of a rank's part of the heads.
ir::ValueId attend_across(Writer& writer, ir::ValueId q, std::vector<Travelling> travelling,
                          const MakeKeys& keys_values, const HeadSizes& sizes);

/// Among so many neighbours of cp, or all: the rows of all of them with this rank's part of the heads, and back.
ir::ValueId heads_to_sequence(Writer& writer, ir::ValueId x, const std::string& name, int64_t ranks,
                              OpPart part = OpPart::queries_keys);
ir::ValueId sequence_to_heads(Writer& writer, ir::ValueId x, const std::string& name, int64_t ranks);
/// The rows of so many neighbours, in the order of the sequence.
ir::ValueId gather_sequence(Writer& writer, ir::ValueId x, const std::string& name, int64_t ranks);

}  // namespace heddle::model
