// Capacity and balance by quantiles: which choices keep a place, against a sort of each expert's
// gates; the host against reference; rows without tokens and choices without rows; margins, bins and biases.
#include "tests/kernels/capacity_cases.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

struct Limited {
  Routing routing;
  int64_t places;
  Tensor gates;
  std::vector<Tensor> out;  // kept, place_of, token_of_places, local_offsets, counts
};

// Few different gates, so that many tie.
Limited limited(int64_t T, int64_t k, int64_t E, int64_t places, uint64_t seed) {
  Limited l{random_routing(T, k, E, seed), places, gates_of(Gates::few_kinds, T, k, seed, Dtype::f64), {}};
  OpCase op = capacity_case(l.routing, l.gates, places);
  op.attributes.set("slices", int64_t{1});
  l.out = run_op(op, kernels::reference_kernels()).out;
  return l;
}

TEST(Capacity, keeps_the_highest_gates_and_of_ties_the_earlier_tokens) {
  int64_t dropped = 0, empty = 0;
  for (const int64_t places : {1, 3, 7, 20}) {
    const Limited l = limited(20, 3, 6, places, 7 + static_cast<uint64_t>(places));
    const auto at = [&](int64_t i) { return static_cast<size_t>(i); };
    for (int e = 0; e < 6; ++e) {
      std::vector<int64_t> slots;
      for (int64_t i = 0; i < 60; ++i) {
        if (l.routing.experts.values[at(i)] == e) slots.push_back(i);
      }
      std::stable_sort(slots.begin(), slots.end(),
                       [&](int64_t a, int64_t b) { return l.gates.values[at(a)] > l.gates.values[at(b)]; });
      std::vector<int64_t> kept(slots.begin(), slots.begin() + std::min(places, std::ssize(slots)));
      std::sort(kept.begin(), kept.end());
      for (int64_t c = 0; c < places; ++c) {
        const bool filled = c < std::ssize(kept);
        EXPECT_EQ(l.out[2].values[at(e * places + c)], filled ? static_cast<double>(kept[at(c)] / 3) : -1);
        if (filled) {
          EXPECT_EQ(l.out[1].values[at(kept[at(c)])], static_cast<double>(e * places + c));
        }
        empty += !filled;
      }
      for (const int64_t slot : slots) {
        const bool keeps = std::find(kept.begin(), kept.end(), slot) != kept.end();
        EXPECT_EQ(l.out[0].values[at(slot)], keeps ? l.gates.values[at(slot)] : 0);
        if (!keeps) {
          EXPECT_EQ(l.out[1].values[at(slot)], -1);
        }
        dropped += !keeps;
      }
    }
    const auto rows = static_cast<double>(2 * places);  // of an expert, from two ranks
    EXPECT_EQ(l.out[3].values, (std::vector<double>{0, rows, 2 * rows, 3 * rows}));
    EXPECT_EQ(l.out[4].values, std::vector<double>(12, static_cast<double>(places)));
  }
  EXPECT_GT(dropped, 0);
  EXPECT_GT(empty, 0);
}

// A gate that is kept has the gradient of what it became, one that is dropped none.
TEST(Capacity, what_is_dropped_has_no_gradient) {
  const Limited l = limited(20, 3, 6, 3, 13);
  const Tensor dkept = random_tensor(Dtype::f64, {20, 3}, 14);
  const OpCase op{"", "apply_capacity_dgrad", {activation(dkept), metadata(l.out[1])}, {}, {}};
  const Tensor dgates = run_op(op, kernels::reference_kernels()).out[0];
  int64_t dropped = 0;
  for (size_t i = 0; i < dgates.values.size(); ++i) {
    dropped += l.out[1].values[i] < 0;
    EXPECT_EQ(dgates.values[i], l.out[1].values[i] < 0 ? 0 : dkept.values[i]) << i;
  }
  EXPECT_GT(dropped, 0);
}

TEST(Capacity, counts_what_it_drops) {
  const Limited l = limited(20, 3, 6, 3, 11);
  const auto dropped = std::count(l.out[1].values.begin(), l.out[1].values.end(), -1.0);
  ASSERT_GT(dropped, 0);
  const OpCase op{"", "count_dropped", {metadata(l.out[1])}, {}, {Tensor(Dtype::f64, {1}, 5.0)}};
  EXPECT_EQ(run_op(op, kernels::reference_kernels(), false).updates[0].values[0],
            5.0 + static_cast<double>(dropped));
}

TEST(Capacity, has_the_same_bits_on_the_host) {
  for (const OpCase& op : exact_capacity_cases()) {
    for (const bool overwrite : {false, true}) expect_like_reference(op, 0, overwrite);
  }
}

// The reference sorts, the host counts: a gate that is no number comes last for both.
TEST(Capacity, takes_what_is_no_number_last) {
  const Routing routing = random_routing(200, 2, 4, 3);
  Tensor gates = gates_of(Gates::apart, 200, 2, 4, Dtype::f32);
  for (size_t i = 0; i < gates.values.size(); i += 9) gates.values[i] = std::numeric_limits<double>::quiet_NaN();
  const OpCase op = capacity_case(routing, gates, 60);
  const OpResult here = run_op(op, kernels::reference_kernels()), there = run_op(op, kernels::host_kernels());
  for (size_t i = 0; i < here.out.size(); ++i) EXPECT_TRUE(same(here.out[i], there.out[i])) << i;
  for (const double kept : here.out[0].values) EXPECT_FALSE(std::isnan(kept));
}

// Rows to their places and back, with their gradients: what has no row adds nothing, what has no token is zeros.
TEST(Capacity, rows_without_tokens_are_zeros_on_every_backend) {
  const int64_t T = 70, k = 3, E = 6, H = 37;
  for (const int64_t places : {1, 20, 35, 70}) {  // 35: as many places as choices
    const std::vector<OpCase> cases = rows_with_gaps(Dtype::f32, T, k, E, H, places);
    for (const OpCase& op : cases) expect_like_reference(op, 1e-5);
    const Tensor p = run_op(cases[0], kernels::host_kernels()).out[0];
    const Tensor dy = run_op(cases[3], kernels::host_kernels()).out[0];
    const std::vector<double>&x = cases[0].in[0].tensor.values, &token_of = cases[0].in[2].tensor.values;
    for (int64_t r = 0; r < E * places; ++r) {
      const double token = token_of[static_cast<size_t>(r)];
      for (int64_t h = 0; h < H; ++h) {
        const auto at = static_cast<size_t>(r * H + h);
        EXPECT_EQ(p.values[at], token < 0 ? 0 : x[static_cast<size_t>(static_cast<int64_t>(token) * H + h)]);
        if (token < 0) {
          EXPECT_EQ(dy.values[at], 0);
        }
      }
    }
  }
}

TEST(Margins, bins_hold_what_lies_between_their_edges) {
  for (int64_t b = 0; b < kMarginBins; ++b) {
    ASSERT_LT(margin_edge(b), margin_edge(b + 1));
    const double middle = (margin_edge(b) + margin_edge(b + 1)) / 2;
    EXPECT_EQ(margin_bin(static_cast<float>(middle)), b) << middle;
  }
  EXPECT_EQ(margin_bin(100.f), kMarginBins - 1);
  EXPECT_EQ(margin_bin(-100.f), 0);
}

// Experts whose scores lie far apart for every token: one step of all the way balances them.
TEST(Margins, biases_of_the_quantile_balance_the_scores_they_were_counted_of) {
  const int64_t T = 2000, E = 8, k = 2;
  Tensor s(Dtype::f64, {T, E}), bias(Dtype::f64, {E});
  for (int64_t i = 0; i < T * E; ++i)
    s.values[static_cast<size_t>(i)] =
        0.5 + 0.05 * static_cast<double>(i % E) + 0.02 * RandomKey(5).normal(static_cast<uint64_t>(i));
  const auto busiest = [&] {
    std::vector<double> load(static_cast<size_t>(E), 0);
    for (int64_t t = 0; t < T; ++t) {
      std::vector<int64_t> order(static_cast<size_t>(E));
      std::iota(order.begin(), order.end(), 0);
      const auto value = [&](int64_t e) {
        return s.values[static_cast<size_t>(t * E + e)] + bias.values[static_cast<size_t>(e)];
      };
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value(a) > value(b); });
      for (int64_t j = 0; j < k; ++j) ++load[static_cast<size_t>(order[static_cast<size_t>(j)])];
    }
    return *std::max_element(load.begin(), load.end()) * static_cast<double>(E) / static_cast<double>(T * k);
  };
  EXPECT_GT(busiest(), 3);
  for (int step = 0; step < 3; ++step) {
    const OpCase count{"",
                       "count_margins",
                       {activation(s), metadata(bias)},
                       {{"top_k", k}},
                       {Tensor(Dtype::f64, {E, kMarginBins})}};
    const Tensor margins = run_op(count, kernels::reference_kernels()).updates[0];
    EXPECT_EQ(std::accumulate(margins.values.begin(), margins.values.end(), 0.0), static_cast<double>(T * E));
    const OpCase move{"",
                      "quantile_bias_update",
                      {metadata(margins), metadata(Tensor(Dtype::f64, {4}, std::vector<double>{0, 0, 0, 1}))},
                      {{"top_k", k}},
                      {bias}};
    bias = run_op(move, kernels::reference_kernels(), true, ir::Phase::end).updates[0];
  }
  EXPECT_LT(busiest(), 1.15);
}

}  // namespace
}  // namespace heddle::op_runner
