// The row of grouped_linear_wgrad by CUTLASS: bf16, on a device of capability 9.0. On other devices, and without
// rows, the own kernel adds. The order of an element's sum depends on the expert's rows alone.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "heddle/device/cuda/cuda_arena.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/cutlass/grouped_sums.h"
#include "heddle/kernels/cuda/hopper/processors.h"
#include "heddle/kernels/cuda/products/grouped.h"
#include "heddle/kernels/cuda/tile_blocks.h"
#include "heddle/kernels/product_rows.h"

namespace heddle::kernels::cuda {

namespace {

// Tensor descriptions of each block, four of 128 bytes, for any number of multiprocessors that there is.
constexpr int64_t kWorkspaceBytes = int64_t{1} << 20, kWorkspaceAlignment = 256;

struct Room {
  SumArrays arrays;
  void* workspace;
};
Room room_for(Scratch& scratch, int64_t groups) {
  Room room;
  room.arrays.sizes = scratch.take<int32_t>(groups * 3);
  room.arrays.dy = scratch.take<const void*>(groups);
  room.arrays.x = scratch.take<const void*>(groups);
  room.arrays.acc = scratch.take<float*>(groups);
  room.arrays.dy_pitch = scratch.take<int64_t>(groups);
  room.arrays.x_pitch = scratch.take<int64_t>(groups);
  room.arrays.acc_pitch = scratch.take<int64_t>(groups);
  room.workspace = scratch.take<std::byte>(kWorkspaceBytes + kWorkspaceAlignment);
  return room;
}

}  // namespace

void sums_by_library(const TensorView& x, const TensorView& dy, const int32_t* first, const TensorView& acc,
                     bool add, std::byte* at_scratch, void* stream) {
  int device = 0;
  device::check_cuda(cudaGetDevice(&device), "asking for the device");
  const int processors = processors_for(HopperKernel::sums);
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % kGroupedSumsAlignment == 0; };
  const bool whole = acc.dim(1) % kGroupedSumsColumns == 0 && acc.dim(2) % kGroupedSumsColumns == 0;
  if (processors == 0 || x.rows() == 0 || !whole || !aligned(x.data) || !aligned(dy.data) || !aligned(acc.data)) {
    grouped_sums(x, dy, first, acc.dim(0), numbers<float>(acc), add, stream);
    return;
  }
  const int64_t groups = acc.dim(0), each = acc.dim(1) * acc.dim(2);
  Scratch scratch(at_scratch);
  const Room room = room_for(scratch, groups);
  const auto at = (reinterpret_cast<uintptr_t>(room.workspace) + kWorkspaceAlignment - 1) / kWorkspaceAlignment;
  launch(sum_operands, {.blocks_x = blocks_for(groups, 128), .threads = 128},
         {first, dy.data, x.data, numbers<float>(acc), groups, acc.dim(1), acc.dim(2), room.arrays}, stream);
  if (!add) {
    launch(clear_idle, {.blocks_x = std::min<int64_t>(blocks_for(each, 1024), 64), .blocks_y = groups},
           {first, numbers<float>(acc), each}, stream);
  }
  device::forget_last_error();  // CUTLASS reads the last error to learn whether its launch was taken
  // CUTLASS launches a block for each multiprocessor that it is given, or less where there are fewer tiles.
  constexpr int64_t kMany = int64_t{1} << 20;
  const auto blocks = static_cast<int>(tile_blocks(kMany, processors, device::OpenDevice::beside_messages(device)));
  const char* refused =
      grouped_sums_by_cutlass(room.arrays, groups, add, device, blocks,
                              reinterpret_cast<void*>(at * kWorkspaceAlignment), kWorkspaceBytes, stream);
  HEDDLE_CHECK(refused == nullptr, "CUTLASS, weight gradients of {} experts, {} × {}: {}", groups, acc.dim(1),
               acc.dim(2), refused);
}

int64_t scratch_of_sums(int64_t groups) {
  Scratch scratch(nullptr);
  room_for(scratch, groups);
  return scratch.bytes();
}

namespace {

/// Sums of the rank's experts, and of copies, which begin here.
void run(const KernelCall& call) {
  const auto* first = numbers<const int32_t>(call.in[2]);
  const TensorView copies = operand(call.out, 0);
  const auto sums = [&](const int32_t* of, const TensorView& acc, bool add) {
    sums_by_library(call.in[0], call.in[1], of, acc, add, call.scratch, call.stream);
  };
  sums(first, call.updates[0], !call.overwrite);
  if (copies) sums(first + call.updates[0].dim(0), copies, false);
}

Support supports(const ir::Listing& listing, const ir::Op& op) {
  if (!wanted(HopperKernel::sums)) return Support::no("HEDDLE_CUTLASS is 0");
  if (const Support meant = goes(op, ProductWay::grouped); !meant) return meant;
  if (const Support types = narrow<Among::in, 0>(listing, op); !types) return types;
  if (listing.value(op.in[0]).dtype != Dtype::bf16 || listing.value(op.in[1]).dtype != Dtype::bf16)
    return Support::no("operands that are not bf16");
  const ir::Shape& acc = listing.value(op.updates[0]).shape;
  if (acc[1].count % kGroupedSumsColumns != 0 || acc[2].count % kGroupedSumsColumns != 0)
    return Support::no("rows of other than whole 16 bytes");
  return Support::yes();
}

int64_t scratch_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  return scratch_of_sums(listing, op);
}

}  // namespace

std::vector<KernelEntry> cutlass_entries() {
  return {entry("grouped_linear_wgrad", "cutlass", run, supports, scratch_bytes)};
}

}  // namespace heddle::kernels::cuda
