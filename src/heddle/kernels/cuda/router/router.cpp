// Entries of the router and its balancing losses.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/router/router_kernels.h"

namespace heddle::kernels::cuda {

namespace {

/// `among`, `index`: an operand [T, E].
template <Among among, size_t index>
Support fits(const ir::Listing& listing, const ir::Op& op) {
  const ir::ValueId id = (among == Among::in ? op.in : op.out).at(index);
  if (listing.value(id).dtype != Dtype::f32) {
    return Support::no(fmt::format("scores in {}, wanted f32", name_of(listing.value(id).dtype)));
  }
  const int64_t E = listing.value(id).shape.back().count, k = op.attributes.integer_or("top_k", 1);
  if (E <= kMostExperts && k <= kMostChosen) return Support::yes();
  return Support::no(fmt::format("{} of {} experts a token, at most {} of {}", k, E, kMostChosen, kMostExperts));
}

Scores scores_of(const ir::Op& op) {
  const std::string& word = op.attributes.word("function");
  if (word == "sigmoid") return Scores::sigmoid;
  if (word == "root_softplus") return Scores::root_softplus;
  HEDDLE_CHECK(word == "softmax", "router function '{}' is none of sigmoid, softmax and root_softplus", word);
  return Scores::softmax;
}

LaunchShape warps(int64_t T, int64_t E) {
  return {.blocks_x = blocks_for(T, kRouterWarps),
          .threads = kRouterWarps * kWarp,
          .shared_bytes = router_shared_bytes(E)};
}

void set_choice(const KernelCall& call, RouteArgs& args) {
  const ir::Attributes& at = call.op->attributes;
  args.k = static_cast<int32_t>(at.integer("top_k"));
  args.groups = static_cast<int32_t>(at.integer("groups"));
  args.top_groups = static_cast<int32_t>(at.integer("top_groups"));
  args.group_score_top = static_cast<int32_t>(at.integer("group_score_top"));
}
void set_gate(const KernelCall& call, RouteArgs& args) {
  args.normalize = call.op->attributes.integer("normalize") != 0;
  args.scale = static_cast<float>(call.op->attributes.number("scale"));
}

/// experts -> row_of, token_of, offsets.
void sort(const TensorView& experts, std::span<const TensorView> out, const KernelCall& call) {
  SortRowsArgs args{};
  args.experts_R = numbers<const int32_t>(experts);
  args.row_of_R = numbers<int32_t>(out[0]);
  args.token_of_R = numbers<int32_t>(out[1]);
  args.offsets = numbers<int32_t>(out[2]);
  args.first_PE = reinterpret_cast<int32_t*>(call.scratch);
  args.R = experts.elements();
  args.P = blocks_for(args.R, kSortRows);
  args.k = experts.dim(1);
  args.E = out[2].elements() - 1;
  launch(count_rows, {.blocks_x = args.P, .threads = kSortThreads}, args, call.stream);
  launch(begin_rows, {.threads = kSortThreads}, args, call.stream);
  launch(sort_rows, {.blocks_x = args.P, .threads = kSortThreads}, args, call.stream);
}
int64_t sort_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const MatrixSize size(listing, op.in[0], rows);
  return blocks_for(size.rows * op.attributes.integer("top_k"), kSortRows) * size.columns * 4;
}

/// The op kinds share a kernel; each gives it what it has.
void route_op(const KernelCall& call) {
  const std::string_view kind = call.op->kind();
  RouteArgs args{};
  args.T = call.in[0].dim(0);
  args.E = call.in[0].dim(1);
  const auto* first = numbers<const float>(call.in[0]);
  if (kind == "router" || kind == "router_scores") {
    args.logits_TE = first;
    args.scores = scores_of(*call.op);
    args.s_TE = numbers<float>(call.out[0]);
  } else {
    args.s_in_TE = first;
  }
  if (kind == "router" || kind == "choose") {
    set_choice(call, args);
    args.bias_E = numbers<const float>(operand(call.in, 1));
    args.experts_Tk = numbers<int32_t>(call.out[kind == "router" ? 2 : 0]);
  }
  if (kind == "router" || kind == "gate") {
    set_gate(call, args);
    args.g_Tk = numbers<float>(call.out[kind == "router" ? 1 : 0]);
  }
  if (kind == "gate") {
    args.chosen_Tk = numbers<const int32_t>(call.in[1]);
    args.k = static_cast<int32_t>(call.in[1].dim(1));
  }
  launch(route, warps(args.T, args.E), args, call.stream);
  if (kind == "router") sort(call.out[2], call.out.subspan(3), call);
  if (kind == "choose") sort(call.out[0], call.out.subspan(1), call);
}

void choose_by_id_op(const KernelCall& call) {
  ChooseByIdArgs args{};
  args.ids_T = numbers<const int32_t>(call.in[0]);
  args.table_Vk = numbers<const float>(call.in[1]);
  args.experts_Tk = numbers<int32_t>(call.out[0]);
  args.T = call.in[0].elements();
  args.k = call.in[1].dim(1);
  launch(choose_by_id, {.blocks_x = blocks_for(args.T, kSortThreads), .threads = kSortThreads}, args, call.stream);
  sort(call.out[0], call.out.subspan(1), call);
}
int64_t sort_by_id_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t chosen = listing.elements(op.in[0], rows) * listing.value(op.in[1]).shape[1].count;
  return blocks_for(chosen, kSortRows) * op.attributes.integer("experts") * 4;
}
Support narrow_table(const ir::Listing& listing, const ir::Op& op) {
  const ir::Value& table = listing.value(op.in.at(1));
  if (table.dtype != Dtype::f32) return Support::no(fmt::format("a table in {}, wanted f32", name_of(table.dtype)));
  const int64_t E = op.attributes.integer("experts"), k = table.shape[1].count;
  if (E <= kMostExperts && k <= kMostChosen) return Support::yes();
  return Support::no(fmt::format("{} of {} experts a token, at most {} of {}", k, E, kMostChosen, kMostExperts));
}

/// router_scores_dgrad: ds, s. gate_dgrad: dg, s, experts. router_dgrad: dg?, ds?, s, experts.
void route_dgrad_op(const KernelCall& call) {
  const std::string_view kind = call.op->kind();
  RouteGradArgs args{};
  TensorView s = call.in[1], experts;
  if (kind == "router_scores_dgrad") {
    args.ds_TE = numbers<const float>(call.in[0]);
  } else {
    args.dg_Tk = numbers<const float>(call.in[0]);
    if (kind == "router_dgrad") {
      args.ds_TE = numbers<const float>(call.in[1]);
      s = call.in[2];
    }
    experts = call.in[kind == "router_dgrad" ? 3 : 2];
    args.normalize = call.op->attributes.integer("normalize") != 0;
    args.scale = static_cast<float>(call.op->attributes.number("scale"));
  }
  args.s_TE = numbers<const float>(s);
  args.experts_Tk = numbers<const int32_t>(experts);
  args.k = experts ? static_cast<int32_t>(experts.dim(1)) : 0;
  args.scores = kind == "gate_dgrad" ? Scores::none : scores_of(*call.op);
  args.d_TE = numbers<float>(call.out[0]);
  args.T = s.dim(0);
  args.E = s.dim(1);
  launch(route_dgrad, warps(args.T, args.E), args, call.stream);
}

void count_load_op(const KernelCall& call) {
  launch(count_load, {},
         {numbers<const int32_t>(call.in[0]), numbers<double>(call.updates[0]), call.updates[0].elements(),
          call.overwrite},
         call.stream);
}

void bias_update_op(const KernelCall& call) {
  launch(router_bias_update, {},
         {numbers<const double>(call.in[0]), numbers<const double>(call.in[1]), numbers<float>(call.updates[0]),
          call.in[0].elements(), call.op->attributes.integer_or("by_share", 0)},
         call.stream);
}

/// logits, experts -> gates; or dgates before them -> dlogits.
template <bool gradient>
void mixer_op(const KernelCall& call) {
  const size_t logits = gradient ? 1 : 0;
  MixerArgs args{};
  args.logits_TE = numbers<const float>(call.in[logits]);
  args.experts_T2 = numbers<const int32_t>(call.in[logits + 1]);
  args.dg_T2 = gradient ? numbers<const float>(call.in[0]) : nullptr;
  args.to = numbers<float>(call.out[0]);
  args.T = call.in[logits].dim(0);
  args.E = call.in[logits].dim(1);
  args.closeness = static_cast<float>(call.op->attributes.number("closeness"));
  launch(mixer_gate, {.blocks_x = blocks_for(args.T, kRouterWarps), .threads = kRouterWarps * kWarp}, args,
         call.stream);
}

/// sequence_load: s. sequence_aux_loss: s, scales, load?. sequence_aux_loss_dgrad: the same.
BalanceArgs balance_args(const ir::Attributes& at, int64_t T, int64_t E, Scratch& scratch) {
  BalanceArgs args{};
  args.T = T;
  args.E = E;
  args.S = at.integer("sequence");
  args.whole = at.integer_or("whole", args.S);
  args.k = static_cast<int32_t>(at.integer("top_k"));
  args.alpha = at.number_or("alpha", 0);
  args.scale_index = static_cast<int32_t>(at.integer_or("scale_index", 0));
  args.chosen_Tk = scratch.take<int32_t>(T * args.k);
  args.Z_T = scratch.take<double>(T);
  const int64_t parts = T / args.S * blocks_for(args.S, kBalanceTokens);
  args.count_PE = scratch.take<int32_t>(parts * E);
  args.share_PE = scratch.take<double>(parts * E);
  args.count_BE = scratch.take<double>(T / args.S * E);
  args.loss_B = scratch.take<double>(T / args.S);
  return args;
}
int64_t balance_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const MatrixSize size(listing, op.in[0], rows);
  Scratch scratch(nullptr);
  balance_args(op.attributes, size.rows, size.columns, scratch);
  return scratch.bytes();
}

void balance(const KernelCall& call) {
  const std::string_view kind = call.op->kind();
  Scratch scratch(call.scratch);
  BalanceArgs args = balance_args(call.op->attributes, call.in[0].dim(0), call.in[0].dim(1), scratch);
  args.s_TE = numbers<const float>(call.in[0]);
  args.load_BE = numbers<const double>(operand(call.in, 2));
  double* loss_B = args.loss_B;
  if (kind != "sequence_aux_loss") args.loss_B = nullptr;
  if (kind == "sequence_load") args.count_BE = numbers<double>(call.out[0]);
  launch(balance_tokens, warps(args.T, args.E), args, call.stream);
  launch(balance_parts, {.blocks_x = args.T / args.S * blocks_for(args.S, kBalanceTokens), .threads = kSortThreads},
         args, call.stream);
  launch(balance_sequences, {.blocks_x = args.T / args.S, .threads = kSortThreads}, args, call.stream);
  if (kind == "sequence_aux_loss") sum_to(loss_B, args.T / args.S, numbers<double>(call.out[0]), call.stream);
  if (kind == "sequence_aux_loss_dgrad") {
    args.scales = numbers<const float>(call.in[1]);
    args.ds_TE = numbers<float>(call.out[0]);
    launch(balance_dgrad, warps(args.T, args.E), args, call.stream);
  }
}

void z_loss_op(const KernelCall& call) {
  ZLossArgs args{};
  args.logits_TE = numbers<const float>(call.in[0]);
  args.T = call.in[0].dim(0);
  args.E = call.in[0].dim(1);
  args.weight = call.op->attributes.number("weight");
  if (call.op->kind() == "z_loss") {
    args.loss_T = reinterpret_cast<double*>(call.scratch);
    launch(z_loss, warps(args.T, args.E), args, call.stream);
    return sum_to(args.loss_T, args.T, numbers<double>(call.out[0]), call.stream);
  }
  args.scales = numbers<const float>(call.in[1]);
  args.scale_index = static_cast<int32_t>(call.op->attributes.integer("scale_index"));
  args.dlogits_TE = numbers<float>(call.out[0]);
  launch(z_loss, warps(args.T, args.E), args, call.stream);
}
int64_t z_loss_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return MatrixSize(listing, op.in[0], rows).rows * 8;
}

Support narrow_bias(const ir::Listing& listing, const ir::Op& op) {
  const Dtype dtype = listing.value(op.updates.at(0)).dtype;
  return dtype == Dtype::f32 ? Support::yes()
                             : Support::no(fmt::format("a bias in {}, wanted f32", name_of(dtype)));
}
Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> router_entries() {
  return {entry("router_scores", "warp", route_op, fits<Among::in, 0>),
          entry("router_scores_dgrad", "warp", route_dgrad_op, fits<Among::in, 1>),
          entry("choose", "warp", route_op, fits<Among::in, 0>, sort_scratch),
          entry("choose_by_id", "thread", choose_by_id_op, narrow_table, sort_by_id_scratch),
          entry("gate", "warp", route_op, fits<Among::in, 0>),
          entry("gate_dgrad", "warp", route_dgrad_op, fits<Among::in, 1>),
          entry("mixer_gate", "warp", mixer_op<false>, fits<Among::in, 0>),
          entry("mixer_gate_dgrad", "warp", mixer_op<true>, fits<Among::in, 1>),
          entry("router", "warp", route_op, fits<Among::in, 0>, sort_scratch),
          entry("router_dgrad", "warp", route_dgrad_op, fits<Among::in, 2>),
          entry("count_load", "block", count_load_op, always),
          entry("router_bias_update", "block", bias_update_op, narrow_bias),
          entry("sequence_load", "warp", balance, fits<Among::in, 0>, balance_scratch),
          entry("sequence_aux_loss", "warp", balance, fits<Among::in, 0>, balance_scratch),
          entry("sequence_aux_loss_dgrad", "warp", balance, fits<Among::in, 0>, balance_scratch),
          entry("z_loss", "warp", z_loss_op, fits<Among::in, 0>, z_loss_scratch),
          entry("z_loss_dgrad", "warp", z_loss_op, fits<Among::in, 0>)};
}

}  // namespace heddle::kernels::cuda
