// A stream of a CUDA device. launch() runs the entry on the calling thread, which puts kernels on the stream.
// Events stand where something waits. A wait for a launch that has none records one then, behind what has been put
// on the stream since. From the next such launch on (the same op in the same listing) it has its own at once.
//
// An event may end later than what it is waited for, but only by launches that compute. For a peer may make what a
// message waits for from what this event holds up. So one is recorded ahead of each message, behind it, and ahead
// of each wait of the stream, which may be for a message.
//
// Events are kept in a ring. A wait for a launch whose event was used again waits for the oldest that is kept,
// which ends later: never too early.
//
// With graphs, launches that repeat are first listed (launch_run.h) until something else needs them on the stream:
// a wait, a message, the host. A run seen before is captured as a graph. A run that has a graph is put on the
// stream as a whole, with one event for its last launch; a wait for one inside waits for that.
//
// An entry that throws ends the stream. Nothing more is put on it, and whatever is asked of it, or of a stream that
// waits for it, throws the same.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <utility>

#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/launch_run.h"
#include "heddle/device/stream.h"

namespace heddle::device {

/// From now on calls `forget` with each stream before it is destroyed: for a library whose handle remembers one,
/// and would reach it afterwards.
void before_streams_end(void (*forget)(void* stream));

class CudaStream : public Stream {
 public:
  CudaStream(int ordinal, std::string name, bool graphs);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  const std::string& name() const override { return name_; }
  void launch(const Launch& launch) override;
  void wait(Stream& other, uint64_t count) override;
  void synchronize(uint64_t count) override;
  void on_failure(OnFailure tell) override { tell_ = std::move(tell); }
  std::optional<Span> failed_at() const override { return failure_ ? std::optional(failed_at_) : std::nullopt; }
  void* handle() const override { return stream_; }

  void set_trace(bool on) override;
  std::vector<Span> take_spans() override;
  /// Busy time is known of traced launches only.
  StreamTimes take_times() override { return {}; }
  int64_t take_host_waited_ns() override { return std::exchange(host_waited_ns_, 0); }

 protected:
  /// Puts one launch on the stream, in its order. What throws ends the stream.
  virtual void put(const Launch& launch) {
    Launch here = launch;
    here.call.stream = stream_;
    here.run(here.call);
  }
  void end_with(std::exception_ptr failure, const Span& at);

 private:
  struct Traced {
    Span span;
    cudaEvent_t start, end;
  };
  cudaEvent_t timed_event();
  /// Adds the times of traced launches that have ended.
  void time_spans();
  void launch_now(const Launch& launch);
  /// Ends the stream with the exception under way, of this launch.
  void end_at(const Launch& launch);
  void check_alive() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Puts the listed run on the stream.
  void flush();
  void make_room(uint64_t launches);
  /// The event that stands for the end of launch `count`.
  cudaEvent_t event_of(uint64_t count);
  /// An event for all launches that have none yet.
  void record();
  /// Notes that launch `count` is waited for, if it has no event of its own.
  void await(uint64_t count);
  /// Has put one launch on the stream, or a run of them.
  void count(const Launch& launch);
  void count_run(uint64_t launches);

  struct Graph {
    cudaGraphExec_t exec = nullptr;
    bool refused = false;  // seen, but can't be captured
  };
  /// Null: it can't.
  cudaGraphExec_t capture(LaunchRun& run);

  int ordinal_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> ring_;
  std::vector<uint64_t> ends_;                 // the launch whose event stands for each
  using Place = std::pair<int32_t, uint32_t>;  // listing, op
  std::vector<Place> places_;                  // of each
  std::set<Place> awaited_;                    // whose launches others wait for
  bool graphs_;
  LaunchRun run_;
  std::map<LaunchRun::Key, Graph> known_;
  uint64_t launched_ = 0, recorded_ = 0;  // launches; those of them that an event stands for
  std::exception_ptr failure_;
  Span failed_at_;
  OnFailure tell_;
  int64_t host_waited_ns_ = 0;
  bool tracing_ = false;
  cudaEvent_t trace_start_ = nullptr;  // of the trace, or the end of what was timed last
  int64_t trace_start_ns_ = 0;
  std::deque<Traced> traced_;
  std::vector<Span> spans_;
  std::vector<cudaEvent_t> spare_;
};

}  // namespace heddle::device
