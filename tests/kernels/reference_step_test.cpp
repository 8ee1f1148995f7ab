// The beginning and end of a step on reference: loading an input, the gradient norm, AdamW, weights from masters.
#include <limits>

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

const std::vector<kernels::KernelEntry>& reference_reference_step() { return kernels::reference_kernels(); }

Tensor scalar(double value) { return Tensor(Dtype::f64, {1}, value); }

TEST(ReferenceLoad, takes_the_numbers_as_they_are) {
  const double third = 1.0 / 3;
  EXPECT_EQ(load_numbers<int32_t>(reference_reference_step(), {7, -1, 1 << 30}).values,
            (std::vector<double>{7, -1, 1 << 30}));
  EXPECT_EQ(load_numbers<double>(reference_reference_step(), {third, -0.0}).values,
            (std::vector<double>{third, -0.0}));
  EXPECT_EQ(load_numbers<float>(reference_reference_step(), {0.1f}).values, (std::vector<double>{0.1f}));
  ListingRunner runner(reference_reference_step());
  runner.listing.add_input({.name = "given", .dtype = Dtype::i32, .shape = {1}});
  EXPECT_THROW(runner.append("load", {}, {{"input", "taken"}}, {}), InternalError) << "no such input";
  runner.append("load", {}, {{"input", "given"}}, {});
  EXPECT_THROW(runner.run(), InternalError) << "no inputs";
}

TEST(ReferenceGradSquareSum, sums_the_uses_first) {
  const Tensor a(Dtype::f32, {2, 2}, std::vector<double>{1, 2, 3, -4}),
      b(Dtype::f32, {2, 2}, std::vector<double>{1, -2, 0, 1});
  EXPECT_EQ(run_op({"", "grad_square_sum", {metadata(a)}, {}, {}}, reference_reference_step()).out[0].values[0],
            30);
  EXPECT_EQ(run_op({"", "grad_square_sum", {metadata(a), metadata(b)}, {}, {}}, reference_reference_step())
                .out[0]
                .values[0],
            4 + 0 + 9 + 9);
  // Squares are summed in f64: fp32 would lose the ones.
  Tensor many(Dtype::f32, {1001}, 1.0);
  many.values[0] = 1e4;
  EXPECT_EQ(run_op({"", "grad_square_sum", {metadata(many)}, {}, {}}, reference_reference_step()).out[0].values[0],
            1e8 + 1000);
}

TEST(ReferenceGradNorm, clips_and_refuses_what_is_not_finite) {
  const auto run = [](std::vector<double> parts, double max_norm) {
    OpCase op{"", "grad_norm", {}, {{"max_norm", max_norm}}, {}};
    for (const double part : parts) op.in.push_back(metadata(scalar(part)));
    const OpResult result = run_op(op, reference_reference_step());
    return std::pair{result.out[0].values[0], result.out[1].values[0]};
  };
  EXPECT_EQ(run({9, 16}, 0), (std::pair{5.0, 1.0}));
  EXPECT_EQ(run({9, 16}, 10), (std::pair{5.0, 1.0}));
  EXPECT_EQ(run({9, 16}, 1), (std::pair{5.0, 1.0 / (5 + 1e-6)}));
  EXPECT_EQ(run({0}, 1), (std::pair{0.0, 1.0}));
  EXPECT_EQ(run({9, std::numeric_limits<double>::infinity()}, 1).second, 0);
  EXPECT_EQ(run({std::numeric_limits<double>::quiet_NaN(), 1}, 0).second, 0);
}

TEST(ReferenceSkipOutlier, leaves_out_what_is_beyond_a_limit_or_not_finite) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const std::vector<double> rates{0.1, 0.2, 0.3, 0.4};
  const auto skipped = [&](double norm, double loss, std::vector<double> limits) {
    const OpResult result =
        run_op({"",
                "skip_outlier",
                {metadata(scalar(norm)), metadata(scalar(0.5)), metadata(Tensor(Dtype::f64, {4}, rates)),
                 metadata(Tensor(Dtype::f64, {2}, std::move(limits))), metadata(scalar(loss))},
                {},
                {}},
               reference_reference_step());
    const double skips = result.out[2].values[0];
    EXPECT_EQ(result.out[0].values[0], skips != 0 ? 0 : 0.5);
    EXPECT_EQ(result.out[1].values, (std::vector<double>{0.1, 0.2, 0.3, skips != 0 ? 0 : 0.4}));
    return skips;
  };
  EXPECT_EQ(skipped(3, 7, {3, 7}), 0);
  EXPECT_EQ(skipped(3.5, 7, {3, 7}), 1);
  EXPECT_EQ(skipped(3, 7.5, {3, 7}), 1);
  EXPECT_EQ(skipped(1e30, 1e30, {kNone, kNone}), 0);
  EXPECT_EQ(skipped(kNone, 7, {kNone, kNone}), 1);
  EXPECT_EQ(skipped(3, kNone, {kNone, kNone}), 1);
  EXPECT_EQ(skipped(std::numeric_limits<double>::quiet_NaN(), 7, {kNone, kNone}), 1);
  EXPECT_EQ(skipped(3, std::numeric_limits<double>::quiet_NaN(), {kNone, kNone}), 1);
}

TEST(ReferenceAdamW, follows_the_formula) {
  const double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1, rate = 0.01, clip = 0.5;
  const double grown1 = 1 - beta1 * beta1, grown2 = 1 - beta2 * beta2;  // the second step
  const Tensor hyper(Dtype::f64, {3}, std::vector<double>{rate, grown1, grown2});
  for (const auto& [A, tolerance] : {std::pair{Dtype::f64, 1e-14}, std::pair{Dtype::f32, 1e-6}}) {
    const Tensor acc0 = random_tensor(A, {3, 5}, 1), acc1 = random_tensor(A, {3, 5}, 2),
                 p = random_tensor(A, {3, 5}, 3);
    const Tensor m = random_tensor(A, {3, 5}, 4);
    Tensor v = random_tensor(A, {3, 5}, 5);
    for (double& x : v.values) x *= x;
    for (const int64_t copy : {0, 1}) {
      OpCase op{"",
                "adamw",
                {metadata(scalar(clip)), metadata(hyper), metadata(acc0), metadata(acc1)},
                {{"beta1", beta1}, {"beta2", beta2}, {"epsilon", epsilon}, {"decay", decay}, {"copy", copy}},
                {p, m, v}};
      if (copy) op.updates.push_back(Tensor(Dtype::bf16, {3, 5}, -7.0));
      // `overwrite` must not matter at the end of a step.
      const OpResult result = run_op(op, reference_reference_step(), true, ir::Phase::end);
      Tensor p_new = p, m_new = m, v_new = v;
      for (size_t i = 0; i < p.values.size(); ++i) {
        const double g = clip * (acc0.values[i] + acc1.values[i]);
        m_new.values[i] = beta1 * m.values[i] + (1 - beta1) * g;
        v_new.values[i] = beta2 * v.values[i] + (1 - beta2) * g * g;
        const double step = m_new.values[i] / grown1 / (std::sqrt(v_new.values[i] / grown2) + epsilon);
        p_new.values[i] = p.values[i] - rate * (step + decay * p.values[i]);
      }
      EXPECT_TRUE(close(p_new, result.updates[0], tolerance));
      EXPECT_TRUE(close(m_new, result.updates[1], tolerance));
      EXPECT_TRUE(close(v_new, result.updates[2], tolerance));
      for (size_t i = 0; copy && i < p.values.size(); ++i) {
        EXPECT_EQ(result.updates[3].values[i],
                  static_cast<float>(bf16(static_cast<float>(result.updates[0].values[i]))));
      }
      op.in[0].tensor = scalar(0);
      const OpResult skipped = run_op(op, reference_reference_step(), true, ir::Phase::end);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(op.updates[i], skipped.updates[i])) << i;
      for (size_t i = 0; copy && i < p.values.size(); ++i)
        EXPECT_EQ(skipped.updates[3].values[i], static_cast<float>(bf16(static_cast<float>(p.values[i]))));
    }
  }
}

TEST(ReferenceCastWeight, rounds_to_nearest_even) {
  const Tensor master(Dtype::f32, {1, 4}, std::vector<double>{1, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-9});
  for (const std::string kind : {"cast_weight", "pack_weight"}) {
    const OpCase op{"", kind, {metadata(master)}, {}, {Tensor(Dtype::bf16, {1, 4})}};
    EXPECT_EQ(run_op(op, reference_reference_step(), true, ir::Phase::end).updates[0].values,
              (std::vector<double>{1, 1, 1 + 0x1p-6, 1}));
  }
}

TEST(ReferenceEmbeddingWgrad, overwrites_every_row) {
  const Tensor dx(Dtype::f32, {3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6}),
      ids(Dtype::i32, {3}, std::vector<double>{2, -1, 2});
  const OpCase op{"", "embedding_wgrad", {metadata(dx), metadata(ids)}, {}, {Tensor(Dtype::f32, {4, 2}, 1.0)}};
  EXPECT_EQ(run_op(op, reference_reference_step(), true).updates[0].values,
            (std::vector<double>{0, 0, 0, 0, 6, 8, 0, 0}));
  EXPECT_EQ(run_op(op, reference_reference_step(), false).updates[0].values,
            (std::vector<double>{1, 1, 1, 1, 7, 9, 1, 1}));
}

TEST(ReferenceAccumulate, adds_in_the_type_of_the_accumulator) {
  const Tensor p(Dtype::f32, {2}, std::vector<double>{1, 0.5});
  const OpCase op{"", "accumulate", {metadata(p)}, {}, {Tensor(Dtype::f64, {2}, 0x1p40)}};
  EXPECT_EQ(run_op(op, reference_reference_step(), false).updates[0].values,
            (std::vector<double>{0x1p40 + 1, 0x1p40 + 0.5}));
  EXPECT_EQ(run_op(op, reference_reference_step(), true).updates[0].values, p.values);
}

}  // namespace
}  // namespace heddle::op_runner
