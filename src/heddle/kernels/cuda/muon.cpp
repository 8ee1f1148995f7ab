// Entries of Muon's steps between its products.
#include <algorithm>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/muon_kernels.h"
#include "heddle/kernels/matrix_places.h"

namespace heddle::kernels::cuda {

namespace {

LaunchShape flat(int64_t count) { return {.blocks_x = std::min<int64_t>(blocks_for(count, 256), 1 << 16)}; }

void momentum_op(const KernelCall& call) {
  MuonMomentumArgs args{};
  args.clip = numbers<const double>(call.in[0]);
  for (const TensorView& use : call.in.subspan(1)) args.acc.of[args.acc.count++] = use.data;
  args.m = numbers<float>(call.updates[0]);
  args.u = call.out[0].data;
  args.count = call.updates[0].elements();
  args.momentum = static_cast<float>(call.op->attributes.number("momentum"));
  by_type(call.out[0].dtype, [&]<class X>(X) { launch(muon_momentum<X>, flat(args.count), args, call.stream); });
}
Support few_uses(const ir::Listing& listing, const ir::Op& op) {
  if (op.in.size() - 1 > kMostUses) return Support::no(fmt::format("{} uses of a parameter", op.in.size() - 1));
  return narrow<Among::out, 0>(listing, op);
}

MatricesArgs matrices_args(const KernelCall& call) {
  const MatrixPlaces at(call.op->attributes);
  return {call.in[0].data, call.out[0].data, reinterpret_cast<double*>(call.scratch), at.count, at.rows,
          at.columns,      at.block};
}
int64_t row_sums(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  const MatrixPlaces at(op.attributes);
  return at.count * at.height() * 8;
}

void unit_op(const KernelCall& call) {
  const MatrixPlaces at(call.op->attributes);
  const MatricesArgs args = matrices_args(call);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(matrix_row_sums<X>, {.blocks_x = at.count * at.height()}, args, call.stream);
    launch(matrix_norms, {.blocks_x = blocks_for(at.count, 32), .threads = 32}, args, call.stream);
    launch(unit_matrices<X>, flat(at.count * at.size()), args, call.stream);
  });
}

void place_op(const KernelCall& call) {
  const MatricesArgs args = matrices_args(call);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(place_matrices<X>, flat(args.count * args.rows * args.columns), args, call.stream);
  });
}

void offsets_op(const KernelCall& call) {
  const int64_t count = call.out[0].elements();
  launch(even_offsets, flat(count),
         {numbers<int32_t>(call.out[0]), count, static_cast<int32_t>(call.op->attributes.integer("rows"))},
         call.stream);
}
Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

void sum_op(const KernelCall& call) {
  const ScaledSumArgs args{call.in[0].data,
                           call.in[1].data,
                           call.out[0].data,
                           call.out[0].elements(),
                           static_cast<float>(call.op->attributes.number("alpha")),
                           static_cast<float>(call.op->attributes.number("beta"))};
  by_type(call.in[0].dtype, [&]<class X>(X) { launch(scaled_sum<X>, flat(args.count), args, call.stream); });
}

void step_op(const KernelCall& call) {
  const bool copies = call.op->attributes.integer("copy") != 0;
  HEDDLE_CHECK(!copies || call.updates[1].dtype == call.in[2].dtype, "direction and copy differ in type");
  const MuonStepArgs args{numbers<const double>(call.in[0]),
                          numbers<const double>(call.in[1]),
                          call.in[2].data,
                          numbers<float>(call.updates[0]),
                          copies ? call.updates[1].data : nullptr,
                          call.updates[0].elements(),
                          static_cast<float>(call.op->attributes.number("scale")),
                          static_cast<float>(call.op->attributes.number("decay"))};
  by_type(call.in[2].dtype, [&]<class X>(X) { launch(muon_step<X>, flat(args.count), args, call.stream); });
}

}  // namespace

std::vector<KernelEntry> muon_entries() {
  return {entry("muon_momentum", "flat", momentum_op, few_uses),
          entry("unit_matrices", "rows", unit_op, narrow<Among::in, 0>, row_sums),
          entry("place_matrices", "flat", place_op),
          entry("even_offsets", "flat", offsets_op, always),
          entry("scaled_sum", "flat", sum_op),
          entry("muon_step", "flat", step_op, narrow<Among::in, 2>)};
}

}  // namespace heddle::kernels::cuda
