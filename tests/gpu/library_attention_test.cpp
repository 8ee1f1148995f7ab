// The entries that attend by a library, around plans of the tests' own: which rows, heads and sequences they hand
// over, statistics, what the parts of a ring are joined of. Held to the reference, in the emulator.
#include <gtest/gtest.h>

#include "tests/gpu/attention_plan.h"
#include "tests/kernels/context_attention.h"

namespace heddle::op_runner {
namespace {

using kernels::cuda::AttentionShape;

class LibraryAttention : public testing::Test {
 protected:
  void SetUp() override { plans::plans() = {.wanted = true}; }
  void TearDown() override { plans::plans() = {}; }
};

OpCase attention(int64_t B, int64_t S, int64_t h, int64_t hk, int64_t d, int64_t v, int64_t causal,
                 Dtype X = Dtype::bf16) {
  return {"attention",
          "attention",
          {activation(random_tensor(X, {B * S, h * d}, 27)), activation(random_tensor(X, {B * S, hk * d}, 28)),
           activation(random_tensor(X, {B * S, hk * v}, 29))},
          {{"heads", h},
           {"kv_heads", hk},
           {"head_dim", d},
           {"value_dim", v},
           {"sequence", S},
           {"causal", causal},
           {"scale", 0.3}},
          {}};
}

/// Two bf16 roundings of what the reference rounds once: o of a part, and p in none.
constexpr double kTolerance = 0x1p-6;

void like_reference(const OpCase& op, const std::string& wanted) {
  const GradientResult expected = run_with_gradient(op, kernels::reference_kernels());
  const GradientResult found = run_with_gradient(op, kernels::cuda_kernels());
  for (const std::string& ran : found.ran) EXPECT_NE(ran.find(wanted), std::string::npos) << ran;
  for (size_t i = 0; i < expected.out.size(); ++i) {
    EXPECT_TRUE(close(expected.out[i], found.out[i], kTolerance)) << "output " << i;
  }
  for (size_t i = 0; i < expected.d_in.size(); ++i) {
    EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], kTolerance)) << "gradient " << i;
  }
}

TEST_F(LibraryAttention, IsTheReferences) {
  like_reference(attention(2, 17, 3, 3, 24, 16, 1), ": cuda.cudnn");
  like_reference(attention(3, 7, 4, 2, 8, 8, 0), ": cuda.cudnn");
  like_reference(attention(1, 1, 2, 1, 16, 8, 1), ": cuda.cudnn");
}

// A window as long as the sequence is none.
TEST_F(LibraryAttention, TakesWindows) {
  for (const int64_t window : {1, 4, 16, 17, 40}) {
    OpCase op = attention(2, 17, 4, 2, 8, 16, 1);
    op.attributes.set("window", window);
    like_reference(op, ": cuda.cudnn");
    ASSERT_FALSE(plans::plans().ran.empty());
    for (const AttentionShape& shape : plans::plans().ran) EXPECT_EQ(shape.window, window < 17 ? window : 0);
    plans::plans().ran.clear();
  }
}

TEST_F(LibraryAttention, TakesAsManyHeadsAsHaveRoom) {
  // A key head's scores: 3 query heads × 128 × 128 × 2 bytes.
  constexpr int64_t kHead = 3 * 128 * 128 * 2;
  struct Case {
    int64_t bytes, B, hk;
    size_t calls;
  };
  for (const Case& c : {Case{kHead * 16, 4, 4, 1},
                        {kHead * 15, 2, 4, 2},
                        {kHead * 7, 1, 4, 4},
                        {kHead * 3, 1, 2, 8},
                        {kHead, 1, 1, 16}}) {
    plans::plans() = {.wanted = true, .most_score_bytes = c.bytes};
    like_reference(attention(4, 5, 12, 4, 8, 16, 1), ": cuda.cudnn");
    std::vector<AttentionShape> backward;
    for (const AttentionShape& shape : plans::plans().ran) {
      if (shape.backward) backward.push_back(shape);
    }
    ASSERT_EQ(backward.size(), c.calls) << c.bytes;
    EXPECT_EQ(backward[0].B, c.B) << c.bytes;
    EXPECT_EQ(backward[0].hk, c.hk) << c.bytes;
    EXPECT_EQ(backward[0].h, c.hk * 3) << c.bytes;
  }
  plans::plans() = {.wanted = true, .most_score_bytes = kHead - 1};
  const GradientResult found = run_with_gradient(attention(4, 5, 12, 4, 8, 16, 1), kernels::cuda_kernels());
  EXPECT_EQ(found.ran, (std::vector<std::string>{"attention: cuda.cudnn", "attention_dgrad: cuda.tiles"}));
}

TEST_F(LibraryAttention, LeavesOthersToOwnKernels) {
  like_reference(attention(2, 7, 2, 2, 12, 8, 1), ": cuda.tiles");
  like_reference(attention(2, 7, 2, 2, 8, 8, 1, Dtype::f32), ": cuda.tiles");
  plans::plans().wanted = false;
  like_reference(attention(2, 17, 3, 3, 24, 16, 1), ": cuda.tiles");
}

TEST_F(LibraryAttention, PartsOfARing) {
  for (const context::Shape& s : {context::Shape{1, 2, 12, 2, 1, 8, 8},
                                  {2, 2, 12, 2, 2, 16, 8},
                                  {3, 1, 12, 2, 1, 8, 8},
                                  {4, 2, 24, 3, 3, 8, 16},
                                  {2, 2, 12, 2, 1, 8, 8, false}}) {
    SCOPED_TRACE(s.cp);
    context::check_ring(s, Dtype::bf16, kernels::cuda_kernels(), 0x1p-5, "cuda.cudnn");
  }
  for (const context::Shape& s :
       {context::Shape{2, 2, 12, 2, 1, 8, 8, true, 4}, {2, 2, 12, 2, 1, 8, 8, true, 0, true}}) {
    context::check_ring(s, Dtype::bf16, kernels::cuda_kernels(), 0x1p-5, "cuda.tiles");
  }
}

}  // namespace
}  // namespace heddle::op_runner
