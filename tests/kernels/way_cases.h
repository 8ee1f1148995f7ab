// Products over groups, to be run each way (ir/product_way.h) on a backend.
#pragma once

#include <functional>
#include <numeric>

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {

struct WaySizes {
  std::vector<int32_t> rows;  // of each group
  int64_t N, K, copies;
};

inline Tensor offsets_of(const WaySizes& sizes) {
  std::vector<double> offsets{0};
  for (const int32_t rows : sizes.rows) offsets.push_back(offsets.back() + rows);
  return Tensor(Dtype::i32, {std::ssize(offsets)}, offsets);
}

inline Tensor as_it_is(const Tensor& w) { return w; }

/// y, dx, and the sum of weight gradients that is overwritten and the one that is added to, then those of copies.
/// `row`: of the backend's list, that is to run; "": any.
inline std::vector<Tensor> product_by(const std::string& way, const WaySizes& sizes, Dtype X,
                                      const std::vector<kernels::KernelEntry>& kernels, const std::string& row,
                                      const std::function<Tensor(const Tensor&)>& weights = as_it_is) {
  const int64_t groups = std::ssize(sizes.rows), own = groups - sizes.copies;
  const int64_t rows = std::accumulate(sizes.rows.begin(), sizes.rows.end(), int64_t{0});
  const Tensor x = random_tensor(X, {rows, sizes.K}, 1), dy = random_tensor(X, {rows, sizes.N}, 2);
  const Tensor w = weights(random_tensor(X, {own, sizes.N, sizes.K}, 3));
  const Tensor more = sizes.copies ? weights(random_tensor(X, {sizes.copies, sizes.N, sizes.K}, 4)) : Tensor();
  ir::Attributes attributes;
  if (way != "grouped") attributes.set("way", way);
  std::vector<Tensor> found;
  const auto keep = [&](const OpResult& result) {
    for (const std::string& ran : result.ran)
      EXPECT_TRUE(row.empty() || ran.ends_with(": " + row)) << ran << " in the place of " << row;
    found.insert(found.end(), result.out.begin(), result.out.end());
    found.insert(found.end(), result.updates.begin(), result.updates.end());
  };
  const auto product = [&](const std::string& kind, const Tensor& rows_of) {
    std::vector<Operand> in{activation(rows_of), weight(w), metadata(offsets_of(sizes))};
    if (sizes.copies) in.push_back(weight(more));
    keep(run_op({way, kind, in, attributes, {}}, kernels));
  };
  product("grouped_linear", x);
  product("grouped_linear_dgrad", dy);
  if (sizes.copies) attributes.set("copies", sizes.copies);
  for (const bool overwrite : {true, false}) {
    const Tensor sum = random_tensor(Dtype::f32, {own, sizes.N, sizes.K}, 5);
    keep(run_op({way,
                 "grouped_linear_wgrad",
                 {activation(x), activation(dy), metadata(offsets_of(sizes))},
                 attributes,
                 {sum}},
                kernels, overwrite, ir::Phase::W));
  }
  return found;
}

}  // namespace heddle::op_runner
