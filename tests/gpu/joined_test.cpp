// Joined forms on the cuda backend: what one launch does to many parameters has the bits of a launch for each.
#include "heddle/ops/update/joined.h"

#include "tests/gpu/on_device.h"
#include "tests/kernels/op_cases.h"
#ifdef HEDDLE_EMULATOR
#include HEDDLE_EMULATOR
#endif

namespace heddle::op_runner {
namespace {

class CudaJoined : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
};

Operand number(double value) { return metadata(Tensor(Dtype::f64, {1}, value)); }
Operand rates() { return metadata(Tensor(Dtype::f64, {3}, std::vector<double>{1.3e-2, 0.19, 0.0975})); }

// More parameters than one launch takes, of less than a pack, several blocks, and sizes between.
std::vector<int64_t> sizes() {
  std::vector<int64_t> sizes{1, 70001, 8, 2048, 2049};
  while (sizes.size() < 70) sizes.push_back(3 + 37 * std::ssize(sizes) % 500);
  return sizes;
}
std::vector<Tensor> drawn(Dtype dtype, uint64_t seed, bool positive = false) {
  std::vector<Tensor> all;
  for (const int64_t size : sizes()) {
    Tensor& t = all.emplace_back(dtype, std::vector<int64_t>{size});
    const RandomKey key(seed++);
    for (size_t i = 0; i < t.values.size(); ++i) {
      const auto x = static_cast<float>(key.normal(i));
      const double range = dtype == Dtype::u16 ? 65536 : dtype == Dtype::u8 ? 127 : 0;  // of e4m3, without its NaN
      t.values[i] = range > 0 ? std::floor(range * key.uniform(i)) : positive ? std::abs(x) : x;
    }
  }
  return all;
}

/// A joined op of operands by parameter, and each of its parts, on the same kernels. How many launches the first
/// took, where that can be told.
int64_t like_parts(const OpCase& shared, const std::vector<Tensor>& gradients,
                   const std::vector<std::vector<Tensor>>& states) {
  OpCase joined = shared;
  joined.kind = ops::joined_form(ops::find(shared.kind))->kind;
  for (size_t i = 0; i < gradients.size(); ++i) {
    joined.in.push_back(metadata(gradients[i]));
    for (const std::vector<Tensor>& state : states) joined.updates.push_back(state[i]);
  }
  int64_t launches = 0;
#ifdef HEDDLE_EMULATOR
  launches = -kernels::cuda::emulator::launches();
#endif
  const OpResult found = run_op(joined, kernels::cuda_kernels(), false, ir::Phase::end);
#ifdef HEDDLE_EMULATOR
  launches += kernels::cuda::emulator::launches();
#endif
  EXPECT_NE(found.ran[0].find("joined"), std::string::npos) << found.ran[0];
  for (size_t i = 0; i < gradients.size(); ++i) {
    OpCase one = shared;
    one.in.push_back(metadata(gradients[i]));
    for (const std::vector<Tensor>& state : states) one.updates.push_back(state[i]);
    const OpResult expected = run_op(one, kernels::cuda_kernels(), false, ir::Phase::end);
    for (size_t u = 0; u < states.size(); ++u)
      EXPECT_TRUE(same(expected.updates[u], found.updates[i * states.size() + u]))
          << one.kind << " " << i << " " << u;
    if (!expected.out.empty()) {
      EXPECT_TRUE(same(expected.out[0], found.out[i])) << one.kind << " " << i;
    }
  }
  return launches;
}

void expect_launches(int64_t found, int64_t wanted) {
#ifdef HEDDLE_EMULATOR
  EXPECT_EQ(found, wanted);
#endif
  (void)found, (void)wanted;
}

TEST_F(CudaJoined, squares) {
  expect_launches(like_parts({"squares", "grad_square_sum", {}, {}, {}}, drawn(Dtype::f32, 1), {}), 4);
}

TEST_F(CudaJoined, adamw) {
  for (const double clip : {0.37, 0.0}) {
    for (const int copy : {0, 1, 2}) {
      const ir::Attributes at{
          {"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", copy > 0 ? 1 : 0}};
      std::vector<std::vector<Tensor>> states{drawn(Dtype::f32, 200), drawn(Dtype::f32, 300),
                                              drawn(Dtype::f32, 400, true)};
      if (copy > 0) states.push_back(drawn(copy == 1 ? Dtype::bf16 : Dtype::f32, 500));
      for (const Dtype moments : {Dtype::f32, Dtype::bf16, Dtype::u8}) {
        states[1] = drawn(moments, 300),
        states[2] = drawn(moments == Dtype::f32 ? moments : Dtype::bf16, 400, true);
        expect_launches(
            like_parts({"adamw", "adamw", {number(clip), rates()}, at, {}}, drawn(Dtype::f32, 100), states), 2);
      }
    }
  }
}

TEST_F(CudaJoined, split_masters) {
  for (const double clip : {0.37, 0.0}) {
    const ir::Attributes at{{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}};
    for (const Dtype moments : {Dtype::f32, Dtype::bf16, Dtype::u8}) {
      expect_launches(
          like_parts({"adamw_split", "adamw_split", {number(clip), rates()}, at, {}}, drawn(Dtype::f32, 100),
                     {drawn(Dtype::u16, 200), drawn(moments, 300),
                      drawn(moments == Dtype::f32 ? moments : Dtype::bf16, 400, true), drawn(Dtype::bf16, 500)}),
          2);
    }
  }
}

TEST_F(CudaJoined, averages) {
  for (const double clip : {1.0, 0.0}) {
    expect_launches(like_parts({"average", "average_master", {number(clip)}, {{"decay", 0.99}}, {}},
                               drawn(Dtype::f32, 100), {drawn(Dtype::f32, 200)}),
                    2);
  }
}

}  // namespace
}  // namespace heddle::op_runner
