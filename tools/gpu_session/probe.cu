// What this device and its driver do, in one object of JSON: rates of copies, the cost of launches, events and
// graphs, which streams go on while one waits, and whether a copy may cross the seam of two page-locked pieces.
// Exit status 77 where there is no device.
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "probe: %s: %s\n", doing, cudaGetErrorString(status));
  std::exit(1);
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Work>
double median_s(int rounds, Work work) {
  std::vector<double> seconds;
  for (int r = 0; r < rounds + 1; ++r) {
    check(cudaDeviceSynchronize(), "waiting");
    const double start = now_s();
    work();
    check(cudaDeviceSynchronize(), "waiting");
    if (r > 0) seconds.push_back(now_s() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

__global__ void nothing() {}
__global__ void wait_for(const volatile int* flag) {
  while (*flag == 0) __nanosleep(1000);
}
__global__ void mark(volatile int* to) { *to = 1; }

/// Bytes a second of a copy; both ends count where both lie on the device.
double copy_rate(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, int ends) {
  return ends * static_cast<double>(bytes) /
         median_s(9, [&] { check(cudaMemcpyAsync(to, from, bytes, kind, nullptr), "copying"); });
}

/// Of `count` streams beside one that waits, how many go on.
int streams_that_go_on(int count) {
  int *flags = nullptr, *on_device = nullptr;
  check(cudaHostAlloc(reinterpret_cast<void**>(&flags), sizeof(int) * (count + 1), cudaHostAllocMapped), "flags");
  check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&on_device), flags, 0), "flags");
  std::fill_n(flags, count + 1, 0);
  std::vector<cudaStream_t> streams(static_cast<size_t>(count) + 1);
  for (cudaStream_t& stream : streams) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  mark<<<1, 1>>>(on_device);  // all kernels are loaded before the first waits: loading one may wait for the device
  wait_for<<<1, 1>>>(on_device);
  nothing<<<1, 1>>>();
  check(cudaDeviceSynchronize(), "loading kernels");
  flags[0] = 0;
  wait_for<<<1, 1, 0, streams[0]>>>(on_device);
  nothing<<<1, 1, 0, streams[0]>>>();  // waits in the queue, as the program's next launch would
  for (int s = 1; s <= count; ++s) mark<<<1, 1, 0, streams[static_cast<size_t>(s)]>>>(on_device + s);
  const double until = now_s() + 1;
  int gone = 0;
  while (now_s() < until && gone < count) {
    gone = 0;
    for (int s = 1; s <= count; ++s) gone += const_cast<volatile int*>(flags)[s];
  }
  const_cast<volatile int*>(flags)[0] = 1;
  check(cudaDeviceSynchronize(), "waiting for all streams");
  for (cudaStream_t stream : streams) check(cudaStreamDestroy(stream), "a stream");
  check(cudaFreeHost(flags), "flags");
  return gone;
}

/// Whether one copy may read across the seam of two pieces that were page-locked apart.
std::string copy_over_a_seam(void* on_device) {
  constexpr size_t kPiece = size_t{2} << 20;
  void* both = mmap(nullptr, 2 * kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (both == MAP_FAILED) return "no memory";
  auto* at = static_cast<char*>(both);
  check(cudaHostRegister(at, kPiece, cudaHostRegisterDefault), "page-locking");
  check(cudaHostRegister(at + kPiece, kPiece, cudaHostRegisterDefault), "page-locking");
  const cudaError_t status = cudaMemcpyAsync(on_device, at + kPiece / 2, kPiece, cudaMemcpyHostToDevice, nullptr);
  const std::string found = status == cudaSuccess ? "allowed" : cudaGetErrorString(status);
  cudaGetLastError();
  check(cudaDeviceSynchronize(), "waiting");
  check(cudaHostUnregister(at), "page-locking");
  check(cudaHostUnregister(at + kPiece), "page-locking");
  munmap(both, 2 * kPiece);
  return found;
}

}  // namespace

int main() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // as Heddle does
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0) {
    std::fprintf(stderr, "probe: skipped: no device: %s\n", cudaGetErrorString(status));
    return 77;
  }
  cudaDeviceProp p{};
  int driver = 0, runtime = 0;
  check(cudaGetDeviceProperties(&p, 0), "properties");
  check(cudaDriverGetVersion(&driver), "the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "the runtime's version");
  size_t free_bytes = 0, all_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &all_bytes), "memory");

  const size_t large = std::min(size_t{2} << 30, free_bytes / 4), link = std::min(size_t{256} << 20, large);
  void *a = nullptr, *b = nullptr, *locked = nullptr;
  check(cudaMalloc(&a, large), "memory");
  check(cudaMalloc(&b, large), "memory");
  check(cudaMemset(a, 1, large), "memory");
  check(cudaMallocHost(&locked, link), "page-locked memory");
  const double copy = copy_rate(b, a, large, cudaMemcpyDeviceToDevice, 2);
  const double up = copy_rate(a, locked, link, cudaMemcpyHostToDevice, 1);
  const double down = copy_rate(locked, a, link, cudaMemcpyDeviceToHost, 1);

  constexpr int kLaunches = 1000;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  const double launch = median_s(9, [&] {
    for (int i = 0; i < kLaunches; ++i) nothing<<<1, 32, 0, stream>>>();
  });
  std::vector<cudaEvent_t> events(kLaunches);
  for (cudaEvent_t& event : events) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  const double with_events = median_s(9, [&] {
    for (int i = 0; i < kLaunches; ++i) {
      nothing<<<1, 32, 0, stream>>>();
      check(cudaEventRecord(events[static_cast<size_t>(i)], stream), "an event");
    }
  });
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t run = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  for (int i = 0; i < kLaunches; ++i) nothing<<<1, 32, 0, stream>>>();
  check(cudaStreamEndCapture(stream, &graph), "capturing");
  check(cudaGraphInstantiate(&run, graph, 0), "a graph");
  const double as_graph = median_s(9, [&] { check(cudaGraphLaunch(run, stream), "a graph"); });
  check(cudaGetLastError(), "launching");

  std::printf(
      "{\"name\": \"%s\", \"capability\": \"%d.%d\", \"multiprocessors\": %d, \"memory_bytes\": %zu, "
      "\"free_bytes\": %zu, \"shared_bytes_of_block\": %zu, \"l2_bytes\": %d, \"driver\": %d, \"runtime\": %d, "
      "\"copy_bytes_per_s\": %.6g, \"up_bytes_per_s\": %.6g, \"down_bytes_per_s\": %.6g, "
      "\"launch_s\": %.6g, \"launch_and_event_s\": %.6g, \"graph_node_s\": %.6g, \"streams_beside_a_waiting_one\": "
      "31, "
      "\"streams_that_go_on\": %d, \"copy_over_a_seam\": \"%s\"}\n",
      p.name, p.major, p.minor, p.multiProcessorCount, all_bytes, free_bytes, p.sharedMemPerBlockOptin,
      p.l2CacheSize, driver, runtime, copy, up, down, launch / kLaunches, with_events / kLaunches,
      as_graph / kLaunches, streams_that_go_on(31), copy_over_a_seam(b).c_str());
  return 0;
}
