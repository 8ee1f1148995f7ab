// all_gather, reduce_scatter and all_reduce of rows; all-to-all between rows and columns; a ring's shift;
// reduce_gradients and gather_weights of whole tensors cut into runs of elements. Every sum is formed by the owner
// in rank order, in A, and rounded once.
#include <algorithm>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/comm/collectives.h"
#include "heddle/comm/communicator.h"
#include "heddle/device/row_work.h"
#include "heddle/ir/walk/use_order.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

int64_t size_in_bytes(const TensorView& view) { return view.elements() * size_of(view.dtype); }
int64_t ranks_of(const KernelCall& call) {
  const int64_t ranks = call.op->attributes.integer("ranks");
  HEDDLE_CHECK(call.communicator->size() == ranks, "'{}' over {} ranks on a communicator of {}", call.op->kind(),
               ranks, call.communicator->size());
  return ranks;
}

/// The places of each rank's rows: in its own tensor (`own`) and among the joined rows. Either may have only some
/// rows of each run, at the distance of whole runs.
struct Rows {
  Rows(const KernelCall& call, int64_t own_bytes)
      : ranks(ranks_of(call)),
        runs(call.op->attributes.integer("runs")),
        chunks(call.op->attributes.integer_or("zigzag", 0) != 0 ? 2 : 1),
        chunk_bytes(own_bytes / (runs * chunks)) {}

  /// Bytes from one chunk to the next in a tensor that holds `count` of them.
  int64_t step_in(const TensorView& view, int64_t count) const {
    if (view.stretches == 1) return chunk_bytes;
    HEDDLE_CHECK(view.stretches == count, "{} stretches of rows, not {}", view.stretches, count);
    return view.step_bytes;
  }
  int64_t own_step(const TensorView& view) const { return step_in(view, runs * chunks); }
  int64_t joined_step(const TensorView& view) const { return step_in(view, runs * chunks * ranks); }

  /// Pieces of rank `of` as peer `peer` sees them: one a run and chunk, in that order, `step` bytes apart.
  void own(int peer, std::vector<Piece>& pieces, int64_t step, int64_t base = 0) const {
    for (int64_t i = 0; i < runs * chunks; ++i) pieces.push_back({peer, base + i * step, chunk_bytes});
  }
  void joined(int peer, int64_t of, std::vector<Piece>& pieces, int64_t step) const {
    for (int64_t b = 0; b < runs; ++b) {
      for (int64_t c = 0; c < chunks; ++c) {
        const int64_t place = c == 0 ? of : 2 * ranks - 1 - of;
        pieces.push_back({peer, (b * ranks * chunks + place) * step, chunk_bytes});
      }
    }
  }
  void joined(int peer, int64_t of, std::vector<Piece>& pieces) const { joined(peer, of, pieces, chunk_bytes); }
  int64_t ranks, runs, chunks, chunk_bytes;
};

void all_gather(const KernelCall& call) {
  const Rows rows(call, size_in_bytes(call.in[0]));
  std::vector<Piece> sends, receives;
  for (int64_t r = 0; r < rows.ranks; ++r) {
    rows.own(static_cast<int>(r), sends, rows.own_step(call.in[0]));
    rows.joined(static_cast<int>(r), r, receives, rows.joined_step(call.out[0]));
  }
  call.communicator->exchange(call.in[0].data, sends, call.out[0].data, receives);
}

// As RowWork's, on the memory of the call.
void sum_parts(const KernelCall& call, Dtype dtype, const std::byte* parts, int64_t stride, int64_t ranks,
               int64_t count, void* out) {
  call.row_work->sum_parts(dtype, parts, stride, ranks, count, out, call.stream);
}

void reduce_scatter(const KernelCall& call) {
  const TensorView& out = call.out[0];
  const int64_t bytes = size_in_bytes(out);
  const Rows rows(call, bytes);
  std::vector<Piece> sends, receives;
  for (int64_t r = 0; r < rows.ranks; ++r) {
    rows.joined(static_cast<int>(r), r, sends, rows.joined_step(call.in[0]));
    rows.own(static_cast<int>(r), receives, rows.chunk_bytes, r * bytes);
  }
  call.communicator->exchange(call.in[0].data, sends, call.scratch, receives);
  const int64_t count = out.elements() / out.stretches;
  for (int64_t i = 0; i < out.stretches; ++i) {
    sum_parts(call, out.dtype, call.scratch + i * count * size_of(out.dtype), out.elements(), rows.ranks, count,
              out.stretch(i).data);
  }
}

// Between rows of all columns and, for each rank in turn, all rows of its columns.
void cut_columns(const KernelCall& call, const TensorView& whole, int64_t ranks, std::byte* parts, bool join) {
  const int64_t count = whole.rows(), width = whole.columns() * size_of(whole.dtype) / ranks;
  call.row_work->cut_columns(bytes_of(whole), parts, count, width, ranks, join, call.stream);
}

void heads_to_sequence(const KernelCall& call) {
  const int64_t ranks = ranks_of(call), part = size_in_bytes(call.in[0]) / ranks;
  const Rows rows(call, part);
  cut_columns(call, call.in[0], ranks, call.scratch, false);
  std::vector<Piece> sends, receives;
  for (int64_t r = 0; r < ranks; ++r) {
    rows.own(static_cast<int>(r), sends, rows.chunk_bytes, r * part);
    rows.joined(static_cast<int>(r), r, receives);
  }
  call.communicator->exchange(call.scratch, sends, call.out[0].data, receives);
}

void sequence_to_heads(const KernelCall& call) {
  const int64_t ranks = ranks_of(call), part = size_in_bytes(call.out[0]) / ranks;
  const Rows rows(call, part);
  std::vector<Piece> sends, receives;
  for (int64_t r = 0; r < ranks; ++r) {
    rows.joined(static_cast<int>(r), r, sends);
    rows.own(static_cast<int>(r), receives, rows.chunk_bytes, r * part);
  }
  call.communicator->exchange(call.in[0].data, sends, call.scratch, receives);
  cut_columns(call, call.out[0], ranks, call.scratch, true);
}

void ring_shift(const KernelCall& call) {
  const int64_t ranks = ranks_of(call), rank = call.communicator->rank(), by = call.op->attributes.integer("by");
  const int64_t bytes = size_in_bytes(call.in[0]);
  const auto at = [&](int64_t place) { return static_cast<int>((place % ranks + ranks) % ranks); };
  const Piece send{at(rank + by), 0, bytes}, receive{at(rank - by), 0, bytes};
  call.communicator->exchange(call.in[0].data, {&send, 1}, call.out[0].data, {&receive, 1});
}

void all_reduce(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const int64_t ranks = ranks_of(call), bytes = x.elements() * size_of(x.dtype);
  std::vector<Piece> sends, receives;
  for (int64_t r = 0; r < ranks; ++r) {
    sends.push_back({static_cast<int>(r), 0, bytes});
    receives.push_back({static_cast<int>(r), r * bytes, bytes});
  }
  call.communicator->exchange(x.data, sends, call.scratch, receives);
  sum_parts(call, x.dtype, call.scratch, x.elements(), ranks, x.elements(), call.out[0].data);
}

/// Elements of shard r of a tensor of `count` elements: all but the last ones have `shard`.
int64_t in_shard(int64_t count, int64_t shard, int64_t r) {
  return std::clamp<int64_t>(count - r * shard, 0, shard);
}

void clear(const KernelCall& call, std::byte* from, int64_t bytes) {
  call.row_work->fill(from, 0, bytes, call.stream);
}

// to = the sum of the tensors, in order.
void add_up(const KernelCall& call, std::span<const TensorView> uses, std::byte* to) {
  const Dtype dtype = uses[0].dtype;
  const int64_t count = uses[0].elements();
  call.row_work->copy(to, uses[0].data, count * size_of(dtype), call.stream);
  for (size_t u = 1; u < uses.size(); ++u) call.row_work->add(dtype, to, uses[u].data, count, call.stream);
}

// The shard of one parameter with uses on several pipeline ranks, in the order in which one rank adds them. What
// comes first is added up where it is; every other use is sent on its own. Scratch: the parts in order, then room
// to add up.
void reduce_in_order(const KernelCall& call, const ir::UseOrder& order) {
  const int64_t ranks = ranks_of(call), rank = call.communicator->rank(), each = ranks / order.copies;
  const int64_t size = size_of(call.in[0].dtype), shard = call.out[0].elements(), count = call.in[0].elements();
  const int64_t own = rank / each;
  std::vector<TensorView> parts(call.in.begin(), call.in.end());
  HEDDLE_CHECK(std::ssize(parts) == std::count(order.of_use.begin(), order.of_use.end(), own),
               "{} uses of a parameter, of which its order knows {}", parts.size(),
               std::count(order.of_use.begin(), order.of_use.end(), own));
  if (own == order.of_use[0] && order.first > 1) {
    std::byte* sum = call.scratch + std::ssize(order.parts) * each * shard * size;
    add_up(call, std::span(parts).first(static_cast<size_t>(order.first)), sum);
    parts.erase(parts.begin() + 1, parts.begin() + order.first);
    parts[0].data = sum;
  }
  const auto mine = [&](int64_t r) { return in_shard(count, shard, r) * size; };
  std::vector<Piece> sends, receives;
  for (const TensorView& part : parts) {
    const int64_t base = bytes_of(part) - bytes_of(parts[0]);
    for (int64_t r = 0; r < ranks; ++r) sends.push_back({static_cast<int>(r), base + r * shard * size, mine(r)});
  }
  int64_t at = 0;
  for (const int copy : order.parts) {
    for (int64_t i = 0; i < each; ++i, at += shard * size) {
      receives.push_back({static_cast<int>(copy * each + i), at, mine(rank)});
    }
  }
  call.communicator->exchange(parts[0].data, sends, call.scratch, receives);
  sum_parts(call, call.in[0].dtype, call.scratch, shard, std::ssize(order.parts) * each, mine(rank) / size,
            call.out[0].data);
  clear(call, bytes_of(call.out[0]) + mine(rank), shard * size - mine(rank));
}

// Scratch: for each shard in turn, the parts of all ranks, one after the other; then room to add up the uses of one
// parameter.
void reduce_gradients(const KernelCall& call) {
  if (ir::UseOrder::given(call.op->attributes)) return reduce_in_order(call, ir::UseOrder(call.op->attributes));
  const int64_t ranks = ranks_of(call), rank = call.communicator->rank();
  const Dtype dtype = call.in[0].dtype;
  const int64_t size = size_of(dtype);
  const bool one = call.op->attributes.integer("one") != 0;
  std::vector<TensorView> whole(call.in.begin(), call.in.end());
  if (one && whole.size() > 1) {  // the uses of a parameter, in order
    std::byte* sum = call.scratch + ranks * call.out[0].elements() * size;
    add_up(call, whole, sum);
    whole.resize(1);
    whole[0].data = sum;
  }
  std::vector<Piece> sends, receives;
  int64_t at = 0;
  for (size_t p = 0; p < whole.size(); ++p) {
    const int64_t count = whole[p].elements(), shard = call.out[p].elements();
    const int64_t base = bytes_of(whole[p]) - bytes_of(whole[0]);
    for (int64_t r = 0; r < ranks; ++r) {
      sends.push_back({static_cast<int>(r), base + r * shard * size, in_shard(count, shard, r) * size});
      receives.push_back({static_cast<int>(r), at + r * shard * size, in_shard(count, shard, rank) * size});
    }
    at += ranks * shard * size;
  }
  call.communicator->exchange(whole[0].data, sends, call.scratch, receives);
  at = 0;
  for (size_t p = 0; p < whole.size(); ++p) {
    const int64_t shard = call.out[p].elements(), mine = in_shard(whole[p].elements(), shard, rank);
    sum_parts(call, dtype, call.scratch + at, shard, ranks, mine, call.out[p].data);
    clear(call, bytes_of(call.out[p]) + mine * size, (shard - mine) * size);
    at += ranks * shard * size;
  }
}

void gather(const KernelCall& call, std::span<const TensorView> whole) {
  const int64_t ranks = ranks_of(call), rank = call.communicator->rank();
  std::vector<Piece> sends, receives;
  for (size_t p = 0; p < call.in.size(); ++p) {
    const int64_t count = whole[p].elements(), shard = call.in[p].elements();
    const int64_t size = size_of(call.in[p].dtype);
    const int64_t from = bytes_of(call.in[p]) - bytes_of(call.in[0]);
    const int64_t to = bytes_of(whole[p]) - bytes_of(whole[0]);
    for (int64_t r = 0; r < ranks; ++r) {
      sends.push_back({static_cast<int>(r), from, in_shard(count, shard, rank) * size});
      receives.push_back({static_cast<int>(r), to + r * shard * size, in_shard(count, shard, r) * size});
    }
  }
  call.communicator->exchange(call.in[0].data, sends, whole[0].data, receives);
}
void gather_weights(const KernelCall& call) { gather(call, call.updates); }
void gather_rows(const KernelCall& call) { gather(call, call.out); }

int64_t joined_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.bytes(op.in[0], rows) * (op.kind() == "all_reduce" ? op.attributes.integer("ranks") : 1);
}

int64_t gradient_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  int64_t bytes = 0;
  if (ir::UseOrder::given(op.attributes)) {
    const ir::UseOrder order(op.attributes);
    const int64_t each = op.attributes.integer("ranks") / order.copies;
    bytes = std::ssize(order.parts) * each * listing.bytes(op.out[0], rows);
    return order.first > 1 ? bytes + listing.bytes(op.in[0], rows) : bytes;
  }
  for (const ir::ValueId id : op.out) bytes += op.attributes.integer("ranks") * listing.bytes(id, rows);
  return op.attributes.integer("one") != 0 && op.in.size() > 1 ? bytes + listing.bytes(op.in[0], rows) : bytes;
}

}  // namespace

const std::vector<Collective>& row_collectives() {
  static const std::vector<Collective> list{
      {"all_gather", all_gather, nullptr},
      {"reduce_scatter", reduce_scatter, joined_scratch},
      {"heads_to_sequence", heads_to_sequence, joined_scratch},
      {"sequence_to_heads", sequence_to_heads, joined_scratch},
      {"ring_shift", ring_shift, nullptr},
      {"all_reduce", all_reduce, joined_scratch},
      {"reduce_gradients", reduce_gradients, gradient_scratch},
      {"gather_weights", gather_weights, nullptr},
      {"gather_rows", gather_rows, nullptr},
  };
  return list;
}

}  // namespace heddle::comm
