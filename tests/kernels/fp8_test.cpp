// Eight-bit numbers: every byte and every tie; the products' operands and sums written out anew; the host's kernels
// against reference.
#include "heddle/ops/fp8_blocks.h"
#include "tests/kernels/fp8_cases.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

/// The magnitudes that e4m3 has, from its definition, in increasing order; their bytes are their places.
std::vector<double> magnitudes() {
  std::vector<double> all;
  for (int exponent = 0; exponent < 16; ++exponent) {
    for (int fraction = 0; fraction < 8; ++fraction) {
      all.push_back(exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10));
    }
  }
  all.pop_back();  // NaN
  return all;
}

double nearest(double x) {
  const std::vector<double> all = magnitudes();
  size_t best = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    const double before = std::abs(std::abs(x) - all[best]), here = std::abs(std::abs(x) - all[i]);
    if (here < before || (here == before && i % 2 == 0)) best = i;
  }
  return std::copysign(all[best], x);
}

TEST(Fp8, HasTheNumbersOfItsBytes) {
  const std::vector<double> all = magnitudes();
  ASSERT_EQ(all.back(), 448);
  for (size_t byte = 0; byte < all.size(); ++byte) {
    for (const size_t sign : {0, 128}) {
      const auto own = static_cast<uint8_t>(byte | sign);
      const float number = fp8::number_of(own);
      EXPECT_EQ(number, sign ? -all[byte] : all[byte]);
      EXPECT_EQ(std::signbit(number), sign != 0);
      EXPECT_EQ(fp8::byte_of(number), own);
      EXPECT_EQ(fp8::rounded(number), number);
    }
  }
  for (const uint8_t byte : {0x7f, 0xff}) EXPECT_TRUE(std::isnan(fp8::number_of(byte)));
  EXPECT_EQ(fp8::byte_of(std::nanf("")), 0x7f);
}

template <class A>
void expect_nearest(A x) {
  EXPECT_EQ(fp8::rounded(x), static_cast<A>(nearest(x))) << x;
  EXPECT_EQ(fp8::rounded(-x), static_cast<A>(nearest(-x))) << -x;
}

// Halfway between each two neighbours, and right above and below.
TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  const std::vector<double> all = magnitudes();
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const double middle = (all[i] + all[i + 1]) / 2;
    for (const double x : {middle, std::nextafter(middle, 1e3), std::nextafter(middle, 0.0)}) expect_nearest(x);
    const auto narrow = static_cast<float>(middle);
    ASSERT_EQ(narrow, middle);
    for (const float x : {narrow, std::nextafter(narrow, 1e3F), std::nextafter(narrow, 0.0F)}) expect_nearest(x);
  }
  for (uint32_t bits = 0; bits < 0x4400; ++bits) {  // every bf16 up to 512
    const float x = std::bit_cast<float>(bits << 16);
    expect_nearest(x);
    expect_nearest(static_cast<double>(x));
  }
  EXPECT_EQ(fp8::rounded(1e30F), 448);
  EXPECT_EQ(fp8::rounded(-INFINITY), -448);
  EXPECT_TRUE(std::isnan(fp8::rounded(std::nanf(""))));
}

TEST(Fp8, TakesTheLeastScale) {
  for (int e = -140; e < 127; ++e) {
    for (const double at : {0.5, 0.874999, 0.875, 0.8750001, 0.999}) {
      const auto most = static_cast<float>(std::ldexp(at, e));
      if (most == 0) continue;
      int least = fp8::kLeastExponent;
      while (least < fp8::kMostExponent && most > std::ldexp(448.0, least)) ++least;
      EXPECT_EQ(fp8::scale_for(most), least + 127) << most;
      EXPECT_EQ(fp8::scale_for(static_cast<double>(most)), least + 127) << most;
      EXPECT_EQ(fp8::scale_of(fp8::scale_for(most)), std::ldexp(1.0F, least));
      EXPECT_EQ(fp8::inverse_of(fp8::scale_for(most)), std::ldexp(1.0F, -least));
    }
  }
  EXPECT_EQ(fp8::scale_for(0.0F), fp8::kLeastExponent + 127);
  EXPECT_EQ(fp8::scale_for(1e300), fp8::kMostExponent + 127);
  for (const float x : {INFINITY, std::nanf("")}) {
    EXPECT_EQ(fp8::scale_for(fp8::larger(1.0F, x)), 255);
    EXPECT_EQ(fp8::scale_for(fp8::larger(fp8::larger(0.0F, x), 1.0F)), 255) << "a later number hides it";
  }
}

/// What a block becomes, from the definition.
void round_together(Tensor& t, const std::vector<size_t>& block) {
  double most = 0;
  for (const size_t i : block) most = std::max(most, std::abs(t.values[i]));
  int e = -117;
  while (most > std::ldexp(448.0, e)) ++e;
  for (const size_t i : block) t.values[i] = std::ldexp(nearest(std::ldexp(t.values[i], -e)), e);
}
/// Every `down` × `across` numbers of rows [first, last) of a matrix.
void round_blocks(Tensor& t, int64_t first, int64_t last, int64_t columns, int64_t down, int64_t across) {
  for (int64_t r = first; r < last; r += down) {
    for (int64_t c = 0; c < columns; c += across) {
      std::vector<size_t> block;
      for (int64_t i = r; i < std::min(r + down, last); ++i) {
        for (int64_t j = c; j < std::min(c + across, columns); ++j)
          block.push_back(static_cast<size_t>(i * columns + j));
      }
      round_together(t, block);
    }
  }
}

TEST(Fp8, RowsAreBytesOfTheirBlocks) {
  for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const auto& [T, K] : {std::pair{3, 300}, {2, 128}, {1, 1}, {0, 5}}) {
      const OpCase op = round_rows_case(X, T, K);
      const OpResult found = run_op(op, kernels::reference_kernels());
      Tensor wanted = op.in[0].tensor;
      round_blocks(wanted, 0, T, K, 1, 128);
      for (int64_t i = 0; i < T * K; ++i) {
        const auto at = static_cast<size_t>(i),
                   block = static_cast<size_t>(i / K * ((K + 127) / 128) + i % K / 128);
        const double number = fp8::number_of(static_cast<uint8_t>(found.out[0].values[at])) *
                              static_cast<double>(fp8::scale_of(static_cast<uint8_t>(found.out[1].values[block])));
        EXPECT_EQ(number, wanted.values[at]) << i;
      }
    }
  }
}

// Sums over operands that are rounded here, in f64.
TEST(Fp8, ProductsAreThoseOfRoundedOperands) {
  const Fp8Sizes sizes{{0, 140, 7, 129, 3}, 136, 140, 2};
  const int64_t R = sizes.all(), N = sizes.N, K = sizes.K, own = 3;
  const std::vector<OpCase> ops = fp8_products(Dtype::f64, sizes);
  const Tensor offsets = offsets_of(sizes);
  const auto begin = [&](int64_t e) { return static_cast<int64_t>(offsets.values[static_cast<size_t>(e)]); };
  Tensor x = many_sizes(Dtype::f64, {R, K}, 1), dy = ops[1].in[0].tensor;
  round_blocks(x, 0, R, K, 1, 128);
  std::vector<Tensor> w;
  for (int64_t e = 0; e < 5; ++e) {
    const Tensor& all = e < own ? ops[0].in[2].tensor : ops[0].in[4].tensor;
    const auto from = all.values.begin() + (e < own ? e : e - own) * N * K;
    Tensor& one = w.emplace_back(Dtype::f64, std::vector{N, K}, std::vector<double>(from, from + N * K));
    round_blocks(one, 0, N, K, 128, 128);
  }
  Tensor rows_of_dy = dy;
  round_blocks(rows_of_dy, 0, R, N, 1, 128);
  for (int64_t e = 0; e < 5; ++e) {  // along rows, from each expert's first one on
    round_blocks(x, begin(e), begin(e + 1), K, 128, 1);
    round_blocks(dy, begin(e), begin(e + 1), N, 128, 1);
  }
  Tensor rows_of_x = many_sizes(Dtype::f64, {R, K}, 1);
  round_blocks(rows_of_x, 0, R, K, 1, 128);

  const auto at = [](const Tensor& t, int64_t i, int64_t j, int64_t columns) {
    return t.values[static_cast<size_t>(i * columns + j)];
  };
  Tensor y(Dtype::f64, {R, N}), dx(Dtype::f64, {R, K}), acc = ops[2].updates[0], copies(Dtype::f64, {2, N, K});
  for (int64_t e = 0; e < 5; ++e) {
    const Tensor& we = w[static_cast<size_t>(e)];
    for (int64_t r = begin(e); r < begin(e + 1); ++r) {
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < K; ++k) {
          y.values[static_cast<size_t>(r * N + n)] += at(rows_of_x, r, k, K) * at(we, n, k, K);
          dx.values[static_cast<size_t>(r * K + k)] += at(rows_of_dy, r, n, N) * at(we, n, k, K);
          Tensor& sum = e < own ? acc : copies;
          sum.values[static_cast<size_t>(((e < own ? e : e - own) * N + n) * K + k)] +=
              at(dy, r, n, N) * at(x, r, k, K);
        }
      }
    }
  }
  const auto run = [&](size_t i) { return run_op(ops[i], kernels::reference_kernels(), false, ir::Phase::W); };
  EXPECT_TRUE(close(y, run(0).out[0], 1e-13));
  EXPECT_TRUE(close(dx, run(1).out[0], 1e-13));
  EXPECT_TRUE(close(acc, run(2).updates[0], 1e-13));
  EXPECT_TRUE(close(copies, run(2).out[0], 1e-13));
}

std::vector<int64_t> weight_shape(bool grouped) {
  return grouped ? std::vector<int64_t>{3, 136, 300} : std::vector<int64_t>{136, 300};
}

// The numbers of both forms are those of blocks rounded here.
TEST(Fp8, WeightsAreBytesOfTheirBlocks) {
  for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const bool grouped : {true, false}) {
      const OpCase op = round_weight_case(X, weight_shape(grouped), 2, true);
      const OpResult found = run_op(op, kernels::reference_kernels());
      const int64_t E = grouped ? 3 : 1, N = 136, K = 300;
      for (int64_t e = 0; e < E; ++e) {
        const auto from = op.in[0].tensor.values.begin() + e * N * K;
        Tensor wanted(X, {N, K}, std::vector<double>(from, from + N * K));
        round_blocks(wanted, 0, N, K, 128, 128);
        const auto number = [&](size_t bytes, int64_t at, int64_t block) {
          const auto byte = [&](size_t update, int64_t i) {
            return static_cast<uint8_t>(found.updates[update].values[static_cast<size_t>(i)]);
          };
          return fp8::number_of(byte(bytes, at)) * static_cast<double>(fp8::scale_of(byte(bytes + 1, block)));
        };
        for (int64_t n = 0; n < N; ++n) {
          for (int64_t k = 0; k < K; ++k) {
            const double whole = wanted.values[static_cast<size_t>(n * K + k)];
            EXPECT_EQ(number(0, (e * N + n) * K + k, (e * 2 + n / 128) * 3 + k / 128), whole);
            EXPECT_EQ(number(2, (e * K + k) * N + n, (e * 3 + k / 128) * 2 + n / 128), whole);
          }
        }
      }
    }
  }
}

// A weight that is rounded ahead gives the bits of one that the product rounds.
TEST(Fp8, ProductsOfRoundedWeightsHaveTheSameBits) {
  for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      if (X == Dtype::f64 && kernels == &kernels::host_kernels()) continue;  // which the host has no kernels for
      for (const Fp8Sizes& sizes : {Fp8Sizes{{150}, 200, 300}, {{0, 140, 0, 7, 129}, 136, 130}}) {
        const std::vector<OpCase> ops = fp8_products(X, sizes);
        for (size_t i = 0; i < 2; ++i) {
          const OpResult wanted = run_op(ops[i], *kernels);
          for (const bool turned : {false, true}) {
            const OpCase op = with_rounded_weight(ops[i], turned);
            // The host has no kernel for a turned weight: reference's sums are in another order.
            if (turned && i == 1 && kernels == &kernels::host_kernels()) continue;
            EXPECT_TRUE(same(wanted.out[0], run_op(op, *kernels).out[0])) << op.name << " " << name_of(X);
          }
        }
      }
    }
  }
}

TEST(Fp8, AWholeBlockIsNotANumberWhereOneIsNone) {
  for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    OpCase rows = round_rows_case(Dtype::f32, 2, 200);
    rows.in[0].tensor.values[150] = INFINITY;
    const OpResult of = run_op(rows, *kernels);
    EXPECT_NE(of.out[1].values[0], 255);
    EXPECT_EQ(of.out[1].values[1], 255);
    const OpResult y =
        run_op({"nan",
                "linear_fp8",
                {metadata(of.out[0]), metadata(of.out[1]), weight(random_tensor(Dtype::f32, {3, 200}, 1))},
                {},
                {}},
               *kernels);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(y.out[0].values[i]), i < 3) << i;
  }
}

// The same operands, sums in another order: bf16 falls on the other side of a tie by one unit.
TEST(Fp8, HostAsReference) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const auto& [T, K] : {std::pair{3, 300}, {130, 128}, {1, 1}, {0, 5}})
      expect_like_reference(round_rows_case(X, T, K), 0);
    for (const bool grouped : {true, false})
      expect_like_reference(round_weight_case(X, weight_shape(grouped), 2, false), 0);
    for (const OpCase& op : fp8_cases(X)) {
      if (op.attributes.has("turned")) continue;  // the host makes none, and reference reads it
      for (const bool overwrite : {true, false})
        expect_like_reference(op, X == Dtype::bf16 ? 0x1p-8 : 1e-5, overwrite, ir::Phase::W);
    }
  }
}

// A sum of k products of two numbers that are each off by at most 2^-4 of themselves, or 2^-10 of their scale.
TEST(Fp8, IsNearTheProductItStandsFor) {
  const Tensor x = random_tensor(Dtype::f32, {64, 512}, 1), w = random_tensor(Dtype::f32, {96, 512}, 2);
  const OpResult exact =
      run_op({"", "linear", {activation(x), weight(w), absent()}, {}, {}}, kernels::reference_kernels());
  const OpResult q = run_op({"", "round_rows", {activation(x)}, {}, {}}, kernels::reference_kernels());
  const OpResult found = run_op({"", "linear_fp8", {metadata(q.out[0]), metadata(q.out[1]), weight(w)}, {}, {}},
                                kernels::reference_kernels());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < exact.out[0].values.size(); ++i) {
    difference += std::pow(exact.out[0].values[i] - found.out[0].values[i], 2);
    norm += std::pow(exact.out[0].values[i], 2);
  }
  // Two roundings to four digits, each off by at most 2^-4 and 2^-4/√3·(2/3) or so in the mean square.
  EXPECT_LT(std::sqrt(difference / norm), 0.06);
  EXPECT_GT(std::sqrt(difference / norm), 0.01);
}

}  // namespace
}  // namespace heddle::op_runner
