#include "tests/gpu/strict_runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace {

std::mutex mutex;
std::condition_variable changed;  // of all that follows

}  // namespace

struct CUevent_st {
  uint64_t recorded = 0;
  std::set<uint64_t> ahead;  // records that their streams have not come to: a later one may be reached before
  int device = 0;            // that was current as it was made
};
struct CUstream_st {
  int device = 0;
  std::deque<std::function<void()>> jobs;
  bool busy = false, ending = false;
  std::thread worker;

  CUstream_st() : worker([this] { run(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    changed.notify_all();
    worker.join();
  }
  void put(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex);
      jobs.push_back(std::move(job));
    }
    changed.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ending || !jobs.empty(); });
      if (jobs.empty()) return;
      const auto job = std::move(jobs.front());
      jobs.pop_front();
      busy = true;
      lock.unlock();
      job();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return jobs.empty() && !busy; });
  }
};

namespace heddle::strict {

namespace {

struct Kernel {
  int64_t static_bytes = 0, allowed = 0;  // allowed: dynamic, once asked for
  bool holds = false;                     // every multiprocessor
};
bool held = false;
std::map<const void*, Kernel> kernels;
std::map<const std::byte*, const std::byte*> registered;  // first and last address of each

std::map<const std::byte*, const std::byte*> page_locked;  // likewise, of what was taken so

/// A copy may not leave the range of pages that it begins in for another.
bool crosses_a_seam(const void* at, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(at);
  const auto after = registered.upper_bound(first);
  if (after == registered.begin()) return false;
  const auto& [from, to] = *std::prev(after);
  return first < to && first + bytes > to;
}

template <class Function>
Function* as(void* of) {
  return reinterpret_cast<Function*>(of);
}

CUresult reserve(CUdeviceptr* at, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *at = reinterpret_cast<CUdeviceptr>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return CUDA_SUCCESS;
}
CUresult give_back(CUdeviceptr at, size_t bytes) {
  munmap(reinterpret_cast<void*>(at), bytes);
  return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp* prop, unsigned long long) {
  if (seen().create_answers != CUDA_SUCCESS) return seen().create_answers;
  if (!seen().gives_memory_on && prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  *handle = 1;
  seen().allocations.push_back(*prop);
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
CUresult map_memory(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc* access, size_t count) {
  const std::lock_guard lock(mutex);
  seen().reached_by.clear();
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    seen().reached_by.push_back(access[i].location.id);
  }
  return CUDA_SUCCESS;
}
CUresult wait_value(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_INVALID_VALUE;
  if (!seen().waits_for_values) return CUDA_ERROR_NOT_SUPPORTED;
  s->put([=] {
    std::unique_lock lock(mutex);
    auto* flag = reinterpret_cast<uint32_t*>(at);
    // The host may write it too, and tells nobody.
    while (static_cast<int32_t>(std::atomic_ref(*flag).load() - value) < 0)
      changed.wait_for(lock, std::chrono::milliseconds(1));
  });
  return CUDA_SUCCESS;
}
CUresult write_value(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned) {
  int device = 0;
  cudaGetDevice(&device);
  if (s->device != device) return CUDA_ERROR_INVALID_CONTEXT;
  s->put([=] {
    const std::lock_guard lock(mutex);
    std::atomic_ref(*reinterpret_cast<uint32_t*>(at)).store(value);
    changed.notify_all();
  });
  return CUDA_SUCCESS;
}
CUresult granularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = size_t{2} << 20;
  return CUDA_SUCCESS;
}

}  // namespace

Seen& seen() {
  static Seen one;
  return one;
}

bool is_page_locked(const void* at) {
  const std::lock_guard lock(mutex);
  const auto* address = static_cast<const std::byte*>(at);
  const auto after = page_locked.upper_bound(address);
  return after != page_locked.begin() && address < std::prev(after)->second;
}

int& device_of_thread() {
  thread_local int device = -1;
  return device;
}

void declare_kernel(const void* kernel, int64_t static_bytes) { kernels[kernel] = {static_bytes, 0}; }
void declare_holder(const void* kernel) { kernels[kernel] = {0, 0, true}; }
void release_holders() {
  const std::lock_guard lock(mutex);
  held = false;
  changed.notify_all();
}
void put_kernel(cudaStream_t stream, void (*call)(void*), void* data) {
  stream->put([=] { call(data); });
}
void await_units() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [] { return !held; });
}

}  // namespace heddle::strict

using heddle::strict::kernels;
using heddle::strict::seen;

namespace {

/// The last error of the thread: of any call, until it is asked for.
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t failed(cudaError_t error) { return last_error = error; }
cudaError_t failed_if(bool fails, cudaError_t error) { return fails ? failed(error) : cudaSuccess; }

int current_device() {
  const int own = heddle::strict::device_of_thread();
  return std::max(0, own >= 0 ? own : seen().device);
}
}  // namespace

extern "C" {

// ---- Devices

cudaError_t cudaGetDeviceCount(int* count) {
  if (seen().device < 0) {
    const auto word = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
    seen().max_connections = word("CUDA_DEVICE_MAX_CONNECTIONS");
    seen().module_loading = word("CUDA_MODULE_LOADING");
    seen().device = 0;
  }
  *count = 4;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  {
    const std::lock_guard lock(mutex);
    std::vector<int>& opened = seen().opened;
    if (std::find(opened.begin(), opened.end(), device) == opened.end()) opened.push_back(device);
  }
  seen().device = device;
  if (heddle::strict::device_of_thread() >= 0) heddle::strict::device_of_thread() = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {  // as an H100
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrComputeMode: *value = seen().compute_mode; break;
    default: *value = 1;
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = seen().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* of, int) {
  *of = {};
  std::strcpy(of->name, "NVIDIA H100 80GB HBM3");
  of->major = 9;
  of->multiProcessorCount = 132;
  of->totalGlobalMem = size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer && device < 3 && peer < 3 ? 1 : 0;  // all but the last
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t bytes) {
  seen().stack_bytes = bytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = size_t{80} << 30;
  *free = *total - seen().taken_bytes;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "invalid argument" : "an error";
}
const char* cudaGetErrorName(cudaError_t) { return "error"; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  namespace s = heddle::strict;
  static const std::map<std::string, void*> all{
      {"cuMemAddressReserve", reinterpret_cast<void*>(s::reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(s::give_back)},
      {"cuMemCreate", reinterpret_cast<void*>(s::create)},
      {"cuMemRelease", reinterpret_cast<void*>(s::release)},
      {"cuMemMap", reinterpret_cast<void*>(s::map_memory)},
      {"cuMemUnmap", reinterpret_cast<void*>(s::unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(s::set_access)},
      {"cuStreamWaitValue32", reinterpret_cast<void*>(s::wait_value)},
      {"cuStreamWriteValue32", reinterpret_cast<void*>(s::write_value)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(s::granularity)},
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(s::release)}};  // never called here
  const auto at = all.find(name);
  *found = at == all.end() ? nullptr : at->second;
  *result = at == all.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// ---- Kernels

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  attributes->sharedSizeBytes = static_cast<size_t>(kernels.at(kernel).static_bytes);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int bytes) {
  heddle::strict::Kernel& k = kernels.at(kernel);
  if (k.static_bytes + bytes > 227 << 10) return failed(cudaErrorInvalidValue);
  k.allowed = bytes;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void**, size_t dynamic, cudaStream_t s) {
  const heddle::strict::Kernel& k = kernels.at(kernel);
  const auto bytes = static_cast<int64_t>(dynamic);
  if (grid.x > 0x7fffffffu || grid.y > 0xffffu || grid.z > 0xffffu || block.x > 1024) {
    return failed(cudaErrorInvalidConfiguration);
  }
  if (k.static_bytes + bytes > 48 << 10 && bytes > k.allowed) return failed(cudaErrorInvalidValue);
  ++seen().launches;
  if (s != nullptr && k.holds) {
    s->put([] {
      std::unique_lock lock(mutex);
      heddle::strict::held = true;
      changed.notify_all();
      changed.wait(lock, [] { return !heddle::strict::held; });
    });
  } else if (s != nullptr) {
    s->put([] { heddle::strict::await_units(); });
  }
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t call, void* data) {
  s->put([=] {
    static std::mutex one_thread;  // the driver's, for all streams
    const std::lock_guard lock(one_thread);
    call(data);
  });
  return cudaSuccess;
}

// ---- Memory

cudaError_t cudaMallocHost(void** at, size_t bytes) {
  *at = std::malloc(bytes);
  ++seen().page_locks;
  const std::lock_guard lock(mutex);
  heddle::strict::page_locked[static_cast<const std::byte*>(*at)] = static_cast<const std::byte*>(*at) + bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* at) {
  {
    const std::lock_guard lock(mutex);
    heddle::strict::page_locked.erase(static_cast<const std::byte*>(at));
  }
  std::free(at);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** at, size_t bytes, cudaStream_t s) {
  *at = std::malloc(bytes);
  s->put([] {});
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* at, cudaStream_t s) {
  s->put([=] { std::free(at); });
  return cudaSuccess;
}
cudaError_t cudaFree(void* at) {
  std::free(at);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  const auto* first = static_cast<const std::byte*>(at);
  heddle::strict::registered[first] = first + bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  heddle::strict::registered.erase(static_cast<const std::byte*>(at));
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t s) {
  using heddle::strict::crosses_a_seam;
  if (crosses_a_seam(to, bytes) || crosses_a_seam(from, bytes)) return failed(cudaErrorInvalidValue);
  ++seen().copies;
  if (s == nullptr) {
    std::memcpy(to, from, bytes);
  } else {
    s->put([=] { std::memcpy(to, from, bytes); });
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t s) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s);
}
cudaError_t cudaMemset(void* at, int byte, size_t bytes) {
  std::memset(at, byte, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t s) {
  s->put([=] { std::memset(at, byte, bytes); });
  return cudaSuccess;
}

// ---- Streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  *s = new CUstream_st;
  (*s)->device = current_device();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreateWithPriority(s, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (s != nullptr) s->wait();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  const std::lock_guard lock(mutex);
  return failed_if(!s->jobs.empty() || s->busy, cudaErrorNotReady);
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new CUevent_st;
  (*e)->device = current_device();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (e->device != s->device) return failed(cudaErrorInvalidResourceHandle);
  uint64_t version = 0;
  {
    const std::lock_guard lock(mutex);
    version = ++e->recorded;
    e->ahead.insert(version);
  }
  s->put([=] {
    const std::lock_guard lock(mutex);
    e->ahead.erase(version);
    changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (seen().event_answers != cudaSuccess) return failed(seen().event_answers);
  const std::lock_guard lock(mutex);
  return failed_if(e->ahead.contains(e->recorded), cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !e->ahead.contains(e->recorded); });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  uint64_t version = 0;
  {
    const std::lock_guard lock(mutex);
    version = e->recorded;
  }
  s->put([=] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !e->ahead.contains(version); });
  });
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = seen().capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return failed(cudaErrorNotSupported); }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return failed(cudaErrorNotSupported); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return failed(cudaErrorNotSupported);
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return failed(cudaErrorNotSupported); }
}  // extern "C"
