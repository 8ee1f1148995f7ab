// Entries of the end of a step: norms, AdamW, exact sums.
#include <algorithm>

#include "heddle/device/batch.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/step_kernels.h"
#include "heddle/kernels/exact_grid.h"

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

void grad_norm_op(const KernelCall& call) {
  auto* sum = reinterpret_cast<double*>(call.scratch);
  bool first = true;
  for (const TensorView& part : call.in) {
    launch(add_norm_parts, {.threads = 32}, {uses_of({&part, 1}), sum, 1, first, part.elements() == kSquareLimbs},
           call.stream);
    first = false;
  }
  if (first) fill_bytes(sum, 0, 8, call.stream);
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

void post_validation_op(const KernelCall& call) {
  HEDDLE_CHECK(call.batch != nullptr, "op '{}' runs without a batch", call.op->kind());
  PostValidationArgs args{};
  args.norm = numbers<const double>(call.in[0]);
  args.clip = numbers<const double>(call.in[1]);
  args.before = numbers<double>(call.updates[0]);
  args.failed = numbers<int32_t>(call.out[0]);
  args.attempt = numbers<int32_t>(call.out[1]);
  args.guessed = call.batch->guessed;
  args.attempts = call.batch->attempts;
  launch(post_validation, {.threads = 32}, args, call.stream);
}

AdamwArgs adamw_args(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  AdamwArgs args{};
  args.clip = numbers<const double>(call.in[0]);
  args.hyper = numbers<const double>(call.in[1]);
  args.acc = uses_of(call.in.subspan(2));
  args.m = numbers<float>(call.updates[1]);
  args.v = numbers<float>(call.updates[2]);
  args.count = call.updates[0].elements();
  args.beta1 = static_cast<float>(at.number("beta1"));
  args.beta2 = static_cast<float>(at.number("beta2"));
  args.rest1 = static_cast<float>(1 - at.number("beta1"));
  args.rest2 = static_cast<float>(1 - at.number("beta2"));
  args.epsilon = static_cast<float>(at.number("epsilon"));
  args.decay = static_cast<float>(at.number("decay"));
  return args;
}
void launch_adamw(const AdamwArgs& args, void* stream) {
  launch(adamw, {.blocks_x = blocks_for(args.count, 256 * 8)}, args, stream);
}

void adamw_op(const KernelCall& call) {
  AdamwArgs args = adamw_args(call);
  args.p = numbers<float>(call.updates[0]);
  if (call.op->attributes.integer_or("copy", 0) != 0) {
    const TensorView& copy = call.updates[3];
    if (copy.dtype == Dtype::bf16) {
      args.copy = numbers<Bf16>(copy);
    } else {
      args.copy_wide = numbers<float>(copy);
    }
  }
  launch_adamw(args, call.stream);
}

void adamw_split_op(const KernelCall& call) {
  AdamwArgs args = adamw_args(call);
  args.low = call.updates[0].as<uint16_t>();
  args.copy = numbers<Bf16>(call.updates[3]);
  launch_adamw(args, call.stream);
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
          entry("post_validation", "thread", post_validation_op, always),
          entry("adamw", "fused", adamw_op, few_uses<2>),
          entry("adamw_split", "fused", adamw_split_op, few_uses<2>),
          entry("average_master", "flat", average_op, narrow<Among::updates, 0>),
          entry("add_exact", "flat", add_exact_op),
          entry("round_gradient", "flat", round_op, rounds),
          entry("grad_square_sum_exact", "blocks", exact_square_op, narrow<Among::in, 0>, exact_square_scratch)};
}

}  // namespace heddle::kernels::cuda
