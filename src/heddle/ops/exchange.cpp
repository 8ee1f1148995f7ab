// Expert exchange over a mesh axis of G ranks: row counts to every rank, one copy of them to the host, and the rows
// themselves there and back. E experts, E/G on a rank; rows arrive ordered by (expert, source, token).
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

const OpDef share_counts{
    .kind = "share_counts",
    .stream = StreamKind::comm,
    .collective = true,
    .replayable = false,
    .infer = [](const Stage& stage, const Op& op) {
      const Rule rule(stage, op);
      rule.counts(1);
      const int64_t ranks = op.attributes.integer("ranks"), experts = rule.size(0, 0) - 1;
      rule.require(experts % ranks == 0, "experts is not a multiple of the ranks");
      return std::vector{output(Dtype::i32, {fixed(2), fixed(ranks), fixed(experts / ranks)}, Role::metadata)};
    },
    .cost = [](const Stage& stage, const Op& op, const RowCounts& rows) {
      return Cost{.message_bytes = static_cast<double>(stage.bytes(op.in[0], rows))};
    },
};

const OpDef counts_to_host{
    .kind = "counts_to_host",
    .stream = StreamKind::copy_out,
    .host_stall = true,
    .replayable = false,
    .infer = [](const Stage& stage, const Op& op) {
      const Rule rule(stage, op);
      rule.counts(1);
      return std::vector{output(Dtype::i32, rule.in(0).shape, Role::metadata),
                         output(Dtype::i32, {fixed(rule.size(0, 2) + 1)}, Role::metadata)};
    },
    .cost = operand_cost,
};

const OpDef exchange{
    .kind = "exchange",
    .stream = StreamKind::comm,
    .collective = true,
    .infer = [](const Stage& stage, const Op& op) {
      const Rule rule(stage, op);
      rule.counts(2);
      const bool back = op.attributes.integer("back") != 0;
      const Dim rows = back ? fixed(op.attributes.integer("rows")) : Dim{1, op.in[1]};
      return std::vector{output(rule.dtype(0), {rows, rule.dim(0, 1)})};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      Attributes reverse{{"back", 1 - op.attributes.integer("back")}};
      if (op.attributes.integer("back") == 0) reverse.set("rows", writer.stage().value(op.in[0]).shape[0].count);
      const ValueId dx = writer.input_gradient(*op.def, {d_out[0], op.in[1]}, {writer.d(op.in[0])}, reverse)[0];
      return std::vector{dx, none};
    },
    .cost = [](const Stage& stage, const Op& op, const RowCounts& rows) {
      const double ranks = static_cast<double>(stage.value(op.in[1]).shape[1].count);
      Cost cost = operand_cost(stage, op, rows);
      cost.message_bytes = static_cast<double>(stage.bytes(op.in[0], rows)) * (ranks - 1) / ranks;
      return cost;
    },
};

}  // namespace

std::vector<const OpDef*> exchange_ops() { return {&share_counts, &counts_to_host, &exchange}; }

}  // namespace heddle::ops
