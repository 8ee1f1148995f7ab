// A stream of a CUDA device. launch() runs the entry on the calling thread, which puts kernels on the stream; after
// each an event is recorded, so that other streams can wait for exactly that launch.
//
// Events are kept in a ring. A wait for a launch whose event was used again waits for the oldest that is kept,
// which ends later: never too early.
#pragma once

#include <utility>

#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/stream.h"

namespace heddle::device {

class CudaStream : public Stream {
 public:
  CudaStream(int ordinal, std::string name);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  const std::string& name() const override { return name_; }
  void launch(const Launch& launch) override;
  void wait(const Stream& other, uint64_t count) override;
  void synchronize(uint64_t count) override;
  void* handle() const override { return stream_; }

  void set_trace(bool on) override;
  std::vector<Span> take_spans() override;
  /// Busy time is known of traced launches only.
  StreamTimes take_times() override { return {}; }
  int64_t take_host_waited_ns() override { return std::exchange(host_waited_ns_, 0); }

 private:
  struct Traced {
    Span span;
    cudaEvent_t start, end;
  };
  cudaEvent_t timed_event();

  int ordinal_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> ring_;
  uint64_t launched_ = 0;
  int64_t host_waited_ns_ = 0;
  bool tracing_ = false;
  cudaEvent_t trace_start_ = nullptr;
  int64_t trace_start_ns_ = 0;
  std::vector<Traced> traced_;
  std::vector<cudaEvent_t> spare_;
};

}  // namespace heddle::device
