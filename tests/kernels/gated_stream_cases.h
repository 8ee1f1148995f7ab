// Cases of gated streams (ops/gated_streams.cpp): two, four and the most; blocks, and the head, which writes
// nothing; rows that are no multiple of a vector, and beyond one block of partial sums.
#pragma once

#include "tests/kernels/op_case.h"

namespace heddle::op_runner {

inline OpCase norm_streams_case(const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H, bool offset) {
  OpCase op{name,
            "norm_streams",
            {activation(random_tensor(X, {T, n * H}, 1)), weight(random_tensor(wide(X), {n * H}, 2))},
            {{"streams", n}, {"epsilon", 1e-2}},
            {}};
  if (offset) op.attributes.set("offset", 1.0);
  return op;
}

inline OpCase read_gated_case(const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H, bool head) {
  return {name,
          "read_gated_streams",
          {activation(random_tensor(X, {T, n * H}, 3)), activation(random_tensor(X, {T, n * H}, 4, 2)),
           head ? absent() : activation(random_tensor(wide(X), {T, n}, 5, 3))},
          {{"streams", n}},
          {}};
}

// Keys agree or disagree with what streams hold: a root has no slope that differences could see next to nothing.
inline OpCase gate_streams_case(const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H) {
  Tensor k = random_tensor(X, {T, n * H}, 9);
  const Tensor y = random_tensor(X, {T, n * H}, 10);
  for (size_t i = 0; i < k.values.size(); ++i) {
    const double towards = static_cast<int64_t>(i) / H % 3 == 0 ? -1 : 1;
    const double value = 0.5 * k.values[i] + towards * (y.values[i] < 0 ? -1 : 1);
    k.values[i] = static_cast<float>(bf16(static_cast<float>(value)));
  }
  return {name,
          "gate_streams",
          {activation(k), activation(y), activation(random_tensor(X, {T, H}, 11))},
          {{"streams", n}},
          {}};
}

inline std::vector<CaseMaker> gated_stream_cases() {
  std::vector<CaseMaker> cases;
  for (const auto& [n, H] : std::vector<std::array<int64_t, 2>>{{2, 7}, {4, 24}, {8, 3}}) {
    const auto add = [&, n = n, H = H](const std::string& of, auto make) {
      const std::string name = fmt::format("{}_{}", of, n);
      cases.push_back({name, [=](Dtype X, int64_t B) { return make(name, X, B * 5, n, H); }});
    };
    for (const bool other : {false, true}) {
      add(other ? "norm_streams_offset" : "norm_streams",
          [=](const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H) {
            return norm_streams_case(name, X, T, n, H, other);
          });
      add(other ? "end_gated_streams" : "read_gated_streams",
          [=](const std::string& name, Dtype X, int64_t T, int64_t n, int64_t H) {
            return read_gated_case(name, X, T, n, H, other);
          });
    }
    add("gate_streams", gate_streams_case);
  }
  return cases;
}

}  // namespace heddle::op_runner
