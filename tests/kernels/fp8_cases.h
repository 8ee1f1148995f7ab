// Cases of products with operands in eight bits: blocks that are full and not, experts without rows and with more
// than a block of them, copies of other ranks' experts, biases, no rows at all.
#pragma once

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {

/// Numbers over many magnitudes, with runs of zeros, so that blocks have scales of their own.
inline Tensor many_sizes(Dtype X, std::vector<int64_t> shape, uint64_t seed) {
  Tensor t = random_tensor(X, std::move(shape), seed);
  for (size_t i = 0; i < t.values.size(); ++i) {
    const uint64_t bits = RandomKey(seed).with("size").bits(i / 32);
    t.values[i] = bits % 11 == 0 ? 0 : t.values[i] * std::ldexp(1.0, static_cast<int>(bits % 13) - 6);
  }
  return t;
}

struct Fp8Sizes {
  std::vector<int32_t> rows;  // of each group, those of copies last
  int64_t N, K;
  int64_t copies = 0;
  int64_t all() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
};

inline Tensor offsets_of(const Fp8Sizes& sizes) {
  std::vector<double> offsets{0};
  for (const int32_t rows : sizes.rows) offsets.push_back(offsets.back() + rows);
  return Tensor(Dtype::i32, {std::ssize(offsets)}, offsets);
}

inline OpCase round_rows_case(Dtype X, int64_t T, int64_t K) {
  return {fmt::format("round_rows_{}_{}", T, K), "round_rows", {activation(many_sizes(X, {T, K}, 1))}, {}, {}};
}

/// The bytes of rows and of their scales, by reference.
inline std::vector<Operand> rounded_rows(Dtype X, int64_t T, int64_t K) {
  const OpResult of = run_op(round_rows_case(X, T, K), kernels::reference_kernels());
  return {metadata(of.out[0]), metadata(of.out[1])};
}

inline OpCase round_weight_case(Dtype X, const std::vector<int64_t>& shape, uint64_t seed, bool turned) {
  const auto blocks_of = [](std::vector<int64_t> dims) {
    for (size_t i = dims.size() - 2; i < dims.size(); ++i) dims[i] = (dims[i] + 127) / 128;
    return dims;
  };
  std::vector<int64_t> other = shape;
  std::swap(other[other.size() - 2], other.back());
  OpCase op{fmt::format("round_weight_{}", fmt::join(shape, "_")),
            "round_weight",
            {weight(many_sizes(X, shape, seed))},
            {},
            {Tensor(Dtype::u8, shape), Tensor(Dtype::u8, blocks_of(shape))}};
  if (turned) {
    op.updates.emplace_back(Dtype::u8, other);
    op.updates.emplace_back(Dtype::u8, blocks_of(other));
  }
  return op;
}

/// The case of a product with its weight, of many_sizes' seed 2, rounded ahead; gradients read it turned or not.
inline OpCase with_rounded_weight(OpCase op, bool turned) {
  const bool is_gradient = op.kind.ends_with("_dgrad");
  const size_t at = is_gradient ? 1 : 2, scales_at = op.kind.starts_with("grouped") ? at + 3 : is_gradient ? 2 : 4;
  const Tensor& w = op.in[at].tensor;
  const OpResult rounded = run_op(round_weight_case(w.dtype, w.shape, 2, true), kernels::reference_kernels());
  const size_t form = is_gradient && turned ? 2 : 0;
  op.name += turned ? "_turned" : "_rounded";
  if (!is_gradient) op.attributes.set("dtype", std::string(name_of(w.dtype)));
  if (form > 0) op.attributes.set("turned", int64_t{1});
  while (op.in.size() < scales_at) op.in.push_back(absent());
  op.in[at] = weight(rounded.updates[form]);
  op.in.insert(op.in.begin() + static_cast<std::ptrdiff_t>(scales_at), weight(rounded.updates[form + 1]));
  return op;
}

/// Forward, input gradient and weight gradient over groups, or of one matrix where there is but one and no copies.
inline std::vector<OpCase> fp8_products(Dtype X, const Fp8Sizes& sizes, bool bias = false) {
  const int64_t R = sizes.all(), groups = std::ssize(sizes.rows), own = groups - sizes.copies;
  const int64_t N = sizes.N, K = sizes.K;
  const bool grouped = groups > 1;
  const std::string name = fmt::format("{}_{}x{}_{}", R, N, K, groups),
                    kind = grouped ? "grouped_linear_fp8" : "linear_fp8";
  const std::vector<int64_t> shape = grouped ? std::vector{own, N, K} : std::vector{N, K};
  const Operand w = weight(many_sizes(X, shape, 2)), dy = activation(many_sizes(X, {R, N}, 3));
  std::vector<Operand> behind;
  if (grouped) behind.push_back(metadata(offsets_of(sizes)));
  std::vector<Operand> with_copies = behind;
  if (sizes.copies > 0) with_copies.push_back(weight(many_sizes(X, {sizes.copies, N, K}, 4)));
  const std::vector<Operand> x = rounded_rows(X, R, K);

  OpCase forward{name + "_forward", kind, x, {}, {}}, dgrad{name + "_dgrad", kind + "_dgrad", {dy, w}, {}, {}},
      wgrad{name + "_wgrad", kind + "_wgrad", x, {}, {random_tensor(wide(X), shape, 5)}};
  forward.in.push_back(w);
  forward.in.insert(forward.in.end(), with_copies.begin(), with_copies.end());
  if (bias) forward.in.push_back(weight(random_tensor(wide(X), {N}, 6)));
  dgrad.in.insert(dgrad.in.end(), with_copies.begin(), with_copies.end());
  if (!grouped) dgrad.attributes.set("dtype", std::string(name_of(X)));
  wgrad.in.push_back(dy);
  wgrad.in.insert(wgrad.in.end(), behind.begin(), behind.end());
  if (bias) wgrad.updates.push_back(random_tensor(wide(X), {N}, 7));
  if (sizes.copies > 0) wgrad.attributes.set("copies", sizes.copies);
  return {forward, dgrad, wgrad};
}

inline std::vector<OpCase> fp8_cases(Dtype X) {
  std::vector<OpCase> all;
  const auto add = [&](const Fp8Sizes& sizes, bool bias = false) {
    for (OpCase& each : fp8_products(X, sizes, bias)) {
      if (!each.kind.ends_with("_wgrad") && sizes.copies == 0) {
        all.push_back(with_rounded_weight(each, false));
        if (each.kind.ends_with("_dgrad")) all.push_back(with_rounded_weight(each, true));
      }
      all.push_back(std::move(each));
    }
  };
  add({{1}, 1, 1});
  add({{0}, 5, 7}, true);
  add({{37}, 40, 33}, true);
  add({{150}, 200, 300}, true);
  add({{128}, 128, 256});
  add({{0, 140, 0, 7, 129}, 136, 130});
  add({{5, 0, 131, 9, 0}, 24, 140, 2});
  add({{0, 0}, 3, 5});
  return all;
}

}  // namespace heddle::op_runner
