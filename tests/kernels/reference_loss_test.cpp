// Losses on reference: the fused head against its parts, extreme logits, and labels outside the vocabulary.
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

const std::vector<kernels::KernelEntry>& reference_reference_loss() { return kernels::reference_kernels(); }

struct HeadOperands {
  explicit HeadOperands(Dtype X, int64_t T = 130)
      : x(random_tensor(X, {T, 9}, 1)),
        w(random_tensor(X, {21, 9}, 2)),
        labels(random_labels(T, 21, 3)),
        scales(wide(X), {1}, 0.125) {}
  Tensor x, w, labels, scales;
  ir::Attributes attributes{{"scale_index", 0}};

  OpResult run(std::string kind, std::vector<Tensor> in, bool updates, bool overwrite = true) const {
    OpCase op{"", std::move(kind), {}, attributes, {}};
    for (Tensor& t : in) op.in.push_back(metadata(std::move(t)));
    if (updates) op.updates.push_back(Tensor(scales.dtype, {21, 9}, 1.0));
    return run_op(op, reference_reference_loss(), overwrite);
  }
};

TEST(ReferenceLinearCrossEntropy, in_one_sweep_equals_the_ops_apart) {
  for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const bool overwrite : {false, true}) {
      for (const int64_t T : {0, 1, 130}) {
        const HeadOperands head(X, T);
        const OpResult loss = head.run("linear_cross_entropy", {head.x, head.w, head.labels, head.scales}, false);
        const std::vector<Tensor> in{head.x, head.w, head.labels, loss.out[1], head.scales};
        const OpResult dx = head.run("linear_cross_entropy_dgrad", in, false);
        const OpResult dw = head.run("linear_cross_entropy_wgrad", in, true, overwrite);
        const OpResult all =
            head.run("linear_cross_entropy_train", {head.x, head.w, head.labels, head.scales}, true, overwrite);
        EXPECT_TRUE(same(loss.out[0], all.out[0]));
        EXPECT_TRUE(same(dx.out[0], all.out[1]));
        EXPECT_TRUE(same(dw.updates[0], all.updates[0]));
      }
    }
  }
}

TEST(ReferenceLinearCrossEntropy, equals_a_linear_and_a_cross_entropy) {
  const HeadOperands head(Dtype::f64);
  const Tensor logits =
      run_op({"", "linear", {metadata(head.x), metadata(head.w)}, {}, {}}, reference_reference_loss()).out[0];
  const OpResult apart = head.run("cross_entropy", {logits, head.labels, head.scales}, false);
  const OpResult fused = head.run("linear_cross_entropy", {head.x, head.w, head.labels, head.scales}, false);
  EXPECT_TRUE(same(apart.out[0], fused.out[0]));
  EXPECT_TRUE(same(apart.out[1], fused.out[1]));
  const Tensor dlogits =
      head.run("cross_entropy_dgrad", {logits, head.labels, apart.out[1], head.scales}, false).out[0];
  const Tensor dx = run_op({"", "linear_dgrad", {metadata(dlogits), metadata(head.w)}, {{"dtype", "f64"}}, {}},
                           reference_reference_loss())
                        .out[0];
  const std::vector<Tensor> in{head.x, head.w, head.labels, fused.out[1], head.scales};
  EXPECT_TRUE(same(dx, head.run("linear_cross_entropy_dgrad", in, false).out[0]));
}

TEST(ReferenceCrossEntropy, is_the_log_of_the_vocabulary_for_equal_logits) {
  const Tensor logits(Dtype::f32, {3, 8}, 5.0), labels(Dtype::i32, {3}, std::vector<double>{0, -1, 7});
  const Tensor scales(Dtype::f32, {1}, 1.0);
  const OpCase op{
      "", "cross_entropy", {activation(logits), metadata(labels), metadata(scales)}, {{"scale_index", 0}}, {}};
  EXPECT_NEAR(run_op(op, reference_reference_loss()).out[0].values[0], 2 * std::log(8.0), 1e-6);
}

TEST(ReferenceCrossEntropy, stays_finite_for_extreme_logits) {
  // Row 0 gives its label a probability that underflows to zero; row 1 is all but certain.
  const Tensor logits(Dtype::f32, {2, 3}, std::vector<double>{-2e4, 2e4, 0, 3e4, -3e4, -3e4});
  const Tensor labels(Dtype::i32, {2}, std::vector<double>{0, 0}), scales(Dtype::f32, {1}, 1.0);
  const ir::Attributes attributes{{"scale_index", 0}};
  const OpResult loss =
      run_op({"", "cross_entropy", {activation(logits), metadata(labels), metadata(scales)}, attributes, {}},
             reference_reference_loss());
  EXPECT_EQ(loss.out[0].values[0], 4e4);
  const OpResult gradient = run_op({"",
                                    "cross_entropy_dgrad",
                                    {activation(logits), metadata(labels), metadata(loss.out[1]), metadata(scales)},
                                    attributes,
                                    {}},
                                   reference_reference_loss());
  EXPECT_EQ(gradient.out[0].values, (std::vector<double>{-1, 1, 0, 0, 0, 0}));
}

TEST(ReferenceCrossEntropy, refuses_a_label_outside_the_vocabulary) {
  const Tensor logits(Dtype::f32, {1, 3}, 0.0), labels(Dtype::i32, {1}, 3.0), scales(Dtype::f32, {1}, 1.0);
  const OpCase op{
      "", "cross_entropy", {activation(logits), metadata(labels), metadata(scales)}, {{"scale_index", 0}}, {}};
  EXPECT_THROW(run_op(op, reference_reference_loss()), InternalError);
  const OpCase lookup{"", "embedding", {metadata(labels), weight(Tensor(Dtype::f32, {3, 2}))}, {}, {}};
  EXPECT_THROW(run_op(lookup, reference_reference_loss()), InternalError);
}

}  // namespace
}  // namespace heddle::op_runner
