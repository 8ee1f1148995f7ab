#include "heddle/device/cuda/cuda_host_stream.h"

#include <memory>

#include "heddle/base/clock.h"
#include "heddle/device/cuda/host_function.h"
#include "heddle/device/host/kernel_team.h"

namespace heddle::device {

// A launch with the views that it only borrows.
struct CudaHostStream::Work {
  CudaHostStream* stream;
  Launch launch;
  std::vector<TensorView> in, out, updates;
};

CudaHostStream::CudaHostStream(int ordinal, std::string name, int threads)
    : CudaStream(ordinal, std::move(name), false), threads_(threads) {}

CudaHostStream::~CudaHostStream() { cudaStreamSynchronize(static_cast<cudaStream_t>(handle())); }

void CudaHostStream::run(void* data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(data));
  CudaHostStream& stream = *work->stream;
  if (stream.failed_.load(std::memory_order_relaxed)) return;
  set_kernel_team(stream.threads_);
  const int64_t start = now_ns();
  try {
    work->launch.run(work->launch.call);
  } catch (...) {
    stream.thrown_ = std::current_exception();
    stream.thrown_at_ = {
        work->launch.listing, work->launch.op_index, work->launch.call.microbatch, start, now_ns(), 0, 0};
    stream.failed_.store(true, std::memory_order_release);
  }
}

void CudaHostStream::put(const Launch& launch) {
  const KernelCall& call = launch.call;
  auto work = std::make_unique<Work>(Work{this,
                                          launch,
                                          {call.in.begin(), call.in.end()},
                                          {call.out.begin(), call.out.end()},
                                          {call.updates.begin(), call.updates.end()}});
  KernelCall& kept = work->launch.call;
  kept.in = work->in;
  kept.out = work->out;
  kept.updates = work->updates;
  call_on_host(static_cast<cudaStream_t>(handle()), run, work.get());
  static_cast<void>(work.release());  // of the function from here on
}

void CudaHostStream::end_if_failed() {
  if (!failed_.load(std::memory_order_acquire)) return;
  if (!std::exchange(told_, true)) end_with(thrown_, thrown_at_);
  std::rethrow_exception(thrown_);
}

void CudaHostStream::launch(const Launch& launch) {
  end_if_failed();
  CudaStream::launch(launch);
}

void CudaHostStream::synchronize(uint64_t count) {
  CudaStream::synchronize(count);
  end_if_failed();
}

}  // namespace heddle::device
