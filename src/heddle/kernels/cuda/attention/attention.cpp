// Entries of attention, whole or by parts as keys come round a ring.
#include "heddle/kernels/cuda/attention/attention.h"

#include <algorithm>

#include "heddle/kernels/cuda/attention/attention_kernels.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::cuda {

namespace {

Support attention_fits(const ir::Listing& listing, const ir::Op& op) {
  if (const Support types = narrow<Among::in, 0>(listing, op); !types) return types;
  if (op.attributes.has("rate"))
    return Support::no("drops no probabilities: model.attention_dropout = 0 goes with it");
  const int64_t d = op.attributes.integer("head_dim"), v = op.attributes.integer("value_dim");
  if (d > kWidestHead || v > kWidestValue)
    return Support::no(
        fmt::format("heads of {} and values of {}, at most {} and {}", d, v, kWidestHead, kWidestValue));
  return attention_fits_block(d, v, listing.value(op.in[0]).dtype, device::kVendor);
}

/// Calls f<slices> for the slices of a head (attention_fits).
template <class X, class F>
void by_slices(const AttentionSizes& p, F f) {
  const int slices = head_slices(p.d, p.v_dim);
  if (slices == 1) return f.template operator()<1>();
  if (slices == 2) return f.template operator()<2>();
  if constexpr (sizeof(X) == 2) f.template operator()<4>();
}

AttentionSizes attention_sizes(const KernelCall& call) {
  const SeenKeys keys(*call.op, call.place, numbers<const int32_t>(named_operand(call, "starts")));
  const ir::Attributes& attributes = call.op->attributes;
  return {.B = call.in[0].dim(0) / keys.queries(),
          .S = keys.keys(),
          .Sq = keys.queries(),
          .h = attributes.integer("heads"),
          .hk = attributes.integer("kv_heads"),
          .d = attributes.integer("head_dim"),
          .v_dim = attributes.integer("value_dim"),
          .scale = static_cast<float>(attributes.number("scale")),
          .cap = static_cast<float>(attributes.number_or("cap", 0)),
          .seen = {keys.length, keys.cp, keys.index, keys.owner, keys.causal, keys.window, keys.starts}};
}

void forward(const KernelCall& call) {
  const AttentionSizes p = attention_sizes(call);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    AttentionArgs args{p};
    args.q = numbers<const X>(call.in[0]);
    args.k = numbers<const X>(call.in[1]);
    args.v = numbers<const X>(call.in[2]);
    args.o = call.out[0].data;
    args.wide_o = call.out[0].dtype == Dtype::f32;
    args.lse = numbers<float>(call.out[1]);
    args.o_before = numbers<const float>(named_operand(call, "o_before"));
    args.lse_before = numbers<const float>(named_operand(call, "lse_before"));
    if (const auto* sinks = numbers<const float>(named_operand(call, "sinks")); sinks != nullptr) {
      args.sinks = sinks + first_sink(*call.op, call.place);
    }
    by_slices<X>(p, [&]<int kSlices>() {
      launch(attention<X, kSlices>,
             {.blocks_x = blocks_for(p.Sq, kQueryTile),
              .blocks_y = p.h,
              .blocks_z = p.B,
              .threads = attention_threads(kSlices),
              .shared_bytes = attention_shared_bytes(p.d, p.v_dim, sizeof(X))},
             args, call.stream);
    });
  });
}

/// do, q, k, v, o, lse, and for a part the dq of the parts before.
void backward(const KernelCall& call) {
  const AttentionSizes p = attention_sizes(call);
  by_type(call.in[1].dtype, [&]<class X>(X) {
    AttentionGradArgs args{p};
    args.d_o = numbers<const X>(call.in[0]);
    args.q = numbers<const X>(call.in[1]);
    args.k = numbers<const X>(call.in[2]);
    args.v = numbers<const X>(call.in[3]);
    args.o = numbers<const X>(call.in[4]);
    args.lse = numbers<const float>(call.in[5]);
    args.dq_before = numbers<const float>(named_operand(call, "dq_before"));
    args.delta = reinterpret_cast<float*>(call.scratch);
    args.dq = call.out[0].data;
    args.wide_dq = call.out[0].dtype == Dtype::f32;
    args.dk = numbers<X>(call.out[1]);
    args.dv = numbers<X>(call.out[2]);
    const int64_t shared = attention_grad_shared_bytes(p.d, p.v_dim, sizeof(X));
    launch(attention_delta<X>,
           {.blocks_x = blocks_for(p.B * p.Sq * p.h, kAttentionThreads / kWarp), .threads = kAttentionThreads},
           args, call.stream);
    by_slices<X>(p, [&]<int kSlices>() {
      launch(attention_dkv<X, kSlices>,
             {.blocks_x = blocks_for(p.S, grad_rows(kSlices)),
              .blocks_y = p.hk,
              .blocks_z = p.B,
              .threads = grad_threads(kSlices),
              .shared_bytes = shared},
             args, call.stream);
      launch(attention_dq<X, kSlices>,
             {.blocks_x = blocks_for(p.Sq, grad_rows(kSlices)),
              .blocks_y = p.h,
              .blocks_z = p.B,
              .threads = grad_threads(kSlices),
              .shared_bytes = shared},
             args, call.stream);
    });
  });
}
int64_t backward_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[5], rows) * 4;
}

void sinks_gradient(const KernelCall& call) {
  by_type(call.in[0].dtype, [&]<class X>(X) {
    const int64_t h = call.op->attributes.integer("heads");
    const SinksGradArgs args{.d_o = numbers<const X>(call.in[0]),
                             .o = numbers<const X>(call.in[1]),
                             .lse = numbers<const float>(call.in[2]),
                             .sinks = numbers<const float>(call.in[3]),
                             .acc = numbers<float>(call.updates[0]),
                             .T = call.in[0].dim(0),
                             .h = h,
                             .v = call.in[0].dim(1) / h,
                             .first = first_sink(*call.op, call.place),
                             .all = call.in[3].elements(),
                             .overwrite = call.overwrite};
    launch(attention_sinks_wgrad<X>, {.blocks_x = args.all, .threads = kAttentionThreads}, args, call.stream);
  });
}

}  // namespace

Support attention_fits_block(int64_t d, int64_t v, Dtype dtype, device::Vendor vendor) {
  const auto size = static_cast<int>(size_of(dtype));
  const int64_t bytes = std::max(attention_shared_bytes(d, v, size), attention_grad_shared_bytes(d, v, size));
  const int64_t most_kib = device::vendor_words(vendor).shared_kib;
  if (bytes <= most_kib << 10) return Support::yes();
  return Support::no(fmt::format(
      "with heads of {} and values of {} in {} a block takes {:.0f} KiB of shared memory, those of {} have {}", d,
      v, name_of(dtype), static_cast<double>(bytes) / 1024, device::vendor_words(vendor).company, most_kib));
}

std::vector<KernelEntry> attention_entries() {
  return {entry("attention_sinks_wgrad", "heads", sinks_gradient),
          entry("attention", "tiles", forward, attention_fits),
          entry("attention_part", "tiles", forward, attention_fits),
          entry("attention_dgrad", "tiles", backward, attention_fits, backward_scratch),
          entry("attention_part_dgrad", "tiles", backward, attention_fits, backward_scratch)};
}

}  // namespace heddle::kernels::cuda
