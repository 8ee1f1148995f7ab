// A CUDA device as the executor sees it.
#include <cstdlib>
#include <string>

#include "heddle/device/cuda/cuda_arena.h"
#include "heddle/device/cuda/cuda_host_stream.h"
#include "heddle/device/cuda/cuda_stream.h"
#include "heddle/device/cuda/page_locked.h"
#include "heddle/device/device.h"
#include "heddle/device/host/host_memory.h"

namespace heddle::device {

namespace {

/// Workspaces and buffers of vendors' libraries; NCCL's are made once the arena has its size.
constexpr int64_t kLeftForLibraries = int64_t{1} << 30, kLeftForRanks = int64_t{1} << 30;
/// A thread's local memory, more than any kernel wants. It is given ahead: the launch that first wants it waits for
/// the whole device, which may wait for another rank.
constexpr size_t kLocalBytes = 2048;

class CudaDevice : public Device {
 public:
  CudaDevice(int ordinal, int ranks)
      : ordinal_(ordinal), open_(ordinal, ranks), left_bytes_(kLeftForLibraries + (ranks > 1 ? kLeftForRanks : 0)) {
    use();
    check_cuda(cudaDeviceSetLimit(cudaLimitStackSize, kLocalBytes), "making room for the threads' local memory");
    prepare_page_locked(OpenDevice::ranks());
  }

  std::unique_ptr<Arena> arena(int64_t bytes, int64_t) override {  // what the device has not got, it refuses
    use();
    return std::make_unique<CudaArena>(ordinal_, bytes);
  }
  std::unique_ptr<Arena> host_arena(int64_t bytes) override {
    use();
    return std::make_unique<PinnedArena>(bytes);
  }
  std::unique_ptr<SharedArena> shared_arena(const std::string& path, int64_t bytes, uint64_t layout) override {
    use();
    return std::make_unique<PinnedSharedArena>(path, bytes, layout);
  }
  std::unique_ptr<Stream> stream(const std::string& name, int threads) override {
    if (name == ir::kHostStream) return std::make_unique<CudaHostStream>(ordinal_, name, threads);
    return std::make_unique<CudaStream>(ordinal_, name, graphs_);
  }
  void set_graphs(bool on) override { graphs_ = on; }
  int64_t memory_bytes() const override {
    use();
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
    return std::max<int64_t>(left_bytes_, static_cast<int64_t>(free) - left_bytes_);
  }
  int64_t host_memory_bytes() const override { return device::host_memory_bytes(); }
  bool shares_memory() const override { return false; }
  void download(void* to, const void* from, int64_t bytes) override {
    use();
    check_cuda(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault), "reading the device");
  }
  void upload(void* to, const void* from, int64_t bytes) override {
    use();
    check_cuda(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault), "writing to the device");
    check_cuda(cudaStreamSynchronize(nullptr), "writing to the device");
  }

 private:
  void use() const { check_cuda(cudaSetDevice(ordinal_), "choosing the device"); }
  int ordinal_;
  OpenDevice open_;
  int64_t left_bytes_;
  bool graphs_ = false;
};

}  // namespace

// Streams share hardware queues, eight by default. Work that waits in one for a peer holds up the work behind it
// (NVIDIA/nccl, issue 783). A rank has more than eight streams.
// A kernel is loaded at its first launch, which may wait for an idle device, as above. Each of several ranks loads
// all of them as it starts.
void tell_cuda_driver(bool several_ranks) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (several_ranks) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

Support cuda_available() {
  tell_cuda_driver(false);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return Support::no(fmt::format("no CUDA device: {}", cudaGetErrorString(status)));
  if (count == 0) return Support::no("no CUDA device");
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      major < kLeastCapability) {
    return Support::no(
        fmt::format("the CUDA device has compute capability {}, {} is needed", major, kLeastCapability));
  }
  return Support::yes();
}

std::unique_ptr<Device> cuda_device(const Seat& seat) {
  tell_cuda_driver(seat.ranks > 1);
  if (const Support there = cuda_available(); !there) config_error("device.backend is \"cuda\": {}", there.reason);
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "counting devices");
  int ordinal = seat.on_host % count;
  if (const char* named = std::getenv("HEDDLE_DEVICE")) {
    char* end = nullptr;
    const long number = std::strtol(named, &end, 10);
    if (end == named || *end != '\0' || number < 0 || number >= count) {
      config_error("HEDDLE_DEVICE is '{}', wanted a number from 0 to {}", named, count - 1);
    }
    ordinal = static_cast<int>(number);
  }
  return std::make_unique<CudaDevice>(ordinal, seat.ranks);
}

}  // namespace heddle::device
