// Sums that no order can change: partials rounded to multiples of 2^kExactGrid, added in f64.
#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

template <class A>
void add_exact(const KernelCall& call) {
  add_on_grid(call.in[0].as<const A>(), call.in[0].elements(), call.overwrite, call.updates[0].as<double>());
}

/// For each expert and source: the partial Σ dyᵀx over their rows, rounded and added. Replicas of other ranks'
/// experts come last, with sums of their own that begin here.
template <class A>
void grouped_linear_wgrad_exact(const KernelCall& call) {
  const Input<A> x_RK(call.in[0]), dy_RN(call.in[1]);
  const int64_t K = call.in[0].dim(1), N = call.in[1].dim(1), E = call.updates[0].dim(0);
  std::vector<A> partial(static_cast<size_t>(N * K));
  for_each_segment(call.in[2], operand(call.in, 3),
                   [&](int64_t expert, int64_t first, int64_t last, bool is_first) {
                     std::fill(partial.begin(), partial.end(), A(0));
                     for (int64_t r = first; r < last; ++r) {
                       for (int64_t n = 0; n < N; ++n) {
                         for (int64_t k = 0; k < K; ++k) {
                           partial[n * K + k] += dy_RN[r * N + n] * x_RK[r * K + k];
                         }
                       }
                     }
                     const bool own = expert < E;
                     double* sums = own ? call.updates[0].as<double>() : call.out[0].as<double>();
                     add_on_grid(partial.data(), N * K, is_first && (call.overwrite || !own),
                                 sums + (own ? expert : expert - E) * N * K);
                   });
}

template <class A>
void grad_square_sum_exact(const KernelCall& call) {
  const auto* g = call.in[0].as<const A>();
  const int64_t count = call.in[0].elements();
  ExactSquares sum;
#pragma omp parallel if (count > 65536)
  {
    ExactSquares own;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; ++i) own.add(static_cast<double>(g[i]));
#pragma omp critical
    sum.add(own);
  }
  const auto limbs = sum.limbs();
  std::copy(limbs.begin(), limbs.end(), call.out[0].as<double>());
}

/// The sum of all uses, rounded once.
void round_gradient(const KernelCall& call) {
  for (int64_t i = 0; i < call.out[0].elements(); ++i) {
    double sum = 0;
    for (const TensorView& use : call.in) sum += use.as<const double>()[i];
    if (call.out[0].dtype == Dtype::f64) {
      call.out[0].as<double>()[i] = sum;
    } else {
      call.out[0].as<float>()[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace

std::vector<KernelEntry> exact_kernels() {
  return {entry("add_exact", by_type<in0, add_exact<float>, add_exact<double>>),
          entry("grouped_linear_wgrad_exact",
                by_type<in0, grouped_linear_wgrad_exact<float>, grouped_linear_wgrad_exact<double>>),
          entry("grad_square_sum_exact", by_type<in0, grad_square_sum_exact<float>, grad_square_sum_exact<double>>),
          entry("round_gradient", round_gradient)};
}

}  // namespace heddle::kernels::reference
