// Cross entropy over a vocabulary, from logits or straight from the head's operands. T tokens, H hidden, V
// vocabulary.
//   loss = Σ_{labels ≥ 0} w·(lse − logits[label]) (f64), z = Σ_{labels ≥ 0} w·lse² (f64),
//   dlogits = scale·w·((1 + 2·z_weight·lse)·softmax − onehot), zeros where the label is −1.
// The fused forms keep logits in A, one block of rows at a time; the others read them as stored.
#include <cmath>

#include "heddle/kernels/logit_z.h"
#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/product.h"
#include "heddle/kernels/reference/scalars.h"

namespace heddle::kernels::reference {
namespace {

/// The loss of one row, 0 where it is masked.
template <class A>
double loss_row(const A* logits_V, int32_t label, int64_t V, A lse) {
  if (label < 0) return 0;
  HEDDLE_CHECK(label < V, "label {} in a vocabulary of {}", label, V);
  return static_cast<double>(lse) - static_cast<double>(logits_V[label]);
}

/// Weights of the rows of a call, and the factors of their gradient.
template <class A>
class Rows {
 public:
  /// `scales` and `weights` may be absent.
  Rows(const KernelCall& call, const TensorView& scales, const TensorView& weights)
      : z_(call.op->attributes.number_or("z_weight", 0)), weights_T_(weights.as<const double>()) {
    if (scales && call.op->attributes.has("scale_index"))
      scale_ = Input<A>(scales)[call.op->attributes.integer("scale_index")];
  }
  double weight(int64_t t) const { return weights_T_ == nullptr ? 1 : weights_T_[t]; }
  double z(int64_t t, int32_t label, A lse) const {
    return label < 0 ? 0 : weight(t) * static_cast<double>(lse) * static_cast<double>(lse);
  }

  /// dlogits may be logits itself.
  void dlogits(int64_t t, const A* logits_V, int32_t label, int64_t V, A lse, A* dlogits_V) const {
    HEDDLE_CHECK(label <= V, "label {} in a vocabulary of {}", label, V);  // V: another rank's part has it
    if (label < 0) {
      std::fill_n(dlogits_V, V, A(0));
      return;
    }
    const A slope = z_slope(static_cast<A>(z_), lse), own = 1 / slope;
    const A factor = scale_ * static_cast<A>(weight(t)) * slope;
    for (int64_t v = 0; v < V; ++v) {
      dlogits_V[v] = factor * (std::exp(logits_V[v] - lse) - (v == label ? own : A(0)));
    }
  }

 private:
  A scale_ = 1;
  double z_;
  const double* weights_T_;
};

/// The sums of a call over its rows, and where they go; what it doesn't have stays absent.
struct Sums {
  double loss = 0, z = 0;
  void write(const KernelCall& call, size_t z_at) const {
    call.out[0].as<double>()[0] = loss;
    if (call.out.size() > z_at) call.out[z_at].as<double>()[0] = z;
  }
};

template <class A>
void cross_entropy(const KernelCall& call) {
  const Input<A> logits_TV(call.in[0]);
  const auto* labels_T = call.in[1].as<const int32_t>();
  const int64_t T = call.in[0].dim(0), V = call.in[0].dim(1);
  const Output<A> lse_T(call.out[1]);
  const Rows<A> rows(call, {}, operand(call.in, 3));
  Sums sums;
  for (int64_t t = 0; t < T; ++t) {
    lse_T[t] = log_sum_exp(logits_TV.at(t * V), V);
    sums.loss += rows.weight(t) * loss_row(logits_TV.at(t * V), labels_T[t], V, lse_T[t]);
    sums.z += rows.z(t, labels_T[t], lse_T[t]);
  }
  sums.write(call, 2);
}

template <class A>
void token_losses(const KernelCall& call) {
  const Input<A> logits_TV(call.in[0]);
  const auto* labels_T = call.in[1].as<const int32_t>();
  const int64_t T = call.in[0].dim(0), V = call.in[0].dim(1);
  const Output<A> lse_T(call.out[1]);
  for (int64_t t = 0; t < T; ++t) {
    lse_T[t] = log_sum_exp(logits_TV.at(t * V), V);
    call.out[0].as<double>()[t] = loss_row(logits_TV.at(t * V), labels_T[t], V, lse_T[t]);
  }
}

template <class A>
void cross_entropy_dgrad(const KernelCall& call) {
  const Input<A> logits_TV(call.in[0]), lse_T(call.in[2]);
  const auto* labels_T = call.in[1].as<const int32_t>();
  const int64_t T = call.in[0].dim(0), V = call.in[0].dim(1);
  const Rows<A> rows(call, operand(call.in, 3), operand(call.in, 4));
  const Output<A> dlogits_TV(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    rows.dlogits(t, logits_TV.at(t * V), labels_T[t], V, lse_T[t], dlogits_TV.at(t * V));
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
  const Rows<A> weighed(call, {}, operand(call.in, 4));
  Sums sums;
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      const int32_t label = head.labels_T[first + t];
      lse_T[first + t] = log_sum_exp(logits + t * head.V, head.V);
      sums.loss += weighed.weight(first + t) * loss_row(logits + t * head.V, label, head.V, lse_T[first + t]);
      sums.z += weighed.z(first + t, label, lse_T[first + t]);
    }
  });
  sums.write(call, 2);
}

template <class A>
void linear_token_losses(const KernelCall& call) {
  Head<A> head(call);
  const Output<A> lse_T(call.out[1]);
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      lse_T[first + t] = log_sum_exp(logits + t * head.V, head.V);
      call.out[0].as<double>()[first + t] =
          loss_row(logits + t * head.V, head.labels_T[first + t], head.V, lse_T[first + t]);
    }
  });
}

/// dx = dlogits w.
template <class A>
void linear_cross_entropy_dgrad(const KernelCall& call) {
  Head<A> head(call);
  const Input<A> lse_T(call.in[3]);
  const Rows<A> weighed(call, operand(call.in, 4), operand(call.in, 5));
  const Output<A> dx_TH(call.out[0]);
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      A* row = logits + t * head.V;
      weighed.dlogits(first + t, row, head.labels_T[first + t], head.V, lse_T[first + t], row);
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
      acc_VH[i] = overwrite ? sum_VH_[i] : acc_VH[i] + sum_VH_[i];
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
  const Rows<A> weighed(call, operand(call.in, 4), operand(call.in, 5));
  WeightSum<A> sum(head.V, head.H);
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      A* row = logits + t * head.V;
      weighed.dlogits(first + t, row, head.labels_T[first + t], head.V, lse_T[first + t], row);
    }
    sum.add_block(rows, logits, head.x_TH.at(first * head.H));
  });
  sum.add_to(accumulator<A>(call.updates[0]), call.overwrite);
}

/// Loss, dx and the weight gradient in one sweep: the same numbers as the three ops apart.
template <class A>
void linear_cross_entropy_train(const KernelCall& call) {
  Head<A> head(call);
  const Rows<A> weighed(call, call.in[3], operand(call.in, 4));
  const Output<A> dx_TH(call.out[1]);
  WeightSum<A> sum(head.V, head.H);
  Sums sums;
  head.for_each_block([&](int64_t first, int64_t rows, A* logits) {
    for (int64_t t = 0; t < rows; ++t) {
      A* row = logits + t * head.V;
      const int32_t label = head.labels_T[first + t];
      const A lse = log_sum_exp(row, head.V);
      sums.loss += weighed.weight(first + t) * loss_row(row, label, head.V, lse);
      sums.z += weighed.z(first + t, label, lse);
      weighed.dlogits(first + t, row, label, head.V, lse, row);
    }
    product<A>(rows, head.H, head.V, plain<A>(logits, head.V), plain(head.w_VH.at(0), head.H),
               dx_TH.at(first * head.H));
    sum.add_block(rows, logits, head.x_TH.at(first * head.H));
  });
  sums.write(call, 2);
  sum.add_to(accumulator<A>(call.updates[0]), call.overwrite);
}

/// lse over the parts of a row.
template <class A>
class Parts {
 public:
  Parts(const TensorView& lse_parts, int64_t T)
      : parts_(lse_parts.as<const A>()), T_(T), row_(T == 0 ? 0 : static_cast<size_t>(lse_parts.elements() / T)) {}
  A lse(int64_t t) {
    for (size_t r = 0; r < row_.size(); ++r) row_[r] = parts_[static_cast<int64_t>(r) * T_ + t];
    return log_sum_exp(row_.data(), std::ssize(row_));
  }

 private:
  const A* parts_;
  int64_t T_;
  std::vector<A> row_;
};

/// lse over all parts of the vocabulary, and what the loss over this part lacks.
template <class A>
void sharded_loss(const KernelCall& call) {
  const auto* labels_T = call.in[5].as<const int32_t>();
  const auto* part_T = call.in[6].as<const A>();
  auto* lse_T = call.out[1].as<A>();
  const int64_t T = call.in[6].elements();
  Parts<A> parts(call.in[4], T);
  const Rows<A> rows(call, {}, operand(call.in, 7));
  Sums sums;
  for (int64_t t = 0; t < T; ++t) {
    lse_T[t] = parts.lse(t);
    if (labels_T[t] >= 0)
      sums.loss += rows.weight(t) * (static_cast<double>(lse_T[t]) - static_cast<double>(part_T[t]));
    sums.z += rows.z(t, labels_T[t], lse_T[t]);
  }
  sums.write(call, 2);
}

/// The loss of each token: over this part with what that lacks, 0 where another part has the label.
template <class A>
void sharded_token_losses(const KernelCall& call) {
  const auto* labels_T = call.in[3].as<const int32_t>();
  const auto* part_T = call.in[4].as<const A>();
  const auto* losses_T = call.in[5].as<const double>();
  auto* lse_T = call.out[1].as<A>();
  const int64_t T = call.in[4].elements();
  Parts<A> parts(call.in[2], T);
  for (int64_t t = 0; t < T; ++t) {
    lse_T[t] = parts.lse(t);
    const double lacks = labels_T[t] < 0 ? 0 : static_cast<double>(lse_T[t]) - static_cast<double>(part_T[t]);
    call.out[0].as<double>()[t] = losses_T[t] + lacks;
  }
}

}  // namespace

std::vector<KernelEntry> loss_kernels() {
  return {
      entry("token_losses", by_type<in0, token_losses<float>, token_losses<double>>),
      entry("token_losses_part", by_type<in0, token_losses<float>, token_losses<double>>),
      entry("linear_token_losses", by_type<in0, linear_token_losses<float>, linear_token_losses<double>>),
      entry("sharded_token_losses", by_type<in4, sharded_token_losses<float>, sharded_token_losses<double>>),
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
