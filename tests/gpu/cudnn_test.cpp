// What cuDNN itself says to the graphs that are built for it, without a device: plans for devices as they describe
// themselves, with the kernels compiled, and the room that these want. A driver of the tests' own (driver.c) takes
// the compiled kernels and runs none. A library of the tests' own (cudnn_library.h) stands in front of cuDNN and
// notes what is executed.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "heddle/kernels/cuda/cudnn/library.h"
#include "heddle/kernels/cuda/cudnn/plan.h"
#include "heddle/kernels/cuda/cudnn/runtime_table.h"
#include "heddle/kernels/registry.h"
#include "tests/gpu/cudnn_library.h"

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
    setenv("HEDDLE_CUDNN_PATH", HEDDLE_TEST_CUDNN, 1);
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

TEST_F(Cudnn, TakesHeadsOf256OnHopper) {
  EXPECT_GE(room(shape(2, 16, 2, 1024, 256, 256, false)), 0);
  EXPECT_GE(room(shape(2, 16, 2, 1024, 256, 256, true)), 0);
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

/// Addresses that nobody reads: a thousand bytes apart.
void* address(int number) { return reinterpret_cast<void*>(static_cast<intptr_t>(number) << 10); }

// From the plan to cuDNN's own execution, with every function of the runtime that the frontend looks up on its way.
TEST_F(Cudnn, IsExecuted) {
  for (const bool backward : {false, true}) {
    for (const auto& [h, hk, d, v] : {std::tuple{16, 16, 192, 128}, {32, 8, 128, 128}, {2, 2, 48, 32}}) {
      SCOPED_TRACE(fmt::format("{} {} {} {} {}", h, hk, d, v, backward));
      const PlannedAttention planned = plan_attention_for(shape(1, h, hk, 1024, d, v, backward), kH100, 90);
      ASSERT_TRUE(planned.plan) << planned.refusal;
      AttentionCall call{.q = address(1), .k = address(2), .v = address(3), .o = address(4), .stats = address(5)};
      if (backward) {
        call.d_o = address(6);
        call.dq = address(7);
        call.dk = address(8);
        call.dv = address(9);
      }
      call.workspace = address(10);
      cudnn_executions().clear();
      planned.plan->run(call, address(11));
      ASSERT_EQ(cudnn_executions().size(), 1u);
      EXPECT_EQ(cudnn_executions()[0].stream, address(11));
      const std::vector<void*>& given = cudnn_executions()[0].pointers;
      for (int tensor = 1; tensor <= (backward ? 9 : 5); ++tensor)
        EXPECT_NE(std::find(given.begin(), given.end(), address(tensor)), given.end()) << tensor;
    }
  }
}

// Plans are made with the handle after a stream has ended, by the next of several programs in one process.
TEST_F(Cudnn, KeepsNoStreamThatEnds) {
  const PlannedAttention planned = plan_attention_for(shape(1, 2, 2, 1024, 48, 32, false), kH100, 90);
  ASSERT_TRUE(planned.plan) << planned.refusal;
  planned.plan->run({.q = address(1),
                     .k = address(2),
                     .v = address(3),
                     .o = address(4),
                     .stats = address(5),
                     .workspace = address(10)},
                    address(11));
  EXPECT_EQ(cudnn_stream(), address(11));
  forget_attention_stream(address(12));
  EXPECT_EQ(cudnn_stream(), address(11));
  forget_attention_stream(address(11));
  EXPECT_EQ(cudnn_stream(), nullptr);
}

// Heads as `heddle profile` draws them: values narrower by far, and wider.
TEST_F(Cudnn, PlansHeadsOfAnyTwoWidths) {
  for (const auto& [d, v] : {std::pair{192, 16}, {48, 32}, {80, 32}, {32, 128}}) {
    for (const bool backward : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {} {}", d, v, backward));
      EXPECT_GE(room(shape(8, 8, 8, 1024, d, v, backward)), 0);
    }
  }
}

// What the frontend looks up by name at some time or other, also where this project's plans don't come to it.
TEST(CudnnFrontend, FindsEveryFunctionOfTheRuntime) {
  std::set<std::string> names;
  const std::regex looked_up(R"re(NV_FE_CALL_TO_CUDA\(\s*\w+,\s*(cuda[A-Z]\w+))re"
                             R"re(|get_cuda_symbol\(\s*(?:\w+::)*CUDART,\s*"(cuda[A-Z]\w+)")re"
                             R"re(|resolver\s*=\s*"(cuda[A-Z]\w+)")re");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(HEDDLE_CUDNN_FRONTEND)) {
    if (!entry.is_regular_file() || entry.path().string().find("cudnn_frontend") == std::string::npos) continue;
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator at(text.begin(), text.end(), looked_up), end; at != end; ++at) {
      for (size_t group = 1; group < at->size(); ++group) {
        if ((*at)[group].matched) names.insert((*at)[group].str());
      }
    }
  }
  EXPECT_GT(names.size(), 40u) << "the headers are written otherwise than this test reads them";
  EXPECT_TRUE(names.contains("cudaStreamGetCaptureInfo"));
  for (const std::string& name : names) {
    // Of CUDA 12 alone, and asked for there alone.
    if (CUDART_VERSION >= 13000 && (name.ends_with("_v2") || name == "cudaGetDriverEntryPoint")) continue;
    EXPECT_NE(runtime_function(name), nullptr) << name;
  }
  EXPECT_EQ(runtime_function("cudaNoSuchFunction"), nullptr);
}

TEST_F(Cudnn, IsToldWithItsVersion) {
  EXPECT_EQ(cuda_attention_library().text.substr(0, 8), "cuDNN 9.") << cuda_attention_library().text;
}

}  // namespace
}  // namespace heddle::kernels::cuda
