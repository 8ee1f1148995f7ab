// Entries of the end of a step: norms, AdamW, exact sums.
#include <algorithm>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/step_kernels.h"
#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/one_by_one.h"

namespace heddle::kernels::cuda {

void sum_to(const double* parts, int64_t count, double* sum, void* stream) {
  launch(sum_doubles, {.threads = kSumThreads}, {parts, sum, count}, stream);
}

namespace {

constexpr int64_t kExactBlocks = 256;

Uses uses_of(std::span<const TensorView> views) {
  HEDDLE_CHECK(std::ssize(views) <= kMostUses, "{} uses of a parameter, at most {}", views.size(), kMostUses);
  Uses uses{};
  for (const TensorView& view : views) uses.of[uses.count++] = view.data;
  return uses;
}

LaunchShape flat(int64_t count) { return {.blocks_x = std::min<int64_t>(blocks_for(count, 256), 1 << 16)}; }

template <size_t first>
Support few_uses(const ir::Listing& listing, const ir::Op& op) {
  if (op.in.size() - first > kMostUses) {
    return Support::no(fmt::format("{} uses of a parameter, at most {}", op.in.size() - first, kMostUses));
  }
  const Dtype dtype = listing.value(op.in[first]).dtype;
  return dtype == Dtype::f32 ? Support::yes()
                             : Support::no(fmt::format("gradients in {}, wanted f32", name_of(dtype)));
}

void square_sum_op(const KernelCall& call) {
  const int64_t count = call.in[0].elements(), blocks = blocks_for(count, kSquareBlock);
  auto* parts = reinterpret_cast<double*>(call.scratch);
  launch(square_sum, {.blocks_x = blocks}, {uses_of(call.in), parts, count}, call.stream);
  sum_to(parts, blocks, numbers<double>(call.out[0]), call.stream);
}
int64_t square_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return blocks_for(listing.elements(op.in[0], rows), kSquareBlock) * 8;
}

/// Parts by the sixteen, in order.
template <class Body>
void by_parts(std::span<const TensorView> parts, Body body) {
  for (size_t first = 0; first < parts.size(); first += kMostUses) {
    body(parts.subspan(first, std::min<size_t>(kMostUses, parts.size() - first)), first == 0);
  }
}

void sum_parts_op(const KernelCall& call) {
  auto* sum = numbers<double>(call.out[0]);
  const int64_t elements = call.out[0].elements();
  by_parts(call.in, [&](std::span<const TensorView> parts, bool first) {
    launch(sum_parts, flat(elements), {uses_of(parts), sum, elements, first, false}, call.stream);
  });
}

// Parts by the sixteen, as long as they are of one form.
void grad_norm_op(const KernelCall& call) {
  auto* sum = reinterpret_cast<double*>(call.scratch);
  const auto exact = [&](size_t i) { return call.in[i].elements() == kSquareLimbs; };
  for (size_t first = 0, last; first < call.in.size(); first = last) {
    for (last = first; last < call.in.size() && last < first + kMostUses && exact(last) == exact(first);) ++last;
    launch(add_norm_parts, {.threads = 32},
           {uses_of(call.in.subspan(first, last - first)), sum, 1, first == 0, exact(first)}, call.stream);
  }
  if (call.in.empty()) fill_bytes(sum, 0, 8, call.stream);
  launch(grad_norm, {.threads = 32},
         {sum, numbers<double>(call.out[0]), numbers<double>(call.out[1]), call.op->attributes.number("max_norm")},
         call.stream);
}
int64_t one_number(const ir::Listing&, const ir::Op&, const ir::RowCounts&) { return 8; }

void skip_outlier_op(const KernelCall& call) {
  launch(skip_outlier, {.threads = 32},
         {numbers<const double>(call.in[0]), numbers<const double>(call.in[1]), numbers<const double>(call.in[2]),
          numbers<const double>(call.in[3]), numbers<const double>(call.in[4]), numbers<double>(call.out[0]),
          numbers<double>(call.out[1]), numbers<double>(call.out[2])},
         call.stream);
}

constexpr int64_t kAdamwBlock = 256 * 8;

AdamwRule adamw_rule(const KernelCall& call, bool splits) {
  const ir::Attributes& at = call.op->attributes;
  AdamwRule rule{};
  rule.clip = numbers<const double>(call.in[0]);
  rule.hyper = numbers<const double>(call.in[1]);
  rule.beta1 = static_cast<float>(at.number("beta1"));
  rule.beta2 = static_cast<float>(at.number("beta2"));
  rule.rest1 = static_cast<float>(1 - at.number("beta1"));
  rule.rest2 = static_cast<float>(1 - at.number("beta2"));
  rule.epsilon = static_cast<float>(at.number("epsilon"));
  rule.decay = static_cast<float>(at.number("decay"));
  rule.splits = splits;
  const Dtype kept = call.updates[1].dtype;
  rule.moments = kept == Dtype::u8     ? MomentForm::bytes
                 : kept == Dtype::bf16 ? MomentForm::rounded
                                       : MomentForm::wide;
  rule.wide_copy = operand(call.updates, 3) && call.updates[3].dtype == Dtype::f32;
  return rule;
}
AdamwPart adamw_part(std::span<const TensorView> updates, bool splits) {
  AdamwPart part{};
  part.master = splits ? static_cast<void*>(updates[0].as<uint16_t>()) : numbers<float>(updates[0]);
  part.m = updates[1].data;
  part.v = updates[2].data;
  part.copy = operand(updates, 3).data;
  part.count = updates[0].elements();
  return part;
}

template <bool splits>
void adamw_op(const KernelCall& call) {
  const AdamwArgs args{adamw_rule(call, splits), uses_of(call.in.subspan(2)), adamw_part(call.updates, splits)};
  launch(adamw, {.blocks_x = blocks_for(args.part.count, kAdamwBlock)}, args, call.stream);
}

/// body(first, count) for the parameters of a joined form, as many at a time as a launch takes.
template <class Body>
void by_launches(size_t parts, Body body) {
  for (size_t first = 0; first < parts; first += kMostParts)
    body(first, std::min<size_t>(kMostParts, parts - first));
}
void add_part(PartBlocks& blocks, int64_t elements, int64_t of_block) {
  const int64_t end = blocks.first[blocks.parts] + blocks_for(elements, of_block);
  HEDDLE_CHECK(end <= INT32_MAX, "{} blocks in one launch", end);
  blocks.first[++blocks.parts] = static_cast<int32_t>(end);
}
int64_t all(const PartBlocks& blocks) { return blocks.first[blocks.parts]; }

template <bool splits>
void adamw_many_op(const KernelCall& call) {
  const size_t parts = call.in.size() - 2, each = call.updates.size() / parts;
  by_launches(parts, [&](size_t first, size_t count) {
    AdamwManyArgs args{.rule = adamw_rule(call, splits)};
    for (size_t i = 0; i < count; ++i) {
      args.acc[i] = numbers<const float>(call.in[2 + first + i]);
      args.part[i] = adamw_part(call.updates.subspan((first + i) * each, each), splits);
      add_part(args.blocks, args.part[i].count, kAdamwBlock);
    }
    launch(adamw_many, {.blocks_x = all(args.blocks)}, args, call.stream);
  });
}

void square_sums_op(const KernelCall& call) {
  auto* parts = reinterpret_cast<double*>(call.scratch);
  by_launches(call.in.size(), [&](size_t first, size_t count) {
    SquareSumsArgs args{};
    SumsArgs sums{};
    for (size_t i = 0; i < count; ++i) {
      args.acc[i] = numbers<const float>(call.in[first + i]);
      args.count[i] = call.in[first + i].elements();
      sums.sum[i] = numbers<double>(call.out[first + i]);
      add_part(args.blocks, args.count[i], kSquareBlock);
    }
    sums.blocks = args.blocks;
    sums.parts = args.parts = parts;
    launch(square_sums, {.blocks_x = all(args.blocks)}, args, call.stream);
    launch(sums_of_doubles, {.blocks_x = static_cast<int64_t>(count), .threads = kSumThreads}, sums, call.stream);
    parts += all(args.blocks);
  });
}
int64_t squares_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  int64_t blocks = 0;
  for (const ir::ValueId g : op.in) blocks += blocks_for(listing.elements(g, rows), kSquareBlock);
  return blocks * 8;
}

void averages_op(const KernelCall& call) {
  by_launches(call.updates.size(), [&](size_t first, size_t count) {
    AveragesArgs args{};
    args.clip = numbers<const double>(call.in[0]);
    args.share = static_cast<float>(1 - call.op->attributes.number("decay"));
    for (size_t i = 0; i < count; ++i) {
      args.master[i] = numbers<const float>(call.in[1 + first + i]);
      args.average[i] = numbers<float>(call.updates[first + i]);
      args.count[i] = call.updates[first + i].elements();
      add_part(args.blocks, args.count[i], kAverageBlock);
    }
    launch(average_masters, {.blocks_x = all(args.blocks)}, args, call.stream);
  });
}

void average_op(const KernelCall& call) {
  const int64_t count = call.updates[0].elements();
  launch(average_master, flat(count),
         {numbers<const double>(call.in[0]), numbers<const float>(call.in[1]), numbers<float>(call.updates[0]),
          count, static_cast<float>(1 - call.op->attributes.number("decay"))},
         call.stream);
}

void add_exact_op(const KernelCall& call) {
  const int64_t count = call.in[0].elements();
  launch(add_on_grid, flat(count),
         {numbers<const float>(call.in[0]), numbers<double>(call.updates[0]), count, call.overwrite}, call.stream);
}

void round_op(const KernelCall& call) {
  const int64_t count = call.out[0].elements();
  launch(round_gradient, flat(count), {uses_of(call.in), numbers<float>(call.out[0]), count}, call.stream);
}
Support rounds(const ir::Listing& listing, const ir::Op& op) {
  if (op.in.size() > kMostUses) return Support::no(fmt::format("{} uses of a parameter", op.in.size()));
  return narrow<Among::out, 0>(listing, op);
}

void exact_square_op(const KernelCall& call) {
  ExactSquareArgs args{};
  args.g = numbers<const float>(call.in[0]);
  args.parts = reinterpret_cast<unsigned long long*>(call.scratch);
  args.limbs = numbers<double>(call.out[0]);
  args.count = call.in[0].elements();
  const int64_t blocks = std::min(kExactBlocks, blocks_for(args.count, 256));
  launch(exact_squares, {.blocks_x = blocks}, args, call.stream);
  args.count = blocks;
  launch(exact_limbs, {.threads = 32}, args, call.stream);
}
int64_t exact_square_scratch(const ir::Listing&, const ir::Op&, const ir::RowCounts&) { return kExactBlocks * 24; }

Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> step_entries() {
  return {entry("grad_square_sum", "blocks", square_sum_op, few_uses<0>, square_scratch),
          entry("sum_parts", "flat", sum_parts_op, always),
          entry("grad_norm", "thread", grad_norm_op, always, one_number),
          entry("skip_outlier", "thread", skip_outlier_op, always),
          entry("adamw", "fused", adamw_op<false>, few_uses<2>),
          entry("adamw_split", "fused", adamw_op<true>, few_uses<2>),
          entry("average_master", "flat", average_op, narrow<Among::updates, 0>),
          entry("grad_square_sums", "joined", square_sums_op, takes_each<few_uses<0>>, squares_scratch),
          entry("adamw_many", "joined", adamw_many_op<false>, takes_each<few_uses<2>>),
          entry("adamw_split_many", "joined", adamw_many_op<true>, takes_each<few_uses<2>>),
          entry("average_masters", "joined", averages_op, takes_each<narrow<Among::updates, 0>>),
          entry("add_exact", "flat", add_exact_op),
          entry("round_gradient", "flat", round_op, rounds),
          entry("grad_square_sum_exact", "blocks", exact_square_op, narrow<Among::in, 0>, exact_square_scratch)};
}

}  // namespace heddle::kernels::cuda
