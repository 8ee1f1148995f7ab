// The clock of a device's units in paced mode, and streams that are paced by it.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "heddle/device/host/host_stream.h"
#include "tests/support/paced_kernel.h"

namespace heddle::device {
namespace {

TEST(PacedUnits, RunSlowerByWhatIsTaken) {
  PacedUnits units;
  EXPECT_EQ(units.at(1000), 0);
  EXPECT_EQ(units.at(1100), 100);
  units.take(0.25, 1200);
  EXPECT_EQ(units.at(1600), 200 + 300);
  units.take(0.25, 1600);
  EXPECT_EQ(units.at(1800), 500 + 100);
  EXPECT_EQ(units.at(1700), 600) << "a clock that was read before, and came later";
  units.take(-0.25, 1800);
  units.take(-0.25, 1800);
  EXPECT_EQ(units.at(2000), 800);
  units.take(0.8, 2000);
  units.take(0.8, 2000);
  EXPECT_NEAR(units.at(3000), 900, 1e-9) << "a tenth is left";
}

void nothing(const KernelCall&) {}

// 60 ms of work beside a message of 40 ms that takes half last half of what they share longer: 80 ms, where both
// begin together. Without units nothing is shared.
TEST(PacedUnits, SlowStreamsThatCompute) {
  for (const bool shared : {true, false}) {
    double beside_ms = 0, lasted_ms = 0;
    for (int attempt = 0; attempt < 10 && beside_ms < 25; ++attempt) {  // on a busy machine threads wake late
      const auto units = shared ? std::make_shared<PacedUnits>() : nullptr;
      HostStream computes("compute", 1), moves("comm", 1);
      for (HostStream* stream : {&computes, &moves}) stream->set_trace(true);
      Launch product, message;
      product.run = message.run = nothing;
      PacedKernel paced_product, paced_message;
      paced_product.pace_ns = 60'000'000;
      paced_product.computes = true;
      paced_message.pace_ns = 40'000'000;
      paced_message.pace = Pace::after;
      paced_message.takes = 0.5;
      paced_product.units = paced_message.units = units;
      paced_product.put_around(product);
      paced_message.put_around(message);
      moves.launch(message);
      computes.launch(product);
      computes.synchronize(0);
      moves.synchronize(0);
      const Span p = computes.take_spans()[0], m = moves.take_spans()[0];
      lasted_ms = static_cast<double>(p.end_ns - p.start_ns) * 1e-6;
      beside_ms = static_cast<double>(std::min({p.end_ns, m.end_ns, m.start_ns + 40'000'000}) -
                                      std::max(p.start_ns, m.start_ns)) *
                  1e-6;
    }
    if (beside_ms < 25) GTEST_SKIP() << "other programs keep this machine's cores";
    constexpr double kLate_ms = 5;
    EXPECT_GE(lasted_ms, shared ? 60 + beside_ms / 2 - kLate_ms : 60);
  }
}

}  // namespace
}  // namespace heddle::device
