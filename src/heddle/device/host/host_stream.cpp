#include "heddle/device/host/host_stream.h"

#include <omp.h>

#include "heddle/base/clock.h"
#include "heddle/device/counted_rows.h"
#include "heddle/device/running_op.h"

namespace heddle::device {

namespace {
constexpr uint64_t kRefill = 256;  // places that must be free before a host that found none goes on
constexpr int kInlineViews = 8;

}  // namespace

struct HostStream::Command {
  enum class What : uint8_t { launch, wait, stop } what = What::launch;
  Launch launch;
  std::array<TensorView, kInlineViews> views;
  std::vector<TensorView> more_views;  // when there are too many for `views`
  const HostStream* other = nullptr;
  uint64_t count = 0;
};

HostStream::HostStream(std::string name, int threads) : name_(std::move(name)) {
  ring_.reserve(kRing);
  worker_ = std::thread([this, threads] { work(threads); });
}

HostStream::~HostStream() {
  next_command().what = Command::What::stop;
  published_.raise();
  worker_.join();
}

HostStream::Command& HostStream::next_command() {
  const uint64_t next = published_.value();
  if (next >= kRing && taken_.value() < next - kRing + 1) {
    const int64_t start = now_ns();
    taken_.wait_for(next - kRing + kRefill);
    host_waited_ns_ += now_ns() - start;
  }
  if (next < kRing && ring_.size() == next) ring_.emplace_back();
  return ring_[next % kRing];
}

void HostStream::launch(const Launch& launch) {
  Command& command = next_command();
  command.what = Command::What::launch;
  command.launch = launch;
  KernelCall& call = command.launch.call;
  const size_t total = call.in.size() + call.out.size() + call.updates.size();
  TensorView* at = command.views.data();
  if (total > kInlineViews) {
    command.more_views.resize(total);
    at = command.more_views.data();
  }
  for (std::span<const TensorView>* views : {&call.in, &call.out, &call.updates}) {
    std::copy(views->begin(), views->end(), at);
    *views = {at, views->size()};
    at += views->size();
  }
  ++launched_;
  published_.raise();
}

void HostStream::wait(Stream& other, uint64_t count) {
  Command& command = next_command();
  command.what = Command::What::wait;
  command.other = static_cast<const HostStream*>(&other);
  command.count = count;
  published_.raise();
}

void HostStream::synchronize(uint64_t count) {
  const uint64_t target = count == 0 ? launched_ : count;
  ended_.wait_for(target);
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
}

std::vector<Span> HostStream::take_spans() {
  std::vector<Span> taken;
  taken.swap(spans_);
  return taken;
}

StreamTimes HostStream::take_times() {
  const StreamTimes taken = times_;
  times_ = {};
  return taken;
}

void HostStream::end_with(std::exception_ptr failure, const Span& at) {
  failure_ = std::move(failure);
  failed_at_ = at;
  failed_.store(true, std::memory_order_release);
}

void HostStream::await(const HostStream& other, uint64_t count) {
  if (other.ended_.value() < count) {
    const int64_t start = now_ns();
    other.ended_.wait_for(count);
    times_.waiting_ns += now_ns() - start;
  }
  if (other.failed_.load(std::memory_order_acquire) && !failed_.load(std::memory_order_relaxed)) {
    end_with(other.failure_, other.failed_at_);
  }
}

void HostStream::fit(Command& command) {
  Launch& launch = command.launch;
  const KernelCall& call = launch.call;
  const size_t total = call.in.size() + call.out.size() + call.updates.size();
  TensorView* views = total > kInlineViews ? command.more_views.data() : command.views.data();
  const int64_t rows = launch.counted->fit(*call.op, {views, total});
  if (launch.rows >= 0) launch.rows = rows;
}

void HostStream::run(Command& command) {
  Launch& launch = command.launch;
  if (failed_.load(std::memory_order_relaxed)) return ended_.raise();
  const int64_t start = now_ns();
  try {
    running_op = {launch.listing, launch.op_index};
    if (launch.counted != nullptr) fit(command);
    launch.run(launch.call);
    if (launch.counted != nullptr) launch.counted->note(*launch.call.op, launch.call.out);
    if (launch.look != nullptr) (*launch.look)(launch);
  } catch (...) {
    end_with(std::current_exception(),
             {launch.listing, launch.op_index, launch.call.microbatch, start, now_ns(), 0, 0});
    if (tell_) tell_(failure_, failed_at_);
  }
  running_op = {};
  const int64_t end = now_ns();
  times_.busy_ns += end - start;
  if (const ir::Op* op = launch.call.op; op != nullptr && launch.call.communicator == nullptr) {
    Work& work = (launch.rows < 0 ? times_.steady : times_.by_rows)[static_cast<size_t>(op->phase)];
    work.ns += end - start;
    work.rows += std::max<int64_t>(0, launch.rows);
  }
  if (tracing_.load(std::memory_order_relaxed)) {
    spans_.push_back({launch.listing, launch.op_index, launch.call.microbatch, start, end, launch.live_bytes,
                      launch.reserved_bytes, launch.rows});
  }
  ended_.raise();
}

void HostStream::work(int threads) {
  omp_set_num_threads(threads);
  Command* const ring = ring_.data();
  for (uint64_t tail = 0;; ++tail) {
    if (published_.value() <= tail) {
      const int64_t start = now_ns();
      published_.wait_for(tail + 1);
      times_.starved_ns += now_ns() - start;
    }
    Command& command = ring[tail % kRing];
    if (command.what == Command::What::stop) return;
    if (command.what == Command::What::wait) {
      await(*command.other, command.count);
    } else {
      run(command);
    }
    taken_.raise();
  }
}

}  // namespace heddle::device
