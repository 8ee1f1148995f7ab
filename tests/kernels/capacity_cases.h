// Cases of the ops of experts' capacity and of the balance by quantiles, for every backend: their results are
// choices and counts, which have the same bits on all of them.
#pragma once

#include <limits>

#include "heddle/ops/margin_bins.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {

/// How the gates of a case lie.
enum class Gates : uint8_t { apart, few_kinds, alike, any_sign };

inline Tensor gates_of(Gates gates, int64_t T, int64_t k, uint64_t seed, Dtype A) {
  Tensor g(A, {T, k});
  const RandomKey key(seed);
  for (size_t i = 0; i < g.values.size(); ++i) {
    switch (gates) {
      case Gates::apart: g.values[i] = static_cast<float>(key.uniform(i)); break;
      case Gates::few_kinds: g.values[i] = 0.25 * static_cast<double>(key.bits(i) % 4); break;
      case Gates::alike: g.values[i] = 0.5; break;
      case Gates::any_sign: {
        const std::array<double, 6> kinds{-0.0, 0.0, -1.5, 2.5, 1e38, 1e-40};
        g.values[i] = static_cast<float>(kinds[key.bits(i) % kinds.size()]);
        break;
      }
    }
  }
  return g;
}

inline OpCase capacity_case(const Routing& routing, const Tensor& gates, int64_t places) {
  return {fmt::format("apply_capacity of {} choices, {} places", gates.elements(), places),
          "apply_capacity",
          {activation(gates), metadata(routing.row_of), metadata(routing.token_of), metadata(routing.offsets)},
          {{"places", places}, {"ranks", 2}, {"slices", 2}},
          {}};
}

/// What must have reference's bits: choices, their gradient, counts.
inline std::vector<OpCase> exact_capacity_cases() {
  std::vector<OpCase> cases;
  struct Sizes {
    int64_t T, k, E;
    std::vector<int64_t> places;
    std::vector<int> never;
  };
  uint64_t seed = 3;
  for (const Sizes& s : {Sizes{1, 1, 2, {1}, {}},
                         {20, 3, 6, {1, 3, 7, 20}, {}},
                         {300, 2, 3, {100, 131, 200, 300}, {}},
                         {900, 4, 10, {40, 360, 900}, {1, 7, 8}}}) {
    const Routing routing = random_routing(s.T, s.k, s.E, ++seed, s.never);
    for (const int64_t places : s.places) {
      for (const Gates gates : {Gates::apart, Gates::few_kinds, Gates::alike, Gates::any_sign})
        cases.push_back(capacity_case(routing, gates_of(gates, s.T, s.k, ++seed, Dtype::f32), places));
    }
    Tensor places_of(Dtype::i32, {s.T, s.k});
    for (size_t i = 0; i < places_of.values.size(); ++i)
      places_of.values[i] = static_cast<double>(RandomKey(seed).bits(i) % 5) - 1;
    cases.push_back({"apply_capacity_dgrad",
                     "apply_capacity_dgrad",
                     {activation(random_tensor(Dtype::f32, {s.T, s.k}, 14)), metadata(places_of)},
                     {},
                     {}});
    cases.push_back({"count_dropped", "count_dropped", {metadata(places_of)}, {}, {Tensor(Dtype::f64, {1}, 5.0)}});
  }
  struct Scores {
    int64_t T, E, k;
  };
  for (const Scores& s : {Scores{0, 4, 1}, {1, 2, 1}, {70, 37, 5}, {300, 256, 8}, {700, 19, 18}}) {
    Tensor scores(Dtype::f32, {s.T, s.E}), bias(Dtype::f32, {s.E});
    for (size_t i = 0; i < scores.values.size(); ++i)
      scores.values[i] = i % 7 == 0 ? 0.5 : static_cast<float>(RandomKey(21).uniform(i));
    for (size_t e = 0; e < bias.values.size(); ++e)
      bias.values[e] = static_cast<float>(0.1 * RandomKey(22).normal(e));
    Tensor margins(Dtype::f64, {s.E, kMarginBins});
    for (size_t i = 0; i < margins.values.size(); ++i)
      margins.values[i] = static_cast<double>(RandomKey(23).bits(i) % (i / kMarginBins % 3 == 1 ? 1 : 9));
    cases.push_back({fmt::format("count_margins of {} x {}", s.T, s.E),
                     "count_margins",
                     {activation(scores), metadata(bias)},
                     {{"top_k", s.k}},
                     {margins}});
  }
  return cases;
}

/// An op of the end of a step.
inline OpCase quantile_case(int64_t E, int64_t k) {
  Tensor margins(Dtype::f64, {E, kMarginBins});
  for (size_t i = 0; i < margins.values.size(); ++i)  // an expert whose margins were never counted among them
    margins.values[i] = i / kMarginBins == 1 ? 0 : static_cast<double>(RandomKey(24).bits(i) % 9);
  return {"quantile_bias_update",
          "quantile_bias_update",
          {metadata(margins), metadata(Tensor(Dtype::f64, {4}, std::vector<double>{0, 0, 0, 0.7}))},
          {{"top_k", k}},
          {random_tensor(Dtype::f32, {E}, 25)}};
}

/// Rows to their places and back, with their gradients, where choices have no row and rows no token.
inline std::vector<OpCase> rows_with_gaps(Dtype X, int64_t T, int64_t k, int64_t E, int64_t H, int64_t places) {
  const Routing routing = random_routing(T, k, E, 3);
  const auto limited = run_op(capacity_case(routing, gates_of(Gates::few_kinds, T, k, 3, wide(X)), places),
                              kernels::reference_kernels())
                           .out;
  const Operand gates = activation(limited[0]), row_of = metadata(limited[1]), token_of = metadata(limited[2]);
  const Operand experts = metadata(routing.experts);
  const Operand x = activation(random_tensor(X, {T, H}, 1)), y = activation(random_tensor(X, {E * places, H}, 2));
  return {{"permute", "permute", {x, row_of, token_of, experts}, {}, {}},
          {"unpermute", "unpermute", {y, gates, row_of, experts, x}, {}, {}},
          {"permute_dgrad", "permute_dgrad", {y, row_of, experts}, {}, {}},
          {"unpermute_dgrad", "unpermute_dgrad", {x, y, gates, row_of}, {}, {}}};
}

}  // namespace heddle::op_runner
