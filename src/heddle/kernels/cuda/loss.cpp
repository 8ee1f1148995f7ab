// Entries of cross entropy, from logits or straight from the head's operands, and of losses of pairs. T tokens, H
// hidden, V vocabulary.
//
// The fused forms take rows a block at a time: logits in f32, their gradient in the type of the operands, both in
// scratch. In bf16 the gradients of several blocks are kept before they are multiplied. For each product with them
// reads and writes the whole gradient of the head, which is larger than a block.
#include <algorithm>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/loss_kernels.h"

namespace heddle::kernels::cuda {

HeadRoom& head_room() {
  static HeadRoom room;
  return room;
}

namespace {

int64_t rows_of_block(int64_t T, int64_t V) {
  const int64_t fit = head_room().logit_bytes / (4 * std::max<int64_t>(1, V)), least = head_room().least_rows;
  return std::min(T, std::max(least, fit / least * least));
}

/// Rows whose gradients are kept at once: some blocks of `block` rows, in bf16.
int64_t rows_kept(int64_t T, int64_t V, int64_t block) {
  const int64_t fit = head_room().gradient_bytes / (2 * std::max<int64_t>(1, V));
  return std::min(T, std::max<int64_t>(1, fit / std::max<int64_t>(1, block)) * block);
}

int32_t scale_index(const KernelCall& call) {
  return static_cast<int32_t>(call.op->attributes.integer_or("scale_index", 0));
}
float z_weight(const KernelCall& call) { return static_cast<float>(call.op->attributes.number_or("z_weight", 0)); }
/// The place of the sum of squares, or null.
double* z_of(const KernelCall& call) { return call.out.size() > 2 ? numbers<double>(call.out[2]) : nullptr; }

void launch_grad(const TensorView& logits, Dtype to, const LossGradArgs& args, void* stream) {
  auto* kernel = logits.dtype == Dtype::bf16 ? cross_entropy_dgrad<Bf16, Bf16>
                 : to == Dtype::bf16         ? cross_entropy_dgrad<float, Bf16>
                                             : cross_entropy_dgrad<float, float>;
  launch(kernel, {.blocks_x = args.T, .blocks_y = blocks_for(args.V, 256 * 8)}, args, stream);
}

void loss_op(const KernelCall& call) {
  const TensorView& logits = call.in[0];
  const int64_t T = logits.rows(), V = logits.columns();
  auto* loss_T = reinterpret_cast<double*>(call.scratch);
  double* const z = z_of(call);
  double* const z_T = z != nullptr ? loss_T + T : nullptr;
  by_type(logits.dtype, [&]<class X>(X) {
    launch(cross_entropy<X>, {.blocks_x = T},
           {logits.data, numbers<const int32_t>(call.in[1]), numbers<float>(call.out[1]), loss_T, T, V,
            numbers<const double>(operand(call.in, 3)), z_T},
           call.stream);
  });
  sum_to(loss_T, T, numbers<double>(call.out[0]), call.stream);
  if (z != nullptr) sum_to(z_T, T, z, call.stream);
}
int64_t loss_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[1], rows) * (op.attributes.has("z_weight") ? 16 : 8);
}

void token_losses_op(const KernelCall& call) {
  const TensorView& logits = call.in[0];
  const int64_t T = logits.rows(), V = logits.columns();
  by_type(logits.dtype, [&]<class X>(X) {
    launch(cross_entropy<X>, {.blocks_x = T},
           {logits.data, numbers<const int32_t>(call.in[1]), numbers<float>(call.out[1]),
            numbers<double>(call.out[0]), T, V, nullptr, nullptr},
           call.stream);
  });
}

void loss_dgrad(const KernelCall& call) {
  const TensorView& logits = call.in[0];
  launch_grad(logits, call.out[0].dtype,
              {logits.data, numbers<const int32_t>(call.in[1]), numbers<const float>(call.in[2]),
               numbers<const float>(operand(call.in, 3)), call.out[0].data, logits.rows(), logits.columns(),
               scale_index(call), numbers<const double>(operand(call.in, 4)), z_weight(call)},
              call.stream);
}

/// The head's operands and what its sweeps keep in scratch.
struct Head {
  Head(Dtype X, int64_t T, int64_t H, int64_t V, bool with_z, bool backward, void* base)
      : X(X), T(T), H(H), V(V), scratch(base) {
    rows = rows_of_block(T, V);
    // With f32 operands the gradient takes the place of the logits.
    kept = X == Dtype::f32 || !backward ? rows : rows_kept(T, V, rows);
    workspace = scratch.take<std::byte>(product_workspace_bytes());
    logits = scratch.take<float>(rows * V);
    if (backward) dlogits = X == Dtype::f32 ? logits : static_cast<void*>(scratch.take<Bf16>(kept * V));
    loss_T = scratch.take<double>(T);
    if (with_z) z_T = scratch.take<double>(T);
    lse_T = scratch.take<float>(T);
  }

  TensorView block(void* data, Dtype dtype, int64_t count, int64_t width) const {
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    view.rank = 2;
    view.dims[0] = count;
    view.dims[1] = width;
    return view;
  }

  Dtype X;
  int64_t T, H, V, rows, kept;
  Scratch scratch;
  void* workspace;
  float* logits;
  void* dlogits = nullptr;
  double *loss_T, *z_T = nullptr;
  float* lse_T;
};

/// Results that a sweep is to make; lse is an input where no loss is.
struct Sweep {
  double *loss = nullptr, *z = nullptr;
  double* losses_T = nullptr;  // of each token, instead of their sum
  float* lse_T = nullptr;
  TensorView scales, weights;
  TensorView dx, acc;
  bool sums() const { return loss != nullptr || losses_T != nullptr; }
};

void sweep(const KernelCall& call, Head& head, const Sweep& to) {
  const TensorView &x = call.in[0], &w = call.in[1];
  const auto* labels_T = numbers<const int32_t>(call.in[2]);
  const auto* weights_T = numbers<const double>(to.weights);
  double* const loss_T = to.losses_T != nullptr ? to.losses_T : head.loss_T;
  const int64_t row_bytes = head.H * size_of(head.X);
  const auto x_from = [&](int64_t first, int64_t rows) {
    return head.block(x.as<std::byte>() + first * row_bytes, head.X, rows, head.H);
  };
  const auto multiply_gradients = [&](int64_t first, int64_t rows) {
    const TensorView dlogits = head.block(head.dlogits, head.X, rows, head.V);
    if (to.dx) {
      multiply({.a = dlogits,
                .b = w,
                .c = head.block(to.dx.as<std::byte>() + first * row_bytes, head.X, rows, head.H),
                .b_by_k = true,
                .M = rows,
                .N = head.H,
                .K = head.V},
               head.workspace, call.stream);
    }
    if (to.acc) {
      multiply({.a = dlogits,
                .b = x_from(first, rows),
                .c = to.acc,
                .a_by_k = true,
                .b_by_k = true,
                .M = head.V,
                .N = head.H,
                .K = rows,
                .add = !(call.overwrite && first == 0)},
               head.workspace, call.stream);
    }
  };
  if (head.T == 0 && to.acc && call.overwrite) fill_bytes(to.acc.data, 0, head.V * head.H * 4, call.stream);
  const bool backward = to.dx || to.acc;
  for (int64_t first = 0; first < head.T; first += head.rows) {
    const int64_t rows = std::min(head.rows, head.T - first), kept_first = first / head.kept * head.kept;
    const TensorView logits = head.block(head.logits, Dtype::f32, rows, head.V);
    multiply({.a = x_from(first, rows), .b = w, .c = logits, .M = rows, .N = head.V, .K = head.H}, head.workspace,
             call.stream);
    const double* const weights = weights_T != nullptr ? weights_T + first : nullptr;
    if (to.sums()) {
      launch(cross_entropy<float>, {.blocks_x = rows},
             {head.logits, labels_T + first, to.lse_T + first, loss_T + first, rows, head.V, weights,
              to.z != nullptr ? head.z_T + first : nullptr},
             call.stream);
    }
    if (!backward) continue;
    std::byte* const dlogits =
        static_cast<std::byte*>(head.dlogits) + (first - kept_first) * head.V * size_of(head.X);
    launch_grad(logits, head.X,
                {head.logits, labels_T + first, to.lse_T + first, numbers<const float>(to.scales), dlogits, rows,
                 head.V, scale_index(call), weights, z_weight(call)},
                call.stream);
    if (first + rows == std::min(kept_first + head.kept, head.T)) {
      multiply_gradients(kept_first, first + rows - kept_first);
    }
  }
  if (to.loss != nullptr) sum_to(loss_T, head.T, to.loss, call.stream);
  if (to.z != nullptr) sum_to(head.z_T, head.T, to.z, call.stream);
}

/// True if an op of the head makes gradients.
bool goes_back(const ir::Op& op) {
  return op.kind().ends_with("_dgrad") || op.kind().ends_with("_wgrad") || op.kind().ends_with("_train");
}

Head head_of(const KernelCall& call) {
  return {call.in[0].dtype,
          call.in[0].rows(),
          call.in[1].dim(1),
          call.in[1].dim(0),
          call.op->attributes.has("z_weight"),
          goes_back(*call.op),
          call.scratch};
}
int64_t head_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Value& w = listing.value(op.in[1]);
  const MatrixSize x(listing, op.in[0], rows);
  return Head(listing.value(op.in[0]).dtype, x.rows, w.shape[1].count, w.shape[0].count,
              op.attributes.has("z_weight"), goes_back(op), nullptr)
      .scratch.bytes();
}

void head_loss(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head,
        {.loss = numbers<double>(call.out[0]),
         .z = z_of(call),
         .lse_T = numbers<float>(call.out[1]),
         .weights = operand(call.in, 4)});
}
void head_token_losses(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head, {.losses_T = numbers<double>(call.out[0]), .lse_T = numbers<float>(call.out[1])});
}
void head_dgrad(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head,
        {.lse_T = numbers<float>(call.in[3]),
         .scales = operand(call.in, 4),
         .weights = operand(call.in, 5),
         .dx = call.out[0]});
}
void head_wgrad(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head,
        {.lse_T = numbers<float>(call.in[3]),
         .scales = operand(call.in, 4),
         .weights = operand(call.in, 5),
         .acc = call.updates[0]});
}
void head_train(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head,
        {.loss = numbers<double>(call.out[0]),
         .z = z_of(call),
         .lse_T = head.lse_T,
         .scales = call.in[3],
         .weights = operand(call.in, 4),
         .dx = call.out[1],
         .acc = call.updates[0]});
}

/// in 4 … 6: lse of all parts, labels and lse of this part.
void sharded(const KernelCall& call) {
  const int64_t T = call.in[6].elements();
  auto* loss_T = reinterpret_cast<double*>(call.scratch);
  double* const z = z_of(call);
  double* const z_T = z != nullptr ? loss_T + T : nullptr;
  launch(sharded_loss, {.blocks_x = blocks_for(T, 256)},
         {numbers<const float>(call.in[4]), numbers<const int32_t>(call.in[5]), numbers<const float>(call.in[6]),
          numbers<float>(call.out[1]), loss_T, T, T == 0 ? 0 : call.in[4].elements() / T,
          numbers<const double>(operand(call.in, 7)), z_T, nullptr},
         call.stream);
  sum_to(loss_T, T, numbers<double>(call.out[0]), call.stream);
  if (z != nullptr) sum_to(z_T, T, z, call.stream);
}
int64_t sharded_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[6], rows) * (op.attributes.has("z_weight") ? 16 : 8);
}

/// in 2 … 5: lse of all parts, labels, lse and losses of this part.
void sharded_tokens(const KernelCall& call) {
  const int64_t T = call.in[4].elements();
  launch(sharded_loss, {.blocks_x = blocks_for(T, 256)},
         {numbers<const float>(call.in[2]), numbers<const int32_t>(call.in[3]), numbers<const float>(call.in[4]),
          numbers<float>(call.out[1]), numbers<double>(call.out[0]), T, T == 0 ? 0 : call.in[2].elements() / T,
          nullptr, nullptr, numbers<const double>(call.in[5])},
         call.stream);
}

void sequence_sums_op(const KernelCall& call) {
  const int64_t B = call.out[0].elements();
  launch(
      sequence_sums, {.blocks_x = B},
      {numbers<const double>(call.in[0]), numbers<double>(call.out[0]), B, call.op->attributes.integer("sequence")},
      call.stream);
}
void sequence_spread_op(const KernelCall& call) {
  const int64_t T = call.out[0].elements();
  launch(
      sequence_spread, {.blocks_x = blocks_for(T, 256)},
      {numbers<const double>(call.in[0]), numbers<double>(call.out[0]), T, call.op->attributes.integer("sequence")},
      call.stream);
}

PreferenceArgs preference_args(const KernelCall& call) {
  PreferenceArgs args{};
  const TensorView whole = operand(call.in, 3);
  args.sums_B = numbers<const double>(whole ? whole : call.in[0]);
  args.references_B = numbers<const double>(call.in[1]);
  args.pairs = call.in[0].elements() / 2;
  args.beta = call.op->attributes.number("beta");
  args.smoothing = call.op->attributes.number("smoothing");
  args.ranks = static_cast<double>(call.op->attributes.integer("ranks"));
  return args;
}
void preference_op(const KernelCall& call) {
  PreferenceArgs args = preference_args(call);
  double** const to[] = {&args.loss, &args.chosen, &args.rejected, &args.margin, &args.accuracy};
  for (size_t i = 0; i < std::size(to); ++i) *to[i] = numbers<double>(call.out[i]);
  launch(preference_loss, {.threads = 32}, args, call.stream);
}
void preference_dgrad_op(const KernelCall& call) {
  PreferenceArgs args = preference_args(call);
  args.scales = numbers<const float>(call.in[2]);
  args.scale_index = scale_index(call);
  args.dsums_B = numbers<double>(call.out[0]);
  launch(preference_gradient, {.threads = 32}, args, call.stream);
}
Support narrow_scales(const ir::Listing& listing, const ir::Op& op) {
  return listing.value(op.in[2]).dtype == Dtype::f32 ? Support::yes() : Support::no("scales in f64, wanted f32");
}
Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> loss_entries() {
  constexpr auto x = narrow<Among::in, 0>;
  return {entry("cross_entropy", "rows", loss_op, x, loss_scratch),
          entry("cross_entropy_part", "rows", loss_op, x, loss_scratch),
          entry("cross_entropy_dgrad", "rows", loss_dgrad, x),
          entry("linear_cross_entropy", "blocks of rows", head_loss, x, head_scratch),
          entry("linear_cross_entropy_part", "blocks of rows", head_loss, x, head_scratch),
          entry("linear_cross_entropy_dgrad", "blocks of rows", head_dgrad, x, head_scratch),
          entry("linear_cross_entropy_wgrad", "blocks of rows", head_wgrad, x, head_scratch),
          entry("linear_cross_entropy_train", "blocks of rows", head_train, x, head_scratch),
          entry("sharded_loss", "rows", sharded, narrow<Among::in, 4>, sharded_scratch),
          entry("token_losses", "rows", token_losses_op, x),
          entry("token_losses_part", "rows", token_losses_op, x),
          entry("linear_token_losses", "blocks of rows", head_token_losses, x, head_scratch),
          entry("sharded_token_losses", "rows", sharded_tokens, x),
          entry("sequence_sums", "sequences", sequence_sums_op, always),
          entry("sequence_sums_dgrad", "flat", sequence_spread_op, always),
          entry("preference_loss", "thread", preference_op, narrow_scales),
          entry("preference_loss_dgrad", "thread", preference_dgrad_op, narrow_scales)};
}

}  // namespace heddle::kernels::cuda
