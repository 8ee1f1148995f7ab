// Entries of rotary positions and MLA's assembly.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/position_kernels.h"
#include "heddle/kernels/mla_sizes.h"

namespace heddle::kernels::cuda {

namespace {

template <bool assembles>
Support fits(const ir::Listing& listing, const ir::Op& op) {
  if (const Support types = narrow<Among::in, 0>(listing, op); !types) return types;
  const int64_t r = op.attributes.integer(assembles ? "rope" : "rope_dim");
  if (r <= kWidestRope) return Support::yes();
  return Support::no(fmt::format("{} rotated dimensions, at most {} fit", r, kWidestRope));
}

void rope(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  by_type(call.in[0].dtype, [&]<class X>(X) {
    PositionArgs args{};
    args.q = numbers<const X>(call.in[0]);
    args.table_Sr = numbers<const float>(call.in[1]);
    args.q_out = numbers<X>(call.out[0]);
    args.T = call.in[0].dim(0);
    args.h = at.integer("heads");
    args.r = at.integer("rope_dim");
    args.n = at.integer_or("first", at.integer("head_dim") - args.r);
    args.behind = at.integer("head_dim") - args.r - args.n;
    args.S = at.integer("sequence");
    args.interleaved = at.integer("interleaved") != 0;
    args.inverse = at.integer_or("inverse", 0) != 0;
    launch(position<X>, {.blocks_x = args.T}, args, call.stream);
  });
}

PositionSizes assembled_sizes(const KernelCall& call, bool rotates) {
  const ir::Attributes& at = call.op->attributes;
  const MlaSizes sizes(at);
  return {.T = call.in[0].dim(0),
          .h = sizes.h,
          .n = sizes.n,
          .r = sizes.r,
          .v = sizes.v,
          .S = rotates ? at.integer("sequence") : 0,
          .interleaved = rotates && at.integer("interleaved") != 0};
}

/// mla_assemble: kv, kr -> k, v. mla_rope: q, kv, kr, table -> q', k, v.
void assemble(const KernelCall& call) {
  const bool rotates = call.op->kind() == "mla_rope";
  const size_t i = rotates ? 1 : 0;
  by_type(call.in[0].dtype, [&]<class X>(X) {
    PositionArgs args{assembled_sizes(call, rotates)};
    args.kv = numbers<const X>(call.in[i]);
    args.kr = numbers<const X>(call.in[i + 1]);
    if (rotates) {
      args.q = numbers<const X>(call.in[0]);
      args.q_out = numbers<X>(call.out[0]);
      args.table_Sr = numbers<const float>(call.in[3]);
    }
    args.k = numbers<X>(call.out[i]);
    args.value = numbers<X>(call.out[i + 1]);
    launch(position<X>, {.blocks_x = args.T}, args, call.stream);
  });
}

/// mla_assemble_dgrad: dk, dv -> dkv, dkr. mla_rope_dgrad: dq', dk, dv, table -> dq, dkv, dkr.
void assemble_dgrad(const KernelCall& call) {
  const bool rotates = call.op->kind() == "mla_rope_dgrad";
  const size_t i = rotates ? 1 : 0;
  const PositionSizes sizes = assembled_sizes(call, rotates);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    PositionGradArgs args{sizes};
    args.dk = numbers<const X>(call.in[i]);
    args.dvalue = numbers<const X>(call.in[i + 1]);
    args.dkv = numbers<X>(call.out[i]);
    args.dkr = numbers<X>(call.out[i + 1]);
    if (rotates) {
      args.table_Sr = numbers<const float>(call.in[3]);
      PositionArgs q{sizes};
      q.q = numbers<const X>(call.in[0]);
      q.q_out = numbers<X>(call.out[0]);
      q.table_Sr = args.table_Sr;
      q.v = 0;  // heads of queries alone
      q.inverse = true;
      launch(position<X>, {.blocks_x = q.T}, q, call.stream);
    }
    launch(position_dgrad<X>, {.blocks_x = args.T}, args, call.stream);
  });
}

}  // namespace

std::vector<KernelEntry> position_entries() {
  return {entry("rope", "token", rope, fits<false>), entry("mla_assemble", "token", assemble, fits<true>),
          entry("mla_assemble_dgrad", "token", assemble_dgrad, fits<true>),
          entry("mla_rope", "token", assemble, fits<true>),
          entry("mla_rope_dgrad", "token", assemble_dgrad, fits<true>)};
}

}  // namespace heddle::kernels::cuda
