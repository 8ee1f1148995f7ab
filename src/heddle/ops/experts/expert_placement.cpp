// Experts that change their homes (docs/features/expert_migration.md). G ranks of an exchange, H = G ÷ slices
// holders, P = E ÷ H places on each; T tokens with k experts. An expert's home is its holder times P, plus its
// place.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

/// Places of a holder.
int64_t places_of(const Rule& rule, const Op& op) {
  const int64_t holders = rule.quotient(op.attributes.integer("ranks"), op.attributes.integer("slices"),
                                        "ranks is not a multiple of the slices");
  return rule.quotient(op.attributes.integer("experts"), holders, "experts is not a multiple of the ranks");
}

// clang-format off
// The home of each choice, and the expert of each home. Nothing crosses, so it needs no channel. Where experts have
// copies, the ops that place these know of homes, too (ops/experts/replicas.cpp). The host works out where rows go.
const OpDef place_experts{
    .kind = "place_experts",
    .operands = "experts homes", .results = "slots placement",
    .attributes = "ranks slices experts copies",
    .calls_host = true,
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      places_of(rule, op);
      rule.require(rule.dtype(0) == Dtype::i32 && rule.dtype(1) == Dtype::i32, "experts or their placement are not i32");
      rule.shape(1, {fixed(op.attributes.integer("experts"))});
      rule.require(op.attributes.integer("copies") == 0, "a placement has no replicas");
      return std::vector{output(Dtype::i32, rule.in(0).shape, Role::metadata),
                         output(Dtype::i32, {fixed(op.attributes.integer("experts"))}, Role::metadata)};
    }),
};

// `moves`[0] are the homes that experts have, moves[1] those that they get; where both are alike nothing moves. The
// experts of this rank that leave go to the same place of their next holder, and those that come take theirs. `numbers`
// of each tensor belong to an expert. A tensor of all P experts has P times as many. A tensor that is shared out among
// copies has a run of these, the i-th on the i-th rank of edp, or `by_slice` on that of edp and etp. `packed`, where a
// tensor is packed, are the bytes of one expert. Most steps move nothing, so nothing is estimated.
const OpDef move_experts{
    .kind = "move_experts",
    .operands = "moves", .updates = "state*",
    .attributes = "ranks slices experts numbers packed? by_slice?",
    .stream = StreamKind::comm,
    .collective = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t places = places_of(rule, op), numbers = op.attributes.integer("numbers");
      const int64_t packed = op.attributes.integer_or("packed", 0);
      rule.require(rule.dtype(0) == Dtype::i32, "moves are not i32");
      rule.shape(0, {fixed(2), fixed(op.attributes.integer("experts"))});
      rule.require(!op.updates.empty(), "nothing moves");
      for (size_t i = 0; i < op.updates.size(); ++i) {
        const Value& state = rule.updated(i);
        int64_t count = 1;
        for (const Dim& dim : state.shape) count *= dim.count;
        rule.require(state.shape.size() == 1 || count == places * numbers, "is neither a run nor of all experts here");
        rule.require(state.packed_bytes == packed * places, "says the bytes of what is packed, and of nothing else");
      }
    }),
    .cost = [](const Listing&, const Op&, const RowCounts&) { return Cost{}; },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> homes_ops() { return {&place_experts, &move_experts}; }

}  // namespace heddle::ops
