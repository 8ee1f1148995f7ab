// Experts that take no more rows than they have places. The ops choose which choices of a microbatch keep a place,
// and exchange the places, whose sizes are known before the router has run. T tokens of this rank, k experts a
// token, E experts with C places each for the rows of one rank. G = ep × slices ranks, P = E ÷ ep experts on each
// (as ops/experts/exchange.cpp has them). See docs/features/capacity.md.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef apply_capacity_dgrad, dispatch_places, combine_places;

// clang-format off
const OpDef apply_capacity{
    .kind = "apply_capacity",
    .operands = "gates row_of token_of offsets", .results = "kept place_of token_of_places local_offsets counts",
    .attributes = "places ranks slices",
    .replayable = false,
    .equal_groups = "local_offsets",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t places = op.attributes.integer("places"), ranks = op.attributes.integer("ranks");
      const int64_t experts = rule.size(3, 0) - 1;
      const int64_t holders =
          rule.quotient(ranks, op.attributes.integer("slices"), "ranks is not a multiple of the slices");
      rule.shape(1, rule.in(0).shape);
      rule.require(places >= 1 && places <= rule.size(0, 0), "an expert has a place, and none that no token can take");
      const int64_t own = rule.quotient(experts, holders, "experts is not a multiple of the ranks");
      return std::vector{output(rule.dtype(0), rule.in(0).shape),
                         output(Dtype::i32, rule.in(1).shape, Role::metadata),
                         output(Dtype::i32, {fixed(experts * places)}, Role::metadata),
                         output(Dtype::i32, {fixed(own + 1)}, Role::metadata),
                         output(Dtype::i32, {fixed(2), fixed(ranks), fixed(own)}, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId dgates =
          writer.input_gradient(apply_capacity_dgrad, {d_out[0], op.out[1]}, {writer.d(op.in[0])})[0];
      return std::vector{dgates, none, none, none};
    },
};

const OpDef apply_capacity_dgrad{
    .kind = "apply_capacity_dgrad",
    .operands = "dkept place_of", .results = "dgates",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(1, rule.in(0).shape);
      return std::vector{rule.like(0)};
    }),
};

const OpDef count_dropped{
    .kind = "count_dropped",
    .operands = "place_of", .updates = "dropped",
    .replayable = false,
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.updated(0).shape == ir::Shape{fixed(1)}, "dropped is not [1]");
    }),
};
// clang-format on

// Message bytes: a rank sends as much as it receives, for its E·C places go to each slice of their experts.
Cost places_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  const auto ranks = static_cast<double>(op.attributes.integer("ranks"));
  const bool out = op.kind() == "dispatch_places";
  Cost cost = operand_cost(listing, op, rows);
  cost.message_bytes = static_cast<double>(listing.bytes(out ? op.out[0] : op.in[0], rows)) * (ranks - 1) / ranks;
  return cost;
}

// Rows of every rank's places for this rank's experts are `slices` times as many as a rank's own places.
Value moved(const Rule& rule, const Op& op, bool out) {
  const int64_t slices = op.attributes.integer("slices"), ranks = op.attributes.integer("ranks");
  const int64_t experts = op.attributes.integer("experts"), rows = rule.size(0, 0);
  rule.quotient(rows, experts * (out ? 1 : slices), "rows are not the places of all experts");
  rule.quotient(experts, rule.quotient(ranks, slices, "ranks is not a multiple of the slices"),
                "experts is not a multiple of the ranks");
  Value v = rule.like(0);
  v.role = Role::activation;
  v.shape[0] = fixed(out ? rows * slices : rows / slices);
  return v;
}

// clang-format off
const OpDef dispatch_places{
    .kind = "dispatch_places",
    .operands = "p", .results = "q", .attributes = "ranks slices experts",
    .stream = StreamKind::comm,
    .collective = true,
    .work = ir::Work::permute,
    .infer = by_rule([](const Rule& rule, const Op& op) { return std::vector{moved(rule, op, true)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(combine_places, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
    .cost = places_cost,
};

const OpDef combine_places{
    .kind = "combine_places",
    .operands = "y", .results = "e", .attributes = "ranks slices experts",
    .stream = StreamKind::comm,
    .collective = true,
    .infer = by_rule([](const Rule& rule, const Op& op) { return std::vector{moved(rule, op, false)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(dispatch_places, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
    .cost = places_cost,
};
// clang-format on

}  // namespace

std::vector<const OpDef*> capacity_ops() {
  return {&apply_capacity, &apply_capacity_dgrad, &count_dropped, &dispatch_places, &combine_places};
}

}  // namespace heddle::ops
