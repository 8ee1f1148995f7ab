#include "heddle/device/cuda/cuda_stream.h"

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/device/event_ring.h"

namespace heddle::device {

namespace {

constexpr uint64_t kRing = 1024;  // launches that the host may be ahead, too
constexpr uint64_t kMostWithoutEvent = 128;
constexpr size_t kLeastRun = 4;       // launches that a graph is worth
constexpr size_t kMostGraphs = 4096;  // graphs take memory of the device that no arena accounts for

/// HEDDLE_CUDA_SYNC=1: each launch is waited for, so that an error inside a kernel is reported with its op.
bool one_by_one() {
  static const bool on = [] {
    const char* word = std::getenv("HEDDLE_CUDA_SYNC");
    return word != nullptr && std::string_view(word) == "1";
  }();
  return on;
}

struct Forgetting {
  std::mutex mutex;
  std::vector<void (*)(void*)> calls;
};
Forgetting& forgetting() {
  static auto* one = new Forgetting;  // streams may end as late as anything
  return *one;
}

}  // namespace

void before_streams_end(void (*forget)(void* stream)) {
  const std::lock_guard lock(forgetting().mutex);
  forgetting().calls.push_back(forget);
}

CudaStream::CudaStream(int ordinal, std::string name, bool graphs)
    : ordinal_(ordinal), name_(std::move(name)), ends_(kRing, 0), places_(kRing), graphs_(graphs && !one_by_one()) {
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
  {
    const std::lock_guard lock(forgetting().mutex);
    for (const auto forget : forgetting().calls) forget(stream_);
  }
  for (const auto& [key, graph] : known_) {
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
  }
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

void CudaStream::end_with(std::exception_ptr failure, const Span& at) {
  failure_ = std::move(failure);
  failed_at_ = at;
  if (tell_) tell_(failure_, failed_at_);
}

void CudaStream::end_at(const Launch& launch) {
  end_with(std::current_exception(),
           {launch.listing, launch.op_index, launch.call.microbatch, now_ns(), now_ns(), 0, 0});
}

void CudaStream::launch(const Launch& launch) {
  check_alive();
  check_cuda(cudaSetDevice(ordinal_), "choosing the device");
  if (graphs_ && !tracing_ && repeatable(launch)) {
    run_.add(launch);
    if (run_.size() == LaunchRun::kMost) flush();
    return;
  }
  flush();
  launch_now(launch);
}

void CudaStream::launch_now(const Launch& launch) {
  make_room(1);
  if (launch.call.communicator != nullptr) record();
  cudaEvent_t start = tracing_ ? timed_event() : nullptr;
  try {
    put(launch);
    if (one_by_one()) {
      const std::string doing =
          fmt::format("running {}", launch.call.op != nullptr ? launch.call.op->kind() : name_);
      check_cuda(cudaStreamSynchronize(stream_), doing.c_str());
    }
  } catch (...) {
    end_at(launch);
    throw;
  }
  if (tracing_) {
    traced_.push_back(
        {{launch.listing, launch.op_index, launch.call.microbatch, 0, 0, launch.live_bytes, launch.reserved_bytes},
         start,
         timed_event()});
  }
  count(launch);
}

void CudaStream::flush() {
  if (run_.empty()) return;
  LaunchRun run = std::exchange(run_, {});  // should an entry throw, nothing is left to be run twice
  check_cuda(cudaSetDevice(ordinal_), "choosing the device");
  make_room(run.size());
  cudaGraphExec_t exec = nullptr;
  if (run.size() >= kLeastRun) {
    const auto [at, fresh] =
        known_.size() < kMostGraphs ? known_.try_emplace(run.key()) : std::pair(known_.find(run.key()), false);
    if (!fresh && at != known_.end()) {
      Graph& graph = at->second;
      if (graph.exec == nullptr && !graph.refused) {
        graph.exec = capture(run);
        graph.refused = graph.exec == nullptr;
      }
      exec = graph.exec;
    }
  }
  try {
    if (exec != nullptr) {
      check_cuda(cudaGraphLaunch(exec, stream_), "launching a graph");
    } else {
      run.enqueue(stream_);
    }
  } catch (...) {
    end_at(run.at());
    throw;
  }
  count_run(run.size());
}

cudaGraphExec_t CudaStream::capture(LaunchRun& run) {
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning to capture");
  bool captured = true;
  try {
    run.enqueue(stream_);
  } catch (
      ...) {  // by an entry that asks the device for more than launches; what fails otherwise, too, fails again
    captured = false;
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  captured = cudaStreamEndCapture(stream_, &graph) == cudaSuccess && captured && graph != nullptr;
  if (captured && cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) exec = nullptr;
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (exec == nullptr) forget_last_error();  // it shows as running without a graph
  return exec;
}

void CudaStream::make_room(uint64_t launches) {
  if (launched_ + launches <= kRing) return;
  // Not further ahead than the ring is long.
  cudaEvent_t oldest = event_of(launched_ + launches - kRing);
  if (reached(oldest)) return;
  const int64_t start = now_ns();
  check_cuda(cudaEventSynchronize(oldest), "waiting for room on a stream");
  host_waited_ns_ += now_ns() - start;
}

void CudaStream::record() {
  if (recorded_ == launched_) return;
  check_cuda(cudaEventRecord(ring_[(launched_ - 1) % kRing], stream_), "recording an event");
  while (recorded_ < launched_) ends_[recorded_++ % kRing] = launched_;
}

void CudaStream::count(const Launch& launch) {
  const Place place{launch.listing, launch.op_index};
  places_[launched_++ % kRing] = place;
  if (launch.call.communicator != nullptr || launched_ - recorded_ == kMostWithoutEvent ||
      awaited_.contains(place)) {
    record();
  }
}

void CudaStream::count_run(uint64_t launches) {
  launched_ += launches;
  record();
}

cudaEvent_t CudaStream::event_of(uint64_t count) {
  if (count > recorded_) record();
  const uint64_t at = event_for(count, recorded_, kRing);
  return ring_[(ends_[at] - 1) % kRing];
}

void CudaStream::await(uint64_t count) {
  if (graphs_ || count + kRing <= launched_) return;
  const uint64_t at = (count - 1) % kRing;
  if (count > recorded_ ? count < launched_ : ends_[at] != count) awaited_.insert(places_[at]);
}

void CudaStream::wait(Stream& other, uint64_t count) {
  check_alive();
  auto& stream = static_cast<CudaStream&>(other);
  try {
    stream.check_alive();
    stream.flush();
  } catch (...) {
    failure_ = std::current_exception();
    failed_at_ = stream.failed_at_;
    throw;
  }
  if (count == 0 || stream.launched_ == 0) return;
  flush();
  record();
  stream.await(count);
  check_cuda(cudaStreamWaitEvent(stream_, stream.event_of(count), 0), "waiting for another stream");
}

void CudaStream::synchronize(uint64_t count) {
  if (failure_) {
    cudaStreamSynchronize(stream_);  // what was put there before the failure, counted or not
    check_alive();
  }
  flush();
  if (launched_ == 0) return;
  check_cuda(cudaEventSynchronize(event_of(count == 0 ? launched_ : count)),
             fmt::format("running what stream {} holds", name_).c_str());
}

// Every trace has a beginning of its own: elapsed times come as floats of milliseconds, whose grain is 62 µs after
// ten minutes.
void CudaStream::set_trace(bool on) {
  check_alive();
  flush();
  if (on) {
    check_cuda(cudaStreamSynchronize(stream_), "starting a trace");
    time_spans();
    if (trace_start_ != nullptr) spare_.push_back(trace_start_);
    trace_start_ = timed_event();
    check_cuda(cudaEventSynchronize(trace_start_), "starting a trace");
    trace_start_ns_ = now_ns();
  }
  tracing_ = on;
}

// Each time is that from one event to the next, so that none is the difference of two large floats.
void CudaStream::time_spans() {
  const auto ns_between = [](cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, from, to), "reading a trace");
    return std::llround(double{ms} * 1e6);
  };
  for (; !traced_.empty(); traced_.pop_front()) {
    const Traced& t = traced_.front();
    Span span = t.span;
    span.start_ns = trace_start_ns_ + ns_between(trace_start_, t.start);
    span.end_ns = span.start_ns + ns_between(t.start, t.end);
    // No more throws: an event has one place, whichever reading fails.
    spans_.push_back(span);
    spare_.push_back(std::exchange(trace_start_, t.end));
    spare_.push_back(t.start);
    trace_start_ns_ = span.end_ns;
  }
}

std::vector<Span> CudaStream::take_spans() {
  time_spans();
  return std::exchange(spans_, {});
}

}  // namespace heddle::device
