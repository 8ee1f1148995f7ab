#include "heddle/device/cuda/cuda_stream.h"

#include <chrono>

#include "heddle/device/event_ring.h"

namespace heddle::device {

namespace {

constexpr uint64_t kRing = 1024;  // launches that the host may be ahead, too

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CudaStream::CudaStream(int ordinal, std::string name) : ordinal_(ordinal), name_(std::move(name)) {
  check_cuda(cudaSetDevice(ordinal_), "choosing the device");
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
  // Messages first: what waits for them is longer than they are.
  const bool compute = name_ == "compute";
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, compute ? least : greatest),
             "making a stream");
  for (uint64_t i = 0; i < kRing; ++i) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    ring_.push_back(event);
  }
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(stream_);
  for (cudaEvent_t event : ring_) cudaEventDestroy(event);
  for (const Traced& t : traced_) {
    cudaEventDestroy(t.start);
    cudaEventDestroy(t.end);
  }
  for (cudaEvent_t event : spare_) cudaEventDestroy(event);
  if (trace_start_ != nullptr) cudaEventDestroy(trace_start_);
  cudaStreamDestroy(stream_);
}

cudaEvent_t CudaStream::timed_event() {
  cudaEvent_t event = nullptr;
  if (spare_.empty()) {
    check_cuda(cudaEventCreate(&event), "making an event");
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  check_cuda(cudaEventRecord(event, stream_), "recording an event");
  return event;
}

void CudaStream::launch(const Launch& launch) {
  check_cuda(cudaSetDevice(ordinal_), "choosing the device");
  Launch here = launch;
  here.call.stream = stream_;
  const uint64_t slot = launched_ % kRing;
  if (launched_ >= kRing) {  // not further ahead than the ring is long
    if (cudaEventQuery(ring_[slot]) == cudaErrorNotReady) {
      const int64_t start = now_ns();
      check_cuda(cudaEventSynchronize(ring_[slot]), "waiting for room on a stream");
      host_waited_ns_ += now_ns() - start;
    }
  }
  cudaEvent_t start = tracing_ ? timed_event() : nullptr;
  here.run(here.call);
  if (tracing_) {
    traced_.push_back(
        {{here.stage, here.op_index, here.call.microbatch, 0, 0, here.live_bytes, here.reserved_bytes},
         start,
         timed_event()});
  }
  check_cuda(cudaEventRecord(ring_[slot], stream_), "recording an event");
  ++launched_;
}

void CudaStream::wait(const Stream& other, uint64_t count) {
  const auto& stream = static_cast<const CudaStream&>(other);
  if (count == 0 || stream.launched_ == 0) return;
  check_cuda(cudaStreamWaitEvent(stream_, stream.ring_[event_for(count, stream.launched_, kRing)], 0),
             "waiting for another stream");
}

void CudaStream::synchronize(uint64_t count) {
  if (launched_ == 0) return;
  const uint64_t target = count == 0 ? launched_ : count;
  check_cuda(cudaEventSynchronize(ring_[event_for(target, launched_, kRing)]),
             fmt::format("running what stream {} holds", name_).c_str());
}

void CudaStream::set_trace(bool on) {
  if (on && trace_start_ == nullptr) {
    check_cuda(cudaStreamSynchronize(stream_), "starting a trace");
    trace_start_ = timed_event();
    check_cuda(cudaEventSynchronize(trace_start_), "starting a trace");
    trace_start_ns_ = now_ns();
  }
  tracing_ = on;
}

std::vector<Span> CudaStream::take_spans() {
  std::vector<Span> spans;
  for (const Traced& t : traced_) {
    float from_ms = 0, to_ms = 0;
    check_cuda(cudaEventElapsedTime(&from_ms, trace_start_, t.start), "reading a trace");
    check_cuda(cudaEventElapsedTime(&to_ms, trace_start_, t.end), "reading a trace");
    Span span = t.span;
    span.start_ns = trace_start_ns_ + static_cast<int64_t>(from_ms * 1e6);
    span.end_ns = trace_start_ns_ + static_cast<int64_t>(to_ms * 1e6);
    spans.push_back(span);
    spare_.push_back(t.start);
    spare_.push_back(t.end);
  }
  traced_.clear();
  return spans;
}

}  // namespace heddle::device
