// What the homes of optimizer state cost, against counts by hand and in relation to each other.
#include "heddle/plan/costs/state_cost.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_models.h"

namespace heddle::plan {
namespace {

Plan plan_of(Dtype dtype) {
  Plan plan;
  plan.sequences = 2;
  plan.sequence_length = 16;
  plan.dtype = dtype;
  return plan;
}

StateCost of(const std::vector<StateCost>& costs, StateResidency home) {
  const auto at = std::find_if(costs.begin(), costs.end(), [&](const StateCost& c) { return c.residency == home; });
  HEDDLE_CHECK(at != costs.end(), "no cost of {}", word_of(home));
  return *at;
}

int64_t trained(const model::ModelConfig& config, const Plan& plan) {
  const Lowered lowered = lower(config, plan);
  int64_t sum = 0;
  for (const model::Parameter& p : lowered.parameters[0])
    sum += p.trained ? lowered.program.listings[0].elements(p.value, ir::FixedRows()) : 0;
  return sum;
}

TEST(StateCost, CountsWhatLiesWhere) {
  const model::ModelConfig config = test::small_model();
  Plan plan = plan_of(Dtype::bf16);
  const int64_t n = trained(config, plan);
  const std::vector<StateCost> full = state_costs(config, plan);
  ASSERT_EQ(full.size(), 4u);
  const StateCost device = of(full, StateResidency::device), swap = of(full, StateResidency::swap),
                  mapped = of(full, StateResidency::mapped), host = of(full, StateResidency::host);
  EXPECT_EQ(device.host_bytes, 0);
  EXPECT_NEAR(static_cast<double>(device.device_bytes), 12.0 * static_cast<double>(n), 0.02 * 12.0 * n);
  EXPECT_EQ(mapped.device_bytes + mapped.host_bytes, device.device_bytes);
  EXPECT_EQ(mapped.host_bytes, 8 * n);
  EXPECT_LT(swap.device_bytes, device.device_bytes / 2);
  EXPECT_LT(host.device_bytes, swap.device_bytes);  // it has no slots there
  EXPECT_GT(host.host_bytes, swap.host_bytes);      // where gradients wait
  plan.memory.master = MasterForm::split;
  const std::vector<StateCost> split = state_costs(config, plan);
  EXPECT_LT(of(split, StateResidency::device).device_bytes, device.device_bytes);
  EXPECT_LT(of(split, StateResidency::host).host_bytes, host.host_bytes);
}

// A slow link makes the homes dear that send most over it; a slow processor the one that it works for.
TEST(StateCost, FollowsTheRates) {
  const model::ModelConfig config = test::small_model();
  Plan plan = plan_of(Dtype::bf16);
  plan.rates.bytes_per_us = 1e6;
  plan.rates.processor_bytes_per_us = 1e6;
  plan.rates.host_bytes_per_us = 1;
  std::vector<StateCost> costs = state_costs(config, plan);
  EXPECT_LT(of(costs, StateResidency::device).end_s, of(costs, StateResidency::host).end_s);
  EXPECT_LT(of(costs, StateResidency::host).end_s, of(costs, StateResidency::mapped).end_s);
  EXPECT_LT(of(costs, StateResidency::mapped).end_s, of(costs, StateResidency::swap).end_s);
  plan.rates.host_bytes_per_us = 1e5;
  plan.rates.processor_bytes_per_us = 1;
  costs = state_costs(config, plan);
  EXPECT_LT(of(costs, StateResidency::swap).end_s, of(costs, StateResidency::host).end_s);
}

}  // namespace
}  // namespace heddle::plan
