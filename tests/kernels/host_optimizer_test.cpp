// The end of a step on the host against `reference`: fp32 in another order of multiplication, 1e-6 of the largest
// magnitude; a rounded copy may fall on the neighbouring bf16.
#include "heddle/base/numbers/split_float.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

Tensor positive(Tensor t) {
  for (double& x : t.values) x = std::abs(x);
  return t;
}

OpCase adamw_case(int64_t elements, int uses, bool copy, Dtype moments = Dtype::f32) {
  OpCase op{"", "adamw", {}, {}, {}};
  op.in.push_back(metadata(Tensor(Dtype::f64, {1}, 0.7)));
  Tensor hyper(Dtype::f64, {3}, 0);
  hyper.values = {3e-3, 0.19, 0.0975};
  op.in.push_back(metadata(hyper));
  for (int u = 0; u < uses; ++u)
    op.in.push_back(metadata(random_tensor(Dtype::f32, {elements}, 10 + static_cast<uint64_t>(u))));
  op.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", int64_t{copy}}};
  op.updates = {random_tensor(Dtype::f32, {elements}, 1), random_tensor(moments, {elements}, 2),
                positive(random_tensor(moments, {elements}, 3))};
  if (copy) op.updates.push_back(Tensor(Dtype::bf16, {elements}, 0));
  return op;
}

TEST(HostAdamw, AgreesWithReference) {
  for (const int64_t elements : {1, 7, 33, 5000}) {
    for (const int uses : {1, 3}) {
      for (const bool copy : {false, true}) {
        for (const Dtype moments : {Dtype::f32, Dtype::bf16}) {
          const OpCase op = adamw_case(elements, uses, copy, moments);
          const OpResult wanted = run_op(op, kernels::reference_kernels(), false, ir::Phase::end);
          const OpResult found = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
          const auto grain = [](Dtype dtype) { return dtype == Dtype::bf16 ? 1.0 / 256 : 1e-6; };
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

// But for the copy, which may lie anywhere before.
TEST(HostAdamw, TouchesNothingWhenTheNormIsNotFinite) {
  OpCase op = adamw_case(100, 1, true);
  op.in[0].tensor.values = {0.0};
  const OpResult found = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(op.updates[i], found.updates[i]));
  EXPECT_EQ(found.updates[3].values, op.updates[0].values);  // they are bf16
}

float positive_float(uint32_t word) { return std::bit_cast<float>(word & 0x7fffffffu); }

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
void expect_as_whole(const std::vector<kernels::KernelEntry>& list, double clip, double rate) {
  const auto entry = [&](std::string_view kind) {
    return *std::find_if(list.begin(), list.end(), [&](const auto& k) { return k.op_kind == kind; });
  };
  std::vector<float> p = masters(), g, m, v;
  const auto n = static_cast<int64_t>(p.size());
  const RandomKey key(9);
  for (uint64_t i = 0; i < p.size(); ++i) {
    g.push_back(static_cast<float>(key.normal(i)));
    m.push_back(static_cast<float>(key.normal(i + 100000)));
    v.push_back(positive_float(static_cast<uint32_t>(key.bits(i)) % 0x40000000u));
  }
  std::vector<double> clips{clip}, hyper{rate, 0.19, 0.0975};
  std::vector<bf16> copy(p.size()), w;
  std::vector<uint16_t> low;
  std::vector<float> m2 = m, signed_v;
  for (size_t i = 0; i < p.size(); ++i) {
    const SplitFloat parts = split(p[i]);
    w.push_back(parts.nearest);
    low.push_back(parts.low);
    signed_v.push_back(std::copysign(v[i], parts.up_at_half ? -1.0f : 1.0f));
  }
  const auto view = [](auto& values, int64_t count, Dtype dtype) {
    device::TensorView view;
    view.data = values.data();
    view.dtype = dtype;
    view.rank = 1;
    view.dims[0] = count;
    return view;
  };
  ir::Op whole, halves;
  whole.def = &ops::find("adamw");
  halves.def = &ops::find("adamw_split");
  halves.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}};
  whole.attributes = halves.attributes;
  whole.attributes.set("copy", int64_t{1});
  const std::vector<device::TensorView> in{view(clips, 1, Dtype::f64), view(hyper, 3, Dtype::f64),
                                           view(g, n, Dtype::f32)};
  const std::vector<device::TensorView> of_whole{view(p, n, Dtype::f32), view(m, n, Dtype::f32),
                                                 view(v, n, Dtype::f32), view(copy, n, Dtype::bf16)};
  const std::vector<device::TensorView> of_halves{view(low, n, Dtype::u16), view(m2, n, Dtype::f32),
                                                  view(signed_v, n, Dtype::f32), view(w, n, Dtype::bf16)};
  for (int step = 0; step < 3; ++step) {
    device::KernelCall call;
    call.op = &whole;
    call.in = in;
    call.updates = of_whole;
    entry("adamw").run(call);
    call.op = &halves;
    call.updates = of_halves;
    entry("adamw_split").run(call);
    for (size_t i = 0; i < p.size(); ++i) {
      const float master = joined({w[i], low[i], std::signbit(signed_v[i])});
      ASSERT_EQ(std::bit_cast<uint32_t>(master), std::bit_cast<uint32_t>(p[i])) << i << " in step " << step;
      ASSERT_EQ(w[i].bits, copy[i].bits) << i;
      ASSERT_EQ(std::abs(signed_v[i]), v[i]) << i;
      ASSERT_EQ(m2[i], m[i]) << i;
    }
  }
}

TEST(AdamwSplit, IsAdamwToTheBit) {
  for (const auto* list : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
    expect_as_whole(*list, 0.7, 3e-3);
    expect_as_whole(*list, 0.7, 0);  // masters that lie halfway stay there
    expect_as_whole(*list, 0, 3e-3);
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
