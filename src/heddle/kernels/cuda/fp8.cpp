// Entries of products whose operands are rounded to eight bits. They are rounded into scratch, where they are bf16,
// exactly, and go to the products of bf16. T rows, K in, N out; R rows sorted by expert, E experts.
#include "heddle/kernels/cuda/fp8.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/fp8_kernels.h"
#include "heddle/kernels/cuda/map_kernels.h"
#include "heddle/kernels/cuda/products/grouped.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::cuda {

namespace {

/// Room in scratch for a view of this shape in bf16.
TensorView take(TensorView like, Scratch& scratch) {
  like.data = scratch.take<uint16_t>(like.elements());
  like.dtype = Dtype::bf16;
  return like;
}
int64_t blocks_of(int64_t count) { return blocks_for(count, kFp8Block); }
const uint8_t* bytes(const TensorView& view) {
  HEDDLE_CHECK(view.dtype == Dtype::u8, "a {} tensor where bytes are expected", name_of(view.dtype));
  return view.as<const uint8_t>();
}

/// 128 columns of a row together: into bytes and their scales, or into bf16.
void round_rows(const TensorView& x, uint8_t* q, uint8_t* scales, Bf16* to, void* stream) {
  const int64_t T = x.dim(0), K = x.dim(1), blocks = blocks_of(K);
  by_type(x.dtype, [&]<class X>(X) {
    launch(fp8_rows<X>, {.blocks_x = blocks_for(T * blocks, kFp8Threads / kWarp), .threads = kFp8Threads},
           {x.data, q, scales, to, T, K, blocks}, stream);
  });
}

TensorView rounded_along_rows(const TensorView& x, Scratch& scratch, void* stream) {
  const TensorView to = take(x, scratch);
  round_rows(x, nullptr, nullptr, to.as<Bf16>(), stream);
  return to;
}

/// The numbers of rows that are rounded.
TensorView numbers_of(const TensorView& q, const TensorView& scales, Scratch& scratch, void* stream) {
  const TensorView to = take(q, scratch);
  launch(fp8_numbers,
         {.blocks_x = std::min<int64_t>(blocks_for(q.elements(), kFp8Threads), 1 << 16), .threads = kFp8Threads},
         {bytes(q), bytes(scales), to.as<Bf16>(), q.dim(0), q.dim(1), scales.dim(1)}, stream);
  return to;
}

/// 128 × 128 of each matrix together; absent stays absent.
TensorView rounded_weight(const TensorView& w, Scratch& scratch, void* stream) {
  if (!w) return {};
  const TensorView to = take(w, scratch);
  const int64_t K = w.dim(w.rank - 1), N = w.dim(w.rank - 2), E = w.rank == 3 ? w.dim(0) : 1;
  by_type(w.dtype, [&]<class X>(X) {
    launch(fp8_weight<X>,
           {.blocks_x = blocks_of(K), .blocks_y = blocks_of(N), .blocks_z = E, .threads = kFp8Threads},
           {w.data, to.as<Bf16>(), nullptr, nullptr, N, K, false}, stream);
  });
  return to;
}

/// The weight of a call in bf16, rounded here or ahead.
TensorView weight_of(const KernelCall& call, Scratch& scratch) {
  const TensorView w = named_operand(call, "w"), scales = named_operand(call, "w_scales");
  if (!scales) return rounded_weight(w, scratch, call.stream);
  const bool turned = call.op->attributes.integer_or("turned", 0) != 0;
  TensorView to = take(w, scratch);
  if (turned) std::swap(to.dims[w.rank - 2], to.dims[w.rank - 1]);
  const int64_t K = to.dim(w.rank - 1), N = to.dim(w.rank - 2);
  launch(fp8_weight_numbers,
         {.blocks_x = std::min<int64_t>(blocks_for(w.elements(), kFp8Threads), 1 << 16), .threads = kFp8Threads},
         {bytes(w), bytes(scales), to.as<Bf16>(), w.elements() / (N * K), N, K, turned}, call.stream);
  return to;
}

/// 128 rows of a column together, from the first row of each expert on. `scales`: of rows that are bytes.
TensorView rounded_along_columns(const TensorView& x, const TensorView& scales, const TensorView& offsets,
                                 Scratch& scratch, void* stream) {
  const TensorView to = take(x, scratch);
  Fp8ColumnsArgs args{};
  args.x_TK = x.data;
  args.offsets = numbers<const int32_t>(offsets);
  args.to_TK = to.as<Bf16>();
  args.T = x.dim(0);
  args.K = x.dim(1);
  args.groups = offsets ? offsets.elements() - 1 : 1;
  if (args.T == 0) return to;
  // No more blocks of rows than these, wherever the groups end.
  const LaunchShape shape{.blocks_x = blocks_of(args.T) + (offsets ? args.groups : 0),
                          .blocks_y = blocks_of(args.K),
                          .threads = kFp8Block};
  if (scales) {
    args.scales = bytes(scales);
    args.blocks = scales.dim(1);
    launch(fp8_columns<Bf16, true>, shape, args, stream);
  } else {
    by_type(x.dtype, [&]<class X>(X) { launch(fp8_columns<X, false>, shape, args, stream); });
  }
  return to;
}

/// Runs the entry of another op on other operands; what it wants of scratch is beyond theirs.
void multiply(std::string_view kind, const KernelCall& call, std::span<const TensorView> in,
              std::span<const TensorView> updates, const Scratch& scratch) {
  static const std::vector<KernelEntry> all = [] {
    std::vector<KernelEntry> list = cutlass_entries();  // on devices that it is not for, it runs the other's kernel
    std::ranges::move(linear_entries(), std::back_inserter(list));
    return list;
  }();
  const auto entry = std::find_if(all.begin(), all.end(), [&](const KernelEntry& e) { return e.op_kind == kind; });
  HEDDLE_CHECK(entry != all.end(), "no products for '{}'", kind);
  KernelCall product = call;
  product.in = in;
  product.updates = updates;
  product.scratch = call.scratch + scratch.bytes();
  entry->run(product);
}

void round_rows_op(const KernelCall& call) {
  round_rows(call.in[0], call.out[0].as<uint8_t>(), call.out[1].as<uint8_t>(), nullptr, call.stream);
}

void round_weight_op(const KernelCall& call) {
  for (size_t i = 0; i < call.updates.size(); i += 2) {
    fp8_weight_bytes(call.in[0], i > 0, call.updates[i].as<uint8_t>(), call.updates[i + 1].as<uint8_t>(),
                     call.stream);
  }
}

template <bool grouped>
void forward(const KernelCall& call) {
  Scratch scratch(call.scratch);
  const TensorView x = numbers_of(call.in[0], call.in[1], scratch, call.stream), w = weight_of(call, scratch),
                   copies = rounded_weight(grouped ? operand(call.in, 4) : TensorView{}, scratch, call.stream);
  const std::array in{x, w, operand(call.in, 3), copies};
  multiply(grouped ? "grouped_linear" : "linear", call, std::span(in).first(grouped ? 4 : 3), call.updates,
           scratch);
}

template <bool grouped>
void dgrad(const KernelCall& call) {
  Scratch scratch(call.scratch);
  const TensorView dy = rounded_along_rows(call.in[0], scratch, call.stream), w = weight_of(call, scratch),
                   copies = rounded_weight(grouped ? operand(call.in, 3) : TensorView{}, scratch, call.stream);
  const std::array in{dy, w, operand(call.in, 2), copies};
  multiply(grouped ? "grouped_linear_dgrad" : "linear_dgrad", call, std::span(in).first(grouped ? 4 : 2),
           call.updates, scratch);
}

/// The sum of dy, for a bias, is of what was not rounded.
template <bool grouped>
void wgrad(const KernelCall& call) {
  Scratch scratch(call.scratch);
  const TensorView given = call.in[2], offsets = grouped ? call.in[3] : TensorView{};
  const TensorView x = rounded_along_columns(call.in[0], call.in[1], offsets, scratch, call.stream),
                   dy = rounded_along_columns(given, {}, offsets, scratch, call.stream);
  const std::array in{x, dy, offsets};
  multiply(grouped ? "grouped_linear_wgrad" : "linear_wgrad", call, std::span(in).first(grouped ? 3 : 2),
           call.updates.first(1), scratch);
  if (operand(call.updates, 1)) {
    multiply("add_bias_wgrad", call, call.in.subspan(2, 1), call.updates.subspan(1, 1), scratch);
  }
}

}  // namespace

void fp8_round_rows(const TensorView& x, uint8_t* q, uint8_t* scales, void* stream) {
  round_rows(x, q, scales, nullptr, stream);
}

void fp8_weight_bytes(const TensorView& w, bool turned, uint8_t* q, uint8_t* scales, void* stream) {
  const int64_t K = w.dim(w.rank - 1), N = w.dim(w.rank - 2), E = w.rank == 3 ? w.dim(0) : 1;
  by_type(w.dtype, [&]<class X>(X) {
    launch(fp8_weight<X>,
           {.blocks_x = blocks_of(K), .blocks_y = blocks_of(N), .blocks_z = E, .threads = kFp8Threads},
           {w.data, nullptr, q, scales, N, K, turned}, stream);
  });
}

void fp8_widened(const KernelCall& call, bool grouped, bool is_dgrad) {
  if (is_dgrad) {
    grouped ? dgrad<true>(call) : dgrad<false>(call);
  } else {
    grouped ? forward<true>(call) : forward<false>(call);
  }
}

/// Rows that come as they are tell the type, else what is made, or dy of a sum: bf16 or f32, in rows.
Support fp8_takes_rows(const ir::Listing& listing, const ir::Op& op) {
  if (ir::place_of("q", op.def->operands) < 0) return narrow<Among::in, 0>(listing, op);
  return op.def->results == "y" ? narrow<Among::out, 0>(listing, op) : narrow<Among::in, 2>(listing, op);
}

/// A grouped product finds its groups on the device.
int64_t fp8_widened_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  Scratch scratch(nullptr);
  for (const std::string_view name : {"q", "dy", "w", "copies"}) {
    if (ir::place_of(name, op.def->operands) < 0) continue;
    const ir::ValueId id = op.operand(name);
    if (id != ir::none) scratch.take<uint16_t>(listing.elements(id, rows));
  }
  scratch.take<std::byte>(std::max(product_workspace_bytes(), scratch_of_sums(listing, op)));
  if (op.updates.size() > 1 && op.updates[1] != ir::none) {
    const MatrixSize dy(listing, op.operand("dy"), rows);
    scratch.take<float>(blocks_for(dy.rows, kMapRows) * dy.columns);
  }
  return scratch.bytes();
}

std::vector<KernelEntry> fp8_entries() {
  std::vector<KernelEntry> all = hopper_fp8_entries();
  const std::vector<KernelEntry> widened{
      entry("round_rows", "blocks", round_rows_op),
      entry("round_weight", "blocks", round_weight_op),
      entry("linear_fp8", "widened", forward<false>, fp8_takes_rows, fp8_widened_scratch),
      entry("linear_fp8_dgrad", "widened", dgrad<false>, fp8_takes_rows, fp8_widened_scratch),
      entry("linear_fp8_wgrad", "widened", wgrad<false>, fp8_takes_rows, fp8_widened_scratch),
      entry("grouped_linear_fp8", "widened", forward<true>, fp8_takes_rows, fp8_widened_scratch),
      entry("grouped_linear_fp8_dgrad", "widened", dgrad<true>, fp8_takes_rows, fp8_widened_scratch),
      entry("grouped_linear_fp8_wgrad", "widened", wgrad<true>, fp8_takes_rows, fp8_widened_scratch)};
  all.insert(all.end(), widened.begin(), widened.end());
  return all;
}

}  // namespace heddle::kernels::cuda
