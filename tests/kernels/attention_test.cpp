// The CPU attention kernels against plain double loops: forward, backward, odd sizes, poisoned memory, threads.
#include "heddle/kernels/host/attention/attention.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <ostream>
#include <vector>

#include "heddle/base/random.h"
#include "heddle/kernels/host/cpu_features.h"

namespace heddle::kernels::host {
namespace {

struct Shape {
  int64_t sequences, length, heads, kv_heads, head_dim, value_dim;
  bool causal = true;
  double magnitude = 1.0;  // deviation of q and k
  int64_t rows() const { return sequences * length; }
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.sequences << "x" << s.length << " heads " << s.heads << "/" << s.kv_heads << " dims "
             << s.head_dim << "/" << s.value_dim << (s.causal ? " causal" : " full") << " magnitude "
             << s.magnitude;
}

const ir::OpDef kForward{"attention"}, kBackward{"attention_dgrad"};

/// A listing with one attention op of the given dtype.
struct OneOp {
  OneOp(const Shape& s, Dtype dtype, bool backward, double scale) {
    const auto add = [&](const char* name, Dtype type, int64_t columns) {
      ir::Value value;
      value.name = name;
      value.dtype = type;
      value.shape = {ir::Dim{s.rows()}, ir::Dim{columns}};
      return listing.add_value(std::move(value));
    };
    op.def = backward ? &kBackward : &kForward;
    if (backward) op.in.push_back(add("do", dtype, s.heads * s.value_dim));
    op.in.push_back(add("q", dtype, s.heads * s.head_dim));
    op.in.push_back(add("k", dtype, s.kv_heads * s.head_dim));
    op.in.push_back(add("v", dtype, s.kv_heads * s.value_dim));
    const ir::ValueId out = add("o", dtype, s.heads * s.value_dim), lse = add("lse", Dtype::f32, s.heads);
    if (backward) {
      op.in.insert(op.in.end(), {out, lse});
      op.out = {add("dq", dtype, s.heads * s.head_dim), add("dk", dtype, s.kv_heads * s.head_dim),
                add("dv", dtype, s.kv_heads * s.value_dim)};
    } else {
      op.out = {out, lse};
    }
    op.attributes = {
        {"heads", s.heads},     {"kv_heads", s.kv_heads},      {"head_dim", s.head_dim}, {"value_dim", s.value_dim},
        {"sequence", s.length}, {"causal", int64_t{s.causal}}, {"scale", scale}};
  }
  ir::Listing listing;
  ir::Op op;
};

const KernelEntry& entry(std::string_view kind, std::string_view name) {
  for (const KernelEntry& e : attention_kernels()) {
    if (e.op_kind == kind && e.name == name) return e;
  }
  internal_error("no entry {} for {}", name, kind);
}

/// The kernels that this processor runs with this type, each by name.
std::vector<std::string_view> ways_attention(Dtype dtype) {
  const OneOp one({1, 8, 4, 2, 16, 16}, dtype, false, 1.0);
  std::vector<std::string_view> names;
  for (const KernelEntry& e : attention_kernels()) {
    if (e.op_kind == "attention" && e.supports(one.listing, one.op)) names.push_back(e.name);
  }
  return names;
}

using Matrix = std::vector<double>;

struct Answer {
  Matrix out, lse, dq, dk, dv;
};

/// The definition, in fp64. Gradients are exact for `out` and the probabilities as defined, not as rounded.
Answer define_attention(const Shape& s, double scale, const Matrix& q, const Matrix& k, const Matrix& v,
                        const Matrix& dout) {
  Answer a;
  a.out.assign(static_cast<size_t>(s.rows() * s.heads * s.value_dim), 0);
  a.lse.assign(static_cast<size_t>(s.rows() * s.heads), 0);
  a.dq.assign(q.size(), 0);
  a.dk.assign(k.size(), 0);
  a.dv.assign(v.size(), 0);
  const int64_t ratio = s.heads / s.kv_heads, d = s.head_dim, e = s.value_dim;
  std::vector<double> p(static_cast<size_t>(s.length));
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.length; ++i) {
        const int64_t row = (b * s.length + i) * s.heads + h;
        const int64_t end = s.causal ? i + 1 : s.length;
        const auto key_row = [&](int64_t j) { return (b * s.length + j) * s.kv_heads + h / ratio; };
        double highest = -std::numeric_limits<double>::infinity(), total = 0;
        for (int64_t j = 0; j < end; ++j) {
          double dot = 0;
          for (int64_t c = 0; c < d; ++c) dot += q[row * d + c] * k[key_row(j) * d + c];
          p[j] = scale * dot;
          highest = std::max(highest, p[j]);
        }
        for (int64_t j = 0; j < end; ++j) total += p[j] = std::exp(p[j] - highest);
        a.lse[row] = highest + std::log(total);
        double delta = 0;
        for (int64_t j = 0; j < end; ++j) {
          p[j] /= total;
          for (int64_t c = 0; c < e; ++c) a.out[row * e + c] += p[j] * v[key_row(j) * e + c];
        }
        for (int64_t c = 0; c < e; ++c) delta += dout[row * e + c] * a.out[row * e + c];
        for (int64_t j = 0; j < end; ++j) {
          double dp = 0;
          for (int64_t c = 0; c < e; ++c) {
            dp += dout[row * e + c] * v[key_row(j) * e + c];
            a.dv[key_row(j) * e + c] += p[j] * dout[row * e + c];
          }
          const double ds = p[j] * (dp - delta) * scale;
          for (int64_t c = 0; c < d; ++c) {
            a.dq[row * d + c] += ds * k[key_row(j) * d + c];
            a.dk[key_row(j) * d + c] += ds * q[row * d + c];
          }
        }
      }
    }
  }
  return a;
}

template <class T>
std::vector<T> rounded(const Matrix& x) {
  std::vector<T> y;
  for (const double value : x) y.push_back(T(static_cast<float>(value)));
  return y;
}

Matrix random_matrix(const char* name, int64_t count, double deviation, bool bf16_grid) {
  const RandomKey key = RandomKey(7).with(name);
  Matrix x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(key.normal(i) * deviation);
    x[i] = bf16_grid ? static_cast<float>(bf16(value)) : value;
  }
  return x;
}

template <class T>
T poison() {
  T value;
  std::memset(static_cast<void*>(&value), 0xff, sizeof value);  // a NaN in each of the types used
  return value;
}

device::TensorView view(void* data, Dtype dtype, int64_t rows, int64_t columns) {
  device::TensorView v;
  v.data = data;
  v.dtype = dtype;
  v.rank = 2;
  v.dims = {rows, columns, 1, 1};
  return v;
}

/// Runs a kernel with poisoned scratch between guards, which must be whole afterwards.
void run_guarded(const KernelEntry& kernel, const OneOp& one, device::KernelCall call) {
  constexpr size_t kGuard = 4096;
  const ir::FixedRows rows;
  const auto bytes = static_cast<size_t>(kernel.scratch_bytes(one.listing, one.op, rows));
  std::vector<std::byte> memory(bytes + 2 * kGuard + 64, std::byte{0xff});
  auto* const base =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data() + kGuard) + 63) / 64 * 64);
  std::fill(memory.data(), base, std::byte{0x5a});
  std::fill(base + bytes, memory.data() + memory.size(), std::byte{0x5a});
  call.op = &one.op;
  call.scratch = base;
  kernel.run(call);
  const auto whole = [](std::byte b) { return b == std::byte{0x5a}; };
  EXPECT_TRUE(std::all_of(memory.data(), base, whole)) << "written before scratch";
  EXPECT_TRUE(std::all_of(base + bytes, memory.data() + memory.size(), whole)) << "written behind scratch";
}

/// Operands end exactly where their allocation does, and outputs begin as NaN.
template <class T>
struct Trial {
  static constexpr Dtype kDtype = dtype_of<T>;
  std::string_view way;
  Shape s;
  double scale;
  std::vector<T> q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse;

  Trial(std::string_view way, const Shape& s, double scale, const Matrix& q, const Matrix& k, const Matrix& v,
        const Matrix& dout)
      : way(way),
        s(s),
        scale(scale),
        q(rounded<T>(q)),
        k(rounded<T>(k)),
        v(rounded<T>(v)),
        dout(rounded<T>(dout)) {}

  void forward() {
    const OneOp one(s, kDtype, false, scale);
    const KernelEntry& kernel = entry("attention", way);
    ASSERT_TRUE(kernel.supports(one.listing, one.op)) << kernel.supports(one.listing, one.op).reason;
    out.assign(static_cast<size_t>(s.rows() * s.heads * s.value_dim), poison<T>());
    lse.assign(static_cast<size_t>(s.rows() * s.heads), poison<float>());
    const device::TensorView in[] = {view(q.data(), kDtype, s.rows(), s.heads * s.head_dim),
                                     view(k.data(), kDtype, s.rows(), s.kv_heads * s.head_dim),
                                     view(v.data(), kDtype, s.rows(), s.kv_heads * s.value_dim)};
    const device::TensorView result[] = {view(out.data(), kDtype, s.rows(), s.heads * s.value_dim),
                                         view(lse.data(), Dtype::f32, s.rows(), s.heads)};
    run_guarded(kernel, one, {.in = in, .out = result});
  }

  void backward() {
    const OneOp one(s, kDtype, true, scale);
    const KernelEntry& kernel = entry("attention_dgrad", way);
    ASSERT_TRUE(kernel.supports(one.listing, one.op)) << kernel.supports(one.listing, one.op).reason;
    dq.assign(q.size(), poison<T>());
    dk.assign(k.size(), poison<T>());
    dv.assign(v.size(), poison<T>());
    const device::TensorView in[] = {view(dout.data(), kDtype, s.rows(), s.heads * s.value_dim),
                                     view(q.data(), kDtype, s.rows(), s.heads * s.head_dim),
                                     view(k.data(), kDtype, s.rows(), s.kv_heads * s.head_dim),
                                     view(v.data(), kDtype, s.rows(), s.kv_heads * s.value_dim),
                                     view(out.data(), kDtype, s.rows(), s.heads * s.value_dim),
                                     view(lse.data(), Dtype::f32, s.rows(), s.heads)};
    const device::TensorView result[] = {view(dq.data(), kDtype, s.rows(), s.heads * s.head_dim),
                                         view(dk.data(), kDtype, s.rows(), s.kv_heads * s.head_dim),
                                         view(dv.data(), kDtype, s.rows(), s.kv_heads * s.value_dim)};
    run_guarded(kernel, one, {.in = in, .out = result});
  }
};

template <class T>
double distance_attention(const std::vector<T>& found, const Matrix& wanted) {
  EXPECT_EQ(found.size(), wanted.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = static_cast<double>(static_cast<float>(found[i])) - wanted[i];
    error += difference * difference;
    norm += wanted[i] * wanted[i];
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

template <class T>
Trial<T> random_run(std::string_view way, const Shape& s, Matrix (&inputs)[4]) {
  constexpr bool kGrid = std::is_same_v<T, bf16>;
  inputs[0] = random_matrix("q", s.rows() * s.heads * s.head_dim, s.magnitude, kGrid);
  inputs[1] = random_matrix("k", s.rows() * s.kv_heads * s.head_dim, s.magnitude, kGrid);
  inputs[2] = random_matrix("v", s.rows() * s.kv_heads * s.value_dim, 1.0, kGrid);
  inputs[3] = random_matrix("do", s.rows() * s.heads * s.value_dim, 3.0, kGrid);  // an upstream gradient far from 1
  const double scale = static_cast<float>(0.9 / std::sqrt(static_cast<double>(s.head_dim)));
  return Trial<T>(way, s, scale, inputs[0], inputs[1], inputs[2], inputs[3]);
}

struct Tolerance {
  double out, lse, dv, gradient;  // relative norms; gradient: dq and dk
};
// fp32: rounding of a few hundred terms. bf16: inputs are on the bf16 grid, so what is left is the rounding of p,
// ds and the outputs to 8 bits (2^-9 each, relative).
constexpr Tolerance kTightF32{1e-5, 1e-5, 1e-5, 1e-5}, kBf16{6e-3, 2e-4, 1e-2, 1.2e-2};

template <class T>
void check(Trial<T> run, const Answer& wanted, Tolerance most) {
  const Shape& s = run.s;
  SCOPED_TRACE(testing::Message() << run.way << " " << s << (std::is_same_v<T, bf16> ? " bf16" : " f32"));
  run.forward();
  EXPECT_LT(distance_attention(run.out, wanted.out), most.out);
  EXPECT_LT(distance_attention(run.lse, wanted.lse), most.lse);
  run.backward();
  EXPECT_LT(distance_attention(run.dv, wanted.dv), most.dv);
  if (s.length > 1) {
    EXPECT_LT(distance_attention(run.dq, wanted.dq), most.gradient);
    EXPECT_LT(distance_attention(run.dk, wanted.dk), most.gradient);
  } else {  // one key: p = 1, so dq and dk vanish but for the rounding of o, an element of which is at most 5 or so
    const double most_each = 100 * most.gradient;
    EXPECT_LT(distance_attention(run.dq, Matrix(run.dq.size(), 0)),
              most_each * std::sqrt(static_cast<double>(run.dq.size())));
    EXPECT_LT(distance_attention(run.dk, Matrix(run.dk.size(), 0)),
              most_each * std::sqrt(static_cast<double>(run.dk.size())));
  }
}

/// Every kernel that takes the type, against one answer.
template <class T>
void check(const Shape& s, Tolerance most) {
  Matrix inputs[4];
  std::optional<Answer> wanted;
  for (const std::string_view way : ways_attention(dtype_of<T>)) {
    Trial<T> run = random_run<T>(way, s, inputs);
    if (!wanted) wanted = define_attention(s, run.scale, inputs[0], inputs[1], inputs[2], inputs[3]);
    check(std::move(run), *wanted, most);
  }
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const bool causal : {true, false}) {
    for (const int64_t length : {1, 7, 31, 32, 33, 65, 130, 200, 300}) {
      all.push_back({2, length, 4, 2, 48, 32, causal});
    }
    all.push_back({1, 130, 3, 1, 40, 24, causal});
    all.push_back({3, 130, 2, 2, 96, 64, causal});
    all.push_back({1, 161, 2, 1, 192, 128, causal});
    all.push_back({3, 65, 8, 1, 1, 1, causal});
    all.push_back({1, 65, 1, 1, 17, 50, causal});
    all.push_back({1, 130, 1, 1, 65, 100, causal});
    all.push_back({1, 64, 4, 4, 33, 31, causal});
  }
  return all;
}

class Attention : public testing::Test {
 protected:
  void SetUp() override { team_ = omp_get_max_threads(); }
  void TearDown() override { omp_set_num_threads(team_); }

 private:
  int team_ = 1;
};

TEST_F(Attention, F32AgreesWithDefinition) {
  if (ways_attention(Dtype::f32).empty()) GTEST_SKIP() << "no kernel for f32 on this processor";
  for (const Shape& s : shapes()) check<float>(s, kTightF32);
}

TEST_F(Attention, Bf16AgreesWithDefinition) {
  if (ways_attention(Dtype::bf16).empty()) GTEST_SKIP() << "no kernel for bf16 on this processor";
  for (const Shape& s : shapes()) check<bf16>(s, kBf16);
}

// Scores of magnitude 10^2 to 10^4: one key takes nearly all weight, and nothing overflows. Allowed is the fp32
// rounding of the scores, magnified. At the greater magnitude ds = p·(dp - delta) all but cancels, and what is left
// of dq and dk in bf16 is the rounding of o within delta: there they only have to be finite.
TEST_F(Attention, LargeScores) {
  constexpr double kFinite = std::numeric_limits<double>::infinity();
  for (const double magnitude : {8.0, 60.0}) {
    const Shape s{1, 130, 2, 1, 48, 32, true, magnitude};
    const double blur = 6e-8 * magnitude * magnitude * 7;  // rounding of the largest scores
    check<float>(s, {5 * blur, 1e-6, 5 * blur, 30 * blur});
    check<bf16>(s, {6e-3 + 5 * blur, 2e-4, 1e-2 + 5 * blur, magnitude < 10 ? 0.05 : kFinite});
  }
}

template <class T>
void no_rows() {
  for (const std::string_view way : ways_attention(dtype_of<T>)) {
    Matrix inputs[4];
    Trial<T> run = random_run<T>(way, {0, 64, 4, 2, 48, 32}, inputs);
    run.forward();
    run.backward();
  }
}

TEST_F(Attention, NoRows) {
  no_rows<float>();
  no_rows<bf16>();
}

template <class T>
void same_with_threads(std::string_view way, const Shape& s) {
  SCOPED_TRACE(testing::Message() << way << " " << s);
  Matrix inputs[4];
  Trial<T> one = random_run<T>(way, s, inputs), two = random_run<T>(way, s, inputs);
  omp_set_num_threads(1);
  one.forward();
  one.backward();
  omp_set_num_threads(2);
  two.forward();
  two.backward();
  const auto same = [](const auto& a, const auto& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
  };
  EXPECT_TRUE(same(one.out, two.out));
  EXPECT_TRUE(same(one.lse, two.lse));
  EXPECT_TRUE(same(one.dq, two.dq));
  EXPECT_TRUE(same(one.dk, two.dk));
  EXPECT_TRUE(same(one.dv, two.dv));
}

// One unit (all shared by the team), three (one left over), two (none).
TEST_F(Attention, ThreadsDoNotChangeBits) {
  for (const bool causal : {true, false}) {
    for (const Shape& s : {Shape{1, 450, 2, 1, 48, 32, causal}, Shape{3, 300, 4, 1, 40, 64, causal},
                           Shape{1, 130, 6, 2, 64, 48, causal}}) {
      for (const std::string_view way : ways_attention(Dtype::f32)) same_with_threads<float>(way, s);
      for (const std::string_view way : ways_attention(Dtype::bf16)) same_with_threads<bf16>(way, s);
    }
  }
}

// A later key must not touch an earlier query, not even by a rounding; NaN would show the smallest weight.
template <class T>
void later_keys_are_unseen(std::string_view way) {
  SCOPED_TRACE(way);
  const Shape s{1, 130, 2, 1, 48, 32};
  Matrix inputs[4];
  Trial<T> plain = random_run<T>(way, s, inputs);
  plain.forward();
  constexpr int64_t kFrom = 77;
  for (int64_t row = kFrom; row < s.rows(); ++row) {
    for (int64_t c = 0; c < s.head_dim; ++c) inputs[1][row * s.head_dim + c] = 30;
    for (int64_t c = 0; c < s.value_dim; ++c) inputs[2][row * s.value_dim + c] = 1e30;
  }
  Trial<T> other(way, s, plain.scale, inputs[0], inputs[1], inputs[2], inputs[3]);
  other.forward();
  const size_t same_out = kFrom * s.heads * s.value_dim, same_lse = kFrom * s.heads;
  EXPECT_EQ(std::memcmp(plain.out.data(), other.out.data(), same_out * sizeof(T)), 0);
  EXPECT_EQ(std::memcmp(plain.lse.data(), other.lse.data(), same_lse * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(&plain.out[same_out], &other.out[same_out], sizeof(T)), 0);
}

TEST_F(Attention, LaterKeysAreUnseen) {
  for (const std::string_view way : ways_attention(Dtype::f32)) later_keys_are_unseen<float>(way);
  for (const std::string_view way : ways_attention(Dtype::bf16)) later_keys_are_unseen<bf16>(way);
}

TEST_F(Attention, RefusesWithReason) {
  const Shape s{1, 8, 4, 2, 16, 16};
  const OneOp f64(s, Dtype::f64, false, 1.0), f32(s, Dtype::f32, false, 1.0), flat(s, Dtype::bf16, false, 0.0);
  for (const KernelEntry& kernel : attention_kernels()) {
    if (kernel.op_kind != "attention") continue;
    EXPECT_FALSE(kernel.supports(f64.listing, f64.op)) << kernel.name;
  }
  for (const std::string_view way : ways_attention(Dtype::bf16)) {
    EXPECT_EQ(entry("attention", way).supports(f32.listing, f32.op).reason, "takes bf16, input 0 is f32");
    EXPECT_EQ(entry("attention", way).supports(flat.listing, flat.op).reason, "the scale is not positive");
  }
}

// A processor with AVX-512 leaves neither type to the reference's loops.
TEST_F(Attention, Avx512ServesBothTypes) {
  if (!avx512()) GTEST_SKIP() << avx512().reason;
  EXPECT_FALSE(ways_attention(Dtype::f32).empty());
  EXPECT_FALSE(ways_attention(Dtype::bf16).empty());
}

}  // namespace
}  // namespace heddle::kernels::host
