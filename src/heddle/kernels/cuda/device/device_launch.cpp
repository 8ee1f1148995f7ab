// Launches on a CUDA device, and copies in the order of a stream. See launch.h.
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "heddle/kernels/cuda/launch.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kSharedByDefault = 48 << 10;

void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  throw SystemError(static_cast<int>(status),
                    fmt::format("CUDA: {}: {} ({})", doing, cudaGetErrorString(status), cudaGetErrorName(status)));
}

/// A block takes more than 48 KiB of shared memory only once the kernel has been told, on each device.
void allow_shared(const void* kernel, int64_t bytes) {
  if (bytes <= kSharedByDefault) return;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int64_t> allowed;
  int device = 0;
  check(cudaGetDevice(&device), "asking for the device");
  const std::lock_guard lock(mutex);
  int64_t& most = allowed[{kernel, device}];
  if (bytes <= most) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "asking for shared memory");
  most = bytes;
}

/// Page-locked memory through which small uploads go, so that they never wait for the stream. When it has gone
/// round, the stream is waited for once.
class UploadRing {
 public:
  UploadRing() {
    void* base = nullptr;
    check(cudaMallocHost(&base, static_cast<size_t>(kBytes)), "locking memory of the host");
    base_ = static_cast<std::byte*>(base);
  }
  ~UploadRing() { cudaFreeHost(base_); }
  UploadRing(const UploadRing&) = delete;

  void upload(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
    for (int64_t done = 0; done < bytes; done += kBytes / 2) {
      const int64_t count = std::min(kBytes / 2, bytes - done);
      if (at_ + count > kBytes) {
        check(cudaStreamSynchronize(stream), "waiting for uploads");
        at_ = 0;
      }
      std::memcpy(base_ + at_, static_cast<const std::byte*>(from) + done, static_cast<size_t>(count));
      check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, base_ + at_, static_cast<size_t>(count),
                            cudaMemcpyHostToDevice, stream),
            "uploading");
      at_ += count;
    }
  }

 private:
  static constexpr int64_t kBytes = int64_t{16} << 20;
  std::byte* base_ = nullptr;
  int64_t at_ = 0;
};

}  // namespace

void launch_on_device(const LaunchShape& shape, const void* kernel, void (*)(const void*, const void*),
                      const void* args, void* stream) {
  allow_shared(kernel, shape.shared_bytes);
  const dim3 grid(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
                  static_cast<unsigned>(shape.blocks_z));
  void* list[] = {const_cast<void*>(args)};
  check(cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(shape.threads)), list,
                         static_cast<size_t>(shape.shared_bytes), static_cast<cudaStream_t>(stream)),
        "launching a kernel");
}

void upload(void* to, const void* from, int64_t bytes, void* stream) {
  if (bytes == 0) return;
  static std::mutex mutex;
  static std::map<void*, std::unique_ptr<UploadRing>> rings;  // by stream; as few as there are streams
  const std::lock_guard lock(mutex);
  std::unique_ptr<UploadRing>& ring = rings[stream];
  if (!ring) ring = std::make_unique<UploadRing>();
  ring->upload(to, from, bytes, static_cast<cudaStream_t>(stream));
}

void copy_bytes(void* to, const void* from, int64_t bytes, void* stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
        "copying");
}

void fill_bytes(void* at, int byte, int64_t bytes, void* stream) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(at, byte, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)), "filling");
}

void run_on_host(void (*run)(void*), void* with, void* stream) {
  check(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), run, with), "calling the host");
}

}  // namespace heddle::kernels::cuda
