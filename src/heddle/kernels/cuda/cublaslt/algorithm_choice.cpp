#include "heddle/kernels/cuda/cublaslt/algorithm_choice.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/statistics.h"
#include "heddle/device/cuda/cuda_check.h"
#include "heddle/kernels/cuda/cublaslt/library.h"

namespace heddle::kernels::cuda {

namespace {

using device::check_cuda;

constexpr int kRounds = 5;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string device_text() {
  int device = 0, major = 0, minor = 0, processors = 0;
  const char* doing = "asking for the device";
  check_cuda(cudaGetDevice(&device), doing);
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), doing);
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), doing);
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), doing);
  return fmt::format("{}.{} with {} multiprocessors", major, minor, processors);
}

/// Milliseconds between two marks on a stream.
class Clock {
 public:
  Clock() {
    check_cuda(cudaEventCreate(&begin_), "making an event");
    check_cuda(cudaEventCreate(&end_), "making an event");
  }
  ~Clock() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  template <class Run>
  float ms(cudaStream_t stream, Run run) {
    check_cuda(cudaEventRecord(begin_, stream), "timing a product");
    run();
    check_cuda(cudaEventRecord(end_, stream), "timing a product");
    check_cuda(cudaEventSynchronize(end_), "timing a product");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "timing a product");
    return ms;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

AlgorithmChoice& AlgorithmChoice::here() {
  static AlgorithmChoice choice(environment("HEDDLE_CUBLASLT_ALGORITHMS"), environment("HEDDLE_CUBLASLT_MEASURE"),
                                cublaslt().release, device_text());
  return choice;
}

AlgorithmChoice::AlgorithmChoice(const std::string& take, std::string measure, std::string library,
                                 std::string device)
    : taken_(take), measured_(std::move(measure)) {
  if (!taken_.empty() && !measured_.empty()) {
    config_error(
        "HEDDLE_CUBLASLT_ALGORITHMS names a file to take, HEDDLE_CUBLASLT_MEASURE one to write: one of them");
  }
  if (!taken_.empty()) {
    table_ = AlgorithmTable::read(taken_, library, device);
  } else {
    table_.library = std::move(library);
    table_.device = std::move(device);
  }
}

int AlgorithmChoice::of(const ProductShape& shape, int found) const {
  if (taken_.empty()) return 0;
  const int algorithm = table_.of(shape);
  if (algorithm >= found) {
    config_error("{}: algorithm {} of {}, cuBLASLt names {} here: measure again (HEDDLE_CUBLASLT_MEASURE)", taken_,
                 algorithm, shape.text(), found);
  }
  return algorithm;
}

void AlgorithmChoice::measure(const ProductShape& shape, int found, const std::function<bool(int)>& run,
                              void* stream) {
  if (measured_.empty()) return;
  const std::lock_guard lock(mutex_);
  auto* const on = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus recorded = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(on, &recorded), "asking for a stream's state");
  if (table_.chosen.contains(shape) || recorded != cudaStreamCaptureStatusNone) return;
  Clock clock;
  std::vector<std::vector<double>> ms(static_cast<size_t>(found));
  std::vector<bool> runs;
  for (int i = 0; i < found; ++i) runs.push_back(run(i));  // loads its kernel
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < found; ++i) {
      const auto at = static_cast<size_t>(i);
      if (runs[at]) ms[at].push_back(clock.ms(on, [&] { run(i); }));
    }
  }
  std::vector<float> times;
  for (const std::vector<double>& of : ms) times.push_back(of.empty() ? 0 : static_cast<float>(median(of)));
  table_.chosen.emplace(shape, quickest(times.data(), found));
  write_file(measured_, table_.text());
}

}  // namespace heddle::kernels::cuda
