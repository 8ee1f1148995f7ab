// The router on reference: the choice of experts against a brute force over all subsets, its rows, ties, scores
// that are zero or not numbers, and the fused op against its parts.
#include <rapidcheck.h>

#include <limits>

#include "tests/kernels/by_id_cases.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

const std::vector<kernels::KernelEntry>& reference() { return kernels::reference_kernels(); }

ir::Attributes choice(int64_t top_k, int64_t groups, int64_t top_groups, int64_t group_score_top) {
  return {{"top_k", top_k}, {"groups", groups}, {"top_groups", top_groups}, {"group_score_top", group_score_top}};
}

/// The best subset of `size` among `candidates`: greatest by its values in decreasing order compared one by one,
/// the lower indices winning ties. Tries every subset.
std::vector<int> best_subset(const std::vector<double>& values, const std::vector<int>& candidates, size_t size) {
  std::vector<int> best;
  const auto ordered = [&](std::vector<int> subset) {
    std::sort(subset.begin(), subset.end(), [&](int a, int b) {
      const double x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    return subset;
  };
  for (uint32_t mask = 0; mask < (1u << candidates.size()); ++mask) {
    std::vector<int> subset;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (mask >> i & 1) subset.push_back(candidates[i]);
    }
    if (subset.size() != size) continue;
    subset = ordered(subset);
    bool better = best.empty();
    for (size_t i = 0; i < size && !best.empty(); ++i) {
      const double x = values[static_cast<size_t>(subset[i])], y = values[static_cast<size_t>(best[i])];
      if (x == y && subset[i] == best[i]) continue;
      better = x != y ? x > y : subset[i] < best[i];
      break;
    }
    if (better) best = subset;
  }
  return best;
}

std::vector<int> numbers(size_t first, size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), static_cast<int>(first));
  return all;
}

TEST(ReferenceChoose, equals_a_brute_force_with_ties) {
  EXPECT_TRUE(rc::check([] {
    const auto groups = *rc::gen::inRange<size_t>(1, 5), size = *rc::gen::inRange<size_t>(1, 4);
    const auto top_groups = *rc::gen::inRange<size_t>(1, groups + 1), top = *rc::gen::inRange<size_t>(1, size + 1);
    const auto k = *rc::gen::inRange<size_t>(1, top_groups * size + 1), E = groups * size;
    // Few distinct values, so that ties are common.
    const auto scores = *rc::gen::container<std::vector<int>>(E, rc::gen::inRange(0, 4));
    const auto biases = *rc::gen::container<std::vector<int>>(E, rc::gen::inRange(-2, 3));
    const bool biased = *rc::gen::arbitrary<bool>();
    Tensor s(Dtype::f32, {1, static_cast<int64_t>(E)}), bias(Dtype::f32, {static_cast<int64_t>(E)});
    std::vector<double> value(E);
    for (size_t e = 0; e < E; ++e) {
      s.values[e] = scores[e];
      bias.values[e] = biases[e];
      value[e] = scores[e] + (biased ? biases[e] : 0);
    }
    std::vector<double> group_value(groups, 0.0);
    for (size_t g = 0; g < groups; ++g) {
      for (const int e : best_subset(value, numbers(g * size, size), top))
        group_value[g] += value[static_cast<size_t>(e)];
    }
    std::vector<int> open;
    for (const int g : best_subset(group_value, numbers(0, groups), top_groups)) {
      for (const int e : numbers(static_cast<size_t>(g) * size, size)) open.push_back(e);
    }
    std::vector<int> expected = best_subset(value, open, k);
    std::sort(expected.begin(), expected.end());
    const OpCase op{"choose",
                    "choose",
                    {activation(s), biased ? metadata(bias) : absent()},
                    choice(static_cast<int64_t>(k), static_cast<int64_t>(groups), static_cast<int64_t>(top_groups),
                           static_cast<int64_t>(top)),
                    {}};
    const OpResult result = run_op(op, reference());
    for (size_t j = 0; j < k; ++j) RC_ASSERT(result.out[0].values[j] == expected[j]);
  }));
}

TEST(ReferenceChoose, sorts_rows_by_expert_then_token) {
  EXPECT_TRUE(rc::check([] {
    const auto T = *rc::gen::inRange<int64_t>(0, 20), E = *rc::gen::inRange<int64_t>(1, 9);
    const auto k = *rc::gen::inRange<int64_t>(1, E + 1);
    const Tensor s = random_tensor(Dtype::f64, {T, E}, *rc::gen::arbitrary<uint64_t>());
    const OpResult result = run_op({"choose", "choose", {activation(s)}, choice(k, 1, 1, 1), {}}, reference());
    const Tensor &experts = result.out[0], &row_of = result.out[1], &token_of = result.out[2],
                 &offsets = result.out[3];
    RC_ASSERT(offsets.values.front() == 0);
    RC_ASSERT(offsets.values.back() == static_cast<double>(T * k));
    for (size_t e = 0; e + 1 < offsets.values.size(); ++e) RC_ASSERT(offsets.values[e] <= offsets.values[e + 1]);
    std::vector<int> seen(static_cast<size_t>(T * k), 0);
    for (size_t i = 0; i < row_of.values.size(); ++i) {
      const double row = row_of.values[i];
      const auto expert = static_cast<size_t>(experts.values[i]);
      RC_ASSERT(row >= offsets.values[expert]);
      RC_ASSERT(row < offsets.values[expert + 1]);
      RC_ASSERT(token_of.values[static_cast<size_t>(row)] == static_cast<double>(i / static_cast<size_t>(k)));
      ++seen[static_cast<size_t>(row)];
      if (i % static_cast<size_t>(k) != 0) RC_ASSERT(experts.values[i - 1] < experts.values[i]);
    }
    for (const int times : seen) RC_ASSERT(times == 1);
    for (size_t e = 0; e + 1 < offsets.values.size(); ++e) {
      for (auto r = static_cast<size_t>(offsets.values[e]) + 1; r < static_cast<size_t>(offsets.values[e + 1]);
           ++r) {
        RC_ASSERT(token_of.values[r - 1] < token_of.values[r]);
      }
    }
  }));
}

TEST(ReferenceChoose, takes_the_row_of_each_token_id) {
  for (const Dtype A : {Dtype::f32, Dtype::f64}) {
    for (const ByIdSizes& z : kByIdSizes) {
      const OpCase op = by_id_case(z, A);
      const OpResult result = run_op(op, reference());
      const Tensor &ids = op.in[0].tensor, &table = op.in[1].tensor;
      std::vector<std::pair<double, int64_t>> pairs;  // (expert, token)
      for (int64_t t = 0; t < z.T; ++t) {
        const auto id = static_cast<int64_t>(std::max(0.0, ids.values[static_cast<size_t>(t)]));
        std::vector<double> row(table.values.begin() + id * z.k, table.values.begin() + (id + 1) * z.k);
        std::sort(row.begin(), row.end());
        for (int64_t j = 0; j < z.k; ++j) {
          EXPECT_EQ(result.out[0].values[static_cast<size_t>(t * z.k + j)], row[static_cast<size_t>(j)]) << op.name;
          pairs.emplace_back(row[static_cast<size_t>(j)], t);
        }
      }
      std::sort(pairs.begin(), pairs.end());
      for (int64_t i = 0; i < z.T * z.k; ++i) {
        const auto row = static_cast<size_t>(result.out[1].values[static_cast<size_t>(i)]);
        EXPECT_EQ(pairs.at(row), std::pair(result.out[0].values[static_cast<size_t>(i)], i / z.k)) << op.name;
        EXPECT_EQ(result.out[2].values[row], static_cast<double>(i / z.k)) << op.name;
      }
      for (int64_t e = 0; e <= z.E; ++e) {
        const auto before = std::count_if(pairs.begin(), pairs.end(),
                                          [&](const auto& pair) { return pair.first < static_cast<double>(e); });
        EXPECT_EQ(result.out[3].values[static_cast<size_t>(e)], static_cast<double>(before)) << op.name;
      }
    }
  }
}

TEST(ReferenceChoose, refuses_ids_and_experts_that_are_not_there) {
  OpCase op = by_id_case({5, 3, 3, 7}, Dtype::f32);
  op.in[0].tensor.values[2] = 3;
  EXPECT_THROW(run_op(op, reference()), InternalError);
  op.in[0].tensor.values[2] = 0;
  op.in[1].tensor.values[1] = 7;
  EXPECT_THROW(run_op(op, reference()), InternalError);
}

TEST(ReferenceChoose, gives_valid_experts_for_any_scores) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor s(Dtype::f32, {4, 6}, std::vector<double>{nan,  nan,  nan,  nan,  nan,  nan,   //
                                                         -inf, -inf, -inf, -inf, -inf, -inf,  //
                                                         nan,  1,    nan,  3,    inf,  2,     //
                                                         0,    0,    0,    0,    0,    0});
  const OpResult result = run_op({"choose", "choose", {activation(s)}, choice(2, 3, 2, 2), {}}, reference());
  for (size_t t = 0; t < 4; ++t) {
    const double a = result.out[0].values[2 * t], b = result.out[0].values[2 * t + 1];
    EXPECT_TRUE(0 <= a && a < b && b < 6) << "token " << t << ": " << a << ", " << b;
  }
  // A group with a NaN among its two best has a NaN score: the third group (∞ + 2) is best, and numbers go first.
  EXPECT_EQ(result.out[0].values[4], 4);
  EXPECT_EQ(result.out[0].values[5], 5);
  EXPECT_EQ(result.out[0].values[6], 0) << "ties go to the lower id";
  EXPECT_EQ(result.out[0].values[7], 1);
}

TEST(ReferenceChoose, bias_moves_the_choice_but_not_the_gate) {
  const Tensor logits(Dtype::f32, {1, 4}, std::vector<double>{3, 2, 1, 0});
  const Tensor bias(Dtype::f32, {4}, std::vector<double>{0, 0, 0, 5});
  ir::Attributes attributes = choice(2, 1, 1, 1);
  attributes.set("function", "sigmoid").set("normalize", int64_t{0}).set("scale", 1.0);
  const OpResult result =
      run_op({"router", "router", {activation(logits), metadata(bias)}, attributes, {}}, reference());
  EXPECT_EQ(result.out[2].values, (std::vector<double>{0, 3}));
  EXPECT_NEAR(result.out[1].values[0], 1 / (1 + std::exp(-3.0)), 1e-7);
  EXPECT_NEAR(result.out[1].values[1], 0.5, 1e-7);
}

TEST(ReferenceRouter, equals_its_parts) {
  for (const Dtype A : {Dtype::f64, Dtype::f32}) {
    for (const std::string function : {"sigmoid", "softmax", "root_softplus"}) {
      ir::Attributes attributes = choice(3, 4, 2, 2);
      attributes.set("function", function).set("normalize", int64_t{1}).set("scale", 2.5);
      const Tensor bias = random_tensor(A, {12}, 2, 0.1);
      const OpResult fused =
          run_op({"", "router", {activation(random_tensor(A, {17, 12}, 1, 2)), metadata(bias)}, attributes, {}},
                 reference());
      const Tensor s =
          run_op({"", "router_scores", {activation(random_tensor(A, {17, 12}, 1, 2))}, attributes, {}}, reference())
              .out[0];
      const OpResult chosen = run_op({"", "choose", {activation(s), metadata(bias)}, attributes, {}}, reference());
      const Tensor g =
          run_op({"", "gate", {activation(s), metadata(chosen.out[0])}, attributes, {}}, reference()).out[0];
      EXPECT_TRUE(same(s, fused.out[0]));
      EXPECT_TRUE(same(g, fused.out[1]));
      for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(same(chosen.out[i], fused.out[2 + i])) << i;

      const Tensor dg = random_tensor(A, {17, 3}, 3), ds = random_tensor(A, {17, 12}, 4);
      const auto run = [&](std::string kind, std::vector<Operand> in) {
        return run_op({"", std::move(kind), std::move(in), attributes, {}}, reference()).out[0];
      };
      const Tensor through_gate = run("gate_dgrad", {activation(dg), activation(s), metadata(chosen.out[0])});
      const Tensor sum = run("add", {activation(through_gate), activation(ds)});
      const std::vector<std::pair<std::vector<Operand>, Tensor>> cases{
          {{activation(dg), activation(ds), activation(s), metadata(chosen.out[0])}, sum},
          {{activation(dg), absent(), activation(s), metadata(chosen.out[0])}, through_gate},
          {{absent(), activation(ds), activation(s), metadata(chosen.out[0])}, ds}};
      for (const auto& [in, ds_total] : cases) {
        EXPECT_TRUE(
            same(run("router_scores_dgrad", {activation(ds_total), activation(s)}), run("router_dgrad", in)));
      }
    }
  }
}

TEST(ReferenceGate, survives_scores_that_are_all_zero) {
  const Tensor s(Dtype::f32, {1, 4}, 0.0), experts(Dtype::i32, {1, 2}, std::vector<double>{1, 2});
  const ir::Attributes attributes{{"normalize", 1}, {"scale", 1.0}};
  EXPECT_EQ(run_op({"", "gate", {activation(s), metadata(experts)}, attributes, {}}, reference()).out[0].values,
            (std::vector<double>{0, 0}));
  const Tensor dg(Dtype::f32, {1, 2}, std::vector<double>{1, 2});
  const OpResult gradient =
      run_op({"", "gate_dgrad", {activation(dg), activation(s), metadata(experts)}, attributes, {}}, reference());
  for (const double v : gradient.out[0].values) EXPECT_TRUE(std::isfinite(v));

  ir::Attributes aux{{"top_k", 2}, {"sequence", 1}, {"alpha", 1.0}, {"scale_index", 0}};
  const Tensor scales(Dtype::f32, {1}, 1.0);
  EXPECT_EQ(
      run_op({"", "sequence_aux_loss", {activation(s), metadata(scales)}, aux, {}}, reference()).out[0].values[0],
      0);
}

TEST(ReferenceSequenceAuxLoss, is_alpha_times_the_sequences_when_balanced) {
  // Equal shares: P_e = 1/E; f_e sums to E whatever is chosen. So each sequence gives alpha·Σ f_e/E = alpha.
  const Tensor s(Dtype::f64, {6, 8}, 0.25), scales(Dtype::f64, {1}, 1.0);
  const ir::Attributes attributes{{"top_k", 2}, {"sequence", 3}, {"alpha", 0.5}, {"scale_index", 0}};
  const OpResult result =
      run_op({"", "sequence_aux_loss", {activation(s), metadata(scales)}, attributes, {}}, reference());
  EXPECT_NEAR(result.out[0].values[0], 2 * 0.5, 1e-14);
}

TEST(ReferenceCountLoad, adds_and_overwrites) {
  const Tensor offsets(Dtype::i32, {4}, std::vector<double>{0, 3, 3, 8});
  const OpCase op{
      "", "count_load", {metadata(offsets)}, {}, {Tensor(Dtype::f64, {3}, std::vector<double>{10, 20, 30})}};
  EXPECT_EQ(run_op(op, reference(), false).updates[0].values, (std::vector<double>{13, 20, 35}));
  EXPECT_EQ(run_op(op, reference(), true).updates[0].values, (std::vector<double>{3, 0, 5}));
}

TEST(ReferenceRouterBiasUpdate, moves_by_the_sign) {
  const Tensor load(Dtype::f64, {4}, std::vector<double>{2, 5, 3, 2});  // mean 3
  for (const Dtype A : {Dtype::f32, Dtype::f64}) {
    const OpCase op{"",
                    "router_bias_update",
                    {metadata(load), metadata(Tensor(Dtype::f64, {4}, std::vector<double>{7, 7, 7, 0.25}))},
                    {},
                    {Tensor(A, {4}, std::vector<double>{1, 1, 1, -1})}};
    EXPECT_EQ(run_op(op, reference(), true, ir::Phase::end).updates[0].values,
              (std::vector<double>{1.25, 0.75, 1, -0.75}));
  }
}

// Those without computation stay; the others move by what their share of the choices lacks.
TEST(ReferenceRouterBiasUpdate, moves_by_the_share) {
  const Tensor load(Dtype::f64, {4}, std::vector<double>{2, 4, 0, 10});  // mean 4
  for (const Dtype A : {Dtype::f32, Dtype::f64}) {
    OpCase op{"",
              "router_bias_update",
              {metadata(load), metadata(Tensor(Dtype::f64, {4}, std::vector<double>{7, 7, 7, 0.25}))},
              {{"by_share", 3}},
              {Tensor(A, {4}, std::vector<double>{1, 1, 1, -1})}};
    EXPECT_EQ(run_op(op, reference(), true, ir::Phase::end).updates[0].values,
              (std::vector<double>{1.125, 1, 1.25, -1}));
    op.in[0] = metadata(Tensor(Dtype::f64, {4}, 0));  // no token: no step
    EXPECT_EQ(run_op(op, reference(), true, ir::Phase::end).updates[0].values, (std::vector<double>{1, 1, 1, -1}));
  }
}

// The definition of Transformers' sparsemixer outside of training, written again: a softmax over what its mask
// leaves.
TEST(ReferenceMixerGate, is_each_experts_part_of_those_close) {
  const Tensor logits(Dtype::f64, {3, 4},
                      std::vector<double>{2, 1.9, 1.5, -3, -1, -1.05, -2, -1.2, 0.5, 0.5, 0.4, 0.1});
  const Tensor experts(Dtype::i32, {3, 2}, std::vector<double>{0, 1, 0, 1, 0, 1});
  const OpCase op{"", "mixer_gate", {activation(logits), metadata(experts)}, {{"closeness", 0.2}}, {}};
  const auto part = [](double own, std::vector<double> others) {
    double sum = 1;
    for (const double other : others) sum += std::exp(other - own);
    return 1 / sum;
  };
  // (2 − 1.9) ÷ 2 and (1.9 − 1.5) ÷ 1.9 beside 0.2; negative logits by their own size: (−1.05 + 1.2) ÷ 1.2.
  const std::vector<double> expected{part(2, {1.9}),      part(1.9, {}),         part(-1, {-1.05, -1.2}),
                                     part(-1.05, {-1.2}), part(0.5, {0.5, 0.4}), part(0.5, {0.4})};
  const auto found = run_op(op, reference(), true).out[0].values;
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-15) << i;
}

TEST(ReferencePermute, and_its_gradient_are_adjoint) {
  EXPECT_TRUE(rc::check([] {
    const auto T = *rc::gen::inRange<int64_t>(0, 12), E = *rc::gen::inRange<int64_t>(1, 7);
    const auto k = *rc::gen::inRange<int64_t>(1, E + 1), H = *rc::gen::inRange<int64_t>(1, 6);
    const auto seed = *rc::gen::arbitrary<uint64_t>();
    const Routing routing = random_routing(T, k, E, seed);
    const Tensor x = random_tensor(Dtype::f64, {T, H}, seed + 1),
                 p = random_tensor(Dtype::f64, {T * k, H}, seed + 2);
    const Tensor px =
        run_op({"",
                "permute",
                {activation(x), metadata(routing.row_of), metadata(routing.token_of), metadata(routing.experts)},
                {},
                {}},
               reference())
            .out[0];
    const Tensor pt =
        run_op({"", "permute_dgrad", {activation(p), metadata(routing.row_of), metadata(routing.experts)}, {}, {}},
               reference())
            .out[0];
    double left = 0, right = 0;
    for (size_t i = 0; i < px.values.size(); ++i) left += px.values[i] * p.values[i];
    for (size_t i = 0; i < pt.values.size(); ++i) right += pt.values[i] * x.values[i];
    RC_ASSERT(std::abs(left - right) <= 1e-12 * (1 + std::abs(left)));

    // With gates that sum to one, unpermuting what was permuted gives x again (sums of quarters are exact).
    if (k == 4) {
      const Tensor g(Dtype::f64, {T, k}, 0.25);
      const Tensor back =
          run_op({"",
                  "unpermute",
                  {activation(px), activation(g), metadata(routing.row_of), metadata(routing.experts)},
                  {},
                  {}},
                 reference())
              .out[0];
      RC_ASSERT(back.values == x.values);
    }
  }));
}

}  // namespace
}  // namespace heddle::op_runner
