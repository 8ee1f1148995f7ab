// The ops that read the batch: token ids and labels, loss scales, and the step's hyperparameters.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

const OpDef load_tokens{
    .kind = "load_tokens",
    .results = "ids_and_labels*", .attributes = "rows sequence depths cp?",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const int64_t rows = op.attributes.integer("rows");
      rule.quotient(rows * op.attributes.integer_or("cp", 1), op.attributes.integer("sequence"),
                    "rows are not whole sequences");
      std::vector<Value> out;
      for (int64_t i = 0; i < 2 * op.attributes.integer("depths") + 2; ++i) {
        out.push_back(output(Dtype::i32, {fixed(rows)}, Role::input));
      }
      return out;
    },
    .cost = operand_cost,
};

// weights_d[t] is how much the label d of a row counts.
const OpDef load_weights{
    .kind = "load_weights",
    .results = "weights*", .attributes = "rows sequence depths cp?",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing&, const Op& op) {
      return std::vector<Value>(static_cast<size_t>(op.attributes.integer("depths")) + 1,
                                output(Dtype::f64, {fixed(op.attributes.integer("rows"))}, Role::input));
    },
    .cost = operand_cost,
};

// Of each sequence of the microbatch the loss that another model makes of it.
const OpDef load_references{
    .kind = "load_references",
    .results = "references", .attributes = "sequences",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing&, const Op& op) {
      return std::vector{output(Dtype::f64, {fixed(op.attributes.integer("sequences"))}, Role::input)};
    },
    .cost = operand_cost,
};

// starts[b·S + s] is the last place among b, 0 … s at which a document begins: as the batch says, or behind an id
// document_end.
const OpDef load_starts{
    .kind = "load_starts",
    .results = "starts", .attributes = "rows sequence document_end?",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing& listing, const Op& op) {
      const int64_t rows = op.attributes.integer("rows");
      Rule(listing, op).quotient(rows, op.attributes.integer("sequence"), "rows are not whole sequences");
      return std::vector{output(Dtype::i32, {fixed(rows)}, Role::input)};
    },
    .cost = operand_cost,
};

// The rows of a rank of cp and tp: of each sequence, the tp-th part of what its rank of cp has.
void check_rows(const Rule& rule, const Op& op) {
  const int64_t ranks = op.attributes.integer_or("cp", 1) * op.attributes.integer_or("tp", 1);
  rule.quotient(op.attributes.integer("rows") * ranks, op.attributes.integer("sequence"),
                "rows are not whole sequences");
  rule.quotient(op.attributes.integer("sequence"), ranks, "sequences do not divide among the ranks");
}

// Where documents are apart, each begins at 0. With `cached`, positions are those of the places in the cache.
const OpDef load_positions{
    .kind = "load_positions",
    .results = "positions", .attributes = "rows sequence cp? tp? apart? document_end? cached?",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing& listing, const Op& op) {
      if (op.attributes.integer_or("cached", 0) == 0) check_rows(Rule(listing, op), op);
      return std::vector{output(Dtype::i32, {fixed(op.attributes.integer("rows"))}, Role::input)};
    },
    .cost = operand_cost,
};

// What dropout draws from: of each row which token of the whole batch it is, wherever it lies, and the run's seed and
// step.
const OpDef load_dropout{
    .kind = "load_dropout",
    .results = "tokens key", .attributes = "rows sequence cp? tp?",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing& listing, const Op& op) {
      check_rows(Rule(listing, op), op);
      return std::vector{output(Dtype::i32, {fixed(op.attributes.integer("rows"))}, Role::input),
                         output(Dtype::i32, {fixed(3)}, Role::input)};
    },
    .cost = operand_cost,
};

const OpDef load_scales{
    .kind = "load_scales",
    .results = "scales", .attributes = "count dtype",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing&, const Op& op) {
      const Dtype dtype = op.attributes.word("dtype") == "f64" ? Dtype::f64 : Dtype::f32;
      return std::vector{output(dtype, {fixed(op.attributes.integer("count"))}, Role::input)};
    },
    .cost = operand_cost,
};

const OpDef load_step{
    .kind = "load_step",
    .results = "hyper",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing&, const Op&) {
      return std::vector{output(Dtype::f64, {fixed(4)}, Role::input)};
    },
    .cost = operand_cost,
};

const OpDef load_limits{
    .kind = "load_limits",
    .results = "limits",
    .stream = StreamKind::copy_in,
    .infer = [](const Listing&, const Op&) {
      return std::vector{output(Dtype::f64, {fixed(2)}, Role::input)};
    },
    .cost = operand_cost,
};

}  // namespace

std::vector<const OpDef*> batch_ops() {
  return {&load_tokens, &load_weights, &load_references, &load_starts, &load_positions, &load_dropout, &load_scales, &load_step, &load_limits};
}

}  // namespace heddle::ops
