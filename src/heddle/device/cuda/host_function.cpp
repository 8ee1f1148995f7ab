// The driver's thread only hands the work on. The stream then waits for a number in page-locked memory, which the
// stream's own thread writes once the work is done. Where the driver has no such waits, its thread waits for that.
#include "heddle/device/cuda/host_function.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/cuda/page_locked.h"

namespace heddle::device {

namespace {

using WaitValue = decltype(&cuStreamWaitValue32);

/// Null where the driver has none.
WaitValue wait_value() {
  static const WaitValue found = [] {
    void* at = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &at, 12000, cudaEnableDefault, &result);
    if (status != cudaSuccess) forget_last_error();
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<WaitValue>(at)
                                                                          : nullptr;
  }();
  return found;
}

/// A stream's thread. It lasts as long as the process, as do the few streams that have one.
class Worker {
 public:
  Worker() : done_(new (take_page_locked(sizeof(uint32_t))) uint32_t{0}) {
    std::thread([this] { work(); }).detach();
  }

  void put(cudaStream_t stream, void (*run)(void*), void* with) {
    const std::lock_guard lock(put_mutex_);  // numbers go on the stream in their order
    launch(stream, {this, run, with, 0}, hand_on);
    const uint32_t number = ++given_;
    const auto at = reinterpret_cast<CUdeviceptr>(done_);
    if (wait_value() == nullptr || wait_value()(stream, at, number, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS)
      launch(stream, {this, nullptr, nullptr, number}, await);
  }

 private:
  struct Job {
    Worker* worker;
    void (*run)(void*);
    void* with;
    uint32_t number;
  };

  static void launch(cudaStream_t stream, const Job& job, void (*function)(void*)) {
    auto kept = std::make_unique<Job>(job);
    check_cuda(cudaLaunchHostFunc(stream, function, kept.get()), "calling the host");
    static_cast<void>(kept.release());  // of the function from here on
  }

  static void hand_on(void* data) {
    const std::unique_ptr<Job> job(static_cast<Job*>(data));
    const std::lock_guard lock(job->worker->mutex_);
    job->worker->jobs_.push_back(*job);
    job->worker->changed_.notify_all();
  }
  static void await(void* data) {
    const std::unique_ptr<Job> job(static_cast<Job*>(data));
    Worker& worker = *job->worker;
    std::unique_lock lock(worker.mutex_);
    worker.changed_.wait(lock, [&] { return static_cast<int32_t>(*worker.done_ - job->number) >= 0; });
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !jobs_.empty(); });
      const Job job = jobs_.front();
      jobs_.pop_front();
      lock.unlock();
      job.run(job.with);
      lock.lock();
      std::atomic_ref(*done_).fetch_add(1, std::memory_order_release);  // the device may see it at once
      changed_.notify_all();
    }
  }

  uint32_t* done_;
  std::mutex put_mutex_;
  uint32_t given_ = 0;
  std::mutex mutex_;  // of what follows, and of changes of *done_
  std::condition_variable changed_;
  std::deque<Job> jobs_;
};

}  // namespace

void call_on_host(cudaStream_t stream, void (*run)(void*), void* with) {
  struct Workers {
    std::mutex mutex;
    std::map<cudaStream_t, Worker> by_stream;
  };
  static auto* all = new Workers;  // the threads may be at work until the process ends
  Worker* worker = nullptr;
  {
    const std::lock_guard lock(all->mutex);
    worker = &all->by_stream[stream];
  }
  worker->put(stream, run, with);
}

}  // namespace heddle::device
