// An op: one kernel, one collective or one copy. Its definition (OpDef) gives the shape, the gradient and the cost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/attributes.h"
#include "heddle/ir/value.h"

namespace heddle::ir {

/// When an op runs: once at the beginning of the step, forward, input gradient, weight gradient, or once at its
/// end.
enum class Phase : uint8_t { begin, F, I, W, end };
constexpr bool once_a_step(Phase phase) { return phase == Phase::begin || phase == Phase::end; }
std::string_view name_of(Phase phase);

/// Where an op runs. Each kind is one in-order stream of the rank; collectives have one stream a mesh axis.
enum class StreamKind : uint8_t { compute, comm, copy_in, copy_out, host };
std::string_view name_of(StreamKind kind);

struct Op;
class Stage;
class GradientWriter;

/// Arithmetic and memory traffic of an op, at stated row counts. `bytes` is the least that must move.
struct Cost {
  double flops = 0;          // matrix products
  double bytes = 0;          // reads and writes of operands, each once
  double message_bytes = 0;  // sent by this rank
};

/// Sizes of dynamic dims, for cost: the rows that a counting value stands for.
struct RowCounts {
  /// Rows counted by `value`, or 0 when unknown.
  virtual int64_t rows(ValueId value) const = 0;
  virtual ~RowCounts() = default;
};

/// The definition of an op kind; one instance a kind, static.
struct OpDef {
  std::string_view kind;
  StreamKind stream = StreamKind::compute;
  bool collective = false;  // every rank of `group` runs it, in one order
  bool host_stall = false;  // the host waits for its outputs before it can go on (row counts)
  bool replayable = true;   // false: a replay must reuse the first output (routing, counting)
  bool is_loss = false;     // its gradient starts from the loss scales, not from an output gradient

  /// Checks operands and attributes and returns the outputs (unnamed). Rerun by the verifier after every pass.
  /// InternalError when an operand has a wrong rank, dtype or size.
  std::vector<Value> (*infer)(const Stage& stage, const Op& op) = nullptr;

  /// Writes I and W ops for the gradients `d_out` (none where an output has no gradient) and returns the gradient
  /// of each input, then of each mention (none where it has none). Null: the op is not differentiable and stops
  /// gradients.
  std::vector<ValueId> (*differentiate)(GradientWriter& writer, const Op& op,
                                        const std::vector<ValueId>& d_out) = nullptr;

  Cost (*cost)(const Stage& stage, const Op& op, const RowCounts& rows) = nullptr;
};

constexpr int kAllChunks = -1;

struct Op {
  const OpDef* def = nullptr;
  std::vector<ValueId> in;  // none where an optional operand is absent
  std::vector<ValueId> out;
  std::vector<ValueId> updates;  // persistent values, read, modified and written
  /// Operands of the gradient rule only: neither read by this op nor kept alive for it. The rule returns their
  /// gradients after those of `in`.
  std::vector<ValueId> mentions;
  Phase phase = Phase::F;
  std::string group;   // the mesh axis of a collective, "" for a local op
  int layer = -1;      // global layer, -1 outside the layers
  int chunk = 0;       // of the stage; kAllChunks: before any of them begins
  std::string part;    // of the layer, for passes that choose ops: "mla_up", "router", …; "" for the rest
  bool again = false;  // makes anew, in I or W, what an op of F has made (passes/recompute)
  Attributes attributes;

  std::string_view kind() const { return def->kind; }
};

}  // namespace heddle::ir
