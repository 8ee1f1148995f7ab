// Rates for weaving and offload out of a profile: which are set, which stay, and that a plan goes by them.
#include "heddle/planner/measured_rates.h"

#include <gtest/gtest.h>

#include "tests/planner/planner_fixture.h"

namespace heddle::planner {
namespace {

config::RunConfig read(const std::vector<std::string>& set) { return config::parse_run_config("", "test", set); }

TEST(MeasuredRates, AreThoseOfTheProfile) {
  const config::RunConfig alone = read({"device.dtype=f32"});
  const config::RunConfig one = rated(alone, made_profile());
  EXPECT_EQ(
      rate_settings(alone, one),
      (std::vector<std::string>{"device.product_rate=400.0", "device.memory_rate=40.0", "memory.host_rate=20.0"}));
  const config::RunConfig four =
      rated(read({"mesh.ranks=4", "device.dtype=f32", "train.microbatch=2"}), made_profile());
  EXPECT_EQ(four.plan.device.product_rate, 100);
  EXPECT_EQ(four.plan.device.memory_rate, 10);
  EXPECT_NEAR(four.plan.parallel.message_rate, 4, 0.01);  // 999 kB more in 250 us
  EXPECT_EQ(four.plan.parallel.message_latency_us, 20);
  const plan::Plan plan = train::plan_of(four);
  EXPECT_EQ(plan.rates.flops_per_us, 100e3);
  EXPECT_EQ(plan.rates.bytes_per_us, 10e3);
  EXPECT_NEAR(plan.rates.message_bytes_per_us, 4e3, 10);
  // What is said stays as it is; another device's rates are not this profile's.
  EXPECT_EQ(rated(read({"device.product_rate=7"}), made_profile()).plan.device.product_rate, 7);
  const config::RunConfig cuda = read({"device.backend=cuda"});
  EXPECT_EQ(rated(cuda, made_profile()), cuda);
}

// Ways are compared where all sizes are the same, of the rank's threads and type.
TEST(MeasuredRates, KnowTheWaysOfProducts) {
  cost::MachineProfile profile = made_profile();
  const auto measured = [&](const char* kind, double experts, double mflop, double us, int threads, Dtype dtype) {
    const cost::OpShape shape{kind, dtype, 64 * experts, 32, 16, experts, mflop * 1e6 * experts, 1e6};
    profile.ops.add({shape, threads, 1e6, us});
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const double serial = dtype == Dtype::f32 ? 150 : 300;
    measured("grouped_linear", 4, 1, 100, 8, dtype);
    measured("grouped_linear.serial", 4, 1, serial, 8, dtype);
    measured("grouped_linear.batched", 4, 1, 90, 8, dtype);
    measured("grouped_linear.serial", 4, 2, 700, 8, dtype);  // which nothing is measured beside
    measured("grouped_linear_wgrad", 4, 100, 1000, 1, dtype);
    measured("grouped_linear_wgrad.serial", 4, 100, 1010, 1, dtype);
  }
  const config::RunConfig alone = read({"device.dtype=f32"}), one = rated(alone, profile);
  EXPECT_EQ(one.plan.device.product_ways, "grouped_linear.batched 1 0.9,grouped_linear.serial 1 1.5");
  EXPECT_EQ(read([&] {
              std::vector<std::string> set{"device.dtype=f32"};
              for (const std::string& found : rate_settings(alone, one)) set.push_back(found);
              return set;
            }()),
            one);
  const config::RunConfig two = rated(read({"device.dtype=f32", "mesh.ranks=2", "train.microbatch=2"}), profile);
  EXPECT_EQ(two.plan.device.product_ways, "grouped_linear_wgrad.serial 100 1.01");
  const std::string said = "grouped_linear.serial 1 2";
  EXPECT_EQ(rated(read({"device.product_ways=" + said}), profile).plan.device.product_ways, said);
}

// Other rates, another order of the same ops: no bit hangs on it, but all ranks must be told the same.
TEST(MeasuredRates, DecideWhatIsWoven) {
  const std::vector<std::string> mesh{"mesh.ranks=4", "mesh.pp=2", "mesh.ep=2", "train.microbatch=1",
                                      "parallel.schedule=interleaved_fused"};
  const auto order = [&](const std::vector<std::string>& more) {
    std::vector<std::string> set = mesh;
    set.insert(set.end(), more.begin(), more.end());
    const config::RunConfig config = read(set);
    std::vector<uint32_t> ops;
    for (const ir::Block& block : plan::lower(config.model, train::plan_of(config)).program.blocks)
      for (const ir::Step& step : block.steps) ops.push_back(step.op);
    return ops;
  };
  const std::vector<uint32_t> nominal = order({});
  EXPECT_TRUE(order({}) == nominal);
  const std::vector<uint32_t> slow = order({"parallel.message_rate=1", "parallel.message_latency_us=5000"});
  EXPECT_EQ(slow.size(), nominal.size());
  EXPECT_FALSE(slow == nominal);
  EXPECT_FALSE(order({"device.product_rate=1", "device.memory_rate=1"}) == nominal);
}

}  // namespace
}  // namespace heddle::planner
