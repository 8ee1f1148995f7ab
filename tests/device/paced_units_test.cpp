// The clock of a device's units in paced mode, and streams that are paced by it.
#include "heddle/device/host/paced_units.h"

#include <gtest/gtest.h>

#include "heddle/device/host/host_stream.h"

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

// 60 ms of work beside a message of 40 ms that takes half: 80 ms. Alone, and where nobody asked for units: 60.
TEST(PacedUnits, SlowStreamsThatCompute) {
  for (const bool shared : {true, false}) {
    const auto units = shared ? std::make_shared<PacedUnits>() : nullptr;
    HostStream computes("compute", 1, units), moves("comm", 1, units);
    for (HostStream* stream : {&computes, &moves}) stream->set_trace(true);
    Launch product, message;
    product.run = message.run = nothing;
    product.pace_ns = 60'000'000;
    product.computes = true;
    message.pace_ns = 40'000'000;
    message.pace = Pace::after;
    message.takes = 0.5F;
    moves.launch(message);
    computes.launch(product);
    computes.synchronize(0);
    moves.synchronize(0);
    computes.launch(product);  // nothing beside it
    computes.synchronize(0);
    const auto spans = computes.take_spans();
    const auto ms = [&](size_t i) { return static_cast<double>(spans[i].end_ns - spans[i].start_ns) * 1e-6; };
    // Threads wake late on a busy machine, never early, and the two begin a little apart.
    EXPECT_GE(ms(0), shared ? 75 : 60);
    EXPECT_GE(ms(1), 59 - (ms(0) - (shared ? 75 : 60))) << "less by what the one before overslept";
  }
}

}  // namespace
}  // namespace heddle::device
