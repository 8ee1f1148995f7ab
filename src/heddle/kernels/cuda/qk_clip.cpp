// Entries of QK-clip (ops/qk_clip.cpp). No number of it goes to the host.
#include "heddle/kernels/qk_clip.h"

#include "heddle/kernels/cuda/attention/logit_kernels.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::cuda {

namespace {

constexpr size_t kKeys = 4;  // the first operand of keys

void max_logits_op(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const SeenKeys keys(*call.op, call.place, numbers<const int32_t>(named_operand(call, "starts")));
  const TensorView chosen = named_operand(call, "chosen");
  const bool ring = a.integer_or("ring", 0) != 0;
  MaxLogitsArgs args{};
  args.q = call.in[0].data;
  args.lse = numbers<const float>(call.in[1]);
  args.chosen = numbers<const int32_t>(chosen);
  args.c = chosen ? chosen.dim(1) : 0;
  args.parts = reinterpret_cast<float*>(call.scratch);
  args.T = call.in[0].dim(0);
  args.Sq = keys.queries();
  args.S = ring ? args.Sq : keys.keys();
  args.h = a.integer("heads");
  args.hk = a.integer("kv_heads");
  args.d = a.integer("head_dim");
  args.scale = static_cast<float>(a.number("scale"));
  args.above = a.number("above");
  args.seen = {keys.length, keys.cp, keys.index, keys.owner, keys.causal, keys.window, keys.starts};
  const int64_t blocks = blocks_for(args.T, kLogitRows), all = call.updates[0].elements() - 1;
  for (size_t part = kKeys; part < call.in.size(); ++part) {
    const auto turn = static_cast<int>(part - kKeys);
    args.k = call.in[part].data;
    if (ring) args.seen.owner = keys.owner_in(turn);
    args.again = turn > 0;
    by_type(call.in[0].dtype, [&]<class X>(X) {
      launch(max_logits<X>, {.blocks_x = blocks, .blocks_y = args.h, .threads = kLogitThreads}, args, call.stream);
    });
  }
  launch(keep_largest, {.blocks_x = blocks_for(all + 1, 256)},
         {args.parts, numbers<double>(call.updates[0]), blocks, args.h, first_head(*call.op, call.place), all,
          mark_of(call.place), call.overwrite},
         call.stream);
}
int64_t max_logits_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return op.attributes.integer("heads") * blocks_for(MatrixSize(listing, op.in[0], rows).rows, kLogitRows) *
         static_cast<int64_t>(sizeof(float));
}

struct FactorScratch {
  FactorScratch(void* base, int64_t heads)
      : all(base), run(all.take<int64_t>(2)), factors(all.take<float>(2 * heads)) {}
  Scratch all;
  int64_t* run;
  float* factors;
};
int64_t scale_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  return FactorScratch(nullptr, op.attributes.integer("heads")).all.bytes();
}

template <bool splits>
void scale_heads_op(const KernelCall& call) {
  const ScaledRows s(*call.op);
  const FactorScratch scratch(call.scratch, s.heads);
  launch(head_factors, {},
         {numbers<const double>(call.in[0]), numbers<const double>(call.in[1]), scratch.factors, scratch.run,
          call.in[1].dim(0), s.heads, s.above, s.first_power, s.rest_power, mark_of(call.place)},
         call.stream);
  ScaleHeadsArgs args{.factors = scratch.factors,
                      .run = scratch.run,
                      .count = call.updates[0].elements(),
                      .heads = s.heads,
                      .rows = s.rows,
                      .first = s.first,
                      .columns = s.columns};
  if constexpr (splits) {
    args.low = call.updates[0].as<uint16_t>();
    args.v = call.updates[1].data;
    args.wide_v = call.updates[1].dtype == Dtype::f32;
    args.w = numbers<Bf16>(call.updates[2]);
  } else {
    args.master = numbers<float>(call.updates[0]);
  }
  launch(scale_heads, {.blocks_x = std::min<int64_t>(blocks_for(args.count, 256), 4096)}, args, call.stream);
}

Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> qk_clip_entries() {
  return {entry("max_logits", "rows", max_logits_op, narrow<Among::in, 0>, max_logits_scratch),
          entry("scale_heads", "flat", scale_heads_op<false>, narrow<Among::updates, 0>, scale_scratch),
          entry("scale_heads_split", "flat", scale_heads_op<true>, always, scale_scratch)};
}

}  // namespace heddle::kernels::cuda
