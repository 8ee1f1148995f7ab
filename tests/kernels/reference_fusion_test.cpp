// Fused ops on reference against the ops they stand for, products against their definition, and attention against a
// plain softmax in long double.
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

const std::vector<kernels::KernelEntry>& reference_reference_fusion() { return kernels::reference_kernels(); }

std::vector<Tensor> run(std::string kind, std::vector<Tensor> in, ir::Attributes attributes = {}) {
  OpCase op{"", std::move(kind), {}, std::move(attributes), {}};
  for (Tensor& t : in) op.in.push_back(activation(std::move(t)));
  return run_op(op, reference_reference_fusion()).out;
}

const Dtype kTypesReferenceFusion[] = {Dtype::f64, Dtype::f32, Dtype::bf16};

TEST(ReferenceLinear, sums_in_increasing_k_in_the_wide_type) {
  // Sums of these depend on their order; bit equality proves it.
  const int64_t T = 5, K = 67, N = 35;
  for (const Dtype X : kTypesReferenceFusion) {
    const Tensor x = random_tensor(X, {T, K}, 1), w = random_tensor(X, {N, K}, 2),
                 bias = random_tensor(wide(X), {N}, 3);
    Tensor expected(wide(X), {T, N});
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t n = 0; n < N; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < K; ++k) {
          const double product =
              x.values[static_cast<size_t>(t * K + k)] * w.values[static_cast<size_t>(n * K + k)];
          sum = X == Dtype::f64 ? sum + product : static_cast<float>(sum + static_cast<float>(product));
        }
        sum += bias.values[static_cast<size_t>(n)];
        expected.values[static_cast<size_t>(t * N + n)] = X == Dtype::f64 ? sum : static_cast<float>(sum);
      }
    }
    EXPECT_TRUE(same(expected, run("linear", {x, w, bias}, {{"wide", 1}})[0]));
  }
}

TEST(ReferenceGroupedLinear, is_a_linear_an_expert) {
  const int64_t K = 7, N = 5;
  const std::vector<int64_t> starts{0, 0, 4, 5, 5, 9};
  const Tensor offsets(Dtype::i32, {6}, std::vector<double>(starts.begin(), starts.end()));
  const auto rows = [](const Tensor& t, int64_t first, int64_t last, std::vector<int64_t> shape) {
    const int64_t width = t.elements() / t.shape[0];
    return Tensor(t.dtype, std::move(shape),
                  std::vector<double>(t.values.begin() + first * width, t.values.begin() + last * width));
  };
  for (const Dtype X : kTypesReferenceFusion) {
    const Tensor x = random_tensor(X, {9, K}, 1), w = random_tensor(X, {5, N, K}, 2);
    const Tensor y = run("grouped_linear", {x, w, offsets})[0];
    for (int64_t e = 0; e < 5; ++e) {
      const int64_t first = starts[static_cast<size_t>(e)], last = starts[static_cast<size_t>(e) + 1];
      const Tensor mine = run("linear", {rows(x, first, last, {last - first, K}), rows(w, e, e + 1, {N, K})})[0];
      EXPECT_TRUE(same(mine, rows(y, first, last, {last - first, N}))) << "expert " << e;
    }
  }
  Tensor wrong = offsets;
  wrong.values[5] = 8;
  EXPECT_THROW(
      run("grouped_linear", {random_tensor(Dtype::f32, {9, K}, 1), random_tensor(Dtype::f32, {5, N, K}, 2), wrong}),
      InternalError);
}

TEST(ReferenceAddRmsNorm, is_an_add_and_a_norm) {
  for (const Dtype X : kTypesReferenceFusion) {
    const Tensor a = random_tensor(X, {5, 17}, 1), b = random_tensor(X, {5, 17}, 2),
                 g = random_tensor(wide(X), {17}, 3);
    const auto fused = run("add_rms_norm", {a, b, g}, {{"epsilon", 1e-6}});
    const Tensor s = run("add", {a, b})[0];
    const auto norm = run("rms_norm", {s, g}, {{"epsilon", 1e-6}});
    EXPECT_TRUE(same(s, fused[0]));
    EXPECT_TRUE(same(norm[0], fused[1]));
    EXPECT_TRUE(same(norm[1], fused[2]));
  }
}

TEST(ReferenceRmsNorm, of_a_zero_row_is_zero) {
  const auto out =
      run("rms_norm", {Tensor(Dtype::f32, {1, 3}, 0.0), Tensor(Dtype::f32, {3}, 2.0)}, {{"epsilon", 0.25}});
  EXPECT_EQ(out[0].values, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(out[1].values[0], 2);
}

TEST(ReferenceMlaRope, is_rope_and_an_assembly) {
  const ir::Attributes sizes{{"heads", 3},     {"nope", 5},     {"rope", 4},
                             {"value_dim", 2}, {"sequence", 3}, {"interleaved", 1}};
  const auto rope = [](int64_t heads, int64_t head_dim) {
    return ir::Attributes{{"heads", heads}, {"head_dim", head_dim}, {"rope_dim", 4},
                          {"sequence", 3},  {"interleaved", 1},     {"inverse", 0}};
  };
  for (const Dtype X : {Dtype::f64, Dtype::f32}) {
    const Tensor q = random_tensor(X, {6, 27}, 1), kv = random_tensor(X, {6, 21}, 2),
                 kr = random_tensor(X, {6, 4}, 3);
    const Tensor table = rotation_table(X, 3, 4);
    const auto fused = run("mla_rope", {q, kv, kr, table}, sizes);
    const auto assembled = run("mla_assemble", {kv, run("rope", {kr, table}, rope(1, 4))[0]}, sizes);
    EXPECT_TRUE(same(run("rope", {q, table}, rope(3, 9))[0], fused[0]));
    EXPECT_TRUE(same(assembled[0], fused[1]));
    EXPECT_TRUE(same(assembled[1], fused[2]));
  }
}

TEST(ReferenceRope, turns_each_pair_counterclockwise) {
  // Position 1 of 2; the last 4 of 5 elements; angles of 90° and 180°.
  const Tensor table(Dtype::f64, {2, 4}, std::vector<double>{1, 1, 0, 0, 0, -1, 1, 0});
  const Tensor x(Dtype::f64, {2, 5}, std::vector<double>{9, 1, 2, 3, 4, 9, 1, 2, 3, 4});
  for (const auto& [interleaved, turned] :
       {std::pair{1, std::vector<double>{9, -2, 1, -3, -4}}, std::pair{0, std::vector<double>{9, -3, -2, 1, -4}}}) {
    const Tensor y = run("rope", {x, table},
                         {{"heads", 1},
                          {"head_dim", 5},
                          {"rope_dim", 4},
                          {"sequence", 2},
                          {"interleaved", interleaved},
                          {"inverse", 0}})[0];
    EXPECT_EQ(std::vector<double>(y.values.begin(), y.values.begin() + 5), (std::vector<double>{9, 1, 2, 3, 4}));
    EXPECT_EQ(std::vector<double>(y.values.begin() + 5, y.values.end()), turned);
  }
}

TEST(ReferenceRope, of_its_inverse_is_the_identity) {
  const Tensor x = random_tensor(Dtype::f64, {6, 14}, 1), table = rotation_table(Dtype::f64, 3, 4);
  for (const int64_t interleaved : {0, 1}) {
    ir::Attributes attributes{
        {"heads", 2},  {"head_dim", 7}, {"rope_dim", 4}, {"sequence", 3}, {"interleaved", interleaved},
        {"inverse", 0}};
    const Tensor turned = run("rope", {x, table}, attributes)[0];
    EXPECT_FALSE(close(x, turned, 1e-3));
    EXPECT_TRUE(close(x, run("rope", {turned, table}, attributes.set("inverse", int64_t{1}))[0], 1e-14));
  }
}

TEST(ReferenceSwiglu, is_split_silu_multiply) {
  const Tensor u = random_tensor(Dtype::f64, {5, 14}, 1);
  const auto halves = run("split", {u}, {{"first", 7}});
  const Tensor expected = run("multiply", {run("silu", {halves[0]})[0], halves[1]})[0];
  EXPECT_TRUE(same(expected, run("swiglu", {u})[0]));
}

TEST(ReferenceGelu, has_known_values) {
  const Tensor x(Dtype::f64, {1, 5}, std::vector<double>{-1e3, -1, 0, 1, 1e3});
  const Tensor expected(Dtype::f64, {1, 5},
                        std::vector<double>{0, -0.15865525393145705, 0, 0.84134474606854293, 1e3});
  const Tensor found = run("gelu", {x})[0];
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(found.values[i], expected.values[i], 1e-15);
}

TEST(ReferenceConcat, joins_what_split_parts) {
  for (const Dtype dtype : {Dtype::f64, Dtype::bf16}) {
    const Tensor x = random_tensor(dtype, {4, 9}, 1);
    const auto parts = run("split", {x}, {{"first", 2}});
    EXPECT_TRUE(same(x, run("concat", parts, {{"first", 2}, {"second", 7}})[0]));
    const Tensor tail = run("concat", {Tensor(), parts[1]}, {{"first", 2}, {"second", 7}})[0];
    for (size_t i = 0; i < tail.values.size(); ++i) EXPECT_EQ(tail.values[i], i % 9 < 2 ? 0 : x.values[i]);
  }
}

TEST(ReferenceAttention, equals_a_plain_softmax) {
  const int64_t S = 13, B = 2, h = 4, hk = 2, d = 5, dv = 3;
  const Tensor q = random_tensor(Dtype::f64, {B * S, h * d}, 1, 4),
               k = random_tensor(Dtype::f64, {B * S, hk * d}, 2, 4);
  const Tensor v = random_tensor(Dtype::f64, {B * S, hk * dv}, 3);
  for (const int64_t causal : {0, 1}) {
    const auto out = run("attention", {q, k, v},
                         {{"heads", h},
                          {"kv_heads", hk},
                          {"head_dim", d},
                          {"value_dim", dv},
                          {"sequence", S},
                          {"causal", causal},
                          {"scale", 0.5}});
    for (int64_t row = 0; row < B * S; ++row) {
      for (int64_t head = 0; head < h; ++head) {
        const int64_t first = row / S * S, last = causal ? row + 1 : first + S;
        long double sum = 0;
        std::vector<long double> weighted(static_cast<size_t>(dv), 0);
        for (int64_t j = first; j < last; ++j) {
          long double score = 0;
          for (int64_t c = 0; c < d; ++c) {
            score += q.values[static_cast<size_t>((row * h + head) * d + c)] *
                     k.values[static_cast<size_t>((j * hk + head / 2) * d + c)];
          }
          const long double p = std::exp(0.5L * score);
          sum += p;
          for (int64_t c = 0; c < dv; ++c) {
            weighted[static_cast<size_t>(c)] += p * v.values[static_cast<size_t>((j * hk + head / 2) * dv + c)];
          }
        }
        EXPECT_NEAR(out[1].values[static_cast<size_t>(row * h + head)], static_cast<double>(std::log(sum)), 1e-12);
        for (int64_t c = 0; c < dv; ++c) {
          EXPECT_NEAR(out[0].values[static_cast<size_t>((row * h + head) * dv + c)],
                      static_cast<double>(weighted[static_cast<size_t>(c)] / sum), 1e-12);
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
