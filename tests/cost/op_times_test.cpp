#include "heddle/cost/op_times.h"

#include <gtest/gtest.h>

#include "heddle/cost/machine_profile.h"

namespace heddle::cost {
namespace {

OpTime product(double m, double n, double k, double us, int threads = 1) {
  OpShape shape{"linear", Dtype::f32, m, k, n, 1, 2 * m * n * k, 4 * (m * n + n * k + m * k)};
  return {shape, threads, 1e8, us};
}

// A device whose products lose to small inner lengths: what was measured comes back, what lies between and beyond
// follows.
double device_us(double m, double n, double k) { return 3 + 2 * m * n * k / 1e5 * (1 + 64 / k); }

TEST(OpTimes, MeasuredOpsComeBackAndOthersFollow) {
  OpTimes times;
  for (const double m : {64, 256, 1024, 4096})
    for (const double n : {64, 256, 1024})
      for (const double k : {64, 256, 1024}) times.add(product(m, n, k, device_us(m, n, k)));
  EXPECT_NEAR(times.us(product(256, 1024, 64, 1).shape, 1, 1e8), device_us(256, 1024, 64), 1e-6);
  for (const auto& [m, n, k] : {std::tuple{500., 500., 500.}, {128., 2000., 200.}, {8000., 1024., 1024.}}) {
    const double us = times.us(product(m, n, k, 1).shape, 1, 1e8);
    EXPECT_NEAR(us / device_us(m, n, k), 1, 0.15) << m << " " << n << " " << k;
  }
}

TEST(OpTimes, KindsTypesAndTeamsAreApart) {
  OpTimes times;
  times.add(product(64, 64, 64, 10));
  OpShape shape = product(64, 64, 64, 1).shape;
  EXPECT_TRUE(times.knows(shape, 1));
  EXPECT_FALSE(times.knows(shape, 2));
  EXPECT_THROW(times.us(shape, 2, 1e8), InternalError);
  shape.dtype = Dtype::bf16;
  EXPECT_FALSE(times.knows(shape, 1));
}

TEST(MachineProfile, MessagesBetweenSizesAreLinear) {
  MachineProfile p;
  p.links = {{Link::threads, 2, 64, 10},
             {Link::threads, 2, 1000, 20},
             {Link::threads, 2, 2000, 40},
             {Link::threads, 8, 64, 90},
             {Link::nodes, 2, 64, 1000}};
  EXPECT_DOUBLE_EQ(message_us(p, Link::threads, 2, 1), 10);
  EXPECT_DOUBLE_EQ(message_us(p, Link::threads, 2, 1500), 30);
  EXPECT_DOUBLE_EQ(message_us(p, Link::threads, 2, 4000), 80);
  EXPECT_DOUBLE_EQ(message_us(p, Link::threads, 7, 64), 90);
  EXPECT_DOUBLE_EQ(message_us(p, Link::nodes, 4, 640), 10000);
  EXPECT_DOUBLE_EQ(message_us(p, Link::node, 2, 64), 0);
}

TEST(MachineProfile, ThreadsShareCores) {
  MachineProfile p;
  EXPECT_DOUBLE_EQ(p.speed(5), 1);  // nothing is known
  p.cores = 2;
  p.together = {1, 0.8};
  EXPECT_DOUBLE_EQ(p.speed(1), 1);
  EXPECT_DOUBLE_EQ(p.speed(1.5), 0.9);
  EXPECT_DOUBLE_EQ(p.speed(2), 0.8);
  EXPECT_DOUBLE_EQ(p.speed(8), 0.2);
}

}  // namespace
}  // namespace heddle::cost
