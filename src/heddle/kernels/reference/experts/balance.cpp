// Margins of choices in bins, and biases moved to their quantiles. T tokens, E experts, k chosen. See
// ops/balance.cpp.
#include <algorithm>
#include <functional>
#include <numeric>

#include "heddle/kernels/reference/operands.h"
#include "heddle/ops/margin_bins.h"

namespace heddle::kernels::reference {
namespace {

template <class A>
void count_margins(const KernelCall& call) {
  const Input<A> s_TE(call.in[0]), bias_E(call.in[1]);
  const int64_t T = call.in[0].dim(0), E = call.in[0].dim(1), k = call.op->attributes.integer("top_k");
  auto* margins = accumulator<double>(call.updates[0]);
  if (call.overwrite) std::fill_n(margins, E * kMarginBins, 0.0);
  std::vector<A> biased_E(static_cast<size_t>(E)), sorted_E;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t e = 0; e < E; ++e) biased_E[e] = s_TE[t * E + e] + bias_E[e];
    sorted_E = biased_E;
    std::nth_element(sorted_E.begin(), sorted_E.begin() + k, sorted_E.end(), std::greater<A>());
    const A next = sorted_E[k];
    const A middle = (*std::min_element(sorted_E.begin(), sorted_E.begin() + k) + next) / 2;
    for (int64_t e = 0; e < E; ++e) {
      ++margins[e * kMarginBins + margin_bin(static_cast<float>(middle - biased_E[e]))];
    }
  }
}

template <class A>
void quantile_bias_update(const KernelCall& call) {
  const auto* margins = call.in[0].as<const double>();
  const int64_t E = call.updates[0].elements();
  const double share = static_cast<double>(call.op->attributes.integer("top_k")) / static_cast<double>(E);
  const double rate = call.in[1].as<const double>()[3];
  A* bias_E = accumulator<A>(call.updates[0]);
  std::vector<double> quantile_E;
  for (int64_t e = 0; e < E; ++e) quantile_E.push_back(margin_quantile(margins + e * kMarginBins, share));
  const double mean = std::accumulate(quantile_E.begin(), quantile_E.end(), 0.0) / static_cast<double>(E);
  for (int64_t e = 0; e < E; ++e) bias_E[e] += static_cast<A>(rate * (quantile_E[e] - mean));
}

}  // namespace

std::vector<KernelEntry> balance_kernels() {
  return {
      entry("count_margins", by_type<in0, count_margins<float>, count_margins<double>>),
      entry("quantile_bias_update", by_type<updates0, quantile_bias_update<float>, quantile_bias_update<double>>)};
}

}  // namespace heddle::kernels::reference
