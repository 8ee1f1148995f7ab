// Exchanges of rows to the ranks that hold their experts, and back, over a mesh group of G = ep × slices ranks.
// Slices, the ranks that cut the width of the same experts, are fastest. T tokens, k experts a token, E experts, P
// = E ÷ ep on a rank, S rows received, Q tokens that pass through this rank. See device/routing_plan.h and
// docs/features/moe_exchange.md.
//
// All share one set of attributes: ranks, slices, experts and topology (word). The choice of "auto" also has the
// bytes of a row and of a partial sum of one, and what moving them costs. With `copies` (ops/experts/replicas.cpp)
// a rank has so many slots more than experts: P = E ÷ ep + copies. "Experts" of tokens are then slots, and the
// route ends with the expert of each. With 0 of them experts have but other homes
// (ops/experts/expert_placement.cpp).
//
// `room`: the host does not wait for counts. It makes room for so many rows from each rank to each (room_for_counts
// in the place of counts_to_host), whatever comes. `rest`: what finds no room is taken by a second round, which has
// room for so many rows, and that is whatever may come. A rank's rows are all of one round. passes/second_round
// writes the ops of the second one (`round`), and gives ops that bring rows home those of both.
//
// `without`: so many experts behind these have no computation (zero_experts of ops/permute.cpp). Tokens choose
// them, and no row goes to them.
#include <set>

#include "heddle/ir/rounds.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

Attributes rooms_of(const Attributes& exchange) {
  Attributes rooms;
  for (const char* name : {"room", "rest"}) {
    if (exchange.has(name)) rooms.set(name, exchange.integer(name));
  }
  return rooms;
}

std::set<ValueId> counted_in_second_round(const Listing& listing) {
  std::set<ValueId> counted;
  for (const Op& op : listing.ops) {
    if (op.def->moves == ir::Moves::counts && !op.attributes.has("rest")) return {};  // nor have the others
    if (op.def->room != nullptr && op.attributes.has("round")) counted.insert(op.out.begin(), op.out.end());
  }
  return counted;
}

namespace {

extern const OpDef dispatch_dgrad, combine_dgrad;

constexpr std::string_view kExchange =
    "ranks slices experts topology copies? without? room? rest? round? row_bytes? sum_bytes? within_bytes_per_us? "
    "across_bytes_per_us? "
    "within_latency_us? across_latency_us?";

// clang-format off
const OpDef share_counts{
    .kind = "share_counts",
    .operands = "experts placement?", .results = "counts route",
    .attributes = kExchange,
    .stream = StreamKind::comm,
    .collective = true,
    .replayable = false,
    .moves = ir::Moves::counts,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t ranks = op.attributes.integer("ranks"), copies = op.attributes.integer_or("copies", 0);
      const int64_t experts = op.attributes.integer("experts");
      const int64_t holders =
          rule.quotient(ranks, op.attributes.integer("slices"), "ranks is not a multiple of the slices");
      const int64_t each = rule.quotient(experts, holders, "experts is not a multiple of the ranks");
      const bool placed = op.attributes.has("copies");
      const int64_t slots = placed ? experts + holders * copies : 0;
      rule.require(rule.has(1) == placed, "a placement says which expert is in which slot");
      if (placed) rule.shape(1, {fixed(slots)});
      const int64_t lists = op.attributes.word("topology") == "plain" ? 1 : 10;
      return std::vector{output(Dtype::i32, {fixed(2), fixed(ranks), fixed(each + copies)}, Role::metadata),
                         output(Dtype::i32, {fixed(4 + lists * ranks + slots)}, Role::metadata)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.message_bytes = static_cast<double>(listing.bytes(op.out[0], rows)) / 2};
    },
};

const OpDef counts_to_host{
    .kind = "counts_to_host",
    .operands = "counts route", .results = "rows route_n forwards local_offsets most",
    .stream = StreamKind::copy_out,
    .host_stall = true,
    .replayable = false,
    .alike = "most",
    .infer = by_rule([](const Rule& rule) {
      return std::vector{output(Dtype::i32, rule.in(0).shape, Role::metadata),
                         output(Dtype::i32, rule.in(1).shape, Role::metadata),
                         output(Dtype::i32, {fixed(1)}, Role::metadata),
                         output(Dtype::i32, {fixed(rule.size(0, 2) + 1)}, Role::metadata),
                         output(Dtype::i32, {fixed(1)}, Role::metadata)};
    }),
};

// This makes what counts_to_host makes, for ops that read it where the rows are. `beyond` is 0, or -1 where more rows
// come than there is room for in the first round.
const OpDef room_for_counts{
    .kind = "room_for_counts",
    .operands = "counts route", .results = "rows route_n forwards local_offsets most beyond", .attributes = "room rest? round?",
    .replayable = false,
    .alike = "most",
    .room = [](const Listing& listing, const Op& op, size_t result) {
      const int64_t ranks = listing.value(op.in[0]).shape[1].count;
      return result == 0 || result == 4 ? ranks * ir::room_of_round(op.attributes) : 0;
    },
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.require(op.attributes.integer("room") > 0, "there is no room for rows");
      rule.require(!op.attributes.has("round") || op.attributes.integer_or("rest", 0) > 0, "no second round is asked for");
      std::vector<Value> made = counts_to_host.infer(listing, op);
      made.push_back(output(Dtype::i32, {fixed(1)}, Role::metadata));
      return made;
    },
};
// clang-format on

// Moved bytes, estimated as by the plain topology, with every expert equally loaded.
Cost transport_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  const double ranks = static_cast<double>(op.attributes.integer("ranks"));
  Cost cost = operand_cost(listing, op, rows);
  const bool out = op.kind() == "dispatch" || op.kind() == "combine_dgrad";
  cost.message_bytes = static_cast<double>(listing.bytes(out ? op.out[0] : op.in[0], rows)) * (ranks - 1) / ranks;
  return cost;
}

// The lists of the plan as an exchange reads them: n, route, forwards. A gradient writes its own; the pass
// `reuse_lists` leaves one of all that are alike. What it is of is mentioned: the placement, where there are
// copies.
std::vector<ValueId> lists(GradientWriter& writer, const Op& op, ValueId experts) {
  std::vector<ValueId> of{experts};
  of.insert(of.end(), op.mentions.begin(), op.mentions.end());
  const auto counts = writer.input_gradient(find("share_counts"), of, {"counts", "route"}, op.attributes);
  std::vector<std::string> names{"n", "route_n", "forwards", "local_offsets", "most"};
  const Attributes room = rooms_of(op.attributes);
  if (room.has("room")) names.emplace_back("beyond");
  auto known = writer.input_gradient(room.has("room") ? room_for_counts : counts_to_host, counts, names, room);
  known.resize(3);
  return known;
}

// experts, n, route, forwards from operand i on; the tokens of the rows, the experts of passing tokens.
void check_plan(const Rule& rule, size_t i, bool made) {
  rule.require(rule.dtype(i) == Dtype::i32 && rule.in(i + 1).shape.size() == 3,
               "the plan's lists are out of place");
  rule.shape(i + 3, {fixed(1)});
  if (made) rule.require(rule.dtype(i + 4) == Dtype::i32 && rule.dtype(i + 5) == Dtype::i32, "the plan is not i32");
}

// Operands from i on are a second round's: rows with what each has beside it, counts, route, forwards, codes,
// passing.
void check_rest(const Rule& rule, size_t i) {
  if (!rule.has(i)) return;
  rule.require(rule.dtype(i) == rule.dtype(0) && rule.dim(i, 1) == rule.dim(0, 1) &&
                   rule.in(i + 2).shape.size() == 3 && rule.has(i + 6),
               "the second round's rows are out of place");
}

// clang-format off
const OpDef dispatch{
    .kind = "dispatch",
    .operands = "rows gates experts counts route forwards", .results = "q gates_of_rows token_of_rows passing",
    .attributes = kExchange,
    .stream = StreamKind::comm,
    .collective = true,
    .moves = ir::Moves::to_experts,
    .work = ir::Work::permute,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_plan(rule, 2, false);
      rule.shape(1, rule.in(2).shape);
      const Dim received{1, op.in[3]}, passing{1, op.in[4]};
      return std::vector{output(rule.dtype(0), {received, rule.dim(0, 1)}),
                         output(rule.dtype(1), {received}),
                         output(Dtype::i32, {received}, Role::metadata),
                         output(Dtype::i32, {passing, rule.dim(2, 1)}, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const auto l = lists(writer, op, op.in[2]);
      const auto d = writer.input_gradient(
          dispatch_dgrad, {d_out[0], d_out[1], op.in[2], l[0], l[1], l[2], op.out[2], op.out[3]},
          {writer.d(op.in[0]), writer.d(op.in[1])}, op.attributes);
      std::vector<ValueId> d_in{d[0], d[1]};
      d_in.resize(op.in.size() + op.mentions.size(), none);
      return d_in;
    },
    .cost = transport_cost,
};

const OpDef dispatch_dgrad{
    .kind = "dispatch_dgrad",
    .operands = "rows dgates experts counts route forwards token_of_rows passing rest_rows? rest_dgates? rest_counts? "
                "rest_route? rest_forwards? rest_token_of_rows? rest_passing?",
    .results = "dx dgates_of_tokens", .attributes = kExchange,
    .stream = StreamKind::comm,
    .collective = true,
    .moves = ir::Moves::from_experts,
    .infer = by_rule([](const Rule& rule) {
      check_plan(rule, 2, true);
      check_rest(rule, 8);
      return std::vector{output(rule.dtype(0), {rule.dim(2, 0), rule.dim(0, 1)}),
                         output(rule.dtype(1), rule.in(2).shape)};
    }),
    .cost = transport_cost,
};

const OpDef combine{
    .kind = "combine",
    .operands = "rows gates_of_rows gates experts counts route forwards token_of_rows passing residual? rest_rows? "
                "rest_gates_of_rows? rest_counts? rest_route? rest_forwards? rest_token_of_rows? rest_passing?",
    .results = "c", .attributes = kExchange,
    .stream = StreamKind::comm,
    .collective = true,
    .moves = ir::Moves::from_experts,
    .stands_for = "sum = combine rows gates_of_rows gates experts counts route forwards token_of_rows passing\n"
                  "c = add sum residual",
    .infer = by_rule([](const Rule& rule) {
      check_plan(rule, 3, true);
      rule.shape(2, rule.in(3).shape);
      check_rest(rule, 10);
      const ir::Shape shape{rule.dim(3, 0), rule.dim(0, 1)};
      if (rule.has(9)) rule.shape(9, shape);
      return std::vector{output(rule.dtype(0), shape)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const auto l = lists(writer, op, op.in[3]);
      const ValueId dr = writer.input_gradient(
          combine_dgrad, {d_out[0], op.in[3], l[0], l[1], l[2], op.in[7], op.in[8]}, {writer.d(op.out[0]) + "_rows"},
          op.attributes)[0];
      const auto d = writer.input_gradient(find("weigh_dgrad"), {dr, op.in[0], op.in[1]},
                                           {writer.d(op.in[0]), writer.d(op.in[1])});
      std::vector<ValueId> d_in(op.in.size() + op.mentions.size(), none);
      d_in[0] = d[0];
      d_in[1] = d[1];
      if (op.in.size() > 9) d_in[9] = d_out[0];
      return d_in;
    },
    .cost = transport_cost,
};

const OpDef combine_dgrad{
    .kind = "combine_dgrad",
    .operands = "rows experts counts route forwards token_of_rows passing", .results = "dr",
    .attributes = kExchange,
    .stream = StreamKind::comm,
    .collective = true,
    .moves = ir::Moves::to_experts,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_plan(rule, 1, true);
      return std::vector{output(rule.dtype(0), {Dim{1, op.in[2]}, rule.dim(0, 1)})};
    }),
    .cost = transport_cost,
};
// clang-format on

}  // namespace

int64_t even_rows(const Listing& listing, const Op& share_counts) {
  const ir::Shape& chosen = listing.value(share_counts.operand("experts")).shape;
  const Attributes& a = share_counts.attributes;
  const int64_t experts = a.integer("experts"), choices = experts + a.integer_or("without", 0);
  return (chosen[0].count * chosen[1].count * a.integer("slices") * experts + choices - 1) / choices;
}

std::vector<const OpDef*> exchange_ops() {
  return {&share_counts, &counts_to_host, &room_for_counts, &dispatch, &dispatch_dgrad, &combine, &combine_dgrad};
}

}  // namespace heddle::ops
