// Cases of the residual's streams (ops/hyper_connection.cpp): one, several, four, and the most; iterations from one
// on; blocks and the head; independent ones, and weights of writing alone; rows that are no multiple of a vector,
// and beyond one block of partial sums.
#pragma once

#include "tests/kernels/op_case.h"

namespace heddle::op_runner {

inline OpCase read_streams_case(const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H,
                                int64_t iterations, bool head) {
  const int64_t W = head ? n : n * (2 + n);
  return {name,
          "read_streams",
          {activation(random_tensor(X, {T, n * H}, 1)), activation(random_tensor(wide(X), {T, W}, 2, 2)),
           weight(random_tensor(wide(X), {W}, 3)), weight(random_tensor(wide(X), {head ? 1 : 3}, 4))},
          {{"streams", n}, {"iterations", iterations}, {"epsilon", 1e-3}, {"norm_epsilon", 0.25}},
          {}};
}

/// Of independent streams.
inline OpCase read_apart_case(const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H) {
  return {name,
          "read_streams",
          {activation(random_tensor(X, {T, n * H}, 1)), activation(random_tensor(wide(X), {T, 2 * n}, 2, 2)),
           weight(random_tensor(wide(X), {2 * n}, 3)), weight(random_tensor(wide(X), {2}, 4))},
          {{"streams", n}, {"magnitude", 1.75}, {"epsilon", 1e-3}, {"norm_epsilon", 0.25}},
          {}};
}

/// `weights`: of a token; 0: with those of a mix.
inline OpCase write_streams_case(const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H,
                                 int64_t weights = 0) {
  return {name,
          "write_streams",
          {activation(random_tensor(X, {T, n * H}, 5)), activation(random_tensor(X, {T, H}, 6)),
           activation(random_tensor(wide(X), {T, weights > 0 ? weights : n * (2 + n)}, 7))},
          {{"streams", n}},
          {}};
}

inline std::vector<CaseMaker> hyper_connection_cases() {
  std::vector<CaseMaker> cases;
  for (const auto& [n, H, iterations] :
       std::vector<std::array<int64_t, 3>>{{1, 5, 1}, {2, 7, 3}, {4, 24, 20}, {8, 3, 5}}) {
    for (const bool head : {false, true}) {
      const std::string name = fmt::format("{}_streams_{}", head ? "end" : "read", n);
      cases.push_back({name, [=, n = n, H = H, iterations = iterations](Dtype X, int64_t B) {
                         return read_streams_case(name, X, B * 5, n, H, iterations, head);
                       }});
    }
    const std::string name = fmt::format("write_streams_{}", n);
    cases.push_back(
        {name, [=, n = n, H = H](Dtype X, int64_t B) { return write_streams_case(name, X, B * 5, n, H); }});
    const std::string apart = fmt::format("read_independent_{}", n);
    cases.push_back(
        {apart, [=, n = n, H = H](Dtype X, int64_t B) { return read_apart_case(apart, X, B * 5, n, H); }});
    for (const int64_t weights : {n, 2 * n}) {
      const std::string added = fmt::format("write_streams_{}_by_{}", n, weights);
      cases.push_back({added, [=, n = n, H = H](Dtype X, int64_t B) {
                         return write_streams_case(added, X, B * 5, n, H, weights);
                       }});
    }
  }
  return cases;
}

}  // namespace heddle::op_runner
