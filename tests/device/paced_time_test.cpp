// A paced figure is given while the process leaves its cores free, and refused when it keeps them busy.
#include "tests/support/paced_time.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/device/host/host_stream.h"
#include "tests/support/paced_kernel.h"

namespace heddle::device {
namespace {

using namespace std::chrono_literals;

// Uses `ns` of this thread's processor time, however long that takes on a busy machine.
void burn(int64_t ns) {
  const auto used = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  };
  for (const int64_t begin = used(); used() - begin < ns;) {
  }
}

TEST(PacedTime, UseIsProcessorTimeOverAllCoresTime) {
  EXPECT_DOUBLE_EQ((PacedTime{1000, 500, 1}).processor_use(), 0.5);
  EXPECT_DOUBLE_EQ((PacedTime{1000, 500, 4}).processor_use(), 0.125);
  EXPECT_DOUBLE_EQ((PacedTime{0, 0, 4}).processor_use(), 0.0);
  EXPECT_TRUE((PacedTime{1000, 700, 1}).believable());
  EXPECT_FALSE((PacedTime{1000, 701, 1}).believable());
  EXPECT_DOUBLE_EQ((PacedTime{2'000'000'000, 0, 1}).seconds(), 2.0);
}

TEST(PacedTime, AnAsleepProcessIsBelieved) {
  const PacedTimer timer;
  std::this_thread::sleep_for(60ms);
  const PacedTime took = timer.elapsed();
  EXPECT_GE(took.seconds(), 0.06);
  EXPECT_LT(took.processor_use(), 0.5);
}

// All threads of the process count; the wall time that a busy machine adds is undone by the count of cores.
TEST(PacedTime, ABusyProcessIsRefused) {
  const PacedTimer timer(1);
  std::thread other([] { burn(150'000'000); });
  burn(150'000'000);
  other.join();
  PacedTime took = timer.elapsed();
  EXPECT_GE(took.processor_ns, 300'000'000 - 20'000'000);
  took.wall_ns = took.processor_ns;  // as on a machine with nobody else
  EXPECT_FALSE(took.believable());
  try {
    took.seconds();
    FAIL() << "a figure was given";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("100 % of 1 cores"), std::string::npos) << what;
    EXPECT_NE(what.find("1.4 times as slow"), std::string::npos) << what;
  }
}

// Paced streams sleep: several of them on one core leave it free.
TEST(PacedTime, PacedStreamsLeaveTheirCoreFree) {
  const PacedTimer timer(1);
  std::vector<std::unique_ptr<HostStream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<HostStream>("compute", 1));
  PacedKernel paced;
  paced.pace_ns = 30'000'000;
  for (const auto& stream : streams) {
    for (int i = 0; i < 4; ++i) {
      Launch launch;
      launch.run = [](const KernelCall&) { burn(1'000'000); };
      paced.put_around(launch);
      stream->launch(launch);
    }
  }
  for (const auto& stream : streams) stream->synchronize(0);
  EXPECT_GE(timer.elapsed().seconds(), 0.12);
}

}  // namespace
}  // namespace heddle::device
