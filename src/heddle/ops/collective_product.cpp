// A product in one op with the collective of rows before or behind it, over a group of G ranks. Each piece of rows
// is multiplied as soon as it has come, or sent as soon as it has been multiplied. A rank's rows are B runs, one a
// sequence of the microbatch, as in ops/collective.cpp. Each run is cut into `pieces` for each rank, as equal as
// its rows allow.
//
//   gather_product:   y = product of the joined rows and w (+ bias); joined, where somebody else reads them
//   product_scatter:  y = the sum over the ranks, in rank order, of this rank's rows of the product of x and w
//
// The product is any that works by row (OpDef::product_of_rows): linear, or its input gradient. The result is what
// both ops make apart, bit for bit. Sources: FLUX (arXiv 2406.06858); AsyncTP of PyTorch.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

Value product_of(const Rule& rule, const Listing& listing, const Op& op, bool gathers) {
  const int64_t ranks = op.attributes.integer("ranks"), runs = op.attributes.integer("runs");
  const Op product = product_in(op);
  rule.require(product.def->product_of_rows, "runs what is no product by rows");
  Value v = product.def->infer(listing, product).front();
  const int64_t rows = rule.size(0, 0);
  v.shape[0] = fixed(gathers ? rows * ranks : rule.quotient(rows, ranks, "rows are not a multiple of the ranks"));
  const int64_t own = std::min(rows, v.shape[0].count), pieces = op.attributes.integer("pieces");
  rule.require(runs >= 1 && own % runs == 0, "rows are not whole runs");
  rule.require(pieces >= 1 && pieces <= std::max<int64_t>(1, own / runs), "more pieces than a run has rows");
  return v;
}

// Each piece reads the weight anew.
Cost piecewise_cost(const Listing& listing, const Op& op, const RowCounts& rows, bool gathers) {
  Cost cost = operand_cost(listing, op, rows);
  const auto ranks = static_cast<double>(op.attributes.integer("ranks"));
  const ValueId all = gathers ? op.out[0] : op.in[0], sent = gathers ? op.in[0] : op.out[0];
  cost.bytes += static_cast<double>(ir::pieces_of(op) - 1) * static_cast<double>(listing.bytes(op.in[1], rows));
  cost.flops = 2.0 * rows_of(listing, all, rows) * static_cast<double>(listing.elements(op.in[1], rows));
  cost.message_bytes = static_cast<double>(listing.bytes(sent, rows)) * (ranks - 1);
  return cost;
}

// clang-format off
const OpDef gather_product{
    .kind = "gather_product",
    .operands = "x w bias?", .results = "y joined?", .attributes = "product ranks runs pieces keeps? wide? dtype?",
    .collective = true,
    .by_pieces = true,
    .packable = "w",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      std::vector<Value> out{product_of(rule, listing, op, true)};
      if (op.attributes.integer_or("keeps", 0) != 0) {
        Value joined = rule.like(0);
        joined.role = Role::activation;
        joined.shape[0] = out[0].shape[0];
        out.push_back(std::move(joined));
      }
      return out;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return piecewise_cost(listing, op, rows, true);
    },
};

const OpDef product_scatter{
    .kind = "product_scatter",
    .operands = "x w bias?", .results = "y", .attributes = "product ranks runs pieces wide? dtype?",
    .collective = true,
    .by_pieces = true,
    .packable = "w",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      return std::vector{product_of(rule, listing, op, false)};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return piecewise_cost(listing, op, rows, false);
    },
};
// clang-format on

}  // namespace

Op product_in(const Op& op) {
  Op product = op;
  product.def = &find(op.attributes.word("product"));
  product.out.resize(std::min<size_t>(op.out.size(), 1));
  product.group.clear();
  product.attributes = {};
  for (const auto& [name, item] : op.attributes.items()) {
    if (ir::place_of(name, product.def->attributes) >= 0) product.attributes.set(name, item);
  }
  return product;
}

std::vector<const OpDef*> collective_product_ops() { return {&gather_product, &product_scatter}; }

}  // namespace heddle::ops
