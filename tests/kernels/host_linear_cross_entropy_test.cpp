// The fused head on the host against `reference`: all four ops, one block of rows and several, masked labels.
//
// Tolerance, of the largest magnitude: fp32 sums in another order, 1e-5. In bf16 the host rounds dlogits to bf16
// where reference keeps fp32: 2⁻⁷.
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

double tolerance(Dtype X) { return X == Dtype::bf16 ? 1.0 / 128 : 1e-5; }

struct Head {
  Head(Dtype X, int64_t T, int64_t V, int64_t H)
      : x(random_tensor(X, {T, H}, 1)), w(random_tensor(X, {V, H}, 2)), labels(random_labels(T, V, 3)),
        scales(wide(X), {1}, 0.125), acc(wide(X), {V, H}, 1.0) {}

  OpResult run(const std::vector<kernels::KernelEntry>& kernels, std::string kind, std::vector<Tensor> in,
               bool updates, bool overwrite) const {
    OpCase op{"", std::move(kind), {}, {{"scale_index", 0}}, {}};
    for (Tensor& t : in) op.in.push_back(metadata(std::move(t)));
    if (updates) op.updates.push_back(acc);
    return run_op(op, kernels, overwrite);
  }
  Tensor x, w, labels, scales, acc;
};

TEST(HostLinearCrossEntropy, AgreesWithReference) {
  struct Sizes {
    int64_t T, V, H;
  };
  // The last one takes several blocks of rows: 4096 is the most a block has.
  for (const Sizes s : {Sizes{0, 7, 5}, {1, 3, 9}, {70, 130, 33}, {4500, 12, 8}}) {
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
        EXPECT_TRUE(close(wanted.out[0], forward.out[0], tolerance(X))) << where;
        EXPECT_TRUE(close(wanted.out[0], train.out[0], tolerance(X))) << where;
        EXPECT_TRUE(close(wanted.out[1], dgrad.out[0], tolerance(X))) << where;
        EXPECT_TRUE(close(wanted.updates[0], wgrad.updates[0], tolerance(X))) << where;
        EXPECT_TRUE(same(dgrad.out[0], train.out[1])) << where;
        EXPECT_TRUE(same(wgrad.updates[0], train.updates[0])) << where;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
