// The end of a step on the host against `reference`: fp32 in another order of multiplication, 1e-6 of the largest
// magnitude; a rounded copy may fall on the neighbouring bf16.
#include "heddle/base/numbers/split_float.h"
#include "heddle/ops/moment_byte.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

Tensor positive(Tensor t) {
  for (double& x : t.values) x = std::abs(x);
  return t;
}

/// Every byte but those of NaN, in turn.
Tensor bytes(int64_t elements) {
  Tensor t(Dtype::u8, {elements});
  for (size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<double>(i % 127 + (i / 127 % 2) * 128);
  return t;
}

/// `moments`: u8 is of the first, beside a bf16.
OpCase adamw_case(int64_t elements, int uses, bool copy, Dtype moments = Dtype::f32) {
  OpCase op{"", "adamw", {}, {}, {}};
  op.in.push_back(metadata(Tensor(Dtype::f64, {1}, 0.7)));
  Tensor hyper(Dtype::f64, {3}, 0);
  hyper.values = {3e-3, 0.19, 0.0975};
  op.in.push_back(metadata(hyper));
  for (int u = 0; u < uses; ++u)
    op.in.push_back(metadata(random_tensor(Dtype::f32, {elements}, 10 + static_cast<uint64_t>(u))));
  op.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", int64_t{copy}}};
  const bool packed = moments == Dtype::u8;
  op.updates = {random_tensor(Dtype::f32, {elements}, 1),
                packed ? bytes(elements) : random_tensor(moments, {elements}, 2),
                positive(random_tensor(packed ? Dtype::bf16 : moments, {elements}, 3))};
  if (copy) op.updates.push_back(Tensor(Dtype::bf16, {elements}, 0));
  return op;
}

/// First moments that are bytes, of these second ones.
std::vector<double> numbers_of(const Tensor& m, const Tensor& v) {
  std::vector<double> all(m.values.size());
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = fp8::moment_of_byte(static_cast<uint8_t>(m.values[i]), static_cast<float>(v.values[i]));
  return all;
}

// Of v as it is kept, a byte stands for the number that it was made of: through bf16 it comes back as it was.
TEST(MomentByte, ComesBack) {
  for (int byte = 0; byte < 256; ++byte) {
    if ((byte & 0x7f) == fp8::kNan) continue;
    for (const float size : {1e-38f, 3e-30f, 1e-12f, 0.37f, 2e7f, 1e36f}) {
      const float v = bf16(size), m = fp8::moment_of_byte(static_cast<uint8_t>(byte), v);
      EXPECT_EQ(fp8::byte_of_moment(m, v), byte);
      EXPECT_EQ(fp8::byte_of_moment(bf16(m), v), byte);
    }
  }
  EXPECT_EQ(fp8::byte_of_moment(1, 0), 0);
  EXPECT_EQ(fp8::moment_of_byte(fp8::byte_of_moment(1e9f, 1), 1), 14);
  for (const float share : {-1.2f, -0.3f, 0.001f, 0.9f})  // of the root of v
    EXPECT_NEAR(fp8::moment_of_byte(fp8::byte_of_moment(share * 1e-3f, 1e-6f), 1e-6f), share * 1e-3f,
                std::abs(share) * 1e-3f / 16);
}

TEST(HostAdamw, AgreesWithReference) {
  for (const int64_t elements : {1, 7, 33, 5000}) {
    for (const int uses : {1, 3}) {
      for (const bool copy : {false, true}) {
        for (const Dtype moments : {Dtype::f32, Dtype::bf16, Dtype::u8}) {
          const OpCase op = adamw_case(elements, uses, copy, moments);
          OpResult wanted = run_op(op, kernels::reference_kernels(), false, ir::Phase::end);
          OpResult found = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
          for (OpResult* result : {&wanted, &found}) {
            if (moments == Dtype::u8)
              result->updates[1].values = numbers_of(result->updates[1], result->updates[2]);
          }
          const auto grain = [](Dtype dtype) {
            return dtype == Dtype::u8 ? 1.0 / 8 : dtype == Dtype::bf16 ? 1.0 / 256 : 1e-6;
          };
          for (size_t i = 0; i < op.updates.size(); ++i)
            EXPECT_TRUE(close(wanted.updates[i], found.updates[i], grain(op.updates[i].dtype))) << i;
        }
      }
    }
  }
}

// A moment is rounded where it is kept. The master moves by the moment in fp32.
TEST(HostAdamw, RoundsMomentsAfterTheStep) {
  const OpCase kept = adamw_case(1000, 1, false, Dtype::bf16);
  OpCase wide = adamw_case(1000, 1, false);
  for (const size_t moment : {1, 2}) wide.updates[moment].values = kept.updates[moment].values;
  const OpResult narrow = run_op(kept, kernels::host_kernels(), false, ir::Phase::end);
  const OpResult whole = run_op(wide, kernels::host_kernels(), false, ir::Phase::end);
  EXPECT_TRUE(same(whole.updates[0], narrow.updates[0]));
  for (const size_t moment : {1, 2}) {
    for (size_t i = 0; i < 1000; ++i)
      EXPECT_EQ(narrow.updates[moment].values[i],
                static_cast<float>(bf16(static_cast<float>(whole.updates[moment].values[i]))));
  }
}

// Both lists of kernels keep the byte that the definition gives, of the moments of a step in fp32.
TEST(HostAdamw, KeepsTheByteOfTheFirstMoment) {
  for (const auto* list : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    OpCase kept = adamw_case(5000, 2, true, Dtype::u8);
    for (size_t i = 0; i < 40; ++i) kept.updates[2].values[i] = 0;  // where nothing has moved yet
    for (size_t i = 0; i < 20; ++i) {
      for (const size_t use : {2, 3}) kept.in[use].tensor.values[i] = i < 10 ? 0 : 1e-25;  // whose square is none
    }
    OpCase wide = kept;
    wide.updates[1].dtype = wide.updates[2].dtype = Dtype::f32;
    wide.updates[1].values = numbers_of(kept.updates[1], kept.updates[2]);
    const OpResult narrow = run_op(kept, *list, false, ir::Phase::end),
                   whole = run_op(wide, *list, false, ir::Phase::end);
    EXPECT_TRUE(same(whole.updates[0], narrow.updates[0]));
    EXPECT_TRUE(same(whole.updates[3], narrow.updates[3]));
    for (size_t i = 0; i < 5000; ++i) {
      const float v = bf16(static_cast<float>(whole.updates[2].values[i]));
      ASSERT_EQ(narrow.updates[2].values[i], v) << i;
      ASSERT_EQ(narrow.updates[1].values[i], fp8::byte_of_moment(static_cast<float>(whole.updates[1].values[i]), v))
          << i;
    }
  }
}

// But for the copy, which may lie anywhere before.
TEST(HostAdamw, TouchesNothingWhenTheNormIsNotFinite) {
  OpCase op = adamw_case(100, 1, true);
  op.in[0].tensor.values = {0.0};
  const OpResult found = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(op.updates[i], found.updates[i]));
  EXPECT_EQ(found.updates[3].values, op.updates[0].values);  // they are bf16
}

// Masters of all kinds: every lower half about one half, halfway below an odd and an even weight, large ones, both
// signs.
std::vector<float> masters() {
  std::vector<float> all;
  for (const uint32_t high : {0x3f80u, 0x3f81u, 0xbf80u, 0xbf81u, 0x0000u, 0x8001u, 0x7f7fu, 0xff7eu}) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      all.push_back(std::bit_cast<float>(high << 16 | low));
  }
  const RandomKey key(5);
  for (uint64_t i = 0; i < 3000; ++i) {
    auto word = static_cast<uint32_t>(key.bits(i));
    if (i % 3 == 0) word = (word & 0xffff0000u) | kHalfway;
    if ((word & 0x7f800000u) != 0x7f800000u) all.push_back(std::bit_cast<float>(word));
  }
  return all;
}

TEST(SplitFloat, JoinsToTheSameBits) {
  for (const float x : masters()) {
    const SplitFloat parts = split(x);
    EXPECT_EQ(parts.nearest.bits, bf16(x).bits);
    EXPECT_EQ(std::bit_cast<uint32_t>(joined(parts)), std::bit_cast<uint32_t>(x)) << x;
  }
  EXPECT_TRUE(std::isnan(joined(split(std::bit_cast<float>(0x7f80ffffu)))));
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(joined(split(-inf)), -inf);
}

// A step of adamw_split is one of adamw with a copy, to the bit: masters, moments and weights.
void expect_as_whole(const std::vector<kernels::KernelEntry>& list, double clip, double rate, Dtype moments) {
  const std::vector<float> all = masters();
  const auto n = std::ssize(all);
  OpCase whole = adamw_case(n, 1, true, moments);
  whole.in[0].tensor.values = {clip};
  whole.in[1].tensor.values[0] = rate;
  whole.updates[0].values.assign(all.begin(), all.end());
  OpCase halves = whole;
  halves.kind = "adamw_split";
  halves.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}};
  halves.updates[0] = Tensor(Dtype::u16, {n});
  for (size_t i = 0; i < all.size(); ++i) {
    const SplitFloat parts = split(all[i]);
    halves.updates[0].values[i] = parts.low;
    halves.updates[3].values[i] = parts.nearest;
    halves.updates[2].values[i] = std::copysign(whole.updates[2].values[i], parts.up_at_half ? -1.0 : 1.0);
    whole.updates[3].values[i] = parts.nearest;
  }
  for (int step = 0; step < 3; ++step) {
    whole.updates = run_op(whole, list, false, ir::Phase::end).updates;
    halves.updates = run_op(halves, list, false, ir::Phase::end).updates;
    EXPECT_TRUE(same(whole.updates[1], halves.updates[1])) << "first moments of step " << step;
    EXPECT_TRUE(same(whole.updates[3], halves.updates[3])) << "weights of step " << step;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto v = static_cast<float>(halves.updates[2].values[i]);
      const float master = joined({static_cast<float>(halves.updates[3].values[i]),
                                   static_cast<uint16_t>(halves.updates[0].values[i]), std::signbit(v)});
      ASSERT_EQ(std::bit_cast<uint32_t>(master),
                std::bit_cast<uint32_t>(static_cast<float>(whole.updates[0].values[i])))
          << i << " in step " << step;
      ASSERT_EQ(std::abs(v), static_cast<float>(whole.updates[2].values[i])) << i;
    }
  }
}

TEST(AdamwSplit, IsAdamwToTheBit) {
  for (const auto* list : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    for (const Dtype moments : {Dtype::f32, Dtype::bf16, Dtype::u8}) {
      expect_as_whole(*list, 0.7, 3e-3, moments);
      expect_as_whole(*list, 0.7, 0, moments);  // masters that lie halfway stay there
      expect_as_whole(*list, 0, 3e-3, moments);
    }
  }
}

TEST(HostGradSquareSum, AgreesWithReference) {
  for (const int64_t elements : {1, 5, 1024, 100003}) {
    OpCase op{"", "grad_square_sum", {}, {}, {}};
    for (uint64_t u = 0; u < 2; ++u) op.in.push_back(metadata(random_tensor(Dtype::f32, {elements}, u)));
    EXPECT_TRUE(close(run_op(op, kernels::reference_kernels(), false, ir::Phase::end).out[0],
                      run_op(op, kernels::host_kernels(), false, ir::Phase::end).out[0], 1e-13));
  }
}

TEST(HostCastWeight, RoundsToTheSameBits) {
  OpCase op{
      "", "cast_weight", {metadata(random_tensor(Dtype::f32, {777}, 4))}, {}, {Tensor(Dtype::bf16, {777}, 0)}};
  EXPECT_TRUE(same(run_op(op, kernels::reference_kernels(), false, ir::Phase::end).updates[0],
                   run_op(op, kernels::host_kernels(), false, ir::Phase::end).updates[0]));
}

TEST(HostCopy, IsOfTheSameBits) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    const Tensor from = random_tensor(dtype, {100003}, 5);
    for (const auto* list : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
      const OpCase op{"", "copy", {metadata(from)}, {}, {Tensor(dtype, {100003}, 0)}};
      EXPECT_TRUE(same(run_op(op, *list, false, ir::Phase::end).updates[0], from));
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
