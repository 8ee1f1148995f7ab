// The router and the cross entropy of the CPU against reference: ties, NaN, groups, experts that nobody chooses,
// masked labels, widths that are no multiple of a vector.
#include "tests/kernels/by_id_cases.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

struct RouterSizes {
  int64_t T, E, k, groups, top_groups, group_score_top;
};
constexpr RouterSizes kRouters[] = {{0, 8, 2, 1, 1, 1},    {5, 7, 3, 1, 1, 1},     {70, 12, 3, 4, 2, 2},
                                    {129, 64, 6, 1, 1, 1}, {200, 256, 8, 8, 4, 2}, {3, 5, 5, 5, 5, 1},
                                    {40, 96, 5, 8, 3, 3},  {40, 40, 4, 8, 3, 1}};

ir::Attributes attributes(const RouterSizes& size, const std::string& function, int64_t normalize) {
  return {{"function", function},
          {"top_k", size.k},
          {"groups", size.groups},
          {"top_groups", size.top_groups},
          {"group_score_top", size.group_score_top},
          {"normalize", normalize},
          {"scale", 2.5}};
}
std::string name(const char* kind, const RouterSizes& size) {
  return fmt::format("{} T{} E{} k{} groups{}", kind, size.T, size.E, size.k, size.groups);
}

TEST(HostRouter, scores_choice_and_gate_in_one) {
  for (const RouterSizes& size : kRouters) {
    for (const std::string function : {"sigmoid", "softmax", "root_softplus"}) {
      for (const int64_t normalize : {0, 1}) {
        OpCase op{name("router", size) + function,
                  "router",
                  {activation(random_tensor(Dtype::f32, {size.T, size.E}, 1, 2))},
                  attributes(size, function, normalize),
                  {}};
        op.in.push_back(normalize ? metadata(random_tensor(Dtype::f32, {size.E}, 2, 0.1)) : absent());
        expect_like_reference(op, 2e-6);
        // Gradients of the gate alone, of the scores alone, of both.
        for (const int which : {1, 2, 3}) {
          expect_gradient_like_reference(op, 4e-6, [&](size_t i) { return (which >> i & 1) != 0; });
        }
      }
    }
  }
}

TEST(HostRouter, choice_breaks_ties_by_index_and_leaves_nan_to_the_last) {
  for (const RouterSizes& size : kRouters) {
    for (const bool with_bias : {false, true}) {
      // Few distinct values: ties everywhere, of both zeros too.
      Tensor s = random_tensor(Dtype::f32, {size.T, size.E}, 3);
      for (double& v : s.values) v = std::round(v);
      for (size_t i = 0; i < s.values.size(); i += 7) s.values[i] = std::numeric_limits<double>::quiet_NaN();
      if (size.T > 1) std::fill_n(s.values.begin(), size.E, std::numeric_limits<double>::quiet_NaN());
      if (size.T > 3) std::fill_n(s.values.begin() + 2 * size.E, size.E, -std::numeric_limits<double>::infinity());
      OpCase op{name("choose", size), "choose", {activation(s)}, attributes(size, "sigmoid", 0), {}};
      op.in.push_back(with_bias ? metadata(random_tensor(Dtype::f32, {size.E}, 4)) : absent());
      expect_like_reference(op, 0);
    }
  }
}

TEST(HostRouter, choice_by_token_id) {
  for (const ByIdSizes& sizes : kByIdSizes) expect_like_reference(by_id_case(sizes, Dtype::f32), 0);
}

TEST(HostRouter, scores_and_gate_apart) {
  for (const RouterSizes& size : kRouters) {
    const Operand logits = activation(random_tensor(Dtype::f32, {size.T, size.E}, 5, 4));
    for (const std::string function : {"sigmoid", "softmax", "root_softplus"}) {
      expect_gradient_like_reference(
          {name("router_scores", size), "router_scores", {logits}, {{"function", function}}, {}}, 2e-6);
    }
    Tensor s = random_tensor(Dtype::f32, {size.T, size.E}, 6);
    for (double& v : s.values) v = std::abs(v);
    const Operand experts = metadata(random_routing(size.T, size.k, size.E, 7).experts);
    for (const int64_t normalize : {0, 1}) {
      expect_gradient_like_reference(
          {name("gate", size), "gate", {activation(s), experts}, {{"normalize", normalize}, {"scale", 2.5}}, {}},
          2e-6);
    }
  }
}

TEST(HostRouter, gates_of_two_experts) {
  for (const RouterSizes& size : kRouters) {
    if (size.E < 2) continue;
    const Tensor logits = random_tensor(Dtype::f32, {size.T, size.E}, 8, 2);
    for (const double closeness : {0.0, 0.3, 2.0}) {
      expect_gradient_like_reference({name("mixer_gate", size),
                                      "mixer_gate",
                                      {activation(logits), metadata(two_largest(logits))},
                                      {{"closeness", closeness}},
                                      {}},
                                     2e-6);
    }
  }
}

TEST(HostRouter, sigmoid_and_exponential_are_within_three_units_in_the_last_place) {
  // e^x is within 2 units; a sigmoid adds the rounding of 1 + e^x and of its reciprocal, a softmax its division's.
  constexpr int64_t kCount = 1000;
  Tensor x(Dtype::f32, {400, kCount}), pairs(Dtype::f32, {400 * kCount, 2});
  for (int64_t i = 0; i < 400 * kCount; ++i) {
    const double v = static_cast<float>(static_cast<double>(i) / (400 * kCount) * 170 - 85);
    x.values[static_cast<size_t>(i)] = v;
    pairs.values[static_cast<size_t>(2 * i)] = static_cast<float>(std::min(v, -17.5));  // 1 + e^x is 1
  }
  for (const int64_t target : instruction_sets()) {
    const InstructionSet set(target);
    const OpResult sigmoid =
        run_op({"", "router_scores", {activation(x)}, {{"function", "sigmoid"}}, {}}, kernels::host_kernels());
    const OpResult softmax =
        run_op({"", "router_scores", {activation(pairs)}, {{"function", "softmax"}}, {}}, kernels::host_kernels());
    double worst_sigmoid = 0, worst_exp = 0;
    for (size_t i = 0; i < x.values.size(); ++i) {
      const double s = 1 / (1 + std::exp(-x.values[i])), e = std::exp(pairs.values[2 * i]);
      worst_sigmoid = std::max(worst_sigmoid, std::abs(sigmoid.out[0].values[i] / s - 1));
      worst_exp = std::max(worst_exp, std::abs(softmax.out[0].values[2 * i] / (e / (1 + e)) - 1));
    }
    EXPECT_LE(worst_sigmoid, 3 * 0x1p-23) << hwy::TargetName(target);
    EXPECT_LE(worst_exp, 2 * 0x1p-23) << hwy::TargetName(target);
  }
}

TEST(HostRouter, balance_within_sequences) {
  struct Sizes {
    int64_t B, S, E, k;
  };
  // Sequences of less than a block of rows, of one and a rest; none at all.
  for (const auto& [B, S, E, k] : {Sizes{0, 4, 8, 2}, {3, 5, 7, 3}, {2, 70, 64, 6}, {1, 200, 256, 8}}) {
    Tensor s = random_tensor(Dtype::f32, {B * S, E}, 11);
    for (double& v : s.values) v = std::abs(v) + 0.125;
    const OpCase op{fmt::format("sequence_aux_loss B{} S{} E{} k{}", B, S, E, k),
                    "sequence_aux_loss",
                    {activation(s), {Tensor(Dtype::f32, {2}, std::vector<double>{1e9, 0.25}), Role::input}},
                    {{"top_k", k}, {"sequence", S}, {"alpha", 0.5}, {"scale_index", 1}},
                    {}};
    expect_gradient_like_reference(op, 4e-6);
  }
}

TEST(HostRouter, load_and_bias) {
  Tensor offsets(Dtype::i32, {5}, std::vector<double>{0, 3, 3, 10, 11});
  for (const bool overwrite : {true, false}) {
    expect_like_reference({"count_load", "count_load", {metadata(offsets)}, {}, {Tensor(Dtype::f64, {4}, 2)}}, 0,
                          overwrite);
  }
  const Tensor load(Dtype::f64, {4}, std::vector<double>{1, 2, 3, 2});
  expect_like_reference({"router_bias_update",
                         "router_bias_update",
                         {{load, Role::statistic}, {random_tensor(Dtype::f64, {4}, 9), Role::input}},
                         {},
                         {random_tensor(Dtype::f32, {4}, 8)}},
                        0, false, ir::Phase::end);
  expect_like_reference({"router_bias_update",
                         "router_bias_update",
                         {{load, Role::statistic}, {random_tensor(Dtype::f64, {4}, 9), Role::input}},
                         {{"by_share", 3}},
                         {random_tensor(Dtype::f32, {4}, 8)}},
                        0, false, ir::Phase::end);
}

class HostLoss : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, HostLoss, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(HostLoss, cross_entropy) {
  const Dtype X = GetParam();
  const Operand scales{Tensor(Dtype::f32, {2}, std::vector<double>{1e9, 0.25}), Role::input};
  struct Sizes {
    int64_t T, V;
  };
  for (const auto& [T, V] : {Sizes{0, 5}, {1, 1}, {7, 19}, {130, 1003}}) {
    for (const bool masked : {false, true}) {
      const OpCase op{fmt::format("cross_entropy T{} V{}", T, V),
                      "cross_entropy",
                      {activation(random_tensor(X, {T, V}, 9, 4)),
                       Operand{random_labels(T, V, 10, masked), Role::input}, scales},
                      {{"scale_index", 1}},
                      {}};
      expect_gradient_like_reference(op, stream_tolerance(X));
    }
  }
  // Logits apart by more than fp32's exponent, and one that is minus infinity.
  Tensor wide(X, {2, 40}, -1e4);
  wide.values[3] = 300, wide.values[44] = -std::numeric_limits<double>::infinity(), wide.values[45] = 1e4;
  const OpCase far{
      "far logits",
      "cross_entropy",
      {activation(wide), Operand{Tensor(Dtype::i32, {2}, std::vector<double>{3, 7}), Role::input}, scales},
      {{"scale_index", 1}},
      {}};
  expect_gradient_like_reference(far, stream_tolerance(X));

  const OpCase beyond{
      "",
      "cross_entropy",
      {activation(random_tensor(X, {1, 3}, 1)), Operand{Tensor(Dtype::i32, {1}, 3), Role::input}, scales},
      {{"scale_index", 1}},
      {}};
  EXPECT_THROW(run_op(beyond, kernels::host_kernels()), InternalError);
}

}  // namespace
}  // namespace heddle::op_runner
