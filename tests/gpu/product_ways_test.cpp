// The ways of experts' products on the cuda backend (ir/product_way.h): reference's values each way, and the bits
// of the grouped product where no vendor's library multiplies, which adds in an order of its own.
#include "tests/gpu/on_device.h"
#include "tests/kernels/way_cases.h"

namespace heddle::op_runner {
namespace {

class CudaProductWays : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
};

void expect_way(const std::string& way, const WaySizes& sizes, const std::string& row, bool same_bits) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    const auto& cuda = kernels::cuda_kernels();
    const std::vector<Tensor> value = product_by(way, sizes, X, kernels::reference_kernels(), "");
    const std::vector<Tensor> grouped = product_by("grouped", sizes, X, cuda, "cuda.tiles");
    const std::vector<Tensor> found = product_by(way, sizes, X, cuda, row);
    ASSERT_EQ(found.size(), value.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string where = fmt::format("{} in {}, {} groups of {}, {} × {}, {}", way, name_of(X),
                                            sizes.rows.size(), sizes.rows[0], sizes.N, sizes.K, i);
      EXPECT_TRUE(close(value[i], found[i], X == Dtype::f32 ? 2e-5 : 0x1p-7)) << where;
      EXPECT_TRUE(!same_bits || same(grouped[i], found[i])) << where;
    }
  }
}

// Fewer rows than a tile, a whole one, more; rows that no 16-byte access reads; one expert; none with rows.
TEST_F(CudaProductWays, equal_groups_are_batched) {
  const bool own = !kernels::cuda_product_library().there;
  for (const int32_t rows : {0, 1, 7, 128, 150}) {
    for (const auto& [N, K] : {std::pair(40, 72), std::pair(200, 33)})
      expect_way("batched", {std::vector<int32_t>(3, rows), N, K, 0}, "cuda.batched", own);
  }
  expect_way("batched", {{260}, 130, 64, 0}, "cuda.batched", own);
}

TEST_F(CudaProductWays, groups_of_any_size_come_one_after_the_other) {
  expect_way("serial", {{0, 3, 200, 0, 17, 1}, 70, 45, 0}, "cuda.serial_tiles", true);
  expect_way("serial", {{0, 0, 0, 290}, 64, 48, 0}, "cuda.serial_tiles", true);
  expect_way("serial", {{5, 0, 140, 64, 0, 33}, 70, 45, 2}, "cuda.serial_tiles", true);
  expect_way("serial", {{0, 0}, 8, 16, 0}, "cuda.serial_tiles", true);
}

/// y, dx and the sums of weight gradients, of groups that the text says to be equal.
std::vector<Tensor> of_equal(const std::string& way, int64_t rows, Dtype X, std::vector<std::string>& ran) {
  constexpr int64_t E = 4, N = 40, K = 72;
  ListingRunner runner(kernels::cuda_kernels());
  const ir::ValueId x = runner.add(random_tensor(X, {E * rows, K}, 1), Role::activation, "x"),
                    dy = runner.add(random_tensor(X, {E * rows, N}, 2), Role::activation, "dy"),
                    w = runner.add(random_tensor(X, {E, N, K}, 3), Role::weight, "w"),
                    sum = runner.add(random_tensor(Dtype::f32, {E, N, K}, 4), Role::accumulator, "sum");
  const ir::ValueId bounds = runner.append("even_offsets", {}, {{"groups", E}, {"rows", rows}})[0];
  const ir::Attributes attributes{{"way", way}};
  const ir::ValueId y = runner.append("grouped_linear", {x, w, bounds}, attributes)[0],
                    dx = runner.append("grouped_linear_dgrad", {dy, w, bounds}, attributes)[0];
  runner.append("grouped_linear_wgrad", {x, dy, bounds}, attributes, {sum}, ir::Phase::W);
  runner.run(false);
  ran = runner.ran;
  return {runner.read(y), runner.read(dx), runner.read(sum)};
}

// Each a product of its own where the text tells how many rows it has.
TEST_F(CudaProductWays, equal_groups_come_one_after_the_other) {
  for (const int64_t rows : {0, 9, 130}) {
    for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
      std::vector<std::string> ran;
      const std::vector<Tensor> batched = of_equal("batched", rows, X, ran);
      for (size_t i = 1; i < ran.size(); ++i) EXPECT_TRUE(ran[i].ends_with("cuda.batched")) << ran[i];
      const std::vector<Tensor> serial = of_equal("serial", rows, X, ran);
      for (size_t i = 1; i < ran.size(); ++i) EXPECT_TRUE(ran[i].ends_with("cuda.serial")) << ran[i];
      for (size_t i = 0; i < serial.size(); ++i) {
        EXPECT_TRUE(kernels::cuda_product_library().there ? close(batched[i], serial[i], 0x1p-7)
                                                          : same(batched[i], serial[i]))
            << rows << " rows in " << name_of(X) << ", " << i;
      }
    }
  }
}

TEST_F(CudaProductWays, copies_are_not_batched) {
  const WaySizes sizes{{4, 4, 4}, 16, 16, 1};
  try {
    product_by("batched", sizes, Dtype::f32, kernels::cuda_kernels(), "");
    FAIL() << "a copy was batched";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("replicas of experts have any number of rows"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace heddle::op_runner
