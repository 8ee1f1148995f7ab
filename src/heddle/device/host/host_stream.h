// A stream of the CPU device: one worker thread that runs queued kernels in order.
//
// The queue is a single-producer, single-consumer ring. The worker spins briefly when it finds nothing, then
// sleeps. Only a stream given more than one thread owns an OpenMP team.
//
// A kernel that throws ends the stream: later launches are passed over, and synchronize rethrows. A stream that
// waits for one that has ended so ends likewise, before it launches anything that would read what was never
// written.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "heddle/device/host/counter.h"
#include "heddle/device/stream.h"

namespace heddle::device {

class HostStream : public Stream {
 public:
  /// Commands, launches and waits, that the host may be ahead.
  static constexpr uint64_t kRing = 1024;

  /// `threads`: size of the OpenMP team of its kernels.
  HostStream(std::string name, int threads);
  ~HostStream() override;

  const std::string& name() const override { return name_; }
  void launch(const Launch& launch) override;
  void wait(Stream& other, uint64_t count) override;
  void synchronize(uint64_t count) override;
  bool has_ended(uint64_t count) const override { return ended_.value() >= count && !failed_.load(); }
  void on_failure(OnFailure tell) override { tell_ = std::move(tell); }
  std::optional<Span> failed_at() const override {
    return failed_.load(std::memory_order_acquire) ? std::optional(failed_at_) : std::nullopt;
  }
  void set_trace(bool on) override { tracing_.store(on, std::memory_order_relaxed); }
  std::vector<Span> take_spans() override;
  StreamTimes take_times() override;
  int64_t take_host_waited_ns() override { return std::exchange(host_waited_ns_, 0); }

 private:
  struct Command;
  void work(int threads);
  void run(Command& command);
  static void fit(Command& command);
  void await(const HostStream& other, uint64_t count);
  void end_with(std::exception_ptr failure, const Span& at);
  Command& next_command();

  std::string name_;
  std::vector<Command> ring_;  // grows with the first lap of the ring, and never moves
  Counter published_, taken_;  // commands
  Counter ended_;              // launches
  uint64_t launched_ = 0;      // of the host's thread, as is the next
  int64_t host_waited_ns_ = 0;
  std::atomic<bool> tracing_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  Span failed_at_;
  OnFailure tell_;
  std::vector<Span> spans_;
  StreamTimes times_;
  std::thread worker_;
};

}  // namespace heddle::device
