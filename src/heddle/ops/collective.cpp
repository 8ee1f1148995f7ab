// Collectives over the rows of a mesh group of G ranks. A rank's rows are B runs, one a sequence of the microbatch,
// so that the joined rows are whole sequences again. "zigzag": rank i holds chunks i and 2G−1−i of each sequence
// (equal work under a causal mask), and joined rows are in the order of the sequence. Sums are formed by the owner
// of a row, in rank order, in the accumulation type.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef reduce_scatter, ring_shift;

Role role_like(const Value& v) { return v.role == Role::metadata ? Role::metadata : Role::activation; }

void check_runs(const Rule& rule, const Op& op, int64_t rows) {
  const int64_t runs = op.attributes.integer("runs"), chunks = op.attributes.integer_or("zigzag", 0) != 0 ? 2 : 1;
  rule.require(runs >= 1 && rows % (runs * chunks) == 0, "rows are not whole runs");
}

Value joined(const Rule& rule, const Op& op, bool apart) {
  const int64_t ranks = op.attributes.integer("ranks");
  Value v = rule.like(0);
  v.role = role_like(rule.in(0));
  v.shape[0] = fixed(apart ? rule.quotient(rule.size(0, 0), ranks, "rows are not a multiple of the ranks")
                           : rule.size(0, 0) * ranks);
  check_runs(rule, op, apart ? v.shape[0].count : rule.size(0, 0));
  return v;
}

double others(const Op& op) {
  const auto ranks = static_cast<double>(op.attributes.integer("ranks"));
  return (ranks - 1) / ranks;
}

// clang-format off
const OpDef all_gather{
    .kind = "all_gather",
    .operands = "x", .results = "y", .attributes = "ranks runs zigzag?",
    .stream = StreamKind::comm,
    .collective = true,
    .work = ir::Work::gather,
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule, const Op& op) { return std::vector{joined(rule, op, false)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(reduce_scatter, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.message_bytes = static_cast<double>(listing.bytes(op.out[0], rows)) * others(op);
      return cost;
    },
};

const OpDef reduce_scatter{
    .kind = "reduce_scatter",
    .operands = "x", .results = "y", .attributes = "ranks runs zigzag?",
    .stream = StreamKind::comm,
    .collective = true,
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule, const Op& op) { return std::vector{joined(rule, op, true)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(all_gather, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.message_bytes = static_cast<double>(listing.bytes(op.in[0], rows)) * others(op);
      return cost;
    },
};
// clang-format on

// All-to-all between ranks that hold all columns of their rows of each sequence and ranks that hold their part of
// the columns (heads) of all rows (DeepSpeed-Ulysses, arXiv 2309.14509).
Value turned(const Rule& rule, const Op& op, bool to_sequence) {
  const int64_t ranks = op.attributes.integer("ranks");
  const size_t cut = to_sequence ? 1 : 0;
  Value v = rule.like(0);
  v.role = role_like(rule.in(0));
  v.shape[cut] = fixed(rule.quotient(
      rule.size(0, cut), ranks,
      to_sequence ? "columns are not a multiple of the ranks" : "rows are not a multiple of the ranks"));
  v.shape[1 - cut] = fixed(rule.size(0, 1 - cut) * ranks);
  check_runs(rule, op, rule.size(0, 0) / (to_sequence ? 1 : ranks));
  return v;
}

Cost all_to_all_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  Cost cost = operand_cost(listing, op, rows);
  cost.message_bytes = static_cast<double>(listing.bytes(op.in[0], rows)) * others(op);
  return cost;
}

extern const OpDef sequence_to_heads;

// clang-format off
const OpDef heads_to_sequence{
    .kind = "heads_to_sequence",
    .operands = "x", .results = "y", .attributes = "ranks runs zigzag?",
    .stream = StreamKind::comm,
    .collective = true,
    .infer = by_rule([](const Rule& rule, const Op& op) { return std::vector{turned(rule, op, true)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(sequence_to_heads, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
    .cost = all_to_all_cost,
};

const OpDef sequence_to_heads{
    .kind = "sequence_to_heads",
    .operands = "x", .results = "y", .attributes = "ranks runs zigzag?",
    .stream = StreamKind::comm,
    .collective = true,
    .work = ir::Work::heads,
    .infer = by_rule([](const Rule& rule, const Op& op) { return std::vector{turned(rule, op, false)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(heads_to_sequence, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
    .cost = all_to_all_cost,
};

// To the rank `by` places on in the group, from the one as many places before.
const OpDef ring_shift{
    .kind = "ring_shift",
    .operands = "x", .results = "y", .attributes = "ranks by",
    .stream = StreamKind::comm,
    .collective = true,
    .work = ir::Work::gather,
    .infer = by_rule([](const Rule& rule) {
      Value v = rule.like(0);
      v.role = role_like(rule.in(0));
      return std::vector{std::move(v)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      Attributes back = op.attributes;
      back.set("by", -op.attributes.integer("by"));
      return writer.input_gradient(ring_shift, {d_out[0]}, {writer.d(op.in[0])}, std::move(back));
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.message_bytes = static_cast<double>(listing.bytes(op.in[0], rows));
      return cost;
    },
};

// In any phase: sums over tokens in F, statistics and the norm at the end. Not differentiable.
const OpDef all_reduce{
    .kind = "all_reduce",
    .operands = "x", .results = "y", .attributes = "ranks",
    .stream = StreamKind::comm,
    .collective = true,
    .alike = "y",
    .infer = by_rule([](const Rule& rule) {
      Value v = rule.like(0);
      v.role = Role::metadata;
      return std::vector{std::move(v)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      // Everybody sends all to everybody: what is summed this way is small.
      cost.message_bytes = static_cast<double>(listing.bytes(op.in[0], rows) * (op.attributes.integer("ranks") - 1));
      return cost;
    },
};

// The elements of a tensor in G equal runs, the last ones shorter or empty; shard i of every operand is rank i's.
int64_t shard_elements(int64_t elements, int64_t ranks) {
  HEDDLE_CHECK(ranks >= 1, "parts of {} ranks", ranks);
  return (elements + ranks - 1) / ranks;
}

const OpDef reduce_gradients{
    .kind = "reduce_gradients",
    .operands = "accumulators*", .results = "shards*", .attributes = "ranks one order?",
    .stream = StreamKind::comm,
    .collective = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t ranks = op.attributes.integer("ranks");
      rule.require(!op.in.empty(), "needs an accumulator");
      std::vector<Value> out;
      for (size_t i = 0; i < op.in.size(); ++i) {
        if (op.attributes.integer("one") != 0 && i > 0) {
          rule.same(i, 0);  // further uses of the one parameter
        } else {
          out.push_back(output(rule.dtype(i), {fixed(shard_elements(static_elements(rule.in(i)), ranks))},
                               Role::metadata));
        }
      }
      return out;
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      // With an order every use goes on its own, but for those that come first and are added up before.
      const bool apart = op.attributes.has("order");
      for (const ValueId id : op.out) {
        cost.message_bytes += static_cast<double>(listing.bytes(id, rows)) *
                              static_cast<double>(op.attributes.integer("ranks") - 1) *
                              static_cast<double>(apart ? op.in.size() : 1);
      }
      return cost;
    },
};

const OpDef gather_weights{
    .kind = "gather_weights",
    .operands = "shards*", .updates = "weights*", .attributes = "ranks",
    .stream = StreamKind::comm,
    .collective = true,
    .overwrites = "weights*",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t ranks = op.attributes.integer("ranks");
      rule.require(op.in.size() == op.updates.size(), "needs a weight for each shard");
      for (size_t i = 0; i < op.in.size(); ++i) {
        rule.shape(i, {fixed(shard_elements(static_elements(rule.updated(i)), ranks))});
        rule.require(rule.dtype(i) == rule.updated(i).dtype, "shard and weight differ in type");
      }
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost;
      for (const ValueId id : op.in) cost.bytes += static_cast<double>(listing.bytes(id, rows));
      for (const ValueId id : op.updates) cost.bytes += static_cast<double>(listing.bytes(id, rows));
      for (const ValueId id : op.in) {
        cost.message_bytes += static_cast<double>(listing.bytes(id, rows)) *
                              static_cast<double>(op.attributes.integer("ranks") - 1);
      }
      return cost;
    },
};

// One weight whole, for a backend that packs it, or for a block of the schedule that reads it (passes/shard).
const OpDef gather_rows{
    .kind = "gather_rows",
    .operands = "shard", .results = "w", .attributes = "ranks dim0 dim1? dim2?",
    .stream = StreamKind::comm,
    .collective = true,
    .timed = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      ir::Shape shape;
      for (int i = 0; op.attributes.has(fmt::format("dim{}", i)); ++i) {
        shape.push_back(fixed(op.attributes.integer(fmt::format("dim{}", i))));
      }
      Value v = output(rule.dtype(0), std::move(shape), Role::metadata);
      rule.shape(0, {fixed(shard_elements(static_elements(v), op.attributes.integer("ranks")))});
      return std::vector{std::move(v)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.message_bytes = static_cast<double>(listing.bytes(op.in[0], rows) * (op.attributes.integer("ranks") - 1));
      return cost;
    },
};

// Token ids counted from `first` of the vocabulary's part that this rank of tp holds; ids of other parts become
// `outside`, padding stays below zero.
const OpDef shift_ids{
    .kind = "shift_ids",
    .operands = "ids", .results = "shifted", .attributes = "size outside",
    .infer = by_rule([](const Rule& rule) {
      Value v = rule.like(0);
      v.role = Role::input;
      return std::vector{std::move(v)};
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> collective_ops() {
  return {&all_gather, &reduce_scatter,   &heads_to_sequence, &sequence_to_heads, &ring_shift,
          &all_reduce, &reduce_gradients, &gather_weights,    &gather_rows,       &shift_ids};
}

}  // namespace heddle::ops
