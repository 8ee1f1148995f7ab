// Entries of compressed keys, of lists of keys, and of the map of groups of heads (ops/compression.cpp).
//
// Groups lie side by side in a row. Rows are put apart, a group's matrix behind the other, and multiplied as one
// batch.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/compression_kernels.h"
#include "heddle/kernels/cuda/query_rows_args.h"
#include "heddle/kernels/rows_in_all.h"

namespace heddle::kernels::cuda {

namespace {

/// The arguments that begin at operand c: c, z, bias.
CompressArgs compress_args(const KernelCall& call, size_t c) {
  const ir::Attributes& at = call.op->attributes;
  const int64_t series = at.integer_or("series", 1);
  return {.c = call.in[c].data,
          .z = named_operand(call, "z").data,
          .bias = numbers<const float>(named_operand(call, "bias")),
          .starts = numbers<const int32_t>(named_operand(call, "starts")),
          .places = numbers<const int32_t>(named_operand(call, "places")),
          .S = at.integer("sequence"),
          .m = at.integer("rate"),
          .series = series,
          .d = call.in[c].dim(1) / series};
}

LaunchShape columns_of(int64_t rows, int64_t columns) {
  return {.blocks_x = rows, .blocks_y = blocks_for(columns, kCompressionThreads), .threads = kCompressionThreads};
}

void compress(const KernelCall& call) {
  CompressArgs args = compress_args(call, 0);
  args.out = call.out[0].data;
  if (call.out[0].dim(0) == 0) return;
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(compress_rows<X>, columns_of(call.out[0].dim(0), args.d), args, call.stream); });
}

void compress_backward(const KernelCall& call) {
  CompressArgs args = compress_args(call, 1);
  args.de = call.in[0].data;
  args.out = call.out[0].data;
  if (args.z != nullptr) args.dz = call.out[1].data;
  const int64_t blocks = call.in[1].dim(0) / args.S * (args.S / args.m + 1);
  if (blocks == 0) return;
  by_type(call.in[1].dtype,
          [&]<class X>(X) { launch(compress_rows_dgrad<X>, columns_of(blocks, args.d), args, call.stream); });
}

void bias_gradient(const KernelCall& call) {
  const CompressBiasArgs args{.dz = call.in[0].data,
                              .acc = numbers<float>(call.updates[0]),
                              .T = call.in[0].dim(0),
                              .S = call.op->attributes.integer("sequence"),
                              .m = call.updates[0].dim(0),
                              .columns = call.in[0].dim(1),
                              .overwrite = call.overwrite};
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(compress_bias_wgrad<X>, columns_of(args.m, args.columns), args, call.stream); });
}

void list(const KernelCall& call) {
  const TensorView chosen = named_operand(call, "chosen");
  const ListKeysArgs args{.rows = rows_of(call),
                          .chosen = numbers<const int32_t>(chosen),
                          .keys = numbers<int32_t>(call.out[0]),
                          .chosen_columns = chosen ? chosen.dim(1) : 0,
                          .columns = call.out[0].dim(1),
                          .window = call.op->attributes.integer("window")};
  if (call.out[0].dim(0) == 0) return;
  launch(list_keys, {.blocks_x = call.out[0].dim(0), .threads = kCompressionThreads}, args, call.stream);
}

/// Rows are bytes here: nothing is rounded.
template <bool join>
void join_entries(const KernelCall& call) {
  const TensorView& k = join ? call.in[0] : call.out[0];
  const TensorView& joined = join ? call.out[0] : call.in[0];
  const int64_t S = call.op->attributes.integer("sequence");
  const JoinRowsArgs args{.k = k.data,
                          .e = (join ? call.in[1] : call.out[1]).data,
                          .joined = joined.data,
                          .S = S,
                          .E = S / call.op->attributes.integer("rate"),
                          .words = k.dim(1) * size_of(k.dtype) / 2,
                          .join = join};
  if (joined.dim(0) == 0) return;
  launch(join_rows, {.blocks_x = joined.dim(0), .threads = kCompressionThreads}, args, call.stream);
}

/// Rows of T rows of `groups` groups, in scratch, one group's matrix behind the other.
struct Apart {
  Apart(const TensorView& rows, int64_t groups, Scratch& scratch)
      : side_by_side(rows), T(rows.dim(0)), G(groups), view(rows) {
    view.data = scratch.take<std::byte>(rows.elements() * size_of(rows.dtype));
  }
  void copy(bool apart, void* stream) const {
    const RegroupArgs args{.from = apart ? side_by_side.data : view.data,
                           .to = apart ? view.data : side_by_side.data,
                           .T = T,
                           .G = G,
                           .K = width(),
                           .apart = apart};
    if (args.T * args.G * args.K == 0) return;
    by_type(view.dtype, [&]<class X>(X) {
      launch(regroup_rows<X>,
             {.blocks_x = blocks_for(view.elements(), kCompressionThreads), .threads = kCompressionThreads}, args,
             stream);
    });
  }
  int64_t width() const { return side_by_side.dim(1) / G; }

  TensorView side_by_side;
  int64_t T, G;
  TensorView view;
};

int64_t groups_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  Scratch scratch(nullptr);
  scratch.take<std::byte>(product_workspace_bytes());
  const ir::ValueId other = op.updates.empty() ? op.out[0] : op.in[1];
  for (const ir::ValueId id : {op.in[0], other})
    scratch.take<std::byte>(listing.elements(id, rows) * size_of(listing.value(id).dtype));
  return scratch.bytes();
}

/// y = x wᵀ of each group, or dx = dy w.
template <bool is_dgrad>
void groups_product(const KernelCall& call) {
  Scratch scratch(call.scratch);
  void* workspace = scratch.take<std::byte>(product_workspace_bytes());
  const int64_t G = call.op->attributes.integer("groups");
  const Apart from(call.in[0], G, scratch), to(call.out[0], G, scratch);
  from.copy(true, call.stream);
  multiply({.a = from.view,
            .b = call.in[1],
            .c = to.view,
            .b_by_k = is_dgrad,
            .M = from.T,
            .N = to.width(),
            .K = from.width(),
            .batch = G,
            .M_in_all = call.op->attributes.integer_or(kRowsInAll, 0)},
           workspace, call.stream);
  to.copy(false, call.stream);
}

void groups_gradient(const KernelCall& call) {
  Scratch scratch(call.scratch);
  void* workspace = scratch.take<std::byte>(product_workspace_bytes());
  const int64_t G = call.op->attributes.integer("groups");
  const Apart x(call.in[0], G, scratch), dy(call.in[1], G, scratch);
  x.copy(true, call.stream);
  dy.copy(true, call.stream);
  multiply({.a = dy.view,
            .b = x.view,
            .c = call.updates[0],
            .a_by_k = true,
            .b_by_k = true,
            .M = dy.width(),
            .N = x.width(),
            .K = x.T,
            .batch = G,
            .add = !call.overwrite},
           workspace, call.stream);
}

Support any_rows(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> compression_entries() {
  return {entry("compress_rows", "columns", compress),
          entry("compress_rows_dgrad", "columns", compress_backward),
          entry("compress_bias_wgrad", "columns", bias_gradient),
          entry("list_keys", "rows", list, any_rows),
          entry("join_entries", "rows", join_entries<true>),
          entry("split_entries", "rows", join_entries<false>),
          entry("block_linear", "batch", groups_product<false>, narrow<Among::in, 0>, groups_scratch),
          entry("block_linear_dgrad", "batch", groups_product<true>, narrow<Among::in, 0>, groups_scratch),
          entry("block_linear_wgrad", "batch", groups_gradient, narrow<Among::in, 0>, groups_scratch)};
}

}  // namespace heddle::kernels::cuda
