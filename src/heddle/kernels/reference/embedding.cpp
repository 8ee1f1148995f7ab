// embedding, embedding_wgrad. T tokens, H hidden, V vocabulary.
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

void check_id(int32_t id, int64_t V) { HEDDLE_CHECK(id < V, "token id {} in a vocabulary of {}", id, V); }

/// x_t = w[ids_t], zeros where ids_t < 0.
template <class A>
void embedding(const KernelCall& call) {
  const auto* ids_T = call.in[0].as<const int32_t>();
  const Input<A> w_VH(call.in[1]);
  const int64_t T = call.in[0].elements(), V = call.in[1].dim(0), H = call.in[1].dim(1);
  const Output<A> x_TH(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    check_id(ids_T[t], V);
    for (int64_t h = 0; h < H; ++h) x_TH[t * H + h] = ids_T[t] < 0 ? A(0) : w_VH[ids_T[t] * H + h];
  }
}

/// acc[ids_t] += dx_t, in increasing t.
template <class A>
void embedding_wgrad(const KernelCall& call) {
  const Input<A> dx_TH(call.in[0]);
  const auto* ids_T = call.in[1].as<const int32_t>();
  A* acc_VH = accumulator<A>(call.updates[0]);
  const int64_t T = call.in[1].elements(), V = call.updates[0].dim(0), H = call.updates[0].dim(1);
  if (call.overwrite) std::fill_n(acc_VH, V * H, A(0));
  for (int64_t t = 0; t < T; ++t) {
    check_id(ids_T[t], V);
    if (ids_T[t] < 0) continue;
    for (int64_t h = 0; h < H; ++h) acc_VH[ids_T[t] * H + h] += dx_TH[t * H + h];
  }
}

}  // namespace

std::vector<KernelEntry> embedding_kernels() {
  return {entry("embedding", by_type<in1, embedding<float>, embedding<double>>),
          entry("embedding_wgrad", by_type<in0, embedding_wgrad<float>, embedding_wgrad<double>>)};
}

}  // namespace heddle::kernels::reference
