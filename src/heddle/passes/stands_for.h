// Fused ops and the ops that they stand for (ir::OpDef::stands_for). The ops are found in a listing to put the
// fused one in their place. The fused one is taken apart where a pass has to do with one of them.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/ir/uses.h"

namespace heddle::passes {

/// Ops of a listing that a fused op could stand for.
struct Match {
  std::vector<int> ops;                              // of each line, an index into the listing's list
  std::map<std::string_view, ir::ValueId> value_of;  // by name
};

/// The ops that a fused op stands for, read once out of its definition.
class Pattern {
 public:
  /// An op that takes part: "y rstd = rms_norm s g -> acc".
  struct Line {
    const ir::OpDef* def = nullptr;
    std::vector<std::string_view> in, out, updates;
  };

  /// InternalError for an op that stands for nothing.
  explicit Pattern(const ir::OpDef& fused) : Pattern(fused, fused.stands_for) {}
  /// The ops that it stands for with one more of its operands, in the same form.
  Pattern(const ir::OpDef& fused, std::string_view stands_for);

  /// The ops that the fused one could stand for, the last of them at `last`. Nothing when some are missing or
  /// belong to another chunk, or when a value that the fused op would not show has readers besides them.
  std::optional<Match> find(const ir::Uses& uses, int last) const;
  /// The fused op, with the phase, layer and part of the one of its own kind among those that it stands for, else
  /// of the first.
  ir::Op fused_op(const ir::Uses& uses, const Match& match) const;

  const ir::OpDef& fused() const { return fused_; }
  const std::vector<Line>& lines() const { return lines_; }

 private:
  const ir::OpDef& fused_;
  std::vector<Line> lines_;
};

/// The ops that a fused op stands for and whose operands and results it shows, with its phase, layer and part. An
/// op that reads nothing but what the fused op makes belongs elsewhere: to the layer and part of the op of F that
/// reads its own result first. It is a norm that was fused with the last addition of the layer before.
std::vector<ir::Op> shown_ops(const ir::Uses& uses, const ir::Op& fused);

/// The op that makes `fused`'s output number `output`: one of shown_ops, or the fused op itself.
ir::Op maker_of(const ir::Uses& uses, const ir::Op& fused, size_t output);

}  // namespace heddle::passes
