// fp32 products on bf16 tiles (engine amx-bf16x3): how near they come to fp64, beside native fp32; what becomes of
// the numbers that bf16 parts can't hold. What every engine must do is in gemm_test.cpp.
//
// Errors are measured as |found − exact| ÷ Σ|a·b|: each element's own scale, so that cancellation and numbers of
// very different size count alike.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "heddle/kernels/host/gemm/gemm.h"

namespace heddle::kernels::host {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class GemmSplit : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support support = engine_supported(Engine::amx_bf16x3, Dtype::f32); !support) {
      GTEST_SKIP() << support.reason;
    }
  }
};

struct Scratchpad {
  std::vector<std::byte> bytes = std::vector<std::byte>(static_cast<size_t>(gemm_scratch_bytes(1)) + 64);
  Scratch get() {
    auto* data = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
    return {data, gemm_scratch_bytes(1)};
  }
};

enum class Product { forward, dgrad, wgrad };

/// C[M,N] = A[M,K] · B[K,N] by one of the three products, from rows of A and of B.
std::vector<float> multiply(Engine engine, Product product, int64_t m, int64_t n, int64_t k,
                            const std::vector<float>& a, const std::vector<float>& b) {
  Scratchpad scratch;
  std::vector<float> c(size_t(m * n), kNaN), turned(product == Product::dgrad ? 0 : size_t(k * std::max(m, n)));
  switch (product) {
    case Product::forward:  // w = Bᵀ
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < n; ++j) turned[size_t(j * k + i)] = b[size_t(i * n + j)];
      }
      linear_forward({.groups = RowGroups::one(m),
                      .n = n,
                      .k = k,
                      .x = {a.data()},
                      .w = {turned.data()},
                      .y = {c.data()},
                      .scratch = scratch.get(),
                      .engine = engine});
      break;
    case Product::dgrad:
      linear_dgrad({.groups = RowGroups::one(m),
                    .n = k,
                    .k = n,
                    .dy = {a.data()},
                    .w = {b.data()},
                    .dx = {c.data()},
                    .scratch = scratch.get(),
                    .engine = engine});
      break;
    case Product::wgrad:  // dy = Aᵀ
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < k; ++j) turned[size_t(j * m + i)] = a[size_t(i * k + j)];
      }
      linear_wgrad({.groups = RowGroups::one(k),
                    .n = m,
                    .k = n,
                    .dy = {turned.data()},
                    .x = {b.data()},
                    .dw = c.data(),
                    .overwrite = true,
                    .scratch = scratch.get(),
                    .engine = engine});
      break;
  }
  return c;
}

struct Errors {
  double mean_square = 0, worst = 0;
};
Errors errors(const std::vector<float>& c, int64_t m, int64_t n, int64_t k, const std::vector<float>& a,
              const std::vector<float>& b) {
  Errors out;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0, size = 0;
      for (int64_t d = 0; d < k; ++d) {
        const double term = double(a[size_t(i * k + d)]) * double(b[size_t(d * n + j)]);
        exact += term;
        size += std::abs(term);
      }
      const double error = std::abs(c[size_t(i * n + j)] - exact) / size;
      out.mean_square += error * error / double(m * n);
      out.worst = std::max(out.worst, error);
      if (!(error < 1)) return {1, 1};  // NaN too
    }
  }
  return out;
}

TEST_F(GemmSplit, IsAsAccurateAsNativeFp32) {
  const Engine native = engine_supported(Engine::avx512, Dtype::f32) ? Engine::avx512 : Engine::highway;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-30, 30);
  std::uniform_real_distribution<float> positive(1, 2);
  const auto wide = [&] { return std::ldexp(normal(random), exponent(random)); };
  for (const int64_t k : {1, 2, 7, 33, 64, 257, 1100}) {
    for (const int kind : {0, 1, 2}) {
      const int64_t m = 35, n = 50;
      std::vector<float> a(size_t(m * k)), b(size_t(k * n));
      for (float& v : a) v = kind == 0 ? normal(random) : kind == 1 ? wide() : positive(random);
      for (float& v : b) v = kind == 0 ? normal(random) : kind == 1 ? wide() : positive(random);
      for (const Product product : {Product::forward, Product::dgrad, Product::wgrad}) {
        const Errors ours = errors(multiply(Engine::amx_bf16x3, product, m, n, k, a, b), m, n, k, a, b);
        const Errors theirs = errors(multiply(native, product, m, n, k, a, b), m, n, k, a, b);
        const std::string where = fmt::format("K {} numbers {} product {}", k, kind, int(product));
        EXPECT_LE(ours.worst, 2 * theirs.worst) << where;
        EXPECT_LE(std::sqrt(ours.mean_square), 1.5 * std::sqrt(theirs.mean_square)) << where;
      }
    }
  }
}

TEST_F(GemmSplit, PartsGiveBackEveryNumberOfNormalSize) {
  // Bit patterns of all signs and exponents from 2^-102 to below 2^127, times 1 and added to nothing.
  std::mt19937_64 random(2);
  const int64_t m = 40, k = 32;
  std::vector<float> numbers(size_t(m * k)), one(size_t(k * k), 0.0f);
  for (float& v : numbers) {
    const uint64_t bits = random();
    v = std::ldexp(1.0f + float(bits & 0x7fffff) * 0x1p-23f, -102 + int((bits >> 32) % 229));
    if (bits >> 63) v = -v;
  }
  for (int64_t i = 0; i < k; ++i) one[size_t(i * k + i)] = 1;
  std::vector<float> turned(numbers.size());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j) turned[size_t(j * m + i)] = numbers[size_t(i * k + j)];
  }
  for (const Product product : {Product::forward, Product::dgrad, Product::wgrad}) {
    EXPECT_EQ(multiply(Engine::amx_bf16x3, product, m, k, k, numbers, one), numbers) << "left " << int(product);
    EXPECT_EQ(multiply(Engine::amx_bf16x3, product, k, m, k, one, turned), turned) << "right " << int(product);
  }
}

TEST_F(GemmSplit, WhatIsNotFiniteStaysSoAndInItsRowAndColumn) {
  const int64_t m = 34, n = 37, k = 45;
  // The last two are finite but round to a bf16 infinity.
  for (const float odd : {kNaN, -kNaN, std::bit_cast<float>(0x7fffffffu), std::bit_cast<float>(0x7f800001u),
                          kInfinity, -kInfinity, std::numeric_limits<float>::max(), -0x1.ffp127f}) {
    for (const bool on_the_left : {true, false}) {
      std::vector<float> a(size_t(m * k), 0.5f), b(size_t(k * n), 2.0f);
      if (on_the_left) {
        a[size_t(20 * k + 33)] = odd;
      } else {
        b[size_t(33 * n + 20)] = odd;
      }
      for (const Product product : {Product::forward, Product::dgrad, Product::wgrad}) {
        const std::vector<float> c = multiply(Engine::amx_bf16x3, product, m, n, k, a, b);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            const float found = c[size_t(i * n + j)];
            if ((on_the_left ? i : j) == 20) {
              ASSERT_FALSE(std::isfinite(found)) << odd << " gave " << found;
            } else {
              ASSERT_EQ(found, float(k)) << odd;
            }
          }
        }
      }
    }
  }
}

TEST_F(GemmSplit, SmallNumbersLoseBitsButNothingElse) {
  // Below 2^-102 the last part is lost, then the middle one; denormals are zero.
  for (const int exponent : {-101, -103, -110, -118, -126, -127, -149}) {
    const float small = std::ldexp(1.2345678f, exponent);
    const std::vector<float> c = multiply(Engine::amx_bf16x3, Product::forward, 1, 1, 1, {small}, {1.0f});
    const double allowed = exponent >= -102 ? 0 : exponent < -126 ? small : std::max(0x1p-8 * small, 0.0);
    EXPECT_LE(std::abs(double(c[0]) - small), allowed) << exponent;
  }
}

TEST_F(GemmSplit, IsTheEngineOfFp32AndRefusesBf16) {
  EXPECT_EQ(best_engine(Dtype::f32), Engine::amx_bf16x3);
  EXPECT_EQ(name_of(Engine::amx_bf16x3), "amx-bf16x3");
  EXPECT_FALSE(engine_supported(Engine::amx_bf16x3, Dtype::bf16));
  // Three parts of two bytes, two blockings.
  EXPECT_EQ(packed_bytes(Dtype::f32, 3, 64, 96, Engine::amx_bf16x3), 3 * 64 * 96 * 12);
}

}  // namespace
}  // namespace heddle::kernels::host
