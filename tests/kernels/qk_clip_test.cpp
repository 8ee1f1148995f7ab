// QK-clip's ops: the reference against the definition, written out over all pairs.
#include "heddle/base/numbers/split_float.h"
#include "tests/kernels/qk_clip_cases.h"

namespace heddle::op_runner {
namespace {

TEST(MaxLogits, AreExactAboveTheLimitAndABoundBelow) {
  for (const LogitCase& c : logit_cases()) {
    for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      for (const bool first : {true, false}) {
        const OpCase op = max_logits_case(c, X);
        const OpResult result = run_op(op, kernels::reference_kernels(), first);
        const int64_t own = c.S / c.cp, from = c.head_parts > 1 ? c.cp_index * c.heads : 0;
        for (int64_t head = 0; head < c.heads * c.head_parts; ++head) {
          const auto at = static_cast<size_t>(head);
          const double before = first ? 0 : op.updates[0].values[at], found = result.updates[0].values[at];
          if (head < from || head >= from + c.heads) {
            EXPECT_EQ(found, before) << op.name << ", head " << head;
            continue;
          }
          double largest = -1e300, bound = -1e300;
          for (int64_t b = 0; b < 2; ++b) {
            each_pair(c, op, b, [&](int64_t i, int part, int64_t j) {
              largest =
                  std::max(largest, logit_of(c, op, b * own + i, head - from, part, b * (c.ring ? own : c.S) + j));
            });
            for (int64_t t = b * own; t < (b + 1) * own; ++t)
              bound = std::max(bound, op.in[1].tensor.values[static_cast<size_t>(t * c.heads + head - from)]);
          }
          if (largest > c.above) {
            EXPECT_NEAR(found, std::max(before, largest), X == Dtype::f64 ? 1e-12 : 1e-5)
                << op.name << ", head " << head;
          } else {
            EXPECT_LE(found, std::max(before, std::min(c.above, bound))) << op.name << ", head " << head;
            EXPECT_GE(found, largest) << op.name << ", head " << head;
          }
        }
        EXPECT_EQ(result.updates[0].values.back(), c.cp_index) << op.name;
      }
    }
  }
}

// The factors that scale_heads_case asks for, of each row of the whole weight.
double factor_of(int64_t row) {
  const std::vector<double> of_head{kScaledAbove / 40, 1, kScaledAbove / 12};
  const double factor = of_head[static_cast<size_t>(row / kScaledRows)];
  return row % kScaledRows < kScaledFirst ? std::sqrt(factor) : factor;
}

TEST(ScaleHeads, ScalesARunFromItsFirstElementOn) {
  for (const ScaleCase& c : scale_cases()) {
    for (const Dtype A : {Dtype::f64, Dtype::f32}) {
      const OpCase op = scale_heads_case(c, A);
      const OpResult result = run_op(op, kernels::reference_kernels(), false, ir::Phase::end);
      const int64_t count = op.updates[0].shape[0], all = kScaledHeads * kScaledRows * c.columns;
      for (int64_t i = 0; i < count; ++i) {
        const double before = op.updates[0].values[static_cast<size_t>(i)];
        const int64_t element = c.run * count + i;
        const double factor = c.clip == 0 || element >= all ? 1 : factor_of(element / c.columns);
        EXPECT_NEAR(result.updates[0].values[static_cast<size_t>(i)], before * factor,
                    A == Dtype::f64 ? 1e-15 : 1e-6)
            << op.name << ", element " << i;
        if (factor == 1) {
          EXPECT_EQ(result.updates[0].values[static_cast<size_t>(i)], before) << op.name;
        }
      }
    }
  }
}

// A split master has the bits of a whole one, and its rounded half is the weight.
TEST(ScaleHeads, SplitMastersHaveTheBitsOfWholeOnes) {
  for (const ScaleCase& c : scale_cases()) {
    for (const Dtype moments : {Dtype::f32, Dtype::bf16}) {
      OpCase whole = scale_heads_case(c, Dtype::f32);
      const int64_t count = whole.updates[0].shape[0];
      OpCase halves = whole;
      halves.kind = "scale_heads_split";
      halves.updates = {Tensor(Dtype::u16, {count}), Tensor(moments, {count}), Tensor(Dtype::bf16, {count})};
      const RandomKey key(5);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        auto x = static_cast<float>(key.normal(i));
        if (i % 3 == 0) x = std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0xffff0000u) | kHalfway);
        whole.updates[0].values[i] = x;
        const SplitFloat parts = split(x);
        halves.updates[0].values[i] = parts.low;
        halves.updates[1].values[i] = parts.up_at_half ? -0.25 : 0.25;
        halves.updates[2].values[i] = static_cast<float>(parts.nearest);
      }
      const std::vector<double> expected =
          run_op(whole, kernels::reference_kernels(), false, ir::Phase::end).updates[0].values;
      const auto found = run_op(halves, kernels::reference_kernels(), false, ir::Phase::end).updates;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        EXPECT_EQ(joined({bf16(static_cast<float>(found[2].values[i])), static_cast<uint16_t>(found[0].values[i]),
                          found[1].values[i] < 0}),
                  static_cast<float>(expected[i]))
            << whole.name << ", element " << i;
        EXPECT_EQ(std::abs(found[1].values[i]), 0.25);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
