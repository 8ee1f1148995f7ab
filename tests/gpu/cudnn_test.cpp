// What cuDNN itself says to the graphs that are built for it, without a device: plans for devices as they describe
// themselves, with the kernels compiled, and the room that these want. A driver of the tests' own (driver.c) takes
// the compiled kernels and runs none.
#include <gtest/gtest.h>

#include "heddle/kernels/cuda/cudnn/library.h"
#include "heddle/kernels/cuda/cudnn/plan.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels::cuda {
namespace {

/// As cuDNN 9 writes it.
std::string device(std::string_view name, int version, int processors, int shared, int64_t l2) {
  return fmt::format(
      R"({{"cudaDeviceId":0,"deviceVer":{},"driverVer":13000,"totalGlobalMem":85045149696,)"
      R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
      R"("multiProcessorCount":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000,)"
      R"("memClockRateKHz":2619000,"l2CacheSize":{},"deviceName":"{}"}})",
      version, processors, shared, l2, name);
}
const std::string kH100 = device("NVIDIA H100 80GB HBM3", 900, 132, 232448, 52428800);
const std::string kA100 = device("NVIDIA A100-SXM4-80GB", 800, 108, 166912, 41943040);

AttentionShape shape(int64_t B, int64_t h, int64_t hk, int64_t S, int64_t d, int64_t v, bool backward) {
  return {.B = B,
          .h = h,
          .hk = hk,
          .Sq = S,
          .Sk = S,
          .d = d,
          .v = v,
          .q_heads = h,
          .k_heads = hk,
          .q_rows = S,
          .k_rows = S,
          .scale = 0.1f,
          .causal = true,
          .backward = backward};
}

class Cudnn : public testing::Test {
 protected:
  void SetUp() override {
    if (!cudnn_library().there) GTEST_SKIP() << cudnn_library().text;
  }
  static int64_t room(const AttentionShape& s, const std::string& device = kH100, int capability = 90) {
    const PlannedAttention planned = plan_attention_for(s, device, capability);
    EXPECT_TRUE(planned.plan) << planned.refusal;
    return planned.plan ? planned.plan->workspace_bytes() : -1;
  }
};

TEST_F(Cudnn, TakesLatentAndGroupedHeadsOnHopper) {
  for (const auto& [h, hk, d, v] :
       {std::tuple{16, 16, 192, 128}, {32, 8, 128, 128}, {16, 2, 64, 64}, {2, 2, 48, 32}}) {
    for (const int64_t S : {4000, 96}) {
      SCOPED_TRACE(fmt::format("{} {} {} {} {}", h, hk, d, v, S));
      const AttentionShape forward = shape(1, h, hk, S, d, v, false), backward = shape(1, h, hk, S, d, v, true);
      EXPECT_LE(room(forward), 1 << 20);
      // Scores in bf16; of grouped heads also dk and dv of each query head, and the rows' sums.
      const int64_t whole = (S + 127) / 128 * 128;
      const int64_t most =
          h * (whole * whole * 2 + (h > hk ? 1 : 0) * whole * (d + v) * 4 + whole * 64) + (1 << 20);
      EXPECT_LE(room(backward), most);
    }
  }
}

TEST_F(Cudnn, TakesSomeOfTheHeadsAndRows) {
  AttentionShape half =
      shape(1, 4, 4, 2048, 192, 128, true);  // a quarter of the heads, the second half of the rows
  half.q_heads = half.k_heads = 16;
  half.q_rows = half.k_rows = 4096;
  half.causal = false;
  EXPECT_GE(room(half), 0);
  half.Sk = 4096;
  EXPECT_GE(room(half), 0);
  half.backward = false;
  EXPECT_GE(room(half), 0);
  half.Sk = 2048;
  half.Sq = 4096;
  EXPECT_GE(room(half), 0);
}

TEST_F(Cudnn, TakesWindows) {
  for (const auto& [h, hk, d, v] : {std::tuple{16, 16, 192, 128}, {32, 8, 128, 128}, {16, 2, 64, 64}}) {
    for (const bool backward : {false, true}) {
      AttentionShape windowed = shape(1, h, hk, 4000, d, v, backward);
      const int64_t all = room(windowed);
      windowed.window = 1024;
      SCOPED_TRACE(fmt::format("{} {} {} {} {}", h, hk, d, v, backward));
      EXPECT_GE(room(windowed), 0);
      EXPECT_LE(room(windowed), all + (1 << 20));
    }
  }
}

TEST_F(Cudnn, TakesHeadsOf128OnAmpere) {
  EXPECT_GE(room(shape(2, 16, 4, 1024, 128, 128, false), kA100, 80), 0);
  EXPECT_GE(room(shape(2, 16, 4, 1024, 128, 128, true), kA100, 80), 0);
}

TEST_F(Cudnn, SaysWhyNot) {
  const PlannedAttention wide = plan_attention_for(shape(2, 16, 16, 1024, 192, 128, true), kA100, 80);
  EXPECT_FALSE(wide.plan);
  EXPECT_NE(wide.refusal.find("128"), std::string::npos) << wide.refusal;
  const PlannedAttention odd = plan_attention_for(shape(1, 2, 2, 96, 12, 12, false), kH100, 90);
  EXPECT_NE(odd.refusal.find("multiple of 8"), std::string::npos) << odd.refusal;
  const PlannedAttention nonsense = plan_attention_for(shape(1, 2, 2, 96, 16, 16, false), "{}", 90);
  EXPECT_FALSE(nonsense.plan);
  EXPECT_EQ(nonsense.refusal.find('\n'), std::string::npos) << nonsense.refusal;
}

TEST_F(Cudnn, IsToldWithItsVersion) {
  EXPECT_EQ(cuda_attention_library().text.substr(0, 8), "cuDNN 9.") << cuda_attention_library().text;
}

}  // namespace
}  // namespace heddle::kernels::cuda
