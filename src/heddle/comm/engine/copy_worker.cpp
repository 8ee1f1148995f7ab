#include "heddle/comm/engine/copy_worker.h"

#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "heddle/base/error.h"
#include "heddle/base/failure.h"
#include "heddle/base/stream_line.h"
#include "heddle/comm/engine/copy_core.h"

namespace heddle::comm {

namespace {

constexpr const char* kLeft = "the rank to read from has left";

void copy_past_caches(std::byte* to, const std::byte* from, int64_t bytes) {
#if defined(__SSE2__)
  constexpr int64_t kLine = 64, kShort = 4096;
  if (bytes >= kShort) {
    const int64_t head = (kLine - static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine)) % kLine;
    std::memcpy(to, from, static_cast<size_t>(head));
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(from) + 16 * kLine,
                   _MM_HINT_NTA);  // beyond the end it does nothing
      stream_line(to, from);
    }
    _mm_sfence();  // seen by whoever is told
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

std::string read_process(pid_t process, std::byte* to, const std::byte* from, int64_t bytes) {
  while (bytes > 0) {
    const iovec here{to, static_cast<size_t>(bytes)};
    const iovec there{const_cast<std::byte*>(from), static_cast<size_t>(bytes)};
    const ssize_t read = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (read <= 0) return fmt::format("memory of process {} can't be read: {}", process, std::strerror(errno));
    to += read;
    from += read;
    bytes -= read;
  }
  return "";
}

std::shared_ptr<CopyWorker> CopyWorker::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<CopyWorker> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<CopyWorker> worker = current.lock();
  if (!worker) current = worker = std::make_shared<CopyWorker>(copy_core().core);
  return worker;
}

CopyWorker::CopyWorker(int core) {
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, core] { work(core); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CopyWorker::~CopyWorker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    posted_.notify_all();
  }
  thread_.join();
}

void CopyWorker::work(int core) {
  pthread_setname_np(pthread_self(), "heddle-copies");
  if (core >= 0) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    pthread_setaffinity_np(pthread_self(), sizeof only, &only);
  }
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job& job = *queue_.front();
    queue_.pop_front();
    if (job.lease_ != 0 && !leases_.contains(job.lease_)) {
      job.failure_ = kLeft;
    } else if (job.next_ < job.runs_.size()) {
      moving_ = &job;
      moving_lease_ = job.lease_;
      lock.unlock();
      job.move_turn();
      lock.lock();
      moving_ = nullptr;
      moving_lease_ = 0;
    }
    job.over_ = !job.failure_.empty() || job.next_ == job.runs_.size();
    if (!job.over_ && job.queued_) queue_.push_back(&job);
    if (job.over_) job.ended_.notify_all();
    if (leaving_ > 0) turned_.notify_all();
    // From here on the job may be gone.
  }
}

CopyWorker::Job::Job(CopyWorker& worker, std::vector<CopyRun> runs, pid_t process, uint64_t lease)
    : worker_(worker), runs_(std::move(runs)), process_(process), lease_(lease) {
  const std::lock_guard lock(worker_.mutex_);
  worker_.queue_.push_back(this);
  worker_.posted_.notify_one();
}

CopyWorker::Job::~Job() {
  std::unique_lock lock(worker_.mutex_);
  queued_ = false;
  std::erase(worker_.queue_, this);
  ++worker_.leaving_;
  worker_.turned_.wait(lock, [&] { return worker_.moving_ != this; });
  --worker_.leaving_;
}

// The worker's, while nobody else touches the job.
void CopyWorker::Job::move_turn() {
  for (int64_t left = kTurnBytes; left > 0 && next_ < runs_.size();) {
    CopyRun& run = runs_[next_];
    const int64_t bytes = std::min(left, run.bytes);
    if (process_ == 0) {
      copy_past_caches(run.to, run.from, bytes);
    } else if (failure_ = read_process(process_, run.to, run.from, bytes); !failure_.empty()) {
      return;
    }
    run.to += bytes;
    run.from += bytes;
    run.bytes -= bytes;
    left -= bytes;
    if (run.bytes == 0) ++next_;
  }
}

void CopyWorker::Job::wait() {
  std::unique_lock lock(worker_.mutex_);
  ended_.wait(lock, [&] { return over_; });
  if (!failure_.empty()) throw PeerError(failure_);
}

CopyWorker::Lease::Lease(CopyWorker& worker) : worker_(worker) {
  const std::lock_guard lock(worker_.mutex_);
  worker_.leases_.insert(number_ = ++worker_.last_number_);
}

CopyWorker::Lease::~Lease() {
  std::unique_lock lock(worker_.mutex_);
  worker_.leases_.erase(number_);
  ++worker_.leaving_;
  worker_.turned_.wait(lock, [&] { return worker_.moving_lease_ != number_; });
  --worker_.leaving_;
}

void CopyWorker::read(void* to, const void* from, int64_t bytes, pid_t process, uint64_t lease) {
  if (process != 0) {
    const std::string failure =
        read_process(process, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    if (!failure.empty()) throw PeerError(failure);
    return;
  }
  const std::lock_guard lock(mutex_);  // under it no lease ends
  if (!leases_.contains(lease)) throw PeerError(kLeft);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

uint64_t CopyWorker::leave(std::unique_ptr<std::byte[]> bytes) {
  const std::lock_guard lock(mutex_);
  left_[++last_number_] = std::move(bytes);
  return last_number_;
}

std::unique_ptr<std::byte[]> CopyWorker::take(uint64_t number) {
  const std::lock_guard lock(mutex_);
  auto node = left_.extract(number);
  HEDDLE_CHECK(!node.empty(), "no message {} was left", number);
  return std::move(node.mapped());
}

}  // namespace heddle::comm
