// What `heddle doctor --device cuda` tries, in the emulator: each trial is held to the reference, and one that
// fails is told with what to do about it.
#include "heddle/planner/device/try_device.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/comm/device_world.h"
#include "heddle/kernels/registry.h"
#include "heddle/session/run/introduction.h"

namespace heddle::planner {
namespace {

const Trial& named(const std::vector<Trial>& all, std::string_view what) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const Trial& t) { return t.what == what; });
  EXPECT_NE(at, all.end()) << what;
  return at == all.end() ? all.front() : *at;
}

TEST(TryDevice, WhatWorksIsToldWithItsKernels) {
  const std::vector<Trial> all = try_device("cuda");
  for (const char* what :
       {"a context", "a launch", "a product", "products of experts", "attention and gradient", "a graph"}) {
    const Trial& trial = named(all, what);
    EXPECT_TRUE(trial.good) << what << ": " << trial.found;
    EXPECT_EQ(trial.remedy, "") << what;
  }
  EXPECT_NE(named(all, "a product").found.find(kernels::cuda_product_library().text), std::string::npos);
  EXPECT_NE(named(all, "attention and gradient").found.find("ms"), std::string::npos);
  // Of a machine without a device these two say so, whichever they are.
  for (const char* what : {"a byte by NCCL", "a copy between devices"})
    EXPECT_NE(named(all, what).found, "") << what;
  for (const Trial& trial : all) {
    EXPECT_EQ(trial.good, trial.remedy.empty()) << trial.what;
    EXPECT_EQ(trial.found.find('\n'), std::string::npos) << trial.found;
  }
}

// The first line of `heddle train`.
TEST(TryDevice, ARunSaysWhatItWillUse) {
  EXPECT_EQ(session::devices_text("host", 2), "");
  const std::string alone = session::devices_text("cuda", 1), two = session::devices_text("cuda", 2);
  EXPECT_EQ(alone.find("cuda: "), 0u) << alone;
  EXPECT_NE(alone.find("; products: " + kernels::cuda_product_library().text), std::string::npos) << alone;
  EXPECT_NE(alone.find("; experts: own kernels"), std::string::npos) << alone;
  EXPECT_NE(alone.find("; attention: " + kernels::cuda_attention_library().text), std::string::npos) << alone;
  EXPECT_EQ(alone.find('\n'), std::string::npos) << alone;
  EXPECT_FALSE(comm::device_world_text().empty());
  EXPECT_EQ(two, alone + "; between ranks: " + comm::device_world_text());
}

}  // namespace
}  // namespace heddle::planner
