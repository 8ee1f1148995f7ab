// The fused head on the host against `reference`: all four ops, one block of rows and several, masked labels.
//
// Tolerance, of the largest magnitude: fp32 sums in another order, 1e-5. In bf16 the host rounds softmax and, for
// dw, x times its row's factor to bf16 where reference keeps fp32: 2⁻⁷. The ops apart and in one give the same
// bits.
#include <limits>

#include "heddle/kernels/host/gemm/gemm.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

double tolerance_host_linear_cross_entropy(Dtype X) { return X == Dtype::bf16 ? 1.0 / 128 : 1e-5; }

struct Head {
  Head(Dtype X, int64_t T, int64_t V, int64_t H)
      : x(random_tensor(X, {T, H}, 1)),
        w(random_tensor(X, {V, H}, 2)),
        labels(random_labels(T, V, 3)),
        scales(wide(X), {1}, 0.125),
        acc(wide(X), {V, H}, 1.0) {}

  OpResult run(const std::vector<kernels::KernelEntry>& kernels, std::string kind, std::vector<Tensor> in,
               bool updates, bool overwrite) const {
    OpCase op{"", std::move(kind), {}, {{"scale_index", 0}}, {}};
    if (z_weight > 0) op.attributes.set("z_weight", z_weight);
    for (Tensor& t : in) op.in.push_back(metadata(std::move(t)));
    if (updates) op.updates.push_back(acc);
    return run_op(op, kernels, overwrite);
  }
  Tensor x, w, labels, scales, acc;
  double z_weight = 0;
};

TEST(HostLinearCrossEntropy, AgreesWithReference) {
  struct Sizes {
    int64_t T, V, H;
  };
  // {70, 1700, 33}: several chunks of the vocabulary. The last one takes several blocks of rows: 4096 is the most a
  // block has.
  for (const Sizes s : {Sizes{0, 7, 5}, {1, 3, 9}, {70, 130, 33}, {70, 1700, 33}, {4500, 12, 8}}) {
    for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
      for (const bool overwrite : {true, false}) {
        const Head head(X, s.T, s.V, s.H);
        const auto& reference = kernels::reference_kernels();
        const auto& host = kernels::host_kernels();
        const std::vector<Tensor> in{head.x, head.w, head.labels, head.scales};
        const OpResult wanted = head.run(reference, "linear_cross_entropy_train", in, true, overwrite);
        const OpResult forward = head.run(host, "linear_cross_entropy", in, false, overwrite);
        const std::vector<Tensor> with_lse{head.x, head.w, head.labels, forward.out[1], head.scales};
        const OpResult dgrad = head.run(host, "linear_cross_entropy_dgrad", with_lse, false, overwrite);
        const OpResult wgrad = head.run(host, "linear_cross_entropy_wgrad", with_lse, true, overwrite);
        const OpResult train = head.run(host, "linear_cross_entropy_train", in, true, overwrite);
        const std::string where = fmt::format("{} T {} overwrite {}", name_of(X), s.T, overwrite);
        EXPECT_TRUE(close(wanted.out[0], forward.out[0], tolerance_host_linear_cross_entropy(X))) << where;
        EXPECT_TRUE(close(wanted.out[0], train.out[0], tolerance_host_linear_cross_entropy(X))) << where;
        EXPECT_TRUE(close(wanted.out[1], dgrad.out[0], tolerance_host_linear_cross_entropy(X))) << where;
        EXPECT_TRUE(close(wanted.updates[0], wgrad.updates[0], tolerance_host_linear_cross_entropy(X))) << where;
        EXPECT_TRUE(same(dgrad.out[0], train.out[1])) << where;
        EXPECT_TRUE(same(wgrad.updates[0], train.updates[0])) << where;
      }
    }
  }
}

/// Weights of the rows, and the squares of lse as a part of the loss.
TEST(HostLinearCrossEntropy, AgreesWithReferenceOnWeightsAndSquares) {
  struct Sizes {
    int64_t T, V, H;
  };
  for (const Sizes s : {Sizes{0, 7, 5}, {70, 130, 33}, {70, 1700, 33}, {4500, 12, 8}}) {
    for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
      for (const double z_weight : {0.0, 1e-3, 0.2}) {
        Head head(X, s.T, s.V, s.H);
        head.z_weight = z_weight;
        Tensor weights = random_tensor(Dtype::f64, {s.T}, 4);
        for (double& w : weights.values) w = std::abs(w);
        const auto& reference = kernels::reference_kernels();
        const auto& host = kernels::host_kernels();
        const std::vector<Tensor> in{head.x, head.w, head.labels, head.scales, weights};
        const OpResult wanted = head.run(reference, "linear_cross_entropy_train", in, true, true);
        const OpResult forward = head.run(host, "linear_cross_entropy", in, false, true);
        const std::vector<Tensor> with_lse{head.x, head.w, head.labels, forward.out[1], head.scales, weights};
        const OpResult dgrad = head.run(host, "linear_cross_entropy_dgrad", with_lse, false, true);
        const OpResult train = head.run(host, "linear_cross_entropy_train", in, true, true);
        const std::string where = fmt::format("{} T {} V {} z {}", name_of(X), s.T, s.V, z_weight);
        EXPECT_EQ(wanted.out.size(), z_weight > 0 ? 3u : 2u);
        for (size_t i = 0; i < wanted.out.size(); ++i)
          EXPECT_TRUE(close(wanted.out[i], train.out[i], tolerance_host_linear_cross_entropy(X)))
              << where << " output " << i;
        EXPECT_TRUE(close(wanted.updates[0], train.updates[0], tolerance_host_linear_cross_entropy(X))) << where;
        EXPECT_TRUE(same(dgrad.out[0], train.out[1])) << where;
        if (z_weight > 0) {
          EXPECT_TRUE(same(forward.out[2], train.out[2])) << where;
        }
      }
    }
  }
}

/// The loss of each token, and its gradient by factors of the rows alone.
TEST(HostLinearCrossEntropy, AgreesWithReferenceOnTokens) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    const Head head(X, 70, 1700, 33);
    const Tensor factors = random_tensor(Dtype::f64, {70}, 4);
    const std::vector<Tensor> in{head.x, head.w, head.labels};
    std::vector<std::vector<Tensor>> made;
    for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
      const OpResult forward = head.run(*kernels, "linear_token_losses", in, false, true);
      const std::vector<Tensor> back{head.x, head.w, head.labels, forward.out[1], Tensor(), factors};
      made.push_back({forward.out[0], forward.out[1],
                      head.run(*kernels, "linear_cross_entropy_dgrad", back, false, true).out[0],
                      head.run(*kernels, "linear_cross_entropy_wgrad", back, true, true).updates[0]});
    }
    for (size_t i = 0; i < made[0].size(); ++i)
      EXPECT_TRUE(close(made[0][i], made[1][i], tolerance_host_linear_cross_entropy(X))) << name_of(X) << " " << i;
  }
}

/// Rows whose first chunk of logits is far below what comes later, and rows for which it is the other way round.
TEST(HostLinearCrossEntropy, TakesLogitsThatGrowAlongTheVocabulary) {
  const int64_t T = 19, V = 1300, H = 9;
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const double step : {30.0, 3000.0}) {
      Head head(X, T, V, H);
      for (int64_t t = 0; t < T; ++t) head.x.values[static_cast<size_t>(t * H)] = t % 2 ? 1 : -1;
      for (int64_t v = 0; v < V; ++v) {
        head.w.values[static_cast<size_t>(v * H)] = v < 600 ? -step : v == 1100 ? 1.5 * step : 0.5 * step;
      }
      const std::vector<Tensor> in{head.x, head.w, head.labels, head.scales};
      const std::string where = fmt::format("{} step {}", name_of(X), step);
      const OpResult wanted = head.run(kernels::reference_kernels(), "linear_cross_entropy_train", in, true, true);
      for (const int64_t target : instruction_sets()) {
        const InstructionSet set(target);
        OpResult train;
        for (const int threads : {1, 3}) {
          const Threads team(threads);
          const OpResult found = head.run(kernels::host_kernels(), "linear_cross_entropy_train", in, true, true);
          if (threads == 1) train = found;
          expect_same(train, found, where);
        }
        const OpResult forward = head.run(kernels::host_kernels(), "linear_cross_entropy", in, false, true);
        const std::vector<Tensor> with_lse{head.x, head.w, head.labels, forward.out[1], head.scales};
        const OpResult dgrad =
            head.run(kernels::host_kernels(), "linear_cross_entropy_dgrad", with_lse, false, true);
        EXPECT_TRUE(close(wanted.out[0], train.out[0], 1e-5)) << where;
        EXPECT_TRUE(close(wanted.out[1], train.out[1], tolerance_host_linear_cross_entropy(X))) << where;
        EXPECT_TRUE(close(wanted.updates[0], train.updates[0], tolerance_host_linear_cross_entropy(X))) << where;
        EXPECT_TRUE(same(dgrad.out[0], train.out[1])) << where;
      }
    }
  }
}

TEST(HostLinearCrossEntropy, LosesNoNan) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const int64_t at : {0, 1250}) {
      Head head(Dtype::bf16, 3, 1300, 9);
      for (double& label : head.labels.values) label = 5;
      head.w.values[static_cast<size_t>(at * 9)] = bad;
      const OpResult train = head.run(kernels::host_kernels(), "linear_cross_entropy_train",
                                      {head.x, head.w, head.labels, head.scales}, true, true);
      EXPECT_FALSE(std::isfinite(train.out[0].values[0])) << bad << " at " << at;
      EXPECT_FALSE(std::isfinite(train.updates[0].values[0])) << bad << " at " << at;
    }
  }
}

TEST(HostLinearCrossEntropy, PackedWeightsGiveTheSameBits) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    if (kernels::host::packed_bytes(X, 1, 8, 8) == 0) GTEST_SKIP() << "this machine's engine reads rows";
    Head head(X, 70, 1300, 33);
    const auto train = [&] {
      return head.run(kernels::host_kernels(), "linear_cross_entropy_train",
                      {head.x, head.w, head.labels, head.scales}, true, true);
    };
    const OpResult rows = train();
    Tensor master = head.w, packed = head.w;
    master.dtype = Dtype::f32;
    packed.values.clear();
    packed.layout = ir::Layout::packed;
    packed.packed.resize(static_cast<size_t>(kernels::host::packed_bytes(X, 1, 1300, 33)));
    const OpCase pack{"pack", "pack_weight", {{master, Role::optimizer}}, {}, {packed}};
    head.w = run_op(pack, kernels::host_kernels(), true, ir::Phase::end).updates[0];
    expect_same(rows, train(), std::string(name_of(X)));
  }
}

TEST(HostLinearCrossEntropy, RefusesALabelOutsideTheVocabulary) {
  Head head(Dtype::f32, 3, 7, 5);
  head.labels.values[2] = 7;
  EXPECT_THROW(head.run(kernels::host_kernels(), "linear_cross_entropy_train",
                        {head.x, head.w, head.labels, head.scales}, true, true),
               InternalError);
}

}  // namespace
}  // namespace heddle::op_runner
