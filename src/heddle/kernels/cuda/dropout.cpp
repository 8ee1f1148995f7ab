// Entries of dropout.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/dropout_kernels.h"
#include "heddle/kernels/dropout_words.h"

namespace heddle::kernels::cuda {

namespace {

template <bool adds>
void drop(const KernelCall& call) {
  constexpr size_t tokens = adds ? 2 : 1;
  const TensorView& y = call.out[0];
  const DropoutDraw draw(*call.op);
  by_type(y.dtype, [&]<class X>(X) {
    DropoutArgs args{};
    args.x_TH = numbers<const X>(call.in[0]);
    if (adds) args.residual_TH = numbers<const X>(call.in[1]);
    if (adds) args.bias_H = numbers<const float>(operand(call.in, 4));
    args.tokens_T = numbers<const int32_t>(call.in[tokens]);
    args.key = numbers<const int32_t>(call.in[tokens + 1]);
    args.y_TH = numbers<X>(y);
    args.T = y.rows();
    args.H = y.columns();
    args.site = draw.site;
    args.least_kept = draw.least_kept;
    args.factor = static_cast<float>(draw.factor);
    launch(dropout<X>,
           {.blocks_x = blocks_for(args.T * blocks_for(args.H, 8), kDropoutThreads), .threads = kDropoutThreads},
           args, call.stream);
  });
}

}  // namespace

std::vector<KernelEntry> dropout_entries() {
  return {entry("dropout", "rows", drop<false>), entry("dropout_add", "rows", drop<true>)};
}

}  // namespace heddle::kernels::cuda
