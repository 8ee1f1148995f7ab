// Where a rank sees the windows of its peers: only NCCL's device code tells it.
#include <nccl.h>
#include <nccl_device.h>

namespace heddle::comm::nccl {

namespace {

__global__ void window_places(ncclWindow_t window, int ranks, void** places) {
  const int rank = static_cast<int>(threadIdx.x);
  if (rank < ranks) places[rank] = ncclGetLsaPointer(window, 0, rank);
}

}  // namespace

void launch_window_places(ncclWindow_t window, int ranks, std::byte** places, void* stream) {
  window_places<<<1, 1024, 0, static_cast<cudaStream_t>(stream)>>>(window, ranks, reinterpret_cast<void**>(places));
}

}  // namespace heddle::comm::nccl
