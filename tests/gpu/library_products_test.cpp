// What is handed to cuBLASLt, and which of its algorithms: a library of the tests' own multiplies what is described
// to it (cublaslt_library.h), and is held to reference. The choice is timed by a clock of the tests' own.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <filesystem>

#include "heddle/base/files/output_file.h"
#include "heddle/kernels/cuda/cublaslt/algorithm_choice.h"
#include "heddle/kernels/cuda/cublaslt/library.h"
#include "tests/gpu/cublaslt_library.h"
#include "tests/kernels/op_cases.h"

namespace {

bool recording = false;
float marks_ms[64];

}  // namespace

// In the place of CUDA's.
extern "C" {
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9
           : attribute == cudaDevAttrMultiProcessorCount  ? 132
                                                          : 0;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  static int made = 0;
  *event = reinterpret_cast<cudaEvent_t>(&marks_ms[made++ % 64]);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *reinterpret_cast<float*>(event) = heddle_test_cublaslt()->clock_ms;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = *reinterpret_cast<float*>(end) - *reinterpret_cast<float*>(begin);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
}

namespace heddle::op_runner {
namespace {

using kernels::cuda::AlgorithmChoice;
using kernels::cuda::AlgorithmTable;
using kernels::cuda::ProductShape;
using kernels::cuda::quickest;

// Before anything asks for the library, in each process of these tests.
const int library_is_named = setenv("HEDDLE_CUBLASLT_PATH", HEDDLE_TEST_CUBLASLT, 1);

lt::Library& lib() { return *heddle_test_cublaslt(); }

std::string file(const std::string& name) { return testing::TempDir() + "heddle_algorithms_" + name; }

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

OpCase linear(Dtype X, int64_t T, int64_t N, int64_t K) {
  return {fmt::format("{} {} {} {}", name_of(X), T, N, K),
          "linear",
          {activation(random_tensor(X, {T, K}, 1)), weight(random_tensor(X, {N, K}, 2))},
          {},
          {}};
}

TEST(LibraryProducts, AreNoneOfAnotherReleaseThanTheHeaders) {
  lib().version = (CUBLAS_VER_MAJOR - 1) * 10000 + 600;
  const kernels::cuda::CublasLt other = kernels::cuda::open_cublaslt();
  lib().version = 0;
  EXPECT_FALSE(other.there);
  EXPECT_NE(other.text.find(fmt::format("wanted release {}", CUBLAS_VER_MAJOR)), std::string::npos) << other.text;
  EXPECT_TRUE(kernels::cuda::open_cublaslt().there);
}

TEST(LibraryProducts, OfALinearAndItsGradients) {
  EXPECT_EQ(kernels::cuda_product_library().text.find(fmt::format("cuBLASLt {}.1.0 ", CUBLAS_VER_MAJOR)), 0u)
      << kernels::cuda_product_library().text;
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const auto& [T, N, K] : {std::tuple{8, 40, 72}, {64, 16, 8}, {200, 8, 136}}) {
      const OpCase op = linear(X, T, N, K);
      const int64_t before = lib().products;
      const GradientResult found = run_with_gradient(op, kernels::cuda_kernels(), 2);
      const GradientResult expected = run_with_gradient(op, kernels::reference_kernels(), 2);
      EXPECT_EQ(lib().products - before, 6) << op.name;
      const double tolerance = X == Dtype::f32 ? 2e-5 : 0x1p-7;
      EXPECT_TRUE(close(expected.out[0], found.out[0], tolerance)) << op.name;
      for (size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], tolerance)) << op.name << ", gradient " << i;
    }
  }
}

// Rows that no 16-byte access reads stay with the own kernel.
TEST(LibraryProducts, WhatIsNotAlignedStaysHere) {
  const int64_t before = lib().products;
  run_with_gradient(linear(Dtype::bf16, 8, 9, 15), kernels::cuda_kernels());
  EXPECT_EQ(lib().products, before);
}

TEST(LibraryProducts, EqualGroupsAreOneCall) {
  constexpr int64_t E = 3, R = 5, N = 40, K = 24;
  const OpCase op{
      "batched",
      "grouped_linear",
      {activation(random_tensor(Dtype::bf16, {E * R, K}, 1)), weight(random_tensor(Dtype::bf16, {E, N, K}, 2)),
       metadata(Tensor(Dtype::i32, {E + 1}, std::vector<double>{0, R, 2 * R, 3 * R}))},
      {{"way", std::string("batched")}},
      {}};
  const int64_t before = lib().products;
  const OpResult found = run_op(op, kernels::cuda_kernels());
  EXPECT_EQ(lib().products, before + 1);
  EXPECT_EQ(lib().batch, E);
  EXPECT_TRUE(close(run_op(op, kernels::reference_kernels()).out[0], found.out[0], 0x1p-7));
}

const ProductShape kShape{.in = Dtype::bf16, .out = Dtype::f32, .a_by_k = true, .M = 8, .N = 40, .K = 72};

TEST(Algorithms, AreReadAsTheyAreWritten) {
  AlgorithmTable table;
  table.library = "13.1.0";
  table.device = "9.0 with 132 multiprocessors";
  table.chosen = {{kShape, 3}, {{.in = Dtype::f32, .out = Dtype::f32, .M = 1, .N = 2, .K = 3, .batch = 64}, 0}};
  const AlgorithmTable read = AlgorithmTable::parse(table.text(), "a file");
  EXPECT_EQ(read.text(), table.text());
  EXPECT_EQ(read.of(kShape), 3);
  ProductShape other = kShape;
  other.K = 73;
  EXPECT_EQ(read.of(other), 0) << "of what was not measured the first";
}

TEST(Algorithms, AreRefusedInOneLine) {
  const std::string head =
      "heddle algorithms of cuBLASLt 1\nlibrary 13.1.0\ndevice 9.0\nin out a b M N K batch algorithm\n";
  EXPECT_EQ(refusal([&] { AlgorithmTable::parse(head + "bf16 bf16 rows k 8 8 8 1 0\n", "f"); }), "");
  for (const std::string text :
       {std::string(), std::string("heddle algorithms of cuBLASLt 2\n"), head.substr(0, head.size() - 9),
        head + "bf16 bf16 rows k 8 8 8 1 8\n", head + "bf16 bf16 rows k 8 8 8 1 -1\n",
        head + "bf16 bf16 rows k 8 8 0 1 1\n", head + "bf16 f64 rows k 8 8 8 1 1\n",
        head + "bf16 bf16 rows k 8 8 8 1\n", head + "bf16 bf16 columns k 8 8 8 1 1\n",
        head + "bf16 bf16 rows k 8 8 99999999999999999999 1 1\n", head + "\n",
        head + "bf16 bf16 rows k 8 8 8 1 0\nbf16 bf16 rows k 8 8 8 1 1\n",
        head + "bf16 bf16 rows k 8 8 8 1 \x1b[0m\n"}) {
    const std::string said = refusal([&] { AlgorithmTable::parse(text, "f"); });
    EXPECT_TRUE(said.starts_with("f, line ")) << said;
    EXPECT_EQ(said.find('\n'), said.npos) << said;
    EXPECT_EQ(said.find('\x1b'), said.npos) << said;
  }
}

TEST(Algorithms, TheFirstUnlessAnotherIsClearlyQuicker) {
  const auto best = [](std::vector<float> times) { return quickest(times.data(), static_cast<int>(times.size())); };
  EXPECT_EQ(best({4}), 0);
  EXPECT_EQ(best({4, 3.95f, 4.5f}), 0);
  EXPECT_EQ(best({4, 3, 2, 2.5f}), 2);
  EXPECT_EQ(best({0, 3, 4}), 1) << "the first did not run";
  EXPECT_EQ(best({0, 0}), 0);
}

TEST(Algorithms, OfAnotherLibraryOrDeviceAreRefused) {
  const std::string path = file("other");
  write_file(path, AlgorithmTable{.library = "13.1.0", .device = "9.0", .chosen = {{kShape, 2}}}.text());
  EXPECT_EQ(AlgorithmChoice(path, "", "13.1.0", "9.0").of(kShape, 3), 2);
  for (const auto& [library, device] : {std::pair("13.1.1", "9.0"), std::pair("13.1.0", "8.0")}) {
    const std::string said = refusal([&] { AlgorithmChoice(path, "", library, device); });
    EXPECT_NE(said.find("measure again"), said.npos) << said;
  }
  const std::string fewer = refusal([&] { AlgorithmChoice(path, "", "13.1.0", "9.0").of(kShape, 2); });
  EXPECT_NE(fewer.find("cuBLASLt names 2 here"), fewer.npos) << fewer;
  EXPECT_NE(refusal([&] { AlgorithmChoice(path, path, "13.1.0", "9.0"); }).find("one of them"), std::string::npos);
  EXPECT_NE(refusal([&] { AlgorithmChoice(file("missing"), "", "13.1.0", "9.0"); }), "");
  std::filesystem::remove(path);
}

TEST(Algorithms, AreTimedOnceAndNotWhileAStreamIsRecorded) {
  const std::string path = file("timed");
  AlgorithmChoice choice("", path, "13.1.0", "9.0");
  int ran = 0;
  const auto run = [&](int i) {
    ++ran;
    lib().clock_ms += lib().ms[i];
    return i != 2;  // which would be the quickest
  };
  recording = true;
  choice.measure(kShape, 4, run, nullptr);
  recording = false;
  EXPECT_EQ(ran, 0);
  choice.measure(kShape, 4, run, nullptr);
  EXPECT_EQ(ran, 4 + 5 * 3);
  choice.measure(kShape, 4, run, nullptr);
  EXPECT_EQ(ran, 4 + 5 * 3);
  EXPECT_EQ(choice.of(kShape, 4), 0) << "while it is measured, the first";
  EXPECT_EQ(AlgorithmChoice(path, "", "13.1.0", "9.0").of(kShape, 4), 3);
  std::filesystem::remove(path);
}

// A run that measures, then one that takes what was measured, each a process of its own.
class AlgorithmsDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(AlgorithmsDeathTest, OfARunAreTakenByTheNext) {
  const std::string path = file("of_a_run");
  const OpCase op = linear(Dtype::bf16, 8, 40, 72);
  EXPECT_EXIT(
      {
        setenv("HEDDLE_CUBLASLT_MEASURE", path.c_str(), 1);
        run_with_gradient(op, kernels::cuda_kernels(), 2);
        std::exit(lib().algorithm == 0 ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
  const AlgorithmTable table = AlgorithmTable::parse(read_file(path, 1 << 20), path);
  EXPECT_EQ(table.chosen.size(), 3u) << "the product, its input gradient and its weight gradient";
  for (const auto& [shape, algorithm] : table.chosen) EXPECT_EQ(algorithm, 2) << shape.text();
  EXPECT_EXIT(
      {
        setenv("HEDDLE_CUBLASLT_ALGORITHMS", path.c_str(), 1);
        run_op(op, kernels::cuda_kernels());
        std::exit(lib().algorithm == 2 ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace heddle::op_runner
