// Launches on a CUDA device, and copies in the order of a stream. See launch.h.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "heddle/device/cuda/cuda_arena.h"
#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/cuda/host_function.h"
#include "heddle/device/cuda/page_locked.h"
#include "heddle/kernels/cuda/experts/host_work.h"
#include "heddle/kernels/cuda/launch.h"

namespace heddle::kernels::cuda {

namespace {

using device::check_cuda;

/// A block takes more than 48 KiB of shared memory, static and dynamic, only once the kernel has been told, on each
/// device.
void allow_shared(const void* kernel, int64_t dynamic_bytes) {
  if (dynamic_bytes == 0) return;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int64_t> allowed;  // dynamic
  int device = 0;
  check_cuda(cudaGetDevice(&device), "asking for the device");
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = allowed.try_emplace({kernel, device});
  if (fresh) {
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, kernel), "asking for what a kernel takes");
    at->second = kSharedByDefault - static_cast<int64_t>(attributes.sharedSizeBytes);
  }
  if (dynamic_bytes <= at->second) return;
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(dynamic_bytes)),
      "asking for shared memory");
  at->second = dynamic_bytes;
}

/// Memory of the host, and work of it, are as they are at one launch: a graph would take them as they were at its
/// first. SystemError, for which a run of launches is put on the stream without a graph.
void refuse_capture(cudaStream_t stream, const char* doing) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), doing);
  if (status != cudaStreamCaptureStatusNone)
    throw SystemError(static_cast<int>(cudaErrorStreamCaptureUnsupported),
                      fmt::format("CUDA: {}: not into a graph", doing));
}

/// Page-locked memory for what the host works out between ops, a piece each, taken again once that is done.
class HostRoom {
 public:
  struct Piece {
    std::byte* bytes = nullptr;
    int64_t size = 0;
    cudaEvent_t done = nullptr;  // one that was never recorded has been reached
  };
  /// Nobody else takes it before its event is recorded: the caller holds the lock until then.
  Piece& piece_of(int64_t size) {
    for (Piece& piece : pieces_) {
      if (piece.size >= size && device::reached(piece.done)) return piece;
    }
    Piece piece;
    piece.size = size;
    piece.bytes = device::take_page_locked(size);
    check_cuda(cudaEventCreateWithFlags(&piece.done, cudaEventDisableTiming), "making an event");
    pieces_.push_back(piece);
    return pieces_.back();
  }

  std::mutex mutex;

 private:
  std::list<Piece> pieces_;  // as many as are ever under way at once; they last as long as the process
};

/// Page-locked memory in two halves through which small uploads go, so that they do not wait for the stream. A
/// caller that comes back to a half waits until what it held has been uploaded, not for what was put on the stream
/// since. A stream has a ring and a lock of its own. Where ranks are threads, one that waits holds up no other, for
/// which it may wait.
class UploadRing {
 public:
  UploadRing() : base_(device::take_page_locked(kBytes)) {
    for (cudaEvent_t& event : uploaded_) {
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    }
  }
  ~UploadRing() {
    for (cudaEvent_t event : uploaded_) cudaEventDestroy(event);
  }
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  void upload(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    for (int64_t done = 0, count = 0; done < bytes; done += count) {
      if (at_ == kHalf) {
        check_cuda(cudaEventRecord(uploaded_[half_], stream), "recording an event");
        half_ = 1 - half_;
        at_ = 0;
        check_cuda(cudaEventSynchronize(uploaded_[half_]), "waiting for uploads");
      }
      count = std::min(kHalf - at_, bytes - done);
      std::byte* through = base_ + half_ * kHalf + at_;
      std::memcpy(through, static_cast<const std::byte*>(from) + done, static_cast<size_t>(count));
      check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, through, static_cast<size_t>(count),
                                 cudaMemcpyHostToDevice, stream),
                 "uploading");
      at_ += count;
    }
  }

 private:
  static constexpr int64_t kBytes = int64_t{16} << 20, kHalf = kBytes / 2;
  std::mutex mutex_;
  std::byte* base_;
  cudaEvent_t uploaded_[2] = {};  // contents of each half; one that was never recorded has been reached
  int64_t half_ = 0, at_ = 0;
};

}  // namespace

void launch_on_device(const LaunchShape& shape, const void* kernel, void (*)(const void*, const void*),
                      const void* args, void* stream) {
  allow_shared(kernel, shape.shared_bytes);
  const dim3 grid(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
                  static_cast<unsigned>(shape.blocks_z));
  void* list[] = {const_cast<void*>(args)};
  check_cuda(cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(shape.threads)), list,
                              static_cast<size_t>(shape.shared_bytes), static_cast<cudaStream_t>(stream)),
             "launching a kernel");
}

void upload(void* to, const void* from, int64_t bytes, void* stream) {
  if (bytes == 0) return;
  refuse_capture(static_cast<cudaStream_t>(stream), "uploading");
  static std::mutex mutex;
  static std::map<void*, std::unique_ptr<UploadRing>> rings;  // by stream; as few as there are streams
  UploadRing* ring = nullptr;
  {
    const std::lock_guard lock(mutex);
    std::unique_ptr<UploadRing>& made = rings[stream];
    if (!made) made = std::make_unique<UploadRing>();
    ring = made.get();
  }
  ring->upload(to, from, bytes, static_cast<cudaStream_t>(stream));
}

void copy_bytes(void* to, const void* from, int64_t bytes, void* stream) {
  for (int64_t done = 0, count = 0; done < bytes; done += count) {
    void* there = static_cast<std::byte*>(to) + done;
    const void* here = static_cast<const std::byte*>(from) + done;
    count = std::min({bytes - done, device::bytes_to_seam(there), device::bytes_to_seam(here)});
    check_cuda(cudaMemcpyAsync(there, here, static_cast<size_t>(count), cudaMemcpyDefault,
                               static_cast<cudaStream_t>(stream)),
               "copying");
  }
}

void fill_bytes(void* at, int byte, int64_t bytes, void* stream) {
  if (bytes == 0) return;
  check_cuda(cudaMemsetAsync(at, byte, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)), "filling");
}

void run_on_host(void (*run)(void*), void* with, void* stream) {
  refuse_capture(static_cast<cudaStream_t>(stream), "calling the host");
  device::call_on_host(static_cast<cudaStream_t>(stream), run, with);
}

void on_host(device::HostWork work, void* stream) {
  refuse_capture(static_cast<cudaStream_t>(stream), "calling the host");
  static auto* room = new HostRoom;  // the driver may be gone before what is static is
  const int64_t from_bytes = (work.from_bytes + 255) / 256 * 256;
  const std::lock_guard lock(room->mutex);
  const HostRoom::Piece& piece = room->piece_of(from_bytes + work.to_bytes);
  auto* to = static_cast<cudaStream_t>(stream);
  check_cuda(
      cudaMemcpyAsync(piece.bytes, work.from, static_cast<size_t>(work.from_bytes), cudaMemcpyDeviceToHost, to),
      "handing to the host");
  struct Job {
    std::function<void(const std::byte*, std::byte*)> run;
    std::byte *from, *to;
  };
  run_on_host(
      [](void* with) {
        const std::unique_ptr<Job> job(static_cast<Job*>(with));
        job->run(job->from, job->to);
      },
      new Job{std::move(work.run), piece.bytes, piece.bytes + from_bytes}, stream);
  check_cuda(cudaMemcpyAsync(work.to, piece.bytes + from_bytes, static_cast<size_t>(work.to_bytes),
                             cudaMemcpyHostToDevice, to),
             "taking from the host");
  check_cuda(cudaEventRecord(piece.done, to), "recording an event");
}

}  // namespace heddle::kernels::cuda
