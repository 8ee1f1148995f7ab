// Entries of recurrences along the sequence, and of what stands around them.
#include "heddle/kernels/recurrence.h"

#include <cmath>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/recurrence_kernels.h"

namespace heddle::kernels::cuda {

namespace {

LaunchShape a_thread_each(int64_t elements) {
  return {.blocks_x = blocks_for(elements, kRecurThreads), .threads = kRecurThreads};
}
LaunchShape a_warp_each(int64_t count) { return a_thread_each(count * kWarp); }
/// A thread a column and kConvRows rows.
LaunchShape by_parts(int64_t columns, int64_t parts) {
  LaunchShape shape = a_thread_each(columns);
  shape.blocks_y = parts;
  return shape;
}

RecurArgs recur_args(const KernelCall& call, int64_t sequences) {
  const RecurSizes s(*call.op);
  const ir::Attributes& a = call.op->attributes;
  RecurArgs args{};
  args.d_o = named_operand(call, "do").data;
  args.q = named_operand(call, "q").data;
  args.k = named_operand(call, "k").data;
  args.v = named_operand(call, "v").data;
  const TensorView decay = named_operand(call, "decay"), beta = named_operand(call, "beta");
  args.decay = numbers<const float>(decay);
  args.by_channel = decay && decay.dim(1) != s.h;
  args.beta = beta.data;
  args.wide_beta = beta && beta.dtype == Dtype::f32;
  if (const TensorView skip = named_operand(call, "skip"))
    args.skip = numbers<const float>(skip) + first_of_part(*call.op, call.place, s.h);
  args.starts = numbers<const int32_t>(named_operand(call, "starts"));
  if (s.goes_on) {
    args.before = numbers<const float>(named_operand(call, "states"));
    args.behind = numbers<const float>(named_operand(call, "behind"));
  }
  args.all_heads = s.all_heads;
  args.rows = named_operand(call, "k").dim(0);
  args.sequences = sequences;
  args.h = s.h;
  args.hk = s.hk;
  args.dk = s.dk;
  args.dv = s.dv;
  args.S = s.S;
  args.scale = static_cast<float>(s.scale);
  args.epsilon = static_cast<float>(s.epsilon);
  args.delta = s.delta;
  args.normed = s.normed;
  args.sigmoid = s.sigmoid;
  args.top = static_cast<float>(s.top);
  if (a.has("slopes")) {
    args.slopes = static_cast<float>(a.number("slopes"));
    args.slope_heads = a.integer("slope_heads");
    args.first_head = first_head(*call.op, call.place, s.h, args.slope_heads);
  }
  return args;
}

void forward(const KernelCall& call, RecurArgs args) {
  args.o = call.out[0].data;
  const LaunchShape shape{.blocks_x = args.sequences * args.h,
                          .blocks_y = blocks_for(args.dv, int64_t{kRecurWarps} * kColumns),
                          .threads = kRecurThreads};
  by_type(call.in[0].dtype, [&]<class X>(X) { launch(recur_forward<X>, shape, args, call.stream); });
}

void recur(const KernelCall& call) {
  forward(call, recur_args(call, call.in[0].dim(0) / call.op->attributes.integer("sequence")));
}

void cached_recur(const KernelCall& call) {
  RecurArgs args = recur_args(call, call.updates[0].dim(0));
  args.places = numbers<const int32_t>(named_operand(call, "places"));
  args.states = numbers<float>(call.updates[0]);
  forward(call, args);
}

/// The scratch of a gradient, with places in `args`.
int64_t take_backward(RecurArgs& args, bool skip, void* base) {
  Scratch scratch(base);
  const int64_t heads = args.sequences * args.h, of_state = args.dk * args.dv;
  args.kept = scratch.take<float>(heads * blocks_for(args.S, kRecurRun) * of_state);
  args.run = scratch.take<float>(heads * kRecurRun * of_state);
  args.q_rows = scratch.take<float>(args.rows * args.h * args.dk);
  args.k_rows = scratch.take<float>(args.rows * args.h * args.dk);
  if (skip) args.skip_parts = scratch.take<float>(heads);
  return scratch.bytes();
}

int64_t backward_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const RecurSizes s(op);
  RecurArgs args{};
  args.rows = listing.value(op.in[1]).shape[0].count;
  args.sequences = args.rows / s.S;
  args.h = s.h;
  args.dk = s.dk;
  args.dv = s.dv;
  args.S = s.S;
  return take_backward(args, op.operand("skip") != ir::none, nullptr);
}

void recur_dgrad(const KernelCall& call) {
  RecurArgs args = recur_args(call, call.in[1].dim(0) / call.op->attributes.integer("sequence"));
  const TensorView skip = named_operand(call, "skip");
  take_backward(args, static_cast<bool>(skip), call.scratch);
  args.d_v = call.out[2].data;
  size_t next = 3;
  if (args.decay != nullptr) args.d_decay = numbers<float>(call.out[next++]);
  if (args.beta != nullptr) args.d_beta = call.out[next++].data;
  const int64_t warps = blocks_for(args.dv, kColumns);
  const LaunchShape shape{.blocks_x = args.sequences * args.h,
                          .threads = static_cast<int>(warps * kWarp),
                          .shared_bytes = warps * (args.dk + 3) * static_cast<int64_t>(sizeof(float))};
  by_type(call.in[1].dtype, [&]<class X>(X) {
    launch(recur_backward<X>, shape, args, call.stream);
    RecurKeyArgs keys{args.q,  args.q_rows, call.out[0].data, args.rows,    args.h,
                      args.hk, args.dk,     args.scale,       args.epsilon, args.normed};
    launch(recur_keys<X>, a_warp_each(args.rows * args.hk), keys, call.stream);
    keys.x = args.k;
    keys.rows = args.k_rows;
    keys.dx = call.out[1].data;
    keys.scale = 1;
    launch(recur_keys<X>, a_warp_each(args.rows * args.hk), keys, call.stream);
  });
  if (!skip) return;
  const TensorView& d_skip = call.out.back();
  fill_bytes(d_skip.data, 0, d_skip.elements() * static_cast<int64_t>(sizeof(float)), call.stream);
  add_column_parts(args.skip_parts, args.sequences, args.h,
                   numbers<float>(d_skip) + first_of_part(*call.op, call.place, args.h), false, call.stream);
}

/// Blocks of a head of all heads, and its columns.
LaunchShape by_columns(const RecurArgs& args, int64_t columns) {
  return {.blocks_x = args.sequences * args.all_heads,
          .blocks_y = blocks_for(columns, int64_t{kRecurWarps} * kColumns),
          .threads = kRecurThreads};
}

void recur_summary(const KernelCall& call) {
  RecurArgs args = recur_args(call, call.out[0].dim(0));
  args.transition = numbers<float>(call.out[0]);
  args.update = numbers<float>(call.out[1]);
  args.width = call.out[0].dim(1) / args.all_heads;
  const LaunchShape shape = by_columns(args, args.dv + (args.delta ? args.dk : 0));
  by_type(call.in[0].dtype, [&]<class X>(X) { launch(recur_summaries<X>, shape, args, call.stream); });
}

void recur_states_dgrad(const KernelCall& call) {
  RecurArgs args = recur_args(call, call.out[0].dim(0));
  args.update = numbers<float>(call.out[0]);
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(recur_state_gradients<X>, by_columns(args, args.dv), args, call.stream); });
}

void scan_states(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t heads = a.integer("heads"), pieces = a.integer("pieces");
  const ScanArgs args{.transition = numbers<const float>(call.in[0]),
                      .update = numbers<const float>(call.in[1]),
                      .states = numbers<float>(call.out[0]),
                      .heads = heads,
                      .pieces = pieces,
                      .dk = a.integer("head_dim"),
                      .dv = a.integer("value_dim"),
                      .width = call.in[0].dim(1) / heads,
                      .reverse = a.integer_or("reverse", 0) != 0};
  launch(scan_pieces,
         {.blocks_x = call.in[1].dim(0) / pieces * heads, .blocks_y = args.dv, .threads = kRecurThreads}, args,
         call.stream);
}

void piece_ends(const KernelCall& call) {
  const PieceArgs args{.x = call.in[0].data,
                       .y = call.out[0].data,
                       .C = call.in[0].dim(1),
                       .count = call.op->attributes.integer("count"),
                       .made = call.out[0].dim(0),
                       .S = call.op->attributes.integer("sequence")};
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(take_ends<X>, a_thread_each(args.made * args.C), args, call.stream); });
}

void rows_before(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t ranks = a.integer("ranks");
  const PieceArgs args{.x = call.in[0].data,
                       .y = call.out[0].data,
                       .C = call.in[0].dim(1),
                       .rows = a.integer("rows"),
                       .count = a.integer("count"),
                       .pieces = 2 * ranks,
                       .made = call.out[0].dim(0),
                       .own = {piece_of(call, ranks, 0), piece_of(call, ranks, 1)}};
  if (a.integer_or("reverse", 0) != 0) {
    launch(sum_behind, a_thread_each(args.made * args.C), args, call.stream);
    return;
  }
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(take_before<X>, a_thread_each(args.made * args.C), args, call.stream); });
}

Support no_doubles(const ir::Listing& listing, const ir::Op& op) {
  const Dtype type = listing.value(op.in[0]).dtype;
  return type == Dtype::f64 ? Support::no("f64") : Support::yes();
}

template <size_t q>
Support holds(const ir::Listing& listing, const ir::Op& op) {
  if (const Support x = narrow<Among::in, q>(listing, op); !x) return x;
  const RecurSizes s(op);
  if (s.dk > kMostKeyChannels)
    return Support::no(fmt::format("heads of {} key channels, at most {}", s.dk, kMostKeyChannels));
  if (q == 1 && s.dv > kMostValueChannels)
    return Support::no(fmt::format("heads of {} value channels, at most {}", s.dv, kMostValueChannels));
  return Support::yes();
}

/// x stands at operand number `at`.
ConvArgs conv_args(const KernelCall& call, size_t at) {
  ConvArgs args{};
  args.x = call.in[at].data;
  args.T = call.in[at].dim(0);
  args.C = call.in[at].dim(1);
  args.K = call.in[at + 1].dim(1);
  args.S = call.op->attributes.integer("sequence");
  args.D = call.op->attributes.integer_or("dilation", 1);
  args.silu = call.op->attributes.integer_or("silu", 0) != 0;
  const int64_t part = first_of_part(*call.op, call.place, args.C);
  args.weight = numbers<const float>(call.in[at + 1]) + part * args.K;
  if (const TensorView bias = operand(call.in, at + 2)) args.bias = numbers<const float>(bias) + part;
  args.starts = numbers<const int32_t>(named_operand(call, "starts"));
  args.before = named_operand(call, "before").data;
  args.behind = numbers<const float>(named_operand(call, "behind"));
  args.sequences = args.T / args.S;
  return args;
}

void causal_conv_before_dgrad(const KernelCall& call) {
  ConvArgs args = conv_args(call, 1);
  args.dy = call.in[0].data;
  args.d_before = numbers<float>(call.out[0]);
  by_type(call.in[1].dtype,
          [&]<class X>(X) { launch(conv_before<X>, a_thread_each(call.out[0].elements()), args, call.stream); });
}

void causal_conv(const KernelCall& call) {
  ConvArgs args = conv_args(call, 0);
  args.y = call.out[0].data;
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(conv_forward<X>, a_thread_each(args.T * args.C), args, call.stream); });
}

void causal_conv_dgrad(const KernelCall& call) {
  ConvArgs args = conv_args(call, 1);
  const int64_t parts = blocks_for(args.T, kConvRows), part = first_of_part(*call.op, call.place, args.C);
  args.dy = call.in[0].data;
  args.dx = call.out[0].data;
  args.weight_parts = reinterpret_cast<float*>(call.scratch);
  args.bias_parts = args.weight_parts + parts * args.C * args.K;
  by_type(call.in[1].dtype, [&]<class X>(X) {
    launch(conv_backward<X>, a_thread_each(args.T * args.C), args, call.stream);
    launch(conv_sums<X>, by_parts(args.C, parts), args, call.stream);
  });
  for (size_t i = 1; i < call.out.size(); ++i)
    fill_bytes(call.out[i].data, 0, call.out[i].elements() * static_cast<int64_t>(sizeof(float)), call.stream);
  add_column_parts(args.weight_parts, parts, args.C * args.K, numbers<float>(call.out[1]) + part * args.K, false,
                   call.stream);
  if (args.bias != nullptr)
    add_column_parts(args.bias_parts, parts, args.C, numbers<float>(call.out[2]) + part, false, call.stream);
}

int64_t conv_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const MatrixSize x(listing, op.in[1], counts);
  return blocks_for(x.rows, kConvRows) * x.columns * (listing.value(op.in[2]).shape[1].count + 1) *
         static_cast<int64_t>(sizeof(float));
}

void cached_conv(const KernelCall& call) {
  ConvArgs args = conv_args(call, 0);
  args.places = numbers<const int32_t>(named_operand(call, "places"));
  args.y = call.out[0].data;
  args.tails = call.updates[0].data;
  args.sequences = call.updates[0].dim(0);
  const bool few = (args.K - 1) * args.D <= kMostTaps;
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(few ? conv_cached<X, kMostTaps> : conv_cached<X, kMostKept>, a_thread_each(args.sequences * args.C),
           args, call.stream);
  });
}

template <size_t x>
Support few_taps(const ir::Listing& listing, const ir::Op& op) {
  if (const Support type = narrow<Among::in, x>(listing, op); !type) return type;
  const int64_t taps = listing.value(op.in[x + 1]).shape[1].count;
  if (taps > kMostTaps) return Support::no(fmt::format("a kernel of {} rows, at most {}", taps, kMostTaps));
  const int64_t reach = (taps - 1) * op.attributes.integer_or("dilation", 1);
  if (reach > kMostKept)
    return Support::no(fmt::format("a kernel over {} rows, at most {}", reach + 1, kMostKept + 1));
  return Support::yes();
}

DecayArgs decay_args(const KernelCall& call) {
  DecayArgs args{};
  args.x = call.in[0].data;
  args.a_log = numbers<const float>(call.in[1]);
  args.bias = numbers<const float>(operand(call.in, 2));
  args.T = call.in[0].dim(0);
  args.C = call.in[0].dim(1);
  args.run = args.C / call.in[1].dim(0);
  args.least = static_cast<float>(call.op->attributes.number_or("least", 0));
  args.most = static_cast<float>(call.op->attributes.number_or("most", HUGE_VAL));
  args.bound = static_cast<float>(call.op->attributes.number_or("bound", 0));
  return args;
}

void log_decay(const KernelCall& call) {
  DecayArgs args = decay_args(call);
  args.decay = numbers<float>(call.out[0]);
  args.step = numbers<float>(operand(call.out, 1));
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(decay_forward<X>, a_thread_each(args.T * args.C), args, call.stream); });
}

void log_decay_dgrad(const KernelCall& call) {
  DecayArgs args = decay_args(call);
  const int64_t parts = blocks_for(args.T, kConvRows);
  args.d_decay = numbers<const float>(operand(call.in, 3));
  args.d_step = numbers<const float>(operand(call.in, 4));
  args.dx = call.out[0].data;
  args.a_columns = reinterpret_cast<float*>(call.scratch);
  args.a_parts = args.a_columns + args.C;
  args.bias_parts = args.a_parts + parts * args.C;
  args.d_a = numbers<float>(call.out[1]);
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(decay_backward<X>, by_parts(args.C, parts), args, call.stream); });
  add_column_parts(args.a_parts, parts, args.C, args.a_columns, false, call.stream);
  launch(decay_heads, a_thread_each(args.C / args.run), args, call.stream);
  if (args.bias != nullptr)
    add_column_parts(args.bias_parts, parts, args.C, numbers<float>(call.out[2]), false, call.stream);
}

int64_t decay_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const MatrixSize x(listing, op.in[0], counts);
  return (2 * blocks_for(x.rows, kConvRows) + 1) * x.columns * static_cast<int64_t>(sizeof(float));
}

GatedNormArgs norm_args(const KernelCall& call, size_t at) {
  GatedNormArgs args{};
  const ir::Attributes& a = call.op->attributes;
  args.x = call.in[at].data;
  args.gate = call.in[at + 1].data;
  args.g = numbers<const float>(call.in[at + 2]);
  args.T = call.in[at].dim(0);
  args.C = call.in[at].dim(1);
  args.run = a.integer("run");
  args.G = call.in[at + 2].dim(0);
  args.epsilon = static_cast<float>(a.number("epsilon"));
  args.gate_first = a.integer_or("gate_first", 0) != 0;
  args.sigmoid = a.integer_or("sigmoid", 0) != 0;
  return args;
}

void gated_norm(const KernelCall& call) {
  GatedNormArgs args = norm_args(call, 0);
  args.y = call.out[0].data;
  args.rstd = numbers<float>(call.out[1]);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(gated_norm_forward<X>, a_warp_each(args.T * (args.C / args.run)), args, call.stream);
  });
}

void gated_norm_dgrad(const KernelCall& call) {
  GatedNormArgs args = norm_args(call, 1);
  const int64_t parts = blocks_for(args.T, kConvRows);
  args.dy = call.in[0].data;
  args.rstd = static_cast<float*>(call.in[4].data);
  args.dx = call.out[0].data;
  args.d_gate = call.out[1].data;
  args.parts = reinterpret_cast<float*>(call.scratch);
  by_type(call.in[1].dtype, [&]<class X>(X) {
    launch(gated_norm_backward<X>, a_warp_each(args.T * (args.C / args.run)), args, call.stream);
    launch(gated_norm_sums<X>, by_parts(args.G, parts), args, call.stream);
  });
  add_column_parts(args.parts, parts, args.G, numbers<float>(call.out[2]), false, call.stream);
}

int64_t norm_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  return blocks_for(MatrixSize(listing, op.in[1], counts).rows, kConvRows) *
         listing.value(op.in[3]).shape[0].count * static_cast<int64_t>(sizeof(float));
}

}  // namespace

std::vector<KernelEntry> recurrence_entries() {
  return {entry("recur", "warps", recur, holds<0>),
          entry("recur_dgrad", "warps", recur_dgrad, holds<1>, backward_scratch),
          entry("recur_summary", "warps", recur_summary, holds<0>),
          entry("recur_states_dgrad", "warps", recur_states_dgrad, holds<0>),
          entry("scan_states", "columns", scan_states, no_doubles),
          entry("causal_conv_before_dgrad", "flat", causal_conv_before_dgrad, few_taps<1>),
          entry("piece_ends", "flat", piece_ends, no_doubles),
          entry("rows_before", "flat", rows_before, no_doubles),
          entry("cached_recur", "warps", cached_recur, holds<0>),
          entry("causal_conv", "flat", causal_conv, few_taps<0>),
          entry("causal_conv_dgrad", "flat", causal_conv_dgrad, few_taps<1>, conv_scratch),
          entry("cached_conv", "flat", cached_conv, few_taps<0>),
          entry("log_decay", "flat", log_decay),
          entry("log_decay_dgrad", "columns", log_decay_dgrad, narrow<Among::in, 0>, decay_scratch),
          entry("gated_norm", "warps", gated_norm),
          entry("gated_norm_dgrad", "warps", gated_norm_dgrad, narrow<Among::in, 1>, norm_scratch)};
}

}  // namespace heddle::kernels::cuda
