// Entries of cross entropy, from logits or straight from the head's operands. T tokens, H hidden, V vocabulary.
//
// The fused forms take rows a block at a time: logits in f32, their gradient in the type of the operands, both in
// scratch.
#include <algorithm>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/loss_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kLogitBytes = int64_t{256} << 20;

int64_t rows_of_block(int64_t T, int64_t V) {
  const int64_t fit = kLogitBytes / (4 * std::max<int64_t>(1, V));
  return std::min(T, std::max<int64_t>(128, fit / 128 * 128));
}

int32_t scale_index(const KernelCall& call) {
  return static_cast<int32_t>(call.op->attributes.integer("scale_index"));
}

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
  by_type(logits.dtype, [&]<class X>(X) {
    launch(cross_entropy<X>, {.blocks_x = T},
           {logits.data, numbers<const int32_t>(call.in[1]), numbers<float>(call.out[1]), loss_T, T, V},
           call.stream);
  });
  sum_to(loss_T, T, numbers<double>(call.out[0]), call.stream);
}
int64_t loss_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[1], rows) * 8;
}

void loss_dgrad(const KernelCall& call) {
  const TensorView& logits = call.in[0];
  launch_grad(
      logits, call.out[0].dtype,
      {logits.data, numbers<const int32_t>(call.in[1]), numbers<const float>(call.in[2]),
       numbers<const float>(call.in[3]), call.out[0].data, logits.rows(), logits.columns(), scale_index(call)},
      call.stream);
}

/// The head's operands and what its sweeps keep in scratch.
struct Head {
  Head(Dtype X, int64_t T, int64_t H, int64_t V, void* base) : X(X), T(T), H(H), V(V), scratch(base) {
    rows = rows_of_block(T, V);
    workspace = scratch.take<std::byte>(product_workspace_bytes());
    logits = scratch.take<float>(rows * V);
    dlogits = X == Dtype::f32 ? logits : static_cast<void*>(scratch.take<Bf16>(rows * V));
    loss_T = scratch.take<double>(T);
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
  int64_t T, H, V, rows;
  Scratch scratch;
  void* workspace;
  float* logits;
  void* dlogits;
  double* loss_T;
  float* lse_T;
};

/// What a sweep is to make; lse is an input where `loss` is null.
struct Sweep {
  double* loss = nullptr;
  float* lse_T = nullptr;
  const TensorView* scales = nullptr;
  TensorView dx, acc;
};

void sweep(const KernelCall& call, Head& head, const Sweep& to) {
  const TensorView &x = call.in[0], &w = call.in[1];
  const auto* labels_T = numbers<const int32_t>(call.in[2]);
  const int64_t row_bytes = head.H * size_of(head.X);
  if (head.T == 0 && to.acc && call.overwrite) fill_bytes(to.acc.data, 0, head.V * head.H * 4, call.stream);
  for (int64_t first = 0; first < head.T; first += head.rows) {
    const int64_t rows = std::min(head.rows, head.T - first);
    const TensorView x_block = head.block(x.as<std::byte>() + first * row_bytes, head.X, rows, head.H);
    const TensorView logits = head.block(head.logits, Dtype::f32, rows, head.V);
    multiply({.a = x_block, .b = w, .c = logits, .M = rows, .N = head.V, .K = head.H}, head.workspace, call.stream);
    if (to.loss != nullptr) {
      launch(cross_entropy<float>, {.blocks_x = rows},
             {head.logits, labels_T + first, to.lse_T + first, head.loss_T + first, rows, head.V}, call.stream);
    }
    if (to.scales == nullptr) continue;
    launch_grad(logits, head.X,
                {head.logits, labels_T + first, to.lse_T + first, numbers<const float>(*to.scales), head.dlogits,
                 rows, head.V, scale_index(call)},
                call.stream);
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
                .b = x_block,
                .c = to.acc,
                .a_by_k = true,
                .b_by_k = true,
                .M = head.V,
                .N = head.H,
                .K = rows,
                .add = !(call.overwrite && first == 0)},
               head.workspace, call.stream);
    }
  }
  if (to.loss != nullptr) sum_to(head.loss_T, head.T, to.loss, call.stream);
}

Head head_of(const KernelCall& call) {
  return {call.in[0].dtype, call.in[0].rows(), call.in[1].dim(1), call.in[1].dim(0), call.scratch};
}
int64_t head_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Value& w = listing.value(op.in[1]);
  const MatrixSize x(listing, op.in[0], rows);
  return Head(listing.value(op.in[0]).dtype, x.rows, w.shape[1].count, w.shape[0].count, nullptr).scratch.bytes();
}

void head_loss(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head, {.loss = numbers<double>(call.out[0]), .lse_T = numbers<float>(call.out[1])});
}
void head_dgrad(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head, {.lse_T = numbers<float>(call.in[3]), .scales = &call.in[4], .dx = call.out[0]});
}
void head_wgrad(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head, {.lse_T = numbers<float>(call.in[3]), .scales = &call.in[4], .acc = call.updates[0]});
}
void head_train(const KernelCall& call) {
  Head head = head_of(call);
  sweep(call, head,
        {.loss = numbers<double>(call.out[0]),
         .lse_T = head.lse_T,
         .scales = &call.in[3],
         .dx = call.out[1],
         .acc = call.updates[0]});
}

/// in 4 … 6: lse of all parts, labels and lse of this part.
void sharded(const KernelCall& call) {
  const int64_t T = call.in[6].elements();
  auto* loss_T = reinterpret_cast<double*>(call.scratch);
  launch(sharded_loss, {.blocks_x = blocks_for(T, 256)},
         {numbers<const float>(call.in[4]), numbers<const int32_t>(call.in[5]), numbers<const float>(call.in[6]),
          numbers<float>(call.out[1]), loss_T, T, T == 0 ? 0 : call.in[4].elements() / T},
         call.stream);
  sum_to(loss_T, T, numbers<double>(call.out[0]), call.stream);
}
int64_t sharded_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[6], rows) * 8;
}

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
          entry("sharded_loss", "rows", sharded, narrow<Among::in, 4>, sharded_scratch)};
}

}  // namespace heddle::kernels::cuda
