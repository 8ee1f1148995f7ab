// Entries of what goes on from a cache.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/cache_kernels.h"

namespace heddle::kernels::cuda {

namespace {

LaunchShape a_thread_each(int64_t elements) {
  return {.blocks_x = blocks_for(elements, kCacheThreads), .threads = kCacheThreads};
}

int64_t attention_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const int64_t rows = MatrixSize(listing, op.in[0], counts).rows;
  return rows * op.attributes.integer("heads") * op.attributes.integer("sequence") *
         static_cast<int64_t>(sizeof(float));
}

Support attends(const ir::Listing& listing, const ir::Op& op) {
  if (const Support q = narrow<Among::in, 0>(listing, op); !q) return q;
  if (const Support keys = narrow<Among::in, 2>(listing, op); !keys) return keys;
  if (listing.value(op.in[0]).dtype == Dtype::bf16 && listing.value(op.in[2]).dtype == Dtype::f32)
    return Support::no("q is bf16 and the cache f32");
  return Support::yes();
}

void attend(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  CachedAttentionArgs args{};
  args.q = call.in[0].data;
  args.places = numbers<const int32_t>(call.in[1]);
  args.keys = call.in[2].data;
  args.values = operand(call.in, 3).data;
  args.o = call.out[0].data;
  args.scores = reinterpret_cast<float*>(call.scratch);
  args.R = call.in[0].dim(0);
  args.h = at.integer("heads");
  args.hk = at.integer("kv_heads");
  args.d = at.integer("head_dim");
  args.v = at.integer("value_dim");
  args.S = at.integer("sequence");
  args.window = at.integer_or("window", 0);
  args.chunk = at.integer_or("chunk", 0);
  args.sinks = numbers<const float>(operand(call.in, 4));
  args.scale = static_cast<float>(at.number("scale"));
  args.cap = static_cast<float>(at.number_or("cap", 0));
  const bool wide_q = call.in[0].dtype == Dtype::f32, wide_k = call.in[2].dtype == Dtype::f32;
  launch(wide_k   ? cached_attention<float, float>
         : wide_q ? cached_attention<float, Bf16>
                  : cached_attention<Bf16, Bf16>,
         {.blocks_x = args.R * args.h, .threads = kCacheThreads}, args, call.stream);
}

void rotate(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  by_type(call.in[0].dtype, [&]<class X>(X) {
    const RotateArgs args{.x = numbers<const X>(call.in[0]),
                          .table_Sr = numbers<const float>(call.in[1]),
                          .places = numbers<const int32_t>(call.in[2]),
                          .y = numbers<X>(call.out[0]),
                          .R = call.in[0].dim(0),
                          .h = at.integer("heads"),
                          .d = at.integer("head_dim"),
                          .first = at.integer_or("first", at.integer("head_dim") - at.integer("rope_dim")),
                          .r = at.integer("rope_dim"),
                          .S = at.integer("sequence"),
                          .interleaved = at.integer("interleaved") != 0};
    launch(rotate_at<X>, a_thread_each(call.in[0].elements()), args, call.stream);
  });
}

LatentArgs latent(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  const TensorView down = operand(call.in, 2);
  return {.x = call.in[0].data,
          .w = call.in[1].data,
          .y = call.out[0].data,
          .R = call.in[0].dim(0),
          .h = at.integer("heads"),
          .n = at.integer("nope"),
          .r = at.integer("rope"),
          .v = at.integer("value_dim"),
          .c = call.in[1].dim(1),
          .down = down.data,
          .up = operand(call.in, 3).data,
          .low = reinterpret_cast<float*>(call.scratch),
          .rank = down ? down.dim(0) : 0,
          .factor = down ? static_cast<float>(at.number("factor")) : 0.0f};
}
int64_t latent_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  if (op.in.size() < 4 || op.in[2] == ir::none) return 0;
  const int64_t rank = listing.value(op.in[2]).shape[0].count;
  return MatrixSize(listing, op.in[0], counts).rows * op.attributes.integer("heads") * rank *
         static_cast<int64_t>(sizeof(float));
}
/// Runs `low` first, where there is an adapter beside the weight.
void launch_latent(void (*low)(LatentArgs), void (*kernel)(LatentArgs), const KernelCall& call) {
  const LatentArgs args = latent(call);
  if (args.rank > 0) launch(low, a_thread_each(args.R * args.h * args.rank), args, call.stream);
  launch(kernel, a_thread_each(call.out[0].elements()), args, call.stream);
}
void absorb(const KernelCall& call) {
  by_type(call.in[1].dtype, [&]<class X>(X) { launch_latent(mla_absorb_low<X>, mla_absorb<X>, call); });
}
void expand(const KernelCall& call) {
  by_type(call.in[1].dtype, [&]<class X>(X) { launch_latent(mla_expand_low<X>, mla_expand<X>, call); });
}

void keep(const KernelCall& call) {
  const int64_t size = size_of(call.in[0].dtype), columns = call.in[0].dim(1);
  const PlacedRowsArgs args{.from = call.in[0].data,
                            .places = numbers<const int32_t>(call.in[1]),
                            .to = call.updates[0].data,
                            .R = call.in[0].dim(0),
                            .width = columns * size,
                            .pitch = call.updates[0].dim(1) * size,
                            .first = call.op->attributes.integer("first") * size,
                            .runs = 1};
  launch(cache_rows, {.blocks_x = args.R, .threads = kCacheThreads}, args, call.stream);
}

void last(const KernelCall& call) {
  const int64_t width = call.in[0].dim(1) * size_of(call.in[0].dtype);
  const PlacedRowsArgs args{.from = call.in[0].data,
                            .places = numbers<const int32_t>(call.in[1]),
                            .to = call.out[0].data,
                            .R = call.in[0].dim(0),
                            .width = width,
                            .pitch = width,
                            .first = 0,
                            .runs = call.out[0].dim(0)};
  launch(last_rows, {.blocks_x = args.runs, .threads = kCacheThreads}, args, call.stream);
}

/// Entries of many tokens, and rows that turn back, are for the host alone.
Support of_positions_alone(const ir::Listing& listing, const ir::Op& op) {
  for (const char* name : {"keys", "rate", "inverse"})
    if (op.attributes.has(name)) return Support::no("compressed keys are not built for GPUs");
  return narrow<Among::in, 0>(listing, op);
}

}  // namespace

std::vector<KernelEntry> cache_entries() {
  return {entry("cached_attention", "row", attend, attends, attention_scratch),
          entry("rope_at", "flat", rotate, of_positions_alone),
          entry("mla_absorb", "flat", absorb, narrow<Among::in, 0>, latent_scratch),
          entry("mla_expand", "flat", expand, narrow<Among::in, 1>, latent_scratch),
          entry("cache_rows", "bytes", keep, of_positions_alone),
          entry("last_rows", "bytes", last)};
}

}  // namespace heddle::kernels::cuda
