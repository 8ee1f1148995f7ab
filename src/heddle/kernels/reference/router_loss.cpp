// The auxiliary losses of a router. T tokens in sequences of S, E experts, k experts a token.
// Source: DeepSeek-V3 report, arXiv 2412.19437, equations 17–20; z loss: ST-MoE, arXiv 2202.08906, equation 5.
#include <cmath>

#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/scalars.h"
#include "heddle/kernels/reference/top.h"

namespace heddle::kernels::reference {
namespace {

/// Keeps a token whose scores are all zero from dividing by zero, as in the gate.
template <class A>
struct Balance {
  explicit Balance(const KernelCall& call)
      : s_TE(call.in[0]),
        T(call.in[0].dim(0)),
        E(call.in[0].dim(1)),
        S(call.op->attributes.integer("sequence")),
        whole(call.op->attributes.integer_or("whole", S)),
        k(call.op->attributes.integer("top_k")),
        alpha(call.op->attributes.number_or("alpha", 0)),
        load_BE(call.in.size() > 2 ? call.in[2].as<const double>() : nullptr) {}

  /// #{t: e among the k highest of raw s_t}, for the rows of the sequence that starts at row `first`.
  std::vector<double> count_E(int64_t first) const {
    std::vector<double> count(static_cast<size_t>(E), 0.0);
    for (int64_t t = first; t < first + S; ++t) {
      for (const int64_t e : top_in_order<A>({s_TE.at(t * E), static_cast<size_t>(E)}, k)) {
        count[e] += 1;
      }
    }
    return count;
  }
  /// f_e = E/(k·whole)·count, over all ranks that share the sequence.
  std::vector<double> f_E(int64_t first) const {
    std::vector<double> f = load_BE == nullptr
                                ? count_E(first)
                                : std::vector<double>(load_BE + first / S * E, load_BE + (first / S + 1) * E);
    for (double& share : f) share *= static_cast<double>(E) / static_cast<double>(k * whole);
    return f;
  }
  /// Z_t = Σ_e s_te + 1e-20.
  double sum(int64_t t) const {
    double total = 0;
    for (int64_t e = 0; e < E; ++e) total += s_TE[t * E + e];
    return total + kLeastSum;
  }

  Input<A> s_TE;
  int64_t T, E, S, whole, k;
  double alpha;
  const double* load_BE;
};

template <class A>
void sequence_load(const KernelCall& call) {
  const Balance<A> balance(call);
  for (int64_t first = 0; first < balance.T; first += balance.S) {
    const std::vector<double> count_E = balance.count_E(first);
    std::copy(count_E.begin(), count_E.end(), call.out[0].as<double>() + first / balance.S * balance.E);
  }
}

/// loss = Σ over sequences of alpha·Σ_e f_e·P_e, P_e = Σ_t s_te/Z_t ÷ whole, in f64.
template <class A>
void sequence_aux_loss(const KernelCall& call) {
  const Balance<A> balance(call);
  const int64_t T = balance.T, E = balance.E, S = balance.S;
  double loss = 0;
  for (int64_t first = 0; first < T; first += S) {
    const std::vector<double> f_E = balance.f_E(first);
    std::vector<double> share_E(static_cast<size_t>(E), 0.0);
    for (int64_t t = first; t < first + S; ++t) {
      const double Z = balance.sum(t);
      for (int64_t e = 0; e < E; ++e) share_E[e] += balance.s_TE[t * E + e] / Z;
    }
    double dot = 0;
    for (size_t e = 0; e < f_E.size(); ++e) dot += f_E[e] * (share_E[e] / static_cast<double>(balance.whole));
    loss += balance.alpha * dot;
  }
  call.out[0].as<double>()[0] = loss;
}

/// ds_te = scale·alpha/(whole·Z_t)·(f_e − Σ_i f_i s_ti ÷ Z_t); f is constant.
template <class A>
void sequence_aux_loss_dgrad(const KernelCall& call) {
  const Balance<A> balance(call);
  const int64_t T = balance.T, E = balance.E, S = balance.S;
  const Input<A> scales(call.in[1]);
  const double scale = scales[call.op->attributes.integer("scale_index")];
  const Output<A> ds_TE(call.out[0]);
  for (int64_t first = 0; first < T; first += S) {
    const std::vector<double> f_E = balance.f_E(first);
    for (int64_t t = first; t < first + S; ++t) {
      const double Z = balance.sum(t);
      double mean = 0;
      for (int64_t e = 0; e < E; ++e) mean += f_E[e] * balance.s_TE[t * E + e];
      mean /= Z;
      for (int64_t e = 0; e < E; ++e) {
        ds_TE[t * E + e] =
            static_cast<A>(scale * balance.alpha / (static_cast<double>(balance.whole) * Z) * (f_E[e] - mean));
      }
    }
  }
}

/// loss = Σ_t weight·lse_t².
template <class A>
void z_loss(const KernelCall& call) {
  const Input<A> logits_TE(call.in[0]);
  const int64_t T = call.in[0].dim(0), E = call.in[0].dim(1);
  double loss = 0;
  for (int64_t t = 0; t < T; ++t) {
    const double lse = log_sum_exp(logits_TE.at(t * E), E);
    loss += call.op->attributes.number("weight") * lse * lse;
  }
  call.out[0].as<double>()[0] = loss;
}

/// dlogits = scale·2·weight·lse·softmax.
template <class A>
void z_loss_dgrad(const KernelCall& call) {
  const Input<A> logits_TE(call.in[0]), scales(call.in[1]);
  const int64_t T = call.in[0].dim(0), E = call.in[0].dim(1);
  const A factor =
      scales[call.op->attributes.integer("scale_index")] * static_cast<A>(2 * call.op->attributes.number("weight"));
  const Output<A> dlogits_TE(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    const A lse = log_sum_exp(logits_TE.at(t * E), E);
    for (int64_t e = 0; e < E; ++e) dlogits_TE[t * E + e] = factor * lse * std::exp(logits_TE[t * E + e] - lse);
  }
}

}  // namespace

std::vector<KernelEntry> router_loss_kernels() {
  return {entry("sequence_load", by_type<in0, sequence_load<float>, sequence_load<double>>),
          entry("sequence_aux_loss", by_type<in0, sequence_aux_loss<float>, sequence_aux_loss<double>>),
          entry("sequence_aux_loss_dgrad",
                by_type<in0, sequence_aux_loss_dgrad<float>, sequence_aux_loss_dgrad<double>>),
          entry("z_loss", by_type<in0, z_loss<float>, z_loss<double>>),
          entry("z_loss_dgrad", by_type<in0, z_loss_dgrad<float>, z_loss_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
