// gather_product and product_scatter: a product of rows, piece by piece, beside the exchange of its operand's or
// its result's rows. K columns of x, N of y; G ranks, B runs.
//
//   gather_product:   The own rows go to all others first, the next rank's piece before the others'. Every piece is
//                     multiplied once it has come, the own ones while the first are on their way.
//   product_scatter:  Rows are multiplied for the next rank first, for this one last, while the last of the others'
//                     are on their way. Each piece lands in the slot of its source with its owner, which adds up
//                     the slots in rank order as soon as all have that piece. The order of arrival decides nothing.
#include <algorithm>
#include <vector>

#include "heddle/comm/collectives.h"
#include "heddle/comm/communicator.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

struct Pieces {
  Pieces(const KernelCall& call, const TensorView& own)
      : ranks(call.op->attributes.integer("ranks")),
        runs(call.op->attributes.integer("runs")),
        pieces(call.op->attributes.integer("pieces")),
        run(own.dim(0) / runs),
        rank(call.communicator->rank()) {
    HEDDLE_CHECK(call.communicator->size() == ranks, "'{}' over {} ranks on a communicator of {}", call.op->kind(),
                 ranks, call.communicator->size());
    HEDDLE_CHECK(call.product.run != nullptr, "'{}' without a kernel of its product", call.op->kind());
  }
  /// Pieces of one rank, and their rows.
  int64_t count() const { return runs * pieces; }
  int64_t first(int64_t k) const { return k % pieces * run / pieces; }
  int64_t rows(int64_t k) const { return (k % pieces + 1) * run / pieces - first(k); }
  /// The row where the k-th piece of a rank begins: among its own, among the joined ones.
  int64_t own(int64_t k) const { return k / pieces * run + first(k); }
  int64_t joined(int64_t of, int64_t k) const { return (k / pieces * ranks + of) * run + first(k); }
  int at(int64_t step) const { return static_cast<int>((rank + step % ranks + ranks) % ranks); }

  int64_t ranks, runs, pieces, run, rank;
};

int64_t row_bytes(const TensorView& view) { return view.columns() * size_of(view.dtype); }

// The product of `rows` rows that begin at `x`, to those at `y`.
class Product {
 public:
  Product(const KernelCall& call, const TensorView& y) : call_(call), in_(call.in.begin(), call.in.end()), out_{y} {
    call_.op = call.product.op;
    call_.scratch = call.scratch + call.product.scratch_at;
    call_.communicator = nullptr;
  }
  void operator()(const std::byte* x, std::byte* y, int64_t rows) {
    in_[0].data = const_cast<std::byte*>(x);  // a view of what is only read
    in_[0].dims[0] = rows;
    out_[0].data = y;
    out_[0].dims[0] = rows;
    call_.in = in_;
    call_.out = out_;
    call_.product.run(call_);
  }

 private:
  KernelCall call_;
  std::vector<TensorView> in_, out_;
};

void gather_product(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const Pieces p(call, x);
  const int64_t from = row_bytes(x), to = row_bytes(y);
  std::byte* const joined = call.out.size() > 1 ? call.out[1].as<std::byte>() : call.scratch;
  std::vector<Piece> sends, receives;
  std::vector<int64_t> row, rows;  // of what is received
  const auto send = [&](int peer, int64_t k) { sends.push_back({peer, p.own(k) * from, p.rows(k) * from}); };
  for (int64_t k = 0; k < p.count(); ++k) {
    for (int64_t step = 1; step < p.ranks; ++step) send(p.at(step), k);
  }
  for (int64_t k = 0; k < p.count(); ++k) send(p.at(0), k);
  for (int64_t k = 0; k < p.count(); ++k) {
    for (int64_t step = 0; step < p.ranks; ++step) {
      const int source = p.at(-step);
      row.push_back(p.joined(source, k));
      rows.push_back(p.rows(k));
      receives.push_back({source, row.back() * from, p.rows(k) * from});
    }
  }
  Product multiply(call, y);
  call.communicator->exchange_by_pieces(
      {.send = x.data,
       .sends = sends,
       .receive = joined,
       .receives = receives,
       .ready = nullptr,
       .arrived = [&](size_t i) { multiply(joined + row[i] * from, y.as<std::byte>() + row[i] * to, rows[i]); }});
}

// Scratch: the products for all ranks, as joined rows lie; then for each source its slot of the own rows.
void product_scatter(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const Pieces p(call, y);
  const int64_t from = row_bytes(x), to = row_bytes(y), own_bytes = y.dim(0) * to;
  std::byte* const parts = call.scratch;
  std::byte* const slots = call.scratch + p.ranks * own_bytes;
  std::vector<Piece> sends, receives;
  std::vector<int64_t> row, rows;  // of what is sent
  for (int64_t step = 1; step <= p.ranks; ++step) {
    for (int64_t k = 0; k < p.count(); ++k) {
      row.push_back(p.joined(p.at(step), k));
      rows.push_back(p.rows(k));
      sends.push_back({p.at(step), row.back() * to, p.rows(k) * to});
    }
  }
  for (int64_t source = 0; source < p.ranks; ++source) {
    for (int64_t k = 0; k < p.count(); ++k)
      receives.push_back({static_cast<int>(source), source * own_bytes + p.own(k) * to, p.rows(k) * to});
  }
  std::vector<int64_t> there(static_cast<size_t>(p.count()), 0);
  Product multiply(call, y);
  call.communicator->exchange_by_pieces(
      {.send = parts,
       .sends = sends,
       .receive = slots,
       .receives = receives,
       .ready = [&](size_t i) { multiply(x.as<std::byte>() + row[i] * from, parts + row[i] * to, rows[i]); },
       .arrived =
           [&](size_t i) {
             const int64_t k = static_cast<int64_t>(i) % p.count();
             if (++there[k] < p.ranks) return;
             const int64_t at = p.own(k) * to;
             call.row_work->sum_parts(y.dtype, slots + at, y.elements(), p.ranks, p.rows(k) * y.columns(),
                                      y.as<std::byte>() + at, call.stream);
           }});
}

int64_t gather_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return op.out.size() > 1 ? 0 : listing.bytes(op.in[0], rows) * op.attributes.integer("ranks");
}
int64_t scatter_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return 2 * listing.bytes(op.out[0], rows) * op.attributes.integer("ranks");
}

}  // namespace

const std::vector<Collective>& product_collectives() {
  static const std::vector<Collective> list{{"gather_product", gather_product, gather_scratch},
                                            {"product_scatter", product_scatter, scatter_scratch}};
  return list;
}

}  // namespace heddle::comm
