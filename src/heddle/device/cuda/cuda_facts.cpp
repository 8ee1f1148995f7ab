#include <algorithm>

#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/device_facts.h"
#include "heddle/device/vendor.h"

namespace heddle::device {

namespace {

constexpr const VendorWords& kWords = vendor_words();

std::string release(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }
std::string gib(size_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

DeviceFact driver_fact() {
  int driver = 0, runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check_cuda(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  if (driver == 0) {
    return {false, "driver",
            fmt::format("none; this program is built for {} {}", kWords.platform, release(runtime)),
            fmt::format("install a driver of {} for {} {} or later", kWords.company, kWords.platform,
                        release(runtime))};
  }
  // A driver runs every release of its own major.
  const bool good = driver / 1000 >= runtime / 1000;
  return {
      good, "driver",
      fmt::format("for {} {}; this program is built for {}", kWords.platform, release(driver), release(runtime)),
      good ? "" : fmt::format("install a driver for {} {} or later", kWords.platform, runtime / 1000)};
}

DeviceFact fact_of(int device) {
  cudaDeviceProp of{};
  check_cuda(cudaGetDeviceProperties(&of, device), "asking what a device is");
  int mode = 0;
  check_cuda(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device), "asking who may use a device");
  DeviceFact fact{true, fmt::format("device {}", device),
                  fmt::format("{}, capability {}.{}, {} multiprocessors, {}", of.name, of.major, of.minor,
                              of.multiProcessorCount, gib(of.totalGlobalMem)),
                  ""};
  if (of.major < kLeastCapability) {
    fact.good = false;
    fact.remedy = fmt::format("capability {}.0 or later is needed: choose another device with {}", kLeastCapability,
                              kWords.visible);
  }
  if (mode == cudaComputeModeExclusiveProcess) fact.found += ", for one process at a time";
  if (mode == cudaComputeModeProhibited) {
    fact.good = false;
    fact.found += ", closed to every process";
    fact.remedy = kVendor == Vendor::nvidia ? fmt::format("nvidia-smi -i {} -c DEFAULT opens it", device)
                                            : fmt::format("see {}", kWords.manager);
  }
  return fact;
}

DeviceFact peers_fact(int count) {
  std::string apart;
  for (int a = 0; a < count; ++a) {
    for (int b = 0; b < count; ++b) {
      int reaches = 1;
      if (a != b) check_cuda(cudaDeviceCanAccessPeer(&reaches, a, b), "asking which devices reach each other");
      if (reaches == 0) apart += fmt::format("{}{}→{}", apart.empty() ? "" : ", ", a, b);
    }
  }
  if (apart.empty()) return {true, "between devices", "each reaches the memory of every other", ""};
  return {false, "between devices", "not reached: " + apart,
          "copies between these go through the host: look for ACS and IOMMU in the firmware's settings"};
}

}  // namespace

std::vector<DeviceFact> cuda_facts(const Seat& seat) {
  std::vector<DeviceFact> all;
  const auto add = [&](const char* what, const auto& fact) {
    try {
      all.push_back(fact());
    } catch (const Error& error) {
      all.push_back({false, what, error.what(), fmt::format("see {}", kWords.manager)});
    }
  };
  add("driver", driver_fact);
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0) {
    all.push_back({false, "devices", status != cudaSuccess ? cudaGetErrorString(status) : "none",
                   fmt::format("see {}, and whether {} hides them", kWords.manager, kWords.visible)});
    return all;
  }
  for (int device = 0; device < count; ++device) add("device", [&] { return fact_of(device); });
  if (count > 1) add("between devices", [&] { return peers_fact(count); });
  add("free memory", [&] {
    const std::unique_ptr<Device> own = cuda_device(seat);
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
    const bool good = free > total / 2;
    return DeviceFact{good, "free memory",
                      fmt::format("{} of {}; an arena may have {}", gib(free), gib(total),
                                  gib(static_cast<size_t>(own->memory_bytes()))),
                      good ? "" : fmt::format("another process holds the rest: {} names it", kWords.manager)};
  });
  return all;
}

std::string cuda_device_in_use() {
  int device = 0;
  cudaDeviceProp of{};
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&of, device);
  if (status == cudaSuccess) return fmt::format("{} (device {}), {}", of.name, device, gib(of.totalGlobalMem));
  forget_last_error();
  return cudaGetErrorString(status);
}

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  forget_last_error();
  return 0;
}

double copy_between(void* to, int to_device, const void* from, int from_device, int64_t bytes) {
  const char* doing = "copying between devices";
  check_cuda(cudaSetDevice(to_device), "choosing the device");
  cudaStream_t stream = nullptr;
  cudaEvent_t begun = nullptr, ended = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  check_cuda(cudaEventCreate(&begun), "making an event");
  check_cuda(cudaEventCreate(&ended), "making an event");
  float ms = 0;
  for (int round = 0; round < 2; ++round) {
    check_cuda(cudaEventRecord(begun, stream), doing);
    check_cuda(cudaMemcpyPeerAsync(to, to_device, from, from_device, static_cast<size_t>(bytes), stream), doing);
    check_cuda(cudaEventRecord(ended, stream), doing);
    check_cuda(cudaStreamSynchronize(stream), doing);
    check_cuda(cudaEventElapsedTime(&ms, begun, ended), doing);
  }
  cudaEventDestroy(begun);
  cudaEventDestroy(ended);
  cudaStreamDestroy(stream);
  return static_cast<double>(bytes) / std::max(1e-3, double{ms}) * 1e3;
}

}  // namespace heddle::device
