// The matrix products against plain double loops, for every engine of this machine.
//
// Tolerance. Operands are exact in the engine's type (bf16 values, or fp32 ones), so products differ from fp64 only
// by the fp32 sums: a chain of L additions errs by at most L·2⁻²⁴·Σ|a·b|, the bound that is checked, with L the
// depth plus a few for bias and joining. A bf16 result adds half a unit in its last place, 2⁻⁸ relative.
#include "heddle/kernels/host/gemm/gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "heddle/kernels/host/gemm/gemm_block.h"

namespace heddle::kernels::host {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

/// 64-byte aligned bytes, every word a NaN in fp32 and in bf16. What is written behind them is found.
class Bytes {
 public:
  explicit Bytes(int64_t bytes)
      : size_(bytes),
        held_((bytes + 127) / 64 * 64),
        data_(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(held_)))) {
    std::memset(data_.get(), 0xff, static_cast<size_t>(held_));
  }
  Bytes(Bytes&&) = default;
  ~Bytes() {
    if (data_ == nullptr) return;
    EXPECT_TRUE(
        std::all_of(data_.get() + size_, data_.get() + held_, [](std::byte b) { return b == std::byte{0xff}; }))
        << "something was written behind " << size_ << " bytes";
  }
  std::byte* get() { return data_.get(); }
  Scratch scratch() { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  int64_t size_, held_;
  std::unique_ptr<std::byte, Free> data_;
};

/// Random numbers held as `dtype`, with their values.
struct GemmMatrix {
  Dtype dtype = Dtype::f32;
  std::vector<float> values;
  std::vector<bf16> narrow;

  GemmMatrix(Dtype dtype, int64_t count, uint64_t seed) : dtype(dtype), values(static_cast<size_t>(count)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(random);
    if (dtype == Dtype::bf16) {
      for (float& v : values) {
        narrow.emplace_back(v);
        v = static_cast<float>(narrow.back());
      }
    }
  }
  const void* data() const {
    return dtype == Dtype::bf16 ? static_cast<const void*>(narrow.data()) : values.data();
  }
  double operator()(int64_t i) const { return values[static_cast<size_t>(i)]; }
};

/// A poisoned result of either type.
struct Result {
  Dtype dtype;
  std::vector<float> wide;
  std::vector<bf16> narrow;
  Result(Dtype dtype, int64_t count) : dtype(dtype) {
    if (dtype == Dtype::bf16) {
      narrow.assign(static_cast<size_t>(count), bf16(kPoison));
    } else {
      wide.assign(static_cast<size_t>(count), kPoison);
    }
  }
  void* data() { return dtype == Dtype::bf16 ? static_cast<void*>(narrow.data()) : wide.data(); }
  double operator()(int64_t i) const {
    return dtype == Dtype::bf16 ? static_cast<float>(narrow[static_cast<size_t>(i)]) : wide[static_cast<size_t>(i)];
  }
  bool operator==(const Result& other) const {
    return narrow.size() == other.narrow.size() && wide.size() == other.wide.size() &&
           std::memcmp(narrow.data(), other.narrow.data(), narrow.size() * 2) == 0 &&
           std::memcmp(wide.data(), other.wide.data(), wide.size() * 4) == 0;
  }
};

void expect_close_gemm(double found, double wanted, double magnitude, int64_t links, Dtype dtype,
                       const std::string& where) {
  double allowed = static_cast<double>(links + 4) * std::ldexp(1.0, -24) * magnitude + 1e-37;
  if (dtype == Dtype::bf16) allowed += std::ldexp(std::abs(wanted) + allowed, -8);
  ASSERT_FALSE(std::isnan(found)) << where;
  ASSERT_LE(std::abs(found - wanted), allowed) << where << ": " << found << " for " << wanted;
}

struct Case {
  Engine engine;
  Dtype dtype;
};
std::string name_gemm(const testing::TestParamInfo<Case>& info) {
  std::string text = fmt::format("{}_{}", name_of(info.param.engine), name_of(info.param.dtype));
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Engine engine : {Engine::amx, Engine::amx_bf16x3, Engine::avx512_bf16, Engine::avx512_widen,
                              Engine::avx512, Engine::neon_bf16, Engine::highway}) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
      if (engine_supported(engine, dtype)) all.push_back({engine, dtype});
    }
  }
  return all;
}

class Gemm : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Engines, Gemm, testing::ValuesIn(cases()), name_gemm);

struct GemmSizes {
  std::vector<int32_t> offsets;
  int64_t n, k;
  int64_t experts() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t rows() const { return offsets.back(); }
};
const std::vector<GemmSizes>& sizes() {
  static const std::vector<GemmSizes> all = {
      {{0, 1}, 1, 1},
      {{0, 32}, 32, 32},
      {{0, 33}, 47, 31},
      {{0, 16}, 16, 64},
      {{0, 5}, 3, 7},
      {{0, 70}, 65, 33},
      {{0, 40}, 24, 1100},   // more than one run of the depth
      {{0, 23}, 1100, 40},   // the same for dgrad, and several column blocks
      {{0, 600}, 36, 50},    // several row blocks; more than one run of rows for wgrad
      {{0, 37}, 130, 2048},  // rows of x 4 KiB apart
      {{0, 0}, 8, 8},
      {{0, 0, 3, 3, 50, 51, 131, 131}, 40, 72},
      {{2, 9, 9, 42}, 33, 17},  // the first rows belong to nobody
      {{0, 64, 300, 317}, 128, 96},
  };
  return all;
}

int64_t scratch_bytes(const Case& c, const GemmSizes& s) {
  return gemm_scratch_bytes({s.experts(), s.rows(), s.n, s.k}, 0, c.engine);
}

/// Whether the engine has a packed form; else it reads rows.
bool packs(const Case& c) { return packed_bytes(c.dtype, 1, 8, 8, c.engine) > 0; }

Bytes packed(const Case& c, const GemmMatrix& w, const GemmSizes& s) {
  Bytes bytes(packed_bytes(c.dtype, s.experts(), s.n, s.k, c.engine));
  if (packs(c)) pack_weights(c.dtype, w.values.data(), Dtype::f32, s.experts(), s.n, s.k, bytes.get(), c.engine);
  return bytes;
}
/// The packed form where there is one.
Weights packed_or_rows(const Case& c, const GemmMatrix& w, Bytes& packed) {
  return packs(c) ? Weights{packed.get(), c.dtype, true} : Weights{w.data(), c.dtype, false};
}
/// Which forms of weights to try.
std::vector<bool> forms(const Case& c) {
  return packs(c) ? std::vector<bool>{true, false} : std::vector<bool>{false};
}

TEST_P(Gemm, PacksTheSameBytesFromRowsOfEitherType) {
  const Case c = GetParam();
  if (!packs(c)) {
    std::vector<float> rows(64);
    EXPECT_THROW(pack_weights(c.dtype, rows.data(), Dtype::f32, 1, 8, 8, rows.data(), c.engine), InternalError);
    GTEST_SKIP() << name_of(c.engine) << " reads rows";
  }
  for (const GemmSizes& s : sizes()) {
    const GemmMatrix w(Dtype::bf16, s.experts() * s.n * s.k, 2);
    const int64_t bytes = packed_bytes(c.dtype, s.experts(), s.n, s.k, c.engine);
    Bytes narrow(bytes), wide = packed(c, w, s);
    pack_weights(c.dtype, w.narrow.data(), Dtype::bf16, s.experts(), s.n, s.k, narrow.get(), c.engine);
    EXPECT_EQ(std::memcmp(narrow.get(), wide.get(), static_cast<size_t>(bytes)), 0) << "N " << s.n << " K " << s.k;
  }
}

// Enough bytes that they are written past the caches; the one weight of each expert is not.
TEST_P(Gemm, PacksManyExpertsAsItPacksEach) {
  const Case c = GetParam();
  if (!packs(c)) GTEST_SKIP() << name_of(c.engine) << " reads rows";
  const GemmSizes s{{0, 0, 0, 0, 0, 0, 0}, 530, 410};
  const GemmMatrix w(Dtype::bf16, s.experts() * s.n * s.k, 2);
  Bytes all = packed(c, w, s);
  const int64_t bytes = packed_bytes(c.dtype, 1, s.n, s.k, c.engine);
  ASSERT_GT(s.experts() * bytes, 5 << 20);
  for (int64_t e = 0; e < s.experts(); ++e) {
    Bytes one(bytes);
    pack_weights(c.dtype, w.values.data() + e * s.n * s.k, Dtype::f32, 1, s.n, s.k, one.get(), c.engine);
    EXPECT_EQ(std::memcmp(one.get(), all.get() + e * bytes, static_cast<size_t>(bytes)), 0) << "expert " << e;
  }
}

TEST_P(Gemm, ForwardMatchesPlainLoops) {
  const Case c = GetParam();
  for (const GemmSizes& s : sizes()) {
    const GemmMatrix x(c.dtype, s.rows() * s.k, 1), w(c.dtype, s.experts() * s.n * s.k, 2),
        bias(Dtype::f32, s.n, 3);
    Bytes w_packed = packed(c, w, s);
    for (const bool use_packed : forms(c)) {
      for (const bool with_bias : {false, true}) {
        for (const Dtype y_dtype : {Dtype::f32, Dtype::bf16}) {
          Result y(y_dtype, s.rows() * s.n);
          Bytes scratch(scratch_bytes(c, s));
          linear_forward({.groups = RowGroups(std::span(s.offsets)),
                          .n = s.n,
                          .k = s.k,
                          .x = {x.data(), c.dtype},
                          .w = {use_packed ? w_packed.get() : w.data(), c.dtype, use_packed},
                          .bias = with_bias ? bias.values.data() : nullptr,
                          .y = {y.data(), y_dtype},
                          .scratch = scratch.scratch(),
                          .engine = c.engine});
          for (int64_t t = 0; t < s.offsets[0] * s.n; ++t) ASSERT_TRUE(std::isnan(y(t))) << "wrote another's row";
          for (int64_t e = 0; e < s.experts(); ++e) {
            for (int64_t t = s.offsets[size_t(e)]; t < s.offsets[size_t(e) + 1]; ++t) {
              for (int64_t n = 0; n < s.n; ++n) {
                double wanted = with_bias ? bias(n) : 0, magnitude = std::abs(wanted);
                for (int64_t k = 0; k < s.k; ++k) {
                  const double product = x(t * s.k + k) * w((e * s.n + n) * s.k + k);
                  wanted += product;
                  magnitude += std::abs(product);
                }
                expect_close_gemm(y(t * s.n + n), wanted, magnitude, s.k, y_dtype,
                                  fmt::format("y[{},{}] of N {} K {} packed {}", t, n, s.n, s.k, use_packed));
                if (HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(Gemm, DgradMatchesPlainLoops) {
  const Case c = GetParam();
  for (const GemmSizes& s : sizes()) {
    const GemmMatrix dy(c.dtype, s.rows() * s.n, 4), w(c.dtype, s.experts() * s.n * s.k, 5);
    Bytes w_packed = packed(c, w, s);
    for (const bool use_packed : forms(c)) {
      for (const Dtype dx_dtype : {Dtype::f32, Dtype::bf16}) {
        Result dx(dx_dtype, s.rows() * s.k);
        Bytes scratch(scratch_bytes(c, s));
        linear_dgrad({.groups = RowGroups(std::span(s.offsets)),
                      .n = s.n,
                      .k = s.k,
                      .dy = {dy.data(), c.dtype},
                      .w = {use_packed ? w_packed.get() : w.data(), c.dtype, use_packed},
                      .dx = {dx.data(), dx_dtype},
                      .scratch = scratch.scratch(),
                      .engine = c.engine});
        for (int64_t e = 0; e < s.experts(); ++e) {
          for (int64_t t = s.offsets[size_t(e)]; t < s.offsets[size_t(e) + 1]; ++t) {
            for (int64_t k = 0; k < s.k; ++k) {
              double wanted = 0, magnitude = 0;
              for (int64_t n = 0; n < s.n; ++n) {
                const double product = dy(t * s.n + n) * w((e * s.n + n) * s.k + k);
                wanted += product;
                magnitude += std::abs(product);
              }
              expect_close_gemm(dx(t * s.k + k), wanted, magnitude, s.n, dx_dtype,
                                fmt::format("dx[{},{}] of N {} K {} packed {}", t, k, s.n, s.k, use_packed));
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_P(Gemm, WgradMatchesPlainLoops) {
  const Case c = GetParam();
  for (const GemmSizes& s : sizes()) {
    const GemmMatrix x(c.dtype, s.rows() * s.k, 6), dy(c.dtype, s.rows() * s.n, 7);
    const GemmMatrix dw_before(Dtype::f32, s.experts() * s.n * s.k, 8),
        dbias_before(Dtype::f32, s.experts() * s.n, 9);
    for (const bool overwrite : {true, false}) {
      std::vector<float> dw = dw_before.values, dbias = dbias_before.values;
      if (overwrite) {
        dw.assign(dw.size(), kPoison);
        dbias.assign(dbias.size(), kPoison);
      }
      Bytes scratch(scratch_bytes(c, s));
      linear_wgrad({.groups = RowGroups(std::span(s.offsets)),
                    .n = s.n,
                    .k = s.k,
                    .dy = {dy.data(), c.dtype},
                    .x = {x.data(), c.dtype},
                    .dw = dw.data(),
                    .dbias = dbias.data(),
                    .overwrite = overwrite,
                    .scratch = scratch.scratch(),
                    .engine = c.engine});
      for (int64_t e = 0; e < s.experts(); ++e) {
        const int64_t begin = s.offsets[size_t(e)], end = s.offsets[size_t(e) + 1];
        for (int64_t n = 0; n < s.n; ++n) {
          double bias_wanted = overwrite ? 0 : dbias_before(e * s.n + n), bias_magnitude = std::abs(bias_wanted);
          for (int64_t t = begin; t < end; ++t) {
            bias_wanted += dy(t * s.n + n);
            bias_magnitude += std::abs(dy(t * s.n + n));
          }
          expect_close_gemm(dbias[size_t(e * s.n + n)], bias_wanted, bias_magnitude, end - begin, Dtype::f32,
                            "dbias");
          for (int64_t k = 0; k < s.k; ++k) {
            const int64_t at = (e * s.n + n) * s.k + k;
            double wanted = overwrite ? 0 : dw_before(at), magnitude = std::abs(wanted);
            for (int64_t t = begin; t < end; ++t) {
              const double product = dy(t * s.n + n) * x(t * s.k + k);
              wanted += product;
              magnitude += std::abs(product);
            }
            expect_close_gemm(dw[size_t(at)], wanted, magnitude, end - begin, Dtype::f32,
                              fmt::format("dw[{},{},{}] of N {} K {} overwrite {}", e, n, k, s.n, s.k, overwrite));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Enough bytes that what is overwritten is written past the caches, where lines are whole; one expert's is not.
TEST_P(Gemm, WgradOfManyExpertsIsThatOfEach) {
  const Case c = GetParam();
  const GemmSizes s{{0, 3, 3, 36, 37, 40, 75}, 510, 432};
  const GemmMatrix x(c.dtype, s.rows() * s.k, 6), dy(c.dtype, s.rows() * s.n, 7);
  const int64_t each = s.n * s.k;
  ASSERT_GT(s.experts() * each * 4, 5 << 20);
  Bytes scratch(scratch_bytes(c, s)), all(s.experts() * each * 4 + 64), one(each * 4);
  const auto wgrad = [&](const RowGroups& groups, float* dw) {
    linear_wgrad({.groups = groups,
                  .n = s.n,
                  .k = s.k,
                  .dy = {dy.data(), c.dtype},
                  .x = {x.data(), c.dtype},
                  .dw = dw,
                  .overwrite = true,
                  .scratch = scratch.scratch(),
                  .engine = c.engine});
  };
  for (const int64_t shift : {0, 1}) {  // from whole lines on, and not
    float* const dw = reinterpret_cast<float*>(all.get()) + shift;
    std::fill_n(dw, s.experts() * each, kPoison);
    wgrad(RowGroups(std::span(s.offsets)), dw);
    for (int64_t e = 0; e < s.experts(); ++e) {
      const int32_t own[] = {s.offsets[size_t(e)], s.offsets[size_t(e) + 1]};
      wgrad(RowGroups(std::span(own)), reinterpret_cast<float*>(one.get()));
      EXPECT_EQ(std::memcmp(one.get(), dw + e * each, size_t(each * 4)), 0) << "expert " << e << " from " << shift;
    }
  }
}

struct Products {
  Result y, dx;
  std::vector<float> dw;
  bool operator==(const Products& other) const {
    return y == other.y && dx == other.dx && std::memcmp(dw.data(), other.dw.data(), dw.size() * 4) == 0;
  }
};

Products all_products(const Case& c, const GemmSizes& s, const GemmMatrix& x, const GemmMatrix& dy,
                      const GemmMatrix& w, int threads, bool use_packed = true) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  Products out{Result(c.dtype, s.rows() * s.n), Result(Dtype::f32, s.rows() * s.k),
               std::vector<float>(size_t(s.experts() * s.n * s.k), kPoison)};
  Bytes w_packed = packed(c, w, s), scratch(scratch_bytes(c, s));
  const Weights weights = use_packed ? packed_or_rows(c, w, w_packed) : Weights{w.data(), c.dtype, false};
  const RowGroups groups{std::span(s.offsets)};
  linear_forward({.groups = groups,
                  .n = s.n,
                  .k = s.k,
                  .x = {x.data(), c.dtype},
                  .w = weights,
                  .y = {out.y.data(), c.dtype},
                  .scratch = scratch.scratch(),
                  .engine = c.engine});
  linear_dgrad({.groups = groups,
                .n = s.n,
                .k = s.k,
                .dy = {dy.data(), c.dtype},
                .w = weights,
                .dx = {out.dx.data(), Dtype::f32},
                .scratch = scratch.scratch(),
                .engine = c.engine});
  linear_wgrad({.groups = groups,
                .n = s.n,
                .k = s.k,
                .dy = {dy.data(), c.dtype},
                .x = {x.data(), c.dtype},
                .dw = out.dw.data(),
                .overwrite = true,
                .scratch = scratch.scratch(),
                .engine = c.engine});
  omp_set_num_threads(before);
  return out;
}

TEST_P(Gemm, ThreadsAndPackingDoNotChangeABit) {
  const Case c = GetParam();
  const GemmSizes several_tall_pieces{{0, 1100}, 512, 300};
  for (const GemmSizes& s :
       {GemmSizes{{0, 200}, 300, 200}, GemmSizes{{0, 7, 7, 150, 190}, 65, 600}, several_tall_pieces}) {
    const GemmMatrix x(c.dtype, s.rows() * s.k, 10), dy(c.dtype, s.rows() * s.n, 11),
        w(c.dtype, s.experts() * s.n * s.k, 12);
    const Products one = all_products(c, s, x, dy, w, 1);
    for (const int threads : {2, 3, 7}) EXPECT_TRUE(one == all_products(c, s, x, dy, w, threads)) << threads;
    EXPECT_TRUE(one == all_products(c, s, x, dy, w, 2, false)) << "unpacked";
  }
}

TEST_P(Gemm, ARowHasTheSameBitsWhereverItStands) {
  const Case c = GetParam();
  const int64_t n = 70, k = 130, rows = 90;
  const GemmMatrix x(c.dtype, rows * k, 13), w(c.dtype, n * k, 14);
  const GemmSizes whole{{0, int32_t(rows)}, n, k};
  Bytes w_packed = packed(c, w, whole);
  const auto forward = [&](const RowGroups& groups, int64_t first, void* y) {
    Bytes scratch(gemm_scratch_bytes({groups.count(), rows, n, k}, 0, c.engine));
    const void* from = static_cast<const std::byte*>(x.data()) + first * k * size_of(c.dtype);
    linear_forward({.groups = groups,
                    .n = n,
                    .k = k,
                    .x = {from, c.dtype},
                    .w = packed_or_rows(c, w, w_packed),
                    .y = {y, Dtype::f32},
                    .scratch = scratch.scratch(),
                    .engine = c.engine});
  };
  Result together(Dtype::f32, rows * n);
  forward(RowGroups::one(rows), 0, together.data());
  for (int64_t first = 0; first < rows; first += 7) {
    for (const int64_t some : {int64_t{1}, int64_t{17}, int64_t{40}}) {
      const int64_t count = std::min(some, rows - first);
      Result apart(Dtype::f32, count * n);
      forward(RowGroups::one(count), first, apart.data());
      ASSERT_EQ(std::memcmp(apart.wide.data(), together.wide.data() + first * n, size_t(count * n) * 4), 0)
          << first << " + " << count;
    }
  }
}

TEST_P(Gemm, WgradAddsFinishedSums) {
  const Case c = GetParam();
  const int64_t n = 48, k = 80, first = 1030, second = 100;
  const GemmMatrix x(c.dtype, (first + second) * k, 15), dy(c.dtype, (first + second) * n, 16);
  const auto wgrad = [&](int64_t begin, int64_t rows, bool overwrite, std::vector<float>& dw,
                         std::vector<float>& db) {
    Bytes scratch(gemm_scratch_bytes(1));
    linear_wgrad({.groups = RowGroups::one(rows),
                  .n = n,
                  .k = k,
                  .dy = {static_cast<const std::byte*>(dy.data()) + begin * n * size_of(c.dtype), c.dtype},
                  .x = {static_cast<const std::byte*>(x.data()) + begin * k * size_of(c.dtype), c.dtype},
                  .dw = dw.data(),
                  .dbias = db.data(),
                  .overwrite = overwrite,
                  .scratch = scratch.scratch(),
                  .engine = c.engine});
  };
  std::vector<float> dw_1(size_t(n * k), kPoison), dw_2 = dw_1, db_1(size_t(n), kPoison), db_2 = db_1;
  wgrad(0, first, true, dw_1, db_1);
  wgrad(first, second, true, dw_2, db_2);
  std::vector<float> dw = dw_1, db = db_1;
  wgrad(first, second, false, dw, db);
  for (size_t i = 0; i < dw.size(); ++i) ASSERT_EQ(dw[i], dw_1[i] + dw_2[i]) << i;
  for (size_t i = 0; i < db.size(); ++i) ASSERT_EQ(db[i], db_1[i] + db_2[i]) << i;
}

TEST_P(Gemm, NaNsStayInTheirRow) {
  const Case c = GetParam();
  const int64_t n = 40, k = 37, rows = 35;
  GemmMatrix x(c.dtype, rows * k, 17);
  const GemmMatrix w(c.dtype, n * k, 18);
  for (int64_t i = 20 * k; i < 21 * k; ++i) {
    x.values[size_t(i)] = kPoison;
    if (c.dtype == Dtype::bf16) x.narrow[size_t(i)] = bf16(kPoison);
  }
  Bytes w_packed = packed(c, w, {{0, int32_t(rows)}, n, k}), scratch(gemm_scratch_bytes(1));
  Result y(Dtype::bf16, rows * n);
  linear_forward({.groups = RowGroups::one(rows),
                  .n = n,
                  .k = k,
                  .x = {x.data(), c.dtype},
                  .w = packed_or_rows(c, w, w_packed),
                  .y = {y.data(), Dtype::bf16},
                  .scratch = scratch.scratch(),
                  .engine = c.engine});
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(std::isnan(y(t * n + i)), t == 20) << t << ", " << i;
  }
}

TEST(GemmEngines, Bf16PanelsTakeTwoBytesANumber) {
  for (const Engine engine : {Engine::amx, Engine::avx512_bf16, Engine::avx512_widen}) {
    if (!engine_supported(engine, Dtype::bf16)) continue;
    EXPECT_EQ(packed_bytes(Dtype::bf16, 3, 64, 96, engine), 2 * 2 * 3 * 64 * 96) << name_of(engine);
    EXPECT_FALSE(engine_supported(engine, Dtype::f32)) << name_of(engine);
  }
}

// Widened in registers or before: the same chain of fused multiply-adds.
TEST(GemmEngines, WideningGivesTheBitsOfFp32) {
  if (!engine_supported(Engine::avx512_widen, Dtype::bf16)) GTEST_SKIP() << "no AVX-512";
  const GemmSizes s{{0, 19, 19, 61}, 45, 67};
  const GemmMatrix x(Dtype::bf16, s.rows() * s.k, 1), dy(Dtype::bf16, s.rows() * s.n, 2);
  const GemmMatrix w(Dtype::bf16, s.experts() * s.n * s.k, 3);
  const Products narrow = all_products({Engine::avx512_widen, Dtype::bf16}, s, x, dy, w, 1);
  const Products wide = all_products({Engine::highway, Dtype::bf16}, s, x, dy, w, 1);
  EXPECT_TRUE(narrow == wide);
}

TEST(GemmMixed, RouterTakesNarrowRowsAndWideWeights) {
  const int64_t rows = 77, n = 24, k = 96;
  const GemmMatrix x(Dtype::bf16, rows * k, 19), w(Dtype::f32, n * k, 20), dy(Dtype::f32, rows * n, 21);
  Bytes scratch(gemm_scratch_bytes(1));
  Result y(Dtype::f32, rows * n), dx(Dtype::bf16, rows * k);
  std::vector<float> dw(size_t(n * k), kPoison);
  const RowGroups groups = RowGroups::one(rows);
  linear_forward({.groups = groups,
                  .n = n,
                  .k = k,
                  .x = {x.data(), Dtype::bf16},
                  .w = {w.data(), Dtype::f32, false},
                  .y = {y.data(), Dtype::f32},
                  .scratch = scratch.scratch()});
  linear_dgrad({.groups = groups,
                .n = n,
                .k = k,
                .dy = {dy.data(), Dtype::f32},
                .w = {w.data(), Dtype::f32, false},
                .dx = {dx.data(), Dtype::bf16},
                .scratch = scratch.scratch()});
  linear_wgrad({.groups = groups,
                .n = n,
                .k = k,
                .dy = {dy.data(), Dtype::f32},
                .x = {x.data(), Dtype::bf16},
                .dw = dw.data(),
                .overwrite = true,
                .scratch = scratch.scratch()});
  for (int64_t i = 0; i < n; ++i) {
    double y_wanted = 0, dw_wanted = 0, y_size = 0, dw_size = 0;
    for (int64_t j = 0; j < k; ++j) {
      y_wanted += x(5 * k + j) * w(i * k + j);
      y_size += std::abs(x(5 * k + j) * w(i * k + j));
    }
    for (int64_t t = 0; t < rows; ++t) {
      dw_wanted += dy(t * n + i) * x(t * k + 9);
      dw_size += std::abs(dy(t * n + i) * x(t * k + 9));
    }
    expect_close_gemm(y(5 * n + i), y_wanted, y_size, k, Dtype::f32, "y");
    expect_close_gemm(dw[size_t(i * k + 9)], dw_wanted, dw_size, rows, Dtype::f32, "dw");
  }
  for (int64_t j = 0; j < k; ++j) {
    double wanted = 0, size = 0;
    for (int64_t i = 0; i < n; ++i) {
      wanted += dy(70 * n + i) * w(i * k + j);
      size += std::abs(dy(70 * n + i) * w(i * k + j));
    }
    expect_close_gemm(dx(70 * k + j), wanted, size, n, Dtype::bf16, "dx");
  }
}

// Scratch follows the product: of a small one it is no more than a few copies of its operands, of any one no more
// than of all sizes; it grows with each of them, since plans reserve it for the most rows that may come. amx has
// one size.
TEST_P(Gemm, ScratchIsBoundedByTheSizes) {
  const Engine engine = GetParam().engine;
  const auto bytes = [&](int64_t rows, int64_t n, int64_t k, int threads = 8) {
    return gemm_scratch_bytes({1, rows, n, k}, threads, engine);
  };
  if (engine != Engine::amx && engine != Engine::amx_bf16x3 && engine != Engine::neon_bf16) {
    for (const auto& [rows, n, k] : {std::tuple{16, 32, 32}, {128, 64, 64}, {256, 256, 256}, {1, 512, 512}}) {
      EXPECT_LE(bytes(rows, n, k, 1), 2 * 4 * (rows * n + rows * k + n * k)) << rows << " x " << n << " x " << k;
    }
  }
  const std::vector<int64_t> lengths{0, 1, 31, 32, 33, 127, 255, 256, 257, 300, 512, 513, 2000};
  for (const int64_t n : {int64_t{1}, int64_t{64}, int64_t{257}, int64_t{3000}}) {
    for (size_t i = 0; i + 1 < lengths.size(); ++i) {
      const int64_t less = lengths[i], more = lengths[i + 1];
      EXPECT_LE(bytes(less, n, 70), bytes(more, n, 70)) << less << " and " << more << " rows, N " << n;
      if (less == 0) continue;
      EXPECT_LE(bytes(70, less, n), bytes(70, more, n)) << "N " << less << " and " << more;
      EXPECT_LE(bytes(70, n, less), bytes(70, n, more)) << "K " << less << " and " << more;
    }
  }
  EXPECT_LE(bytes(1 << 20, 1 << 14, 1 << 14), gemm_scratch_bytes(1, 8));
}

TEST(GemmArguments, AreChecked) {
  std::vector<float> x(64), w(64), y(64);
  Bytes scratch(gemm_scratch_bytes(1, 1));
  LinearForward call{.groups = RowGroups::one(8),
                     .n = 8,
                     .k = 8,
                     .x = {x.data()},
                     .w = {w.data()},
                     .y = {y.data()},
                     .scratch = scratch.scratch()};
  EXPECT_NO_THROW(linear_forward(call));
  LinearForward small = call;
  small.scratch.bytes = 64;
  EXPECT_THROW(linear_forward(small), InternalError);
  LinearForward double_x = call;
  double_x.x.dtype = Dtype::f64;
  EXPECT_THROW(linear_forward(double_x), InternalError);
  const std::vector<int32_t> decreasing = {0, 6, 2, 8};
  LinearForward bad_groups = call;
  bad_groups.groups = RowGroups(std::span(decreasing));
  EXPECT_THROW(linear_forward(bad_groups), InternalError);
  LinearForward wrong_engine = call;
  wrong_engine.engine = Engine::amx;
  EXPECT_THROW(linear_forward(wrong_engine), InternalError);
  EXPECT_FALSE(gemm_supported(Dtype::f64));
}

}  // namespace
}  // namespace heddle::kernels::host
