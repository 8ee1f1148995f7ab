// Entries of fp8_wgmma_kernels.h: forward and input gradient of products whose operands are rounded to eight bits.
// The gradient's weight is turned as it is rounded, here or ahead, for the instructions take bytes only where they
// lie by what is summed.
#include <algorithm>

#include "heddle/device/cuda/cuda_check.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/fp8.h"
#include "heddle/kernels/cuda/hopper/fp8_wgmma_kernels.h"
#include "heddle/kernels/cuda/hopper/processors.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::cuda {

namespace {

/// Boxes of 128 × 128 of bytes [rows, columns].
CUtensorMap map_of(const uint8_t* bytes, int64_t rows, int64_t columns) {
  CUtensorMap map;
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitch[] = {static_cast<cuuint64_t>(columns)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kFp8Block), static_cast<cuuint32_t>(kFp8TileM)},
                   steps[] = {1, 1};
  device::check_driver(
      device::driver().tensor_map(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<uint8_t*>(bytes), dims, pitch,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "describing a tensor");
  return map;
}

/// Rows of `in` × columns of the weight that are summed (`summed`) and that come out.
struct Sizes {
  int64_t groups, summed, out;
};
bool is_turned(const ir::Op& op) { return op.attributes.integer_or("turned", 0) != 0; }
Sizes sizes_of(const ir::Listing& listing, const ir::Op& op, bool is_dgrad) {
  const ir::Shape& w = listing.value(op.operand("w")).shape;
  const int64_t E = w.size() == 3 ? w[0].count : 1, down = w[w.size() - 2].count, across = w.back().count;
  return is_dgrad && !is_turned(op) ? Sizes{E, down, across} : Sizes{E, across, down};
}
int64_t blocks_of(int64_t count) { return blocks_for(count, kFp8Block); }

template <bool grouped, bool is_dgrad>
void run(const KernelCall& call) {
  const TensorView w = call.in[is_dgrad ? 1 : 2], w_scales = named_operand(call, "w_scales"), rows = call.in[0];
  const TensorView offsets = grouped ? call.in[is_dgrad ? 2 : 3] : TensorView{};
  const int64_t E = grouped ? w.dim(0) : 1, M = rows.dim(0), out = call.out[0].dim(1);
  const int64_t summed = w.elements() / E / out;
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (M == 0) return;
  if (!aligned(rows.data) || !aligned(call.out[0].data) || (w_scales && !aligned(w.data)))
    return fp8_widened(call, grouped, is_dgrad);
  Scratch scratch(call.scratch);
  const auto *b = w.as<const uint8_t>(), *b_scales = w_scales.as<const uint8_t>();
  if (!w_scales) {
    auto *q = scratch.take<uint8_t>(w.elements()),
         *scales = scratch.take<uint8_t>(E * blocks_of(summed) * blocks_of(out));
    fp8_weight_bytes(w, is_dgrad, q, scales, call.stream);
    b = q;
    b_scales = scales;
  }
  const uint8_t *a = rows.as<const uint8_t>(), *a_scales = call.in[1].as<const uint8_t>();
  if constexpr (is_dgrad) {
    auto *q = scratch.take<uint8_t>(M * summed), *scales = scratch.take<uint8_t>(M * blocks_of(summed));
    fp8_round_rows(rows, q, scales, call.stream);
    a = q;
    a_scales = scales;
  }
  Fp8WgmmaArgs args{};
  args.a = map_of(a, M, summed);
  args.b = map_of(b, E * out, summed);
  args.product.a_scales = a_scales;
  args.product.b_scales = b_scales;
  args.product.blocks = blocks_of(summed);
  ProductArgs& p = args.product.product;
  p.c = call.out[0].data;
  p.offsets = numbers<const int32_t>(offsets);
  p.M = M;
  p.N = out;
  p.K = summed;
  p.c_pitch = out;
  p.groups = E;
  p.wide = call.out[0].dtype == Dtype::f32;
  const int64_t tiles = blocks_for(out, kFp8TileN) * (blocks_for(M, kFp8TileM) + (grouped ? E : 0));
  launch(product_wgmma_fp8,
         {.blocks_x = hopper_blocks(tiles, processors_of_hopper()),
          .threads = kWgmmaThreads,
          .shared_bytes = kFp8SharedBytes},
         args, call.stream);
}

template <bool grouped, bool is_dgrad>
Support takes(const ir::Listing& listing, const ir::Op& op) {
  if (!wanted(HopperKernel::eight_bits)) return Support::no("HEDDLE_WGMMA_FP8 is 0");
  if (Support rows = fp8_takes_rows(listing, op); !rows) return rows;
  for (const char* beside : {"bias", "copies"}) {
    if (ir::place_of(beside, op.def->operands) >= 0 && op.operand(beside) != ir::none)
      return Support::no(fmt::format("it takes no {}", beside));
  }
  if (is_dgrad && op.operand("w_scales") != ir::none && !is_turned(op))
    return Support::no("it takes a rounded weight turned");
  const Sizes sizes = sizes_of(listing, op, is_dgrad);
  if (sizes.summed % 16 != 0 || sizes.out % 8 != 0)
    return Support::no(
        fmt::format("{} numbers to sum, wanted whole 16, for {} columns, wanted whole 8", sizes.summed, sizes.out));
  return processors_for(HopperKernel::eight_bits) > 0
             ? Support::yes()
             : Support::no("the device is not of capability 9.0, or failed the kernel's trial");
}

/// Scratch of this kernel, or of the one that runs where an operand is not aligned, if it wants more.
template <bool grouped, bool is_dgrad>
int64_t scratch_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  Scratch scratch(nullptr);
  if (op.operand("w_scales") == ir::none) {
    const Sizes sizes = sizes_of(listing, op, is_dgrad);
    scratch.take<uint8_t>(sizes.groups * sizes.summed * sizes.out);
    scratch.take<uint8_t>(sizes.groups * blocks_of(sizes.summed) * blocks_of(sizes.out));
  }
  if (is_dgrad) {
    const MatrixSize dy(listing, op.operand("dy"), rows);
    scratch.take<uint8_t>(dy.rows * dy.columns);
    scratch.take<uint8_t>(dy.rows * blocks_of(dy.columns));
  }
  return std::max(scratch.bytes(), fp8_widened_scratch(listing, op, rows));
}

}  // namespace

std::vector<KernelEntry> hopper_fp8_entries() {
  return {
      entry("linear_fp8", "wgmma", run<false, false>, takes<false, false>, scratch_bytes<false, false>),
      entry("linear_fp8_dgrad", "wgmma", run<false, true>, takes<false, true>, scratch_bytes<false, true>),
      entry("grouped_linear_fp8", "wgmma", run<true, false>, takes<true, false>, scratch_bytes<true, false>),
      entry("grouped_linear_fp8_dgrad", "wgmma", run<true, true>, takes<true, true>, scratch_bytes<true, true>)};
}

}  // namespace heddle::kernels::cuda
