// Entries of the capacity of experts.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/experts/capacity_kernels.h"

namespace heddle::kernels::cuda {

namespace {

LaunchShape flat(int64_t count) { return {.blocks_x = std::min<int64_t>(blocks_for(count, 256), 1 << 16)}; }

Support limits(const ir::Listing& listing, const ir::Op& op) {
  const ir::Value& gates = listing.value(op.in[0]);
  if (gates.dtype != Dtype::f32) return Support::no(fmt::format("gates in {}, wanted f32", name_of(gates.dtype)));
  if (gates.shape[0].count <= kMostRowsOfExpert) return Support::yes();
  return Support::no(fmt::format("{} tokens, at most {}", gates.shape[0].count, kMostRowsOfExpert));
}

void apply_capacity(const KernelCall& call) {
  CapacityArgs args{};
  args.g_Tk = numbers<const float>(call.in[0]);
  args.row_of_Tk = numbers<const int32_t>(call.in[1]);
  args.token_of_R = numbers<const int32_t>(call.in[2]);
  args.offsets = numbers<const int32_t>(call.in[3]);
  args.kept_Tk = numbers<float>(call.out[0]);
  args.place_of_Tk = numbers<int32_t>(call.out[1]);
  args.token_of_EC = numbers<int32_t>(call.out[2]);
  args.local_offsets = numbers<int32_t>(call.out[3]);
  args.counts = numbers<int32_t>(call.out[4]);
  args.order_R = reinterpret_cast<uint32_t*>(call.scratch);
  args.R = call.in[0].elements();
  args.E = call.in[3].elements() - 1;
  args.C = call.op->attributes.integer("places");
  args.sources = call.out[4].dim(1);
  args.P = call.out[4].dim(2);
  args.each = call.out[4].elements();
  launch(orders_of_gates, flat(args.R), args, call.stream);
  launch(places_of_rows, {.blocks_x = args.E, .threads = kPlaceThreads}, args, call.stream);
  launch(places_of_slots, flat(std::max(args.R, args.each)), args, call.stream);
}
int64_t row_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[0], rows) * 4;
}

void apply_capacity_dgrad(const KernelCall& call) {
  const int64_t R = call.in[0].elements();
  launch(gradients_of_kept, flat(R),
         {numbers<const float>(call.in[0]), numbers<const int32_t>(call.in[1]), numbers<float>(call.out[0]), R},
         call.stream);
}

void count_dropped_op(const KernelCall& call) {
  launch(
      count_dropped, {.threads = kDropThreads},
      {numbers<const int32_t>(call.in[0]), numbers<double>(call.updates[0]), call.in[0].elements(), call.overwrite},
      call.stream);
}
Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> capacity_entries() {
  return {entry("apply_capacity", "bisection", apply_capacity, limits, row_scratch),
          entry("apply_capacity_dgrad", "slot", apply_capacity_dgrad),
          entry("count_dropped", "block", count_dropped_op, always)};
}

}  // namespace heddle::kernels::cuda
