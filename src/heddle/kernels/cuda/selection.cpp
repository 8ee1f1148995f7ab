// Entries of the selection of keys, of attention to chosen keys and of the indexer's loss.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/query_rows_args.h"
#include "heddle/kernels/cuda/selection_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kMostKeys = kSharedByDefault / static_cast<int64_t>(sizeof(float)) - 1024;

LaunchShape blocks(int64_t count, int64_t numbers = 0) {
  return {.blocks_x = count,
          .threads = kSelectionThreads,
          .shared_bytes = numbers * static_cast<int64_t>(sizeof(float))};
}

ListsArgs lists_of(const ir::Attributes& a) {
  return {.lists = a.integer_or("lists", 1), .block = a.integer_or("block", 0), .tail = a.integer_or("tail", 0)};
}
/// The most keys of a row of so many columns.
int64_t slots(const ir::Attributes& a, int64_t columns) {
  const ListsArgs of = lists_of(a);
  const int64_t each = columns / of.lists;
  return of.block == 0 ? each : each * of.block + (of.tail != 0 ? of.block - 1 : 0);
}

/// Keys of a row, and a row's columns, that the kernels have room for.
Support fits(const ir::Listing& listing, const ir::Op& op) {
  constexpr int64_t kMostColumns = int64_t{kColumnsPerThread} * kSelectionThreads;
  for (const char* name : {"head_dim", "value_dim"}) {
    const int64_t width = op.attributes.integer_or(name, 0);
    if (width > kMostColumns) return Support::no(fmt::format("{} is {}, more than {}", name, width, kMostColumns));
  }
  const int at = ir::place_of("chosen", op.def->operands);
  const bool all = at < 0 || at >= static_cast<int>(op.in.size()) || op.in[at] == ir::none;
  const int64_t keys = all ? op.attributes.integer_or("keys", op.attributes.integer("sequence"))
                           : slots(op.attributes, listing.value(op.in[at]).shape[1].count);
  if (keys > kMostKeys) return Support::no(fmt::format("a query has {} keys, more than {}", keys, kMostKeys));
  return Support::yes();
}
template <size_t type>
Support supports(const ir::Listing& listing, const ir::Op& op) {
  if (const Support support = narrow<Among::in, type>(listing, op); !support) return support;
  return fits(listing, op);
}

IndexArgs index_of(const KernelCall& call) {
  return {.q = call.in[0].data,
          .k = call.in[1].data,
          .w = numbers<const float>(named_operand(call, "w")),
          .rows = rows_of(call),
          .T = call.in[0].dim(0),
          .h = call.op->attributes.integer("heads"),
          .d = call.op->attributes.integer("head_dim"),
          .scale = static_cast<float>(call.op->attributes.number("scale"))};
}

int64_t choose_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  return std::min(kScoringBlocks, MatrixSize(listing, op.in[0], counts).rows) * op.attributes.integer("sequence") *
         static_cast<int64_t>(sizeof(float));
}

void choose(const KernelCall& call) {
  const ChooseArgs args{.index = index_of(call),
                        .scores = reinterpret_cast<float*>(call.scratch),
                        .chosen = numbers<int32_t>(call.out[0]),
                        .c = call.out[0].dim(1)};
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(choose_keys<X>, blocks(std::min(kScoringBlocks, args.index.T)), args, call.stream);
  });
}

int64_t blocks_of(const ir::Attributes& a) {
  return (a.integer("sequence") + a.integer("block") - 1) / a.integer("block");
}
int64_t block_scores(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const int64_t rows = MatrixSize(listing, op.in[0], counts).rows * op.attributes.integer("heads");
  return std::min(kScoringBlocks, rows) * blocks_of(op.attributes) * static_cast<int64_t>(sizeof(float));
}
Support chooses_blocks(const ir::Listing& listing, const ir::Op& op) {
  if (const Support q = narrow<Among::in, 0>(listing, op); !q) return q;
  const bool alike = listing.value(op.in[0]).dtype == listing.value(op.in[1]).dtype;
  return alike ? Support::yes() : Support::no("queries and keys are of two types");
}
void choose_of_blocks(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  const ChooseBlocksArgs args{.q = call.in[0].data,
                              .k = call.in[1].data,
                              .rows = rows_of(call),
                              .scores = reinterpret_cast<float*>(call.scratch),
                              .chosen = numbers<int32_t>(call.out[0]),
                              .T = call.in[0].dim(0),
                              .h = at.integer("heads"),
                              .d = at.integer("head_dim"),
                              .c = at.integer("top_k"),
                              .block = at.integer("block"),
                              .blocks = blocks_of(at),
                              .local = at.integer_or("local", 0)};
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(choose_blocks<X>, blocks(std::min(kScoringBlocks, args.T * args.h)), args, call.stream);
  });
}

Support attends(const ir::Listing& listing, const ir::Op& op) {
  if (const Support q = supports<0>(listing, op); !q) return q;
  if (const Support keys = narrow<Among::in, 1>(listing, op); !keys) return keys;
  if (listing.value(op.in[0]).dtype == Dtype::bf16 && listing.value(op.in[1]).dtype == Dtype::f32)
    return Support::no("q is bf16 and the keys are f32");
  return Support::yes();
}

void attend(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  const ChosenAttentionArgs args{.q = call.in[0].data,
                                 .k = call.in[1].data,
                                 .values = call.in[2].data,
                                 .chosen = numbers<const int32_t>(call.in[3]),
                                 .sinks = numbers<const float>(operand(call.in, 5)),
                                 .o = call.out[0].data,
                                 .lse = numbers<float>(call.out[1]),
                                 .rows = rows_of(call),
                                 .h = at.integer("heads"),
                                 .hk = at.integer("kv_heads"),
                                 .d = at.integer("head_dim"),
                                 .v = at.integer("value_dim"),
                                 .c = call.in[3].dim(1),
                                 .scale = static_cast<float>(at.number("scale")),
                                 .lists = lists_of(at)};
  const bool wide_q = call.in[0].dtype == Dtype::f32, wide_k = call.in[1].dtype == Dtype::f32;
  launch(wide_k   ? chosen_attention<float, float>
         : wide_q ? chosen_attention<float, Bf16>
                  : chosen_attention<Bf16, Bf16>,
         blocks(call.in[0].dim(0) * args.h, slots(at, args.c)), args, call.stream);
}

int64_t delta_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  return MatrixSize(listing, op.in[5], counts).rows * op.attributes.integer("heads") *
         static_cast<int64_t>(sizeof(float));
}

void attend_backward(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  const ChosenAttentionGradArgs args{.d_o = call.in[0].data,
                                     .q = call.in[1].data,
                                     .k = call.in[2].data,
                                     .values = call.in[3].data,
                                     .o = call.in[4].data,
                                     .lse = numbers<const float>(call.in[5]),
                                     .chosen = numbers<const int32_t>(call.in[6]),
                                     .delta = reinterpret_cast<float*>(call.scratch),
                                     .dq = call.out[0].data,
                                     .dk = call.out[1].data,
                                     .dv = call.out[2].data,
                                     .rows = rows_of(call),
                                     .h = at.integer("heads"),
                                     .hk = at.integer("kv_heads"),
                                     .d = at.integer("head_dim"),
                                     .v = at.integer("value_dim"),
                                     .c = call.in[6].dim(1),
                                     .scale = static_cast<float>(at.number("scale")),
                                     .lists = lists_of(at)};
  by_type(call.in[1].dtype, [&]<class X>(X) {
    launch(chosen_attention_dq<X>, blocks(call.in[1].dim(0) * args.h, slots(at, args.c)), args, call.stream);
    launch(chosen_attention_dkv<X>, blocks(call.in[2].dim(0) * args.hk), args, call.stream);
  });
}

void give_share(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  const TensorView chosen = named_operand(call, "chosen");
  const ListsArgs lists = lists_of(at);
  const AttentionShareArgs args{.q = call.in[0].data,
                                .k = call.in[1].data,
                                .lse = numbers<const float>(call.in[2]),
                                .chosen = numbers<const int32_t>(chosen),
                                .share = numbers<float>(call.out[0]),
                                .rows = rows_of(call),
                                .h = at.integer("heads"),
                                .hk = at.integer("kv_heads"),
                                .d = at.integer("head_dim"),
                                .c = chosen ? chosen.dim(1) : 0,
                                .scale = static_cast<float>(at.number("scale")),
                                .lists = lists,
                                .columns = call.out[0].dim(1) / lists.lists,
                                .width = at.integer_or("of_blocks", 0) != 0 ? lists.block : 1};
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(attention_share<X>, blocks(call.in[0].dim(0)), args, call.stream); });
}

IndexLossArgs loss_of(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  const TensorView chosen = named_operand(call, "chosen");
  const ListsArgs lists = lists_of(at);
  return {.index = index_of(call),
          .share = numbers<const float>(call.in[3]),
          .chosen = numbers<const int32_t>(chosen),
          .factor = numbers<const float>(call.in[4]) + at.integer("scale_index"),
          .loss = nullptr,
          .d_score = nullptr,
          .dq = nullptr,
          .dk = nullptr,
          .dw = nullptr,
          .c = chosen ? chosen.dim(1) : 0,
          .slots = call.in[3].dim(1) / lists.lists,
          .weight = static_cast<float>(at.number("weight")),
          .lists = lists,
          .apart = at.has("lists")};
}
int64_t lists_in_all(const IndexLossArgs& args) { return args.index.T * args.lists.lists; }

int64_t loss_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  return MatrixSize(listing, op.in[0], counts).rows * op.attributes.integer_or("lists", 1) *
         static_cast<int64_t>(sizeof(double));
}

void diverge(const KernelCall& call) {
  IndexLossArgs args = loss_of(call);
  args.loss = reinterpret_cast<double*>(call.scratch);
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(index_loss<X>, blocks(lists_in_all(args), args.slots), args, call.stream); });
  sum_to(args.loss, lists_in_all(args), numbers<double>(call.out[0]), call.stream);
}

int64_t scores_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  return listing.elements(op.in[3], counts) * static_cast<int64_t>(sizeof(float));
}

void diverge_backward(const KernelCall& call) {
  IndexLossArgs args = loss_of(call);
  args.d_score = reinterpret_cast<float*>(call.scratch);
  args.dq = call.out[0].data;
  args.dk = call.out[1].data;
  if (args.index.w != nullptr) args.dw = numbers<float>(call.out[2]);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(index_loss_dq<X>, blocks(lists_in_all(args), args.slots), args, call.stream);
    launch(index_loss_dk<X>, blocks(call.in[1].dim(0)), args, call.stream);
  });
}

}  // namespace

std::vector<KernelEntry> selection_entries() {
  return {entry("choose_keys", "row", choose, narrow<Among::in, 0>, choose_scratch),
          entry("choose_blocks", "row", choose_of_blocks, chooses_blocks, block_scores),
          entry("chosen_attention", "row", attend, attends),
          entry("chosen_attention_dgrad", "row", attend_backward, supports<1>, delta_scratch),
          entry("attention_share", "row", give_share, narrow<Among::in, 0>),
          entry("index_loss", "row", diverge, supports<0>, loss_scratch),
          entry("index_loss_dgrad", "row", diverge_backward, supports<0>, scores_scratch)};
}

}  // namespace heddle::kernels::cuda
