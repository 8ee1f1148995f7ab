// An op: one kernel, one collective or one copy. Its definition (OpDef) gives the shape, the gradient and the cost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/attributes.h"
#include "heddle/ir/value.h"

namespace heddle::ir {

/// The phase of an op: once at the beginning of the step, in each microbatch's forward, input gradient or weight
/// gradient, or once at the end of the step.
enum class Phase : uint8_t { begin, F, I, W, end };
inline constexpr size_t kPhases = 5;
constexpr bool once_a_step(Phase phase) { return phase == Phase::begin || phase == Phase::end; }
std::string_view name_of(Phase phase);

/// The usual stream of an op. Each kind is one in-order stream of the rank; collectives have one stream a mesh axis
/// (ir/walk/streams.h).
enum class StreamKind : uint8_t { compute, comm, copy_in, copy_out };
std::string_view name_of(StreamKind kind);

/// The kind of data that an op moves, and its direction; `nothing` if it computes.
enum class Moves : uint8_t {
  nothing,
  to_neighbour,    // a message to the rank that stands `step` places on along the op's group, which takes it
  from_neighbour,  // by an op of this kind
  to_host,         // from the device's arena to one on the host
  from_host,       // and back
  counts,          // how many rows an exchange will move, from every rank of the group to every other
  to_experts,      // rows of an exchange, from the ranks of their tokens
  from_experts,    // and back
};
constexpr bool is_message(Moves moves) { return moves == Moves::to_neighbour || moves == Moves::from_neighbour; }
constexpr bool is_copy(Moves moves) { return moves == Moves::to_host || moves == Moves::from_host; }
constexpr bool is_exchange(Moves moves) { return moves == Moves::to_experts || moves == Moves::from_experts; }

/// The work of an op in a layer, as the words of recompute and offload tell ops apart (passes/op_groups).
enum class Work : uint8_t {
  other,
  norm,
  activation,  // elementwise, between the products of an MLP
  attention,
  gather,   // brings rows together that lie on other ranks of tp or cp
  heads,    // brings all rows of some heads back to all heads of some rows, after attention
  permute,  // brings rows into the order of their experts
};

struct Op;
class Listing;
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

/// Bytes of all operands, each read or written once (updates: both); no products.
Cost operand_cost(const Listing& listing, const Op& op, const RowCounts& rows);

/// The definition of an op kind; one instance a kind, static.
struct OpDef {
  std::string_view kind;
  /// Names of Op::in, out and updates, in their order, and of the attributes: "x w bias?". What ends in `?` may be
  /// absent; a last one that ends in `*` stands for any number.
  std::string_view operands, results, updates, attributes;
  StreamKind stream = StreamKind::compute;
  bool collective = false;  // every rank of `group` runs it, in one order
  bool host_stall = false;  // the host waits for its outputs before it can go on (row counts)
  bool by_pieces = false;   // it runs the product that its attribute `product` names while it communicates
  bool loads = false;       // it makes a value of an input, which its attribute `input` names, as the host has it
  bool calls_host = false;  // its kernel has the host do work that is of this launch alone
  bool replayable = true;   // false: a replay must reuse the first output (routing, counting)
  bool made_again = false;  // what it makes is never kept from F for the backward, but made again there
  bool is_loss = false;     // its gradient starts from the loss scales, not from an output gradient
  Moves moves = Moves::nothing;
  Work work = Work::other;
  bool chooses_experts = false;
  /// Its result is its first operand times the transpose of its second, a weight, row by row. Further operands are
  /// a bias, or say which rows go to which of the weight's matrices, whatever their widths.
  bool linear_map = false;
  /// A product, by row, of its first operand with a weight: an op that communicates while it computes may run it on
  /// some rows at a time.
  bool product_of_rows = false;
  /// The result whose offsets cut rows into groups of equal size, whatever the op reads.
  std::string_view equal_groups;
  bool adds_beside = false;  // adds to a sum that another op of its phase, before it, has made or added to
  bool drops = false;        // runs nowhere: gives the storage of its operands back, although they are read again
  bool reserves = false;     // runs nowhere: makes room for its results, of which nothing is there yet
  bool timed = false;        // in a microbatch it stands where a pass has timed it: weaving moves it no earlier
  bool flips = false;        // runs nowhere: its two updates, alike and persistent, take each other's storage
  std::string_view alike;    // the results that are the same on all ranks of its group, or of its operands' writers
  std::string_view packable;  // the operand, a weight, that it can also read in the backend's own blocking
  /// Operands and updates, all of one size, on equal parts of which it may run one after the other; the others are
  /// taken as a whole by each. "" where there is no such thing.
  std::string_view by_element;
  /// Operands and results that it may process in parts of their rows, one part after the other. Each part has the
  /// same rows of each (for a collective, the same rows of each run). The others are taken as a whole by each part.
  /// A row of a result has the same bits whichever rows are computed with it.
  std::string_view by_row;
  /// Updates that it writes as a whole, and reads nothing of.
  std::string_view overwrites;
  /// Updates that it may find on the host, for it goes over each element once: the device reaches them there.
  std::string_view reaches_host;
  /// The most that a result may count, of an op whose counts the host does not read: it makes room for these rows.
  int64_t (*room)(const Listing& listing, const Op& op, size_t result) = nullptr;
  std::string_view exact;  // the kind to take its place under exact sums, with the row counts as a last operand

  /// The ops that a fused op stands for, one a line, in its own names and those of values that it does not show:
  /// "s = add a b\ny rstd = rms_norm s g". Each line takes the attributes that its definition names. Where one of
  /// the lines is of the op's own kind, the op stands for them only with the operands that it adds.
  std::string_view stands_for;

  /// Checks operands and attributes and returns the outputs (unnamed). Rerun by the verifier after every pass.
  /// InternalError when an operand has a wrong rank, dtype or size.
  std::vector<Value> (*infer)(const Listing& listing, const Op& op) = nullptr;

  /// Writes I and W ops for the gradients `d_out` (none where an output has no gradient). Returns the gradient of
  /// each input, then of each mention (none where it has none). Null: the op is not differentiable and stops
  /// gradients.
  std::vector<ValueId> (*differentiate)(GradientWriter& writer, const Op& op,
                                        const std::vector<ValueId>& d_out) = nullptr;

  Cost (*cost)(const Listing& listing, const Op& op, const RowCounts& rows) = operand_cost;
};

/// True if ops of the definition use the communicator of their group, on a stream of their own or while they
/// compute.
constexpr bool communicates(const OpDef& def) { return def.collective || is_message(def.moves); }
/// True if ops of the definition are ever issued; the others only say where values lie.
constexpr bool runs(const OpDef& def) { return !def.drops && !def.reserves && !def.flips; }

constexpr int kAllChunks = -1;

/// The condition under which an op runs: `rows_of` (an output of an op with a host stall) counts more than `limit`
/// rows, as the host read it, or no more than that. Several ops may write one value, and an op may drop one that is
/// written again, as long as in every outcome each read finds what it reads (ir/verify).
struct Condition {
  ValueId rows_of = none;  // none: it always runs
  int64_t limit = 0;
  bool more = true;
  explicit operator bool() const { return rows_of != none; }
  bool holds(int64_t rows) const { return (rows > limit) == more; }
  bool operator==(const Condition&) const = default;
};

struct Op {
  const OpDef* def = nullptr;
  std::vector<ValueId> in;  // none where an optional operand is absent
  std::vector<ValueId> out;
  /// Read, modified and written: what persists, and what a reserve or a copy from the host has made.
  std::vector<ValueId> updates;
  /// Operands of the gradient rule only: neither read by this op nor kept alive for it. The rule returns their
  /// gradients after those of `in`.
  std::vector<ValueId> mentions;
  Phase phase = Phase::F;
  std::string group;   // the mesh axis whose ranks it communicates with, "" for a local op
  std::string stream;  // on which it runs, "" for the usual one of its definition and group; or kHostStream
  Condition condition;
  int layer = -1;       // global layer, -1 outside the layers
  int chunk = 0;        // of the listing; kAllChunks: before any of them begins
  std::string part;     // of the layer, for passes that choose ops: "mla_up", "router", …; "" for the rest
  bool again = false;   // makes anew, in I or W, what an op of F has made (passes/recompute)
  bool ahead = false;   // may begin before its phase does: a block of its own, which the schedule places
  bool fresh = false;   // overwrites what it updates in every microbatch
  bool beside = false;  // adds to a sum like an op of OpDef::adds_beside
  bool later =
      false;  // a copy of a sum: in the first microbatch of a step it only makes room, for nothing is summed
  bool trails = false;  // the step's end does not wait for it: it may run on beside the next step
  Attributes attributes;

  std::string_view kind() const { return def->kind; }
  /// The operand, result or updated value of that name in the definition; none where it is absent. InternalError
  /// when the definition has no such name.
  ValueId operand(std::string_view name) const;
  ValueId result(std::string_view name) const;
  ValueId updated(std::string_view name) const;
};

/// True if the op adds to a sum that another op of its phase, before it, has made or added to.
inline bool adds_beside(const Op& op) { return op.def->adds_beside || op.beside; }

/// The stream of the host's processor: what it runs finds its operands on the host and leaves its results there.
constexpr std::string_view kHostStream = "host";
inline bool runs_on_host(const Op& op) { return op.stream == kHostStream; }

/// The names of a list of OpDef, one by one, as written there.
std::vector<std::string_view> names_in(std::string_view list);
/// The index of a name in such a list, with or without its mark; -1 when it is absent.
int place_of(std::string_view name, std::string_view list);

/// True if the op writes its u-th update as a whole without reading it (OpDef::overwrites).
bool overwrites(const Op& op, size_t u);
/// True if the op may find its u-th update on the host (OpDef::reaches_host).
bool reaches_host(const Op& op, size_t u);

/// The number of pieces into which an op of OpDef::by_pieces cuts its rows; 1 for other ops. One piece overlaps
/// with no message, for it is made before the first is sent, or after the last has come.
int64_t pieces_of(const Op& op);

/// InternalError unless operands, updates and attributes are as many and are named as the definition has them.
void check_names(const Op& op);

}  // namespace heddle::ir
