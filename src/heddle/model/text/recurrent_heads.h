// Parts that layers with a recurrence along the sequence share (ops/recurrence.cpp): the convolution before it, and
// the recurrence itself, over whole sequences or from a cache.
//
// Heads are cut among tp, each key head with the value heads that share it. With cp a rank has whole sequences of a
// part of its heads (`ulysses`), or two pieces of each sequence. Then states go from piece to piece, and so do the
// last rows before a convolution.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Heads of this rank of tp, and their widths.
struct RecurrentHeads {
  int64_t key_heads = 1, heads = 1, key_dim = 1, value_dim = 1;

  static RecurrentHeads of(const Writer& writer);
};

/// Rows of whole sequences with this rank's part of the heads, by `ulysses`; else x itself.
ir::ValueId whole_sequences(Writer& writer, ir::ValueId x, const std::string& name);
/// The rows that this rank had before, with all of its heads.
ir::ValueId own_rows(Writer& writer, ir::ValueId x, const std::string& name);

/// Channels of a convolution by what they are, "q", and their place among the rows of the released conv1d.
struct ConvolutionRows {
  std::string name;
  int64_t width = 0, first = 0, all = 0;  // of the whole model
};
/// silu of the causal convolution of each channel of x, rows of whole sequences; or the convolution itself. The
/// weight is that of conv1d in `prefix`, its rows `conv_NAME`.
ir::ValueId convolved(Writer& writer, ir::ValueId x, const ConvolutionRows& rows, const std::string& prefix,
                      bool has_bias = false, bool has_silu = true);
/// It takes a weight that is at hand, [channels, kernel] of this rank of tp, and a bias or none. The rows that it
/// sees are `dilation` apart.
ir::ValueId convolved(Writer& writer, ir::ValueId x, ir::ValueId weight, ir::ValueId bias, const std::string& name,
                      bool has_silu = true, int64_t dilation = 1);

/// The outputs of the heads, on the rows that this rank had before whole_sequences. `in` are q, k, v, decay, beta
/// and skip; the last ones may be left out. `rule` are the attributes of `recur` beside sizes.
ir::ValueId recurred(Writer& writer, std::vector<ir::ValueId> in, const RecurrentHeads& sizes, ir::Attributes rule);

/// `recurred` by the delta rule: unit queries and keys, scores over √key_dim, beta through a sigmoid.
ir::ValueId delta_rule(Writer& writer, std::vector<ir::ValueId> in, const RecurrentHeads& sizes);

/// A number a value head, or a number a channel of its keys, of the wide type.
ir::ValueId vector_of_heads(Writer& writer, Parameter parameter, int64_t width);

/// exp(A_log) at the start is drawn evenly up to this, as in Mamba-2's code; and the largest softplus(dt_bias)
/// there.
inline constexpr double kMostDecay = 16, kMostStep = 0.1;

}  // namespace heddle::model
