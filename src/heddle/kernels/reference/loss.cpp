// Cross entropy over a vocabulary, from logits or straight from the head's operands. T tokens, H hidden, V
// vocabulary.
//   loss = Σ_{labels ≥ 0} lse − logits[label] (f64), dlogits = scale·(softmax − onehot), zeros where the label is
//   −1.
// The fused forms keep logits in A, one block of rows at a time; the others read them as stored.
#include <cmath>

#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/product.h"

namespace heddle::kernels::reference {
namespace {

template <class A>
A log_sum_exp(const A* x, int64_t count) {
  const A most = *std::max_element(x, x + count);
  A sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

/// The loss of one row, 0 where it is masked.
template <class A>
double loss_row(const A* logits_V, int32_t label, int64_t V, A lse) {
  if (label < 0) return 0;
  HEDDLE_CHECK(label < V, "label {} in a vocabulary of {}", label, V);
  return static_cast<double>(lse) - static_cast<double>(logits_V[label]);
}

/// dlogits may be logits itself.
template <class A>
void dlogits_row(const A* logits_V, int32_t label, int64_t V, A lse, A scale, A* dlogits_V) {
  HEDDLE_CHECK(label <= V, "label {} in a vocabulary of {}", label, V);  // V: another rank's part has it
  if (label < 0) {
    std::fill_n(dlogits_V, V, A(0));
    return;
  }
  for (int64_t v = 0; v < V; ++v) {
    dlogits_V[v] = scale * (std::exp(logits_V[v] - lse) - (v == label ? A(1) : A(0)));
  }
}

template <class A>
A scale_of(const KernelCall& call, const TensorView& scales) {
  return Input<A>(scales)[call.op->attributes.integer("scale_index")];
}

template <class A>
void cross_entropy(const KernelCall& call) {
  const Input<A> logits_TV(call.in[0]);
  const auto* labels_T = call.in[1].as<const int32_t>();
  const int64_t T = call.in[0].dim(0), V = call.in[0].dim(1);
  const Output<A> lse_T(call.out[1]);
  double loss = 0;
  for (int64_t t = 0; t < T; ++t) {
    lse_T[t] = log_sum_exp(logits_TV.at(t * V), V);
    loss += loss_row(logits_TV.at(t * V), labels_T[t], V, lse_T[t]);
  }
  call.out[0].as<double>()[0] = loss;
}

template <class A>
void cross_entropy_dgrad(const KernelCall& call) {
  const Input<A> logits_TV(call.in[0]), lse_T(call.in[2]);
  const auto* labels_T = call.in[1].as<const int32_t>();
  const int64_t T = call.in[0].dim(0), V = call.in[0].dim(1);
  const A scale = scale_of<A>(call, call.in[3]);
  const Output<A> dlogits_TV(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    dlogits_row(logits_TV.at(t * V), labels_T[t], V, lse_T[t], scale, dlogits_TV.at(t * V));
  }
}

/// The head's operands and its logits, a block of rows at a time.
template <class A>
struct Head {
  explicit Head(const KernelCall& call)
      : x_TH(call.in[0]),
        w_VH(call.in[1]),
        labels_T(call.in[2].as<const int32_t>()),
        T(call.in[0].dim(0)),
        H(call.in[1].dim(1)),
        V(call.in[1].dim(0)),
        logits(static_cast<size_t>(kRows * V)) {}

  /// Calls body(first, rows, logits[rows, V]) for each block; body may overwrite the logits.
  template <class Body>
  void for_each_block(Body body) {
    for (int64_t first = 0; first < T; first += kRows) {
      const int64_t rows = std::min(kRows, T - first);
      product<A>(rows, V, H, plain(x_TH.at(first * H), H), transposed(w_VH.at(0), H), logits.data());
      body(first, rows, logits.data());
    }
  }

  static constexpr int64_t kRows = 64;
  Input<A> x_TH, w_VH;
  const int32_t* labels_T;
  int64_t T, H, V;
  std::vector<A> logits;
};

template <class A>
void linear_cross_entropy(const KernelCall& call) {
  Head<A> head(call);
  const Output<A> lse_T(call.out[1]);
  double loss = 0;
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      lse_T[first + t] = log_sum_exp(logits + t * head.V, head.V);
      loss += loss_row(logits + t * head.V, head.labels_T[first + t], head.V, lse_T[first + t]);
    }
  });
  call.out[0].as<double>()[0] = loss;
}

/// dx = dlogits w.
template <class A>
void linear_cross_entropy_dgrad(const KernelCall& call) {
  Head<A> head(call);
  const Input<A> lse_T(call.in[3]);
  const A scale = scale_of<A>(call, call.in[4]);
  const Output<A> dx_TH(call.out[0]);
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      A* row = logits + t * head.V;
      dlogits_row(row, head.labels_T[first + t], head.V, lse_T[first + t], scale, row);
    }
    product<A>(rows, head.H, head.V, plain<A>(logits, head.V), plain(head.w_VH.at(0), head.H),
               dx_TH.at(first * head.H));
  });
}

/// A weight gradient that is summed over blocks of rows before it is added to the accumulator.
template <class A>
class WeightSum {
 public:
  WeightSum(int64_t V, int64_t H) : V_(V), H_(H), sum_VH_(static_cast<size_t>(V * H), A(0)) {}
  /// sum += dlogitsᵀ x over `rows` rows, in increasing row.
  void add_block(int64_t rows, const A* dlogits, const A* x) {
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t v = 0; v < V_; ++v) {
        A* to = sum_VH_.data() + v * H_;
        const A factor = dlogits[t * V_ + v];
        for (int64_t h = 0; h < H_; ++h) to[h] += factor * x[t * H_ + h];
      }
    }
  }
  void add_to(A* acc_VH, bool overwrite) const {
    for (int64_t i = 0; i < V_ * H_; ++i) {
      acc_VH[i] = overwrite ? sum_VH_[static_cast<size_t>(i)] : acc_VH[i] + sum_VH_[static_cast<size_t>(i)];
    }
  }

 private:
  int64_t V_, H_;
  std::vector<A> sum_VH_;
};

/// acc += dlogitsᵀ x.
template <class A>
void linear_cross_entropy_wgrad(const KernelCall& call) {
  Head<A> head(call);
  const Input<A> lse_T(call.in[3]);
  const A scale = scale_of<A>(call, call.in[4]);
  WeightSum<A> sum(head.V, head.H);
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      A* row = logits + t * head.V;
      dlogits_row(row, head.labels_T[first + t], head.V, lse_T[first + t], scale, row);
    }
    sum.add_block(rows, logits, head.x_TH.at(first * head.H));
  });
  sum.add_to(accumulator<A>(call.updates[0]), call.overwrite);
}

/// Loss, dx and the weight gradient in one sweep: the same numbers as the three ops apart.
template <class A>
void linear_cross_entropy_train(const KernelCall& call) {
  Head<A> head(call);
  const A scale = scale_of<A>(call, call.in[3]);
  const Output<A> dx_TH(call.out[1]);
  WeightSum<A> sum(head.V, head.H);
  double loss = 0;
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      A* row = logits + t * head.V;
      const int32_t label = head.labels_T[first + t];
      const A lse = log_sum_exp(row, head.V);
      loss += loss_row(row, label, head.V, lse);
      dlogits_row(row, label, head.V, lse, scale, row);
    }
    product<A>(rows, head.H, head.V, plain<A>(logits, head.V), plain(head.w_VH.at(0), head.H),
               dx_TH.at(first * head.H));
    sum.add_block(rows, logits, head.x_TH.at(first * head.H));
  });
  call.out[0].as<double>()[0] = loss;
  sum.add_to(accumulator<A>(call.updates[0]), call.overwrite);
}

/// lse over all parts of the vocabulary, and what the loss over this part lacks.
template <class A>
void sharded_loss(const KernelCall& call) {
  const auto* parts = call.in[4].as<const A>();
  const auto* labels_T = call.in[5].as<const int32_t>();
  const auto* part_T = call.in[6].as<const A>();
  auto* lse_T = call.out[1].as<A>();
  const int64_t T = call.in[6].elements(), ranks = T == 0 ? 0 : call.in[4].elements() / T;
  double rest = 0;
  std::vector<A> row(static_cast<size_t>(ranks));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t r = 0; r < ranks; ++r) row[static_cast<size_t>(r)] = parts[r * T + t];
    lse_T[t] = log_sum_exp(row.data(), ranks);
    if (labels_T[t] >= 0) rest += static_cast<double>(lse_T[t]) - static_cast<double>(part_T[t]);
  }
  call.out[0].as<double>()[0] = rest;
}

}  // namespace

std::vector<KernelEntry> loss_kernels() {
  return {
      entry("cross_entropy_part", by_type<in0, cross_entropy<float>, cross_entropy<double>>),
      entry("linear_cross_entropy_part", by_type<in0, linear_cross_entropy<float>, linear_cross_entropy<double>>),
      entry("sharded_loss", by_type<in4, sharded_loss<float>, sharded_loss<double>>),
      entry("cross_entropy", by_type<in0, cross_entropy<float>, cross_entropy<double>>),
      entry("cross_entropy_dgrad", by_type<in0, cross_entropy_dgrad<float>, cross_entropy_dgrad<double>>),
      entry("linear_cross_entropy", by_type<in0, linear_cross_entropy<float>, linear_cross_entropy<double>>),
      entry("linear_cross_entropy_dgrad",
            by_type<in0, linear_cross_entropy_dgrad<float>, linear_cross_entropy_dgrad<double>>),
      entry("linear_cross_entropy_wgrad",
            by_type<in0, linear_cross_entropy_wgrad<float>, linear_cross_entropy_wgrad<double>>),
      entry("linear_cross_entropy_train",
            by_type<in0, linear_cross_entropy_train<float>, linear_cross_entropy_train<double>>),
  };
}

}  // namespace heddle::kernels::reference
