// Experts by a table of token ids, which the tests of several backends share: padding among the ids, rows of the
// table in no order.
#pragma once

#include "tests/kernels/op_case.h"

namespace heddle::op_runner {

struct ByIdSizes {
  int64_t T, V, k, E;
};
inline constexpr ByIdSizes kByIdSizes[] = {
    {0, 4, 2, 8}, {5, 3, 3, 7}, {70, 11, 1, 12}, {129, 64, 6, 64}, {1300, 40, 5, 5}};

inline OpCase by_id_case(const ByIdSizes& z, Dtype A) {
  const RandomKey key(51);
  Tensor ids(Dtype::i32, {z.T}), table(A, {z.V, z.k});
  for (int64_t t = 0; t < z.T; ++t)
    ids.values[static_cast<size_t>(t)] =
        static_cast<double>(key.bits(static_cast<uint64_t>(t)) % static_cast<uint64_t>(z.V + 1)) - 1;
  const Tensor rows = random_routing(z.V, z.k, z.E, 52).experts;
  for (int64_t i = 0; i < z.V * z.k; ++i)
    table.values[static_cast<size_t>(i)] =
        rows.values[static_cast<size_t>(i / z.k * z.k + (i % z.k + i / z.k) % z.k)];
  return {fmt::format("choose_by_id T{} V{} k{} E{}", z.T, z.V, z.k, z.E),
          "choose_by_id",
          {metadata(ids), weight(table)},
          {{"experts", z.E}},
          {}};
}

}  // namespace heddle::op_runner
