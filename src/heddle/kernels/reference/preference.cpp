// Pairs of answers: the summed loss of each sequence, and the loss of a preference (docs/ops.md). All in f64.
#include <cmath>
#include <numeric>

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

void sequence_sums(const KernelCall& call) {
  const int64_t S = call.op->attributes.integer("sequence");
  const auto* losses_T = call.in[0].as<const double>();
  for (int64_t b = 0; b < call.out[0].elements(); ++b) {
    call.out[0].as<double>()[b] = std::accumulate(losses_T + b * S, losses_T + (b + 1) * S, 0.0);
  }
}

void sequence_sums_dgrad(const KernelCall& call) {
  const int64_t S = call.op->attributes.integer("sequence");
  for (int64_t b = 0; b < call.in[0].elements(); ++b) {
    std::fill_n(call.out[0].as<double>() + b * S, S, call.in[0].as<const double>()[b]);
  }
}

/// log σ(x), without overflow.
double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

struct Pairs {
  explicit Pairs(const KernelCall& call)
      : sums(operand(call.in, 3) ? call.in[3].as<const double>() : call.in[0].as<const double>()),
        references(call.in[1].as<const double>()),
        count(call.in[0].elements() / 2),
        beta(call.op->attributes.number("beta")),
        smoothing(call.op->attributes.number("smoothing")),
        ranks(static_cast<double>(call.op->attributes.integer("ranks"))) {}
  double reward(int64_t sequence) const { return beta * (references[sequence] - sums[sequence]); }
  /// False for pairs that fill up a batch: they have no reference.
  bool counts(int64_t pair) const {
    return !std::isnan(references[2 * pair]) && !std::isnan(references[2 * pair + 1]);
  }

  const double *sums, *references;
  int64_t count;
  double beta, smoothing, ranks;
};

void preference_loss(const KernelCall& call) {
  const Pairs pairs(call);
  std::array<double, 5> sums{};
  for (int64_t p = 0; p < pairs.count; ++p) {
    if (!pairs.counts(p)) continue;
    const double chosen = pairs.reward(2 * p), rejected = pairs.reward(2 * p + 1), margin = chosen - rejected;
    sums[0] -= (1 - pairs.smoothing) * log_sigmoid(margin) + pairs.smoothing * log_sigmoid(-margin);
    sums[1] += chosen;
    sums[2] += rejected;
    sums[3] += margin;
    sums[4] += chosen > rejected ? 1 : 0;
  }
  for (size_t i = 0; i < sums.size(); ++i) call.out[i].as<double>()[0] = sums[i] / pairs.ranks;
}

/// dΣ of the preferred answer: scale·β·(1 − ε − σ(m)); of the other its negative.
void preference_loss_dgrad(const KernelCall& call) {
  const Pairs pairs(call);
  const double scale = Input<double>(call.in[2])[call.op->attributes.integer("scale_index")];
  auto* dsums = call.out[0].as<double>();
  for (int64_t p = 0; p < pairs.count; ++p) {
    const double margin = pairs.reward(2 * p) - pairs.reward(2 * p + 1);
    const double slope = pairs.counts(p) ? scale * pairs.beta *
                                               ((1 - pairs.smoothing) * std::exp(log_sigmoid(-margin)) -
                                                pairs.smoothing * std::exp(log_sigmoid(margin)))
                                         : 0;
    dsums[2 * p] = slope;
    dsums[2 * p + 1] = -slope;
  }
}

}  // namespace

std::vector<KernelEntry> preference_kernels() {
  return {entry("sequence_sums", sequence_sums), entry("sequence_sums_dgrad", sequence_sums_dgrad),
          entry("preference_loss", preference_loss), entry("preference_loss_dgrad", preference_loss_dgrad)};
}

}  // namespace heddle::kernels::reference
