// In-order asynchronous queues. The host enqueues ahead and never waits unless it says so (synchronize).
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/device/kernel_call.h"

namespace heddle::device {

class CountedRows;

/// One kernel on its way to a stream. The views of `call` are copied; everything else it points to must stay alive
/// until the stream has run it.
struct Launch {
  Kernel run = nullptr;
  int64_t rows = -1;  // that it works on, of an op whose work depends on the rows of experts; else −1
  /// Called by the stream once the kernel has run, where the host can read what it wrote; null: nobody looks.
  const std::function<void(const Launch&)>* look = nullptr;
  /// The rows that there are, once they have been counted: the host has made room for more. Null: the views have
  /// them, or kernels find them for themselves.
  CountedRows* counted = nullptr;
  KernelCall call;
  int32_t listing = 0;  // for the trace
  uint32_t op_index = 0;
  int64_t live_bytes = 0;  // arena, after the op's outputs were placed
  int64_t reserved_bytes = 0;
};

/// An entry of what a stream did, in order; times are of a steady clock, nanoseconds.
struct Span {
  int32_t listing = 0;
  uint32_t op_index = 0;
  int32_t microbatch = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t live_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t rows = -1;  // as Launch::rows
};

/// Time of ops, and the rows that they worked on.
struct Work {
  int64_t ns = 0, rows = 0;
};

/// Time of a stream since the last reset: running ops, waiting for other streams, and with nothing to do.
struct StreamTimes {
  int64_t busy_ns = 0;
  int64_t waiting_ns = 0;
  int64_t starved_ns = 0;
  /// The time running ops, by ir::Phase; ops whose work depends on rows are apart. Ops that communicate while they
  /// compute are left out: what they take is also others' time.
  std::array<Work, ir::kPhases> steady, by_rows;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual const std::string& name() const = 0;

  virtual void launch(const Launch& launch) = 0;
  /// Later launches on this stream start after `count` launches of `other` have ended. When one of those has
  /// failed, they are not run: this stream has failed, too.
  virtual void wait(Stream& other, uint64_t count) = 0;
  /// Blocks the host until `count` launches have ended; 0 means all. Rethrows what a kernel threw, on this stream
  /// or on one that it waited for.
  virtual void synchronize(uint64_t count = 0) = 0;
  /// True if `count` launches have ended, none of them in failure; any thread may ask. False where only the thread
  /// that launches could tell.
  virtual bool has_ended(uint64_t) const { return false; }
  /// Called once, by whatever thread ran it, when a kernel of this stream has thrown, before anybody goes on who
  /// waits for it. Must not throw.
  using OnFailure = std::function<void(const std::exception_ptr& failure, const Span& at)>;
  virtual void on_failure(OnFailure tell) = 0;
  /// The launch that threw, once synchronize has thrown.
  virtual std::optional<Span> failed_at() const = 0;
  /// The KernelCall::stream of this stream; null on the CPU.
  virtual void* handle() const { return nullptr; }

  /// Spans of the launches since the trace was switched on or last taken. Only when synchronized.
  virtual void set_trace(bool on) = 0;
  virtual std::vector<Span> take_spans() = 0;
  virtual StreamTimes take_times() = 0;
  /// Time that the host has waited for room in this stream's queue since it last asked.
  virtual int64_t take_host_waited_ns() = 0;
};

}  // namespace heddle::device
