// What cases of ops are made of: operands by role, choices of experts and the rows that they give.
// T tokens, E experts, k experts a token.
#pragma once

#include <numeric>

#include "tests/kernels/op_runner.h"

namespace heddle::op_runner {

struct CaseMaker {
  std::string name;
  /// The case in compute type X with B sequences (0: no rows at all).
  std::function<OpCase(Dtype X, int64_t B)> make;
};
inline void PrintTo(const CaseMaker& maker, std::ostream* to) { *to << maker.name; }

/// A choice of experts and the rows it gives, sorted by (expert, token).
struct Routing {
  int64_t T, k, E;
  Tensor experts, row_of, token_of, offsets;

  /// experts[t, j] in increasing j must increase.
  Routing(int64_t T, int64_t k, int64_t E, const std::vector<int>& chosen) : T(T), k(k), E(E) {
    std::vector<int64_t> slots(static_cast<size_t>(T * k));
    std::iota(slots.begin(), slots.end(), 0);
    const auto expert = [&](int64_t slot) { return chosen[static_cast<size_t>(slot)]; };
    std::stable_sort(slots.begin(), slots.end(), [&](int64_t a, int64_t b) { return expert(a) < expert(b); });
    experts = Tensor(Dtype::i32, {T, k});
    row_of = Tensor(Dtype::i32, {T, k});
    token_of = Tensor(Dtype::i32, {T * k});
    offsets = Tensor(Dtype::i32, {E + 1});
    for (size_t row = 0; row < slots.size(); ++row) {
      const auto slot = static_cast<size_t>(slots[row]);
      experts.values[slot] = chosen[slot];
      row_of.values[slot] = static_cast<double>(row);
      token_of.values[row] = static_cast<double>(slots[row] / k);
      for (auto e = static_cast<size_t>(chosen[slot]) + 1; e <= static_cast<size_t>(E); ++e) offsets.values[e] += 1;
    }
  }
};

/// k distinct experts of E a token, at random; experts in `never` get no rows.
inline Routing random_routing(int64_t T, int64_t k, int64_t E, uint64_t seed, const std::vector<int>& never = {}) {
  const RandomKey key(seed);
  std::vector<int> chosen;
  for (int64_t t = 0; t < T; ++t) {
    std::vector<int> open;
    for (int e = 0; e < E; ++e) {
      if (std::find(never.begin(), never.end(), e) == never.end()) open.push_back(e);
    }
    std::vector<int> mine;
    for (int64_t j = 0; j < k; ++j) {
      const size_t at = key.bits(static_cast<uint64_t>(t * k + j)) % open.size();
      mine.push_back(open[at]);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    }
    std::sort(mine.begin(), mine.end());
    chosen.insert(chosen.end(), mine.begin(), mine.end());
  }
  return Routing(T, k, E, chosen);
}

/// The columns of each row's two largest numbers, in increasing order.
inline Tensor two_largest(const Tensor& of) {
  const int64_t T = of.shape[0], E = of.shape[1];
  Tensor columns(Dtype::i32, {T, 2});
  for (int64_t t = 0; t < T; ++t) {
    const double* row = of.values.data() + t * E;
    std::vector<int> order(static_cast<size_t>(E));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
    std::sort(order.begin(), order.begin() + 2);
    for (size_t j = 0; j < 2; ++j) columns.values[static_cast<size_t>(2 * t) + j] = order[j];
  }
  return columns;
}

inline Operand activation(Tensor t) { return {std::move(t), Role::activation}; }
inline Operand weight(Tensor t) { return {std::move(t), Role::weight}; }
inline Operand metadata(Tensor t) { return {std::move(t), Role::metadata}; }
inline Operand absent() { return {}; }

}  // namespace heddle::op_runner
