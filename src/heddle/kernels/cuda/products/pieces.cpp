// The router's products, of f32 and bf16, on the tensor cores: linear with its gradients, where the f32 operands
// are split into three pieces of bf16 (piece_kernels.h). T rows, K in, N out; x and dx are bf16, w, y and dy f32.
//
// Small addends come first. The forward product has the pieces of w below each other and sums three columns to one;
// the weight's gradient does so with dy. The input's gradient sums over N six times as long: of the nine products
// of pieces those that reach the last bit of f32.
#include <algorithm>
#include <array>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/products/piece_kernels.h"
#include "heddle/kernels/product_rows.h"
#include "heddle/kernels/rows_in_all.h"

namespace heddle::kernels::cuda {

namespace {

constexpr std::array<int32_t, kMostPieces> kSmallFirst{2, 1, 0}, kOfRows{2, 1, 0, 1, 0, 0},
    kOfWeight{0, 1, 2, 0, 1, 0};

LaunchShape flat_pieces(int64_t count) { return {.blocks_x = std::min<int64_t>(blocks_for(count, 256), 1 << 16)}; }

/// The pieces of a matrix, in scratch: `below` each other, or side by side.
TensorView split_operand(const TensorView& from, const std::array<int32_t, kMostPieces>& piece, int32_t count,
                         bool below, Scratch& scratch, void* stream) {
  const int64_t rows = from.rows(), columns = from.columns();
  TensorView to = from;
  to.dtype = Dtype::bf16;
  to.data = scratch.take<Bf16>(rows * columns * count);
  SplitArgs args{.from = numbers<const float>(from),
                 .to = to.as<Bf16>(),
                 .rows = rows,
                 .columns = columns,
                 .pitch = below ? columns : columns * count,
                 .step = below ? rows * columns : columns,
                 .count = count};
  std::copy(piece.begin(), piece.end(), args.piece);
  if (rows * columns > 0) launch(split_numbers, flat_pieces(rows * columns), args, stream);
  return to;
}

/// Room for c of f32, with three addends of each number.
TensorView addends(int64_t count, Scratch& scratch) {
  TensorView c;
  c.dtype = Dtype::f32;
  c.data = scratch.take<float>(count);
  return c;
}

void linear_by_pieces(const KernelCall& call) {
  Scratch scratch(call.scratch);
  void* workspace = scratch.take<std::byte>(product_workspace_bytes());
  const int64_t T = call.out[0].rows(), N = call.in[1].dim(0), K = call.in[1].dim(1);
  const TensorView w = split_operand(call.in[1], kSmallFirst, kPieces, true, scratch, call.stream);
  const TensorView c = addends(T * N * kPieces, scratch);
  multiply({.a = call.in[0],
            .b = w,
            .c = c,
            .M = T,
            .N = N * kPieces,
            .K = K,
            .M_in_all = call.op->attributes.integer_or(kRowsInAll, 0)},
           workspace, call.stream);
  if (T * N == 0) return;
  launch(sum_pieces, flat_pieces(T * N),
         {c.as<float>(), numbers<const float>(operand(call.in, 2)), numbers<float>(call.out[0]), T, N, N * kPieces,
          N, false},
         call.stream);
}

void linear_dgrad_by_pieces(const KernelCall& call) {
  Scratch scratch(call.scratch);
  void* workspace = scratch.take<std::byte>(product_workspace_bytes());
  const int64_t T = call.out[0].rows(), N = call.in[1].dim(0), K = call.in[1].dim(1);
  const TensorView dy = split_operand(call.in[0], kOfRows, kMostPieces, false, scratch, call.stream),
                   w = split_operand(call.in[1], kOfWeight, kMostPieces, true, scratch, call.stream);
  multiply({.a = dy,
            .b = w,
            .c = call.out[0],
            .b_by_k = true,
            .M = T,
            .N = K,
            .K = N * kMostPieces,
            .M_in_all = call.op->attributes.integer_or(kRowsInAll, 0)},
           workspace, call.stream);
}

void linear_wgrad_by_pieces(const KernelCall& call) {
  Scratch scratch(call.scratch);
  void* workspace = scratch.take<std::byte>(product_workspace_bytes());
  const int64_t T = call.in[0].rows(), K = call.in[0].columns(), N = call.in[1].columns();
  const TensorView dy = split_operand(call.in[1], kSmallFirst, kPieces, false, scratch, call.stream);
  const TensorView c = addends(N * K * kPieces, scratch);
  multiply({.a = dy, .b = call.in[0], .c = c, .a_by_k = true, .b_by_k = true, .M = N * kPieces, .N = K, .K = T},
           workspace, call.stream);
  launch(sum_pieces, flat_pieces(N * K),
         {c.as<float>(), nullptr, numbers<float>(call.updates[0]), N, K, K, N * K, !call.overwrite}, call.stream);
}

/// The types of both operands and of the result.
Support of_types(const ir::Listing& listing, const ir::Op& op, Dtype first, Dtype second, Dtype made) {
  if (const Support rows = narrow<Among::in, 0>(listing, op); !rows) return rows;
  const ir::ValueId result = op.out.empty() ? op.updates[0] : op.out[0];
  const bool are = listing.value(op.in[0]).dtype == first && listing.value(op.in[1]).dtype == second &&
                   listing.value(result).dtype == made;
  return are ? Support::yes() : Support::no("pieces are for products of bf16 with f32");
}
Support forward_fits(const ir::Listing& listing, const ir::Op& op) {
  return of_types(listing, op, Dtype::bf16, Dtype::f32, Dtype::f32);
}
Support dgrad_fits(const ir::Listing& listing, const ir::Op& op) {
  return of_types(listing, op, Dtype::f32, Dtype::f32, Dtype::bf16);
}
Support wgrad_fits(const ir::Listing& listing, const ir::Op& op) {
  if (op.updates.size() > 1 && op.updates[1] != ir::none)
    return Support::no("a sum for a bias beside the weight's");
  return of_types(listing, op, Dtype::bf16, Dtype::f32, Dtype::f32);
}

/// Pieces of the operands at `ids`, and addends of `made`.
int64_t pieces_scratch(const ir::Listing& listing, std::initializer_list<ir::ValueId> ids, int32_t count,
                       ir::ValueId made, const ir::RowCounts& rows) {
  Scratch scratch(nullptr);
  scratch.take<std::byte>(product_workspace_bytes());
  for (const ir::ValueId id : ids) scratch.take<Bf16>(listing.elements(id, rows) * count);
  if (made != ir::none) scratch.take<float>(listing.elements(made, rows) * kPieces);
  return scratch.bytes();
}
int64_t piece_forward_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return pieces_scratch(listing, {op.in[1]}, kPieces, op.out[0], rows);
}
int64_t piece_dgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return pieces_scratch(listing, {op.in[0], op.in[1]}, kMostPieces, ir::none, rows);
}
int64_t piece_wgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return pieces_scratch(listing, {op.in[1]}, kPieces, op.updates[0], rows);
}

}  // namespace

std::vector<KernelEntry> piece_entries() {
  return {entry("linear", "pieces", linear_by_pieces, forward_fits, piece_forward_scratch),
          entry("detached_linear", "pieces", linear_by_pieces, forward_fits, piece_forward_scratch),
          entry("linear_dgrad", "pieces", linear_dgrad_by_pieces, dgrad_fits, piece_dgrad_scratch),
          entry("linear_wgrad", "pieces", linear_wgrad_by_pieces, wgrad_fits, piece_wgrad_scratch)};
}

}  // namespace heddle::kernels::cuda
