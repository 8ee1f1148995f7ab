// How gradients are gathered up for their reduction, by what the links are said to do.
#include <gtest/gtest.h>

#include "heddle/plan/plan.h"
#include "tests/support/tiny_models.h"

namespace heddle::plan {
namespace {

std::vector<size_t> buckets(double bytes_per_us, double latency_us, int64_t most) {
  Plan plan;
  plan.mesh.dp = 2;
  plan.update.bucket_bytes = most;
  plan.rates.message_bytes_per_us = bytes_per_us;
  plan.rates.message_latency_us = latency_us;
  std::vector<size_t> sizes;
  const Lowered lowered = lower(test::tiny_model(), plan);
  for (const ir::Op& op : lowered.program.listings[0].ops) {
    if (op.kind() == "reduce_gradients") sizes.push_back(op.in.size());
  }
  return sizes;
}

TEST(Buckets, LastTenLatenciesWhereLinksAreKnown) {
  const std::vector<size_t> usual = buckets(0, 0, int64_t{16} << 20);
  EXPECT_LE(usual.size(), 2u) << "all of a tiny model go together";
  EXPECT_EQ(buckets(1e3, 1e3, int64_t{16} << 20), usual) << "of 10 MB";
  EXPECT_GT(buckets(40, 5, int64_t{16} << 20).size(), usual.size()) << "of 2000 bytes";
  EXPECT_EQ(buckets(40, 5, int64_t{16} << 20), buckets(0, 0, 2000));
  EXPECT_EQ(buckets(1e3, 1e3, 2000), buckets(0, 0, 2000)) << "never longer than stated";
}

}  // namespace
}  // namespace heddle::plan
