// One byte from a device to itself, by NCCL.
#include <cuda_runtime_api.h>

#include "heddle/comm/device_world.h"
#include "heddle/comm/nccl/library.h"
#include "heddle/device/cuda/cuda_check.h"

namespace heddle::comm {

std::string send_to_itself() {
  using device::check_cuda;
  using nccl::check;
  const nccl::Library& l = nccl::library();
  if (!l.missing.empty()) config_error("{}", l.missing);
  constexpr uint8_t kByte = 0x5a;
  uint8_t* bytes = nullptr;  // what is sent, then what comes
  cudaStream_t stream = nullptr;
  ncclUniqueId id{};
  ncclComm_t alone = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  check_cuda(cudaMallocAsync(reinterpret_cast<void**>(&bytes), 2, stream), "making room for a byte");
  check_cuda(cudaMemsetAsync(bytes, kByte, 1, stream), "making a byte");
  check_cuda(cudaMemsetAsync(bytes + 1, 0, 1, stream), "making a byte");
  check(l.get_unique_id(&id), "making the id of a group");
  check(l.init_rank(&alone, 1, id, 0), "joining a group");
  check(l.group_start(), "beginning an exchange");
  check(l.send(bytes, 1, ncclInt8, 0, alone, stream), "sending");
  check(l.receive(bytes + 1, 1, ncclInt8, 0, alone, stream), "receiving");
  check(l.group_end(), "ending an exchange");
  uint8_t came = 0;
  check_cuda(cudaMemcpyAsync(&came, bytes + 1, 1, cudaMemcpyDeviceToHost, stream), "reading a byte");
  check_cuda(cudaStreamSynchronize(stream), "waiting for a byte");
  check(l.destroy(alone), "leaving a group");
  check_cuda(cudaFreeAsync(bytes, stream), "giving back the room for a byte");
  check_cuda(cudaStreamDestroy(stream), "ending a stream");
  if (came != kByte) throw SystemError(0, fmt::format("NCCL: the byte {} came as {}", kByte, came));
  return l.text;
}

}  // namespace heddle::comm
