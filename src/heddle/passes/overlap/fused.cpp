#include "heddle/passes/overlap/fused.h"

#include <algorithm>
#include <optional>

#include "heddle/ir/uses.h"
#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::Listing;
using ir::none;
using ir::Op;
using ir::ValueId;

// Between two ranks in one op: what tells messages apart must suffice for them.
constexpr int64_t kMostPieces = 128;

class Finder {
 public:
  explicit Finder(const Listing& listing)
      : listing_(listing), uses_(listing), taken_(listing.ops.size(), false), writers_(listing.values.size(), 0) {
    for (const Op& op : listing.ops) {
      for (const ValueId id : op.out) {
        if (id != none) ++writers_[listing.base(id)];
      }
      if (!op.def->drops) continue;
      for (const ValueId id : op.in) writers_[listing.base(id)] = 2;  // made again
    }
  }

  std::vector<Pair> pairs() {
    std::vector<Pair> found;
    for (size_t i = 0; i < listing_.ops.size(); ++i) {
      if (!is_product(listing_.ops[i])) continue;
      std::optional<Pair> pair = gathered(i);
      if (!pair) pair = scattered(i);
      if (!pair) continue;
      taken_[pair->collective] = taken_[pair->product] = true;
      found.push_back(*pair);
    }
    return found;
  }

 private:
  bool plain(const Op& op) const {
    return op.updates.empty() && op.mentions.empty() && !op.condition && !op.ahead && op.stream.empty() &&
           op.out.size() == 1;
  }
  bool is_product(const Op& op) const {
    if (!op.def->product_of_rows || !plain(op)) return false;
    for (const ir::OpDef* fused : {&gather_, &scatter_}) {
      if (op.in.size() > ir::names_in(fused->operands).size()) return false;
      for (const auto& [name, item] : op.attributes.items()) {
        if (ir::place_of(name, fused->attributes) < 0) return false;
      }
    }
    return is_whole(op.out[0]) && is_whole(op.in[0]);
  }

  // Rows of fixed number, as one op writes them.
  bool is_whole(ValueId id) const {
    const ir::Value& v = listing_.value(id);
    return v.shape.size() == 2 && v.shape[0].is_static() && v.shape[1].is_static() && v.shape[0].count > 0 &&
           !ir::is_persistent(v.role) && v.part_of == none && v.layout == ir::Layout::rows &&
           v.space == ir::Space::device && writers_[id] <= 1;
  }

  // A gather or a sum of rows that lie rank after rank, which goes with the product.
  std::optional<Pair> with(int index, size_t product, bool gathers) const {
    if (index < 0 || taken_[index]) return std::nullopt;
    const Op &op = uses_.op(index), &made = listing_.ops[product];
    if (!op.def->collective || op.def->by_row.empty() || op.in.size() != 1 || !plain(op)) return std::nullopt;
    if (op.attributes.integer_or("zigzag", 0) != 0 || !op.attributes.has("runs")) return std::nullopt;
    if (op.phase != made.phase || op.chunk != made.chunk || op.again != made.again) return std::nullopt;
    if (!is_whole(op.in[0]) || !is_whole(op.out[0])) return std::nullopt;
    const int64_t in = listing_.value(op.in[0]).shape[0].count, out = listing_.value(op.out[0]).shape[0].count;
    if (gathers != (in < out)) return std::nullopt;
    Pair pair{static_cast<size_t>(index), product, gathers, 0, op.attributes.integer("runs")};
    pair.rows = std::min(in, out) / pair.runs;
    if (pair.rows < 1 || pair.runs > kMostPieces) return std::nullopt;
    return pair;
  }

  // The gather whose rows the product reads before anybody else.
  std::optional<Pair> gathered(size_t product) const {
    const ValueId rows = listing_.ops[product].in[0];
    if (listing_.ops[product].in[1] == rows || uses_.readers(rows)[0] != static_cast<int>(product))
      return std::nullopt;
    return with(uses_.writer_index(rows), product, true);
  }

  // The sum that alone reads what the product makes.
  std::optional<Pair> scattered(size_t product) const {
    const ValueId made = listing_.ops[product].out[0];
    if (uses_.readers(made).size() != 1 || !uses_.mentions(made).empty()) return std::nullopt;
    std::optional<Pair> pair = with(uses_.readers(made)[0], product, false);
    return pair;
  }

  const Listing& listing_;
  const ir::Uses uses_;
  std::vector<bool> taken_;
  std::vector<int> writers_;  // by base
  const ir::OpDef &gather_ = ops::find("gather_product"), &scatter_ = ops::find("product_scatter");
};

}  // namespace

std::vector<Pair> pairs_to_fuse(const Listing& listing) { return Finder(listing).pairs(); }

Op fused_op(const Listing& listing, const Pair& pair, int pieces, bool keeps) {
  const Op &collective = listing.ops[pair.collective], &product = listing.ops[pair.product];
  Op op = product;
  op.def = &ops::find(pair.gathers ? "gather_product" : "product_scatter");
  op.group = collective.group;
  if (pair.gathers) {
    op.in[0] = collective.in[0];
    if (keeps) op.out.push_back(collective.out[0]);
    if (keeps) op.attributes.set("keeps", 1);
  } else {
    op.out = collective.out;
  }
  op.attributes.set("product", std::string(product.kind()));
  op.attributes.set("ranks", collective.attributes.integer("ranks"));
  op.attributes.set("runs", pair.runs);
  const int64_t most = std::min(pair.rows, std::max<int64_t>(1, kMostPieces / pair.runs));
  op.attributes.set("pieces", std::clamp<int64_t>(pieces, 1, most));
  return op;
}

void fuse_with_collectives(Listing& listing, const PiecesOf& pieces) {
  const std::vector<Pair> pairs = pairs_to_fuse(listing);
  const ir::Uses uses(listing);
  std::vector<const Pair*> at(listing.ops.size(), nullptr);
  std::vector<Op> made(listing.ops.size());
  std::vector<bool> gone(listing.ops.size(), false);
  for (const Pair& pair : pairs) {
    const int count = pieces(listing, pair);
    if (count < 1) continue;
    const ValueId joined = listing.ops[pair.collective].out[0];
    const bool keeps = pair.gathers && (uses.readers(joined).size() > 1 || !uses.mentions(joined).empty());
    made[pair.product] = fused_op(listing, pair, count, keeps);
    at[pair.product] = &pair;
    gone[pair.collective] = true;
  }
  std::vector<Op> ops;
  for (size_t i = 0; i < listing.ops.size(); ++i) {
    if (!gone[i]) ops.push_back(at[i] != nullptr ? std::move(made[i]) : std::move(listing.ops[i]));
  }
  listing.ops = std::move(ops);
}

}  // namespace heddle::passes
