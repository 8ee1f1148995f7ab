// Attention whose probabilities are dropped: the reference against the definition, with words of Philox at hand;
// its gradient by central differences; the host's kernel against the reference; and a rank's heads and rows among
// others.
#include "heddle/base/numbers/philox.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

constexpr double kRate = 0.3;
constexpr int64_t kSite = 7, kFirstToken = 5000;
constexpr std::array<uint32_t, 3> kKey{11, 13, 17};  // seed, step

struct Sizes {
  int64_t sequences = 2, length = 13, heads = 4, kv_heads = 2, head_dim = 6, value_dim = 5, window = 0;
  bool sinks = false;
};

OpCase case_of(const Sizes& s, Dtype X) {
  const int64_t T = s.sequences * s.length;
  Tensor tokens(Dtype::i32, {T});
  for (size_t t = 0; t < tokens.values.size(); ++t) tokens.values[t] = static_cast<double>(kFirstToken + 3 * t);
  OpCase op{"attention",
            "attention",
            {activation(random_tensor(X, {T, s.heads * s.head_dim}, 1)),
             activation(random_tensor(X, {T, s.kv_heads * s.head_dim}, 2)),
             activation(random_tensor(X, {T, s.kv_heads * s.value_dim}, 3)),
             absent(),
             s.sinks ? weight(random_tensor(wide(X), {s.heads}, 4)) : absent(),
             {tokens, Role::input},
             {Tensor(Dtype::i32, {3}, std::vector<double>(kKey.begin(), kKey.end())), Role::input}},
            {{"heads", s.heads},
             {"kv_heads", s.kv_heads},
             {"head_dim", s.head_dim},
             {"value_dim", s.value_dim},
             {"sequence", s.length},
             {"causal", 1},
             {"scale", 0.4},
             {"rate", kRate},
             {"site", kSite}},
            {}};
  if (s.window > 0) op.attributes.set("window", s.window);
  return op;
}

bool is_kept(uint32_t token, int64_t head, int64_t position) {
  const Philox::Words words = Philox::at(
      {static_cast<uint32_t>(position / 4), token, static_cast<uint32_t>(kSite | (head + 1) << 16), kKey[2]},
      {kKey[0], kKey[1]});
  return words[static_cast<size_t>(position % 4)] >= static_cast<uint32_t>(std::llround(kRate * 0x1p32));
}

// Softmax over what is seen, then each probability divided by 1 − rate or put to zero.
std::vector<double> define(const Sizes& s, const OpCase& op) {
  const auto at = [&](size_t operand, int64_t row, int64_t head, int64_t width, int64_t heads, int64_t c) {
    return op.in[operand].tensor.values[static_cast<size_t>((row * heads + head) * width + c)];
  };
  std::vector<double> o;
  for (int64_t row = 0; row < s.sequences * s.length; ++row) {
    const int64_t first_row = row / s.length * s.length, i = row - first_row;
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = h / (s.heads / s.kv_heads);
      std::vector<double> p;
      double sum = s.sinks ? std::exp(op.in[4].tensor.values[static_cast<size_t>(h)]) : 0;
      const int64_t first = s.window > 0 ? std::max<int64_t>(0, i + 1 - s.window) : 0;
      for (int64_t j = first; j <= i; ++j) {
        double dot = 0;
        for (int64_t c = 0; c < s.head_dim; ++c)
          dot += at(0, row, h, s.head_dim, s.heads, c) * at(1, first_row + j, kv, s.head_dim, s.kv_heads, c);
        p.push_back(std::exp(0.4 * dot));
        sum += p.back();
      }
      for (int64_t c = 0; c < s.value_dim; ++c) {
        double value = 0;
        for (int64_t j = first; j <= i; ++j) {
          if (!is_kept(static_cast<uint32_t>(kFirstToken + 3 * row), h, j)) continue;
          value += p[static_cast<size_t>(j - first)] / sum / (1 - kRate) *
                   at(2, first_row + j, kv, s.value_dim, s.kv_heads, c);
        }
        o.push_back(value);
      }
    }
  }
  return o;
}

const Sizes kSizes[] = {{},
                        {.sequences = 1, .length = 1},
                        {.length = 90, .window = 40, .sinks = true},
                        {.sequences = 3, .length = 33, .heads = 2, .kv_heads = 1, .head_dim = 16, .value_dim = 8},
                        {.sequences = 1, .length = 200, .heads = 3, .kv_heads = 3}};

TEST(DroppedProbabilities, AreTheDefinition) {
  for (const Sizes& s : kSizes) {
    const OpCase op = case_of(s, Dtype::f64);
    const std::vector<double> found = run_op(op, kernels::reference_kernels()).out[0].values,
                              wanted = define(s, op);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 1e-12) << s.length << " at " << i;
  }
}

TEST(DroppedProbabilities, GradientsAreCentralDifferences) {
  for (const bool sinks : {false, true}) {
    OpCase op = case_of({.length = 9, .window = sinks ? 5 : 0, .sinks = sinks}, Dtype::f64);
    const GradientResult result = run_with_gradient(op, kernels::reference_kernels());
    const auto objective = [&] {
      const std::vector<double> o = run_op(op, kernels::reference_kernels()).out[0].values;
      return std::inner_product(o.begin(), o.end(), result.seeds[0].values.begin(), 0.0);
    };
    for (size_t i = 0; i < (sinks ? 5u : 3u); ++i) {
      if (!op.in[i].tensor.present) continue;
      std::vector<double>& values = op.in[i].tensor.values;
      for (size_t j = 0; j < values.size(); j += 1 + values.size() / 40) {
        const double kept = values[j];
        values[j] = kept + 1e-5;
        const double above = objective();
        values[j] = kept - 1e-5;
        const double below = objective();
        values[j] = kept;
        EXPECT_NEAR((above - below) / 2e-5, result.d_in[i].values[j], 1e-7) << i << " element " << j;
      }
    }
  }
}

TEST(DroppedProbabilities, OnTheHostAreThoseOfTheReference) {
  std::vector<kernels::KernelEntry> kernels = kernels::host_kernels();  // none for the gradient of sinks
  for (const kernels::KernelEntry& entry : kernels::reference_kernels()) kernels.push_back(entry);
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const Sizes& s : kSizes) {
      if (s.length == 1) continue;  // gradients of a lone key are zero but for rounding
      const OpCase op = case_of(s, X);
      const GradientResult expected = run_with_gradient(case_of(s, Dtype::f64), kernels::reference_kernels());
      const GradientResult found = run_with_gradient(op, kernels);
      const double tolerance = X == Dtype::f32 ? 2e-5 : 3e-2;
      EXPECT_NE(found.ran[0].find("highway"), std::string::npos) << found.ran[0];
      EXPECT_EQ(std::count_if(found.ran.begin(), found.ran.end(),
                              [](const std::string& name) { return name.find("highway") != std::string::npos; }),
                2);
      for (size_t i = 0; i < expected.out.size(); ++i)
        EXPECT_TRUE(close(expected.out[i], found.out[i], tolerance))
            << name_of(X) << " " << s.length << " out " << i;
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], tolerance))
            << name_of(X) << " " << s.length << " d " << i;
    }
  }
}

// Two ranks with half of the heads each, by tp or by the heads' way of cp, and two with half of each sequence's
// queries drop what one drops.
TEST(DroppedProbabilities, AreThoseOfTheWholeModelOnEachRank) {
  const Sizes s{.sequences = 1, .length = 12, .kv_heads = 4};
  const OpCase whole = case_of(s, Dtype::f64);
  const std::vector<double> o = run_op(whole, kernels::reference_kernels()).out[0].values;
  const int64_t T = s.length, half = s.heads / 2;
  for (const ir::Axis axis : {ir::Axis::tp, ir::Axis::cp}) {
    for (int index = 0; index < 2; ++index) {
      OpCase op = whole;
      for (const auto& [operand, width] : {std::pair{0, s.head_dim}, {1, s.head_dim}, {2, s.value_dim}}) {
        Tensor& all = op.in[static_cast<size_t>(operand)].tensor;
        Tensor part(Dtype::f64, {T, half * width});
        for (int64_t t = 0; t < T; ++t) {
          for (int64_t c = 0; c < half * width; ++c)
            part.values[static_cast<size_t>(t * half * width + c)] =
                all.values[static_cast<size_t>(t * s.heads * width + index * half * width + c)];
        }
        all = part;
      }
      op.attributes.set("heads", half).set("kv_heads", half);
      if (axis == ir::Axis::cp) op.attributes.set("head_parts", int64_t{2});
      op.place.index[static_cast<size_t>(axis)] = index;
      op.place.degree[static_cast<size_t>(axis)] = 2;
      const std::vector<double> part = run_op(op, kernels::reference_kernels()).out[0].values;
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t c = 0; c < half * s.value_dim; ++c) {
          EXPECT_EQ(part[static_cast<size_t>(t * half * s.value_dim + c)],
                    o[static_cast<size_t>(t * s.heads * s.value_dim + index * half * s.value_dim + c)]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
