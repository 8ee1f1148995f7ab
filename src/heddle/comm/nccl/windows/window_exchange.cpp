#include "heddle/comm/nccl/window_exchange.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <list>
#include <string_view>
#include <thread>
#include <vector>

#include "heddle/comm/nccl/library.h"
#include "heddle/comm/nccl/windows/window_kernels.h"
#include "heddle/comm/nccl/windows/window_library.h"

namespace heddle::comm::nccl {

namespace {

// Of a rank: 24 blocks with two boxes of 64 KiB for each peer. As many blocks fill NVLink's 450 GB/s with stores
// where a multiprocessor has some 20 GB/s of them.
constexpr int32_t kBlocks = 24;
constexpr int64_t kBoxBytes = 64 << 10;
constexpr int kMostRanks = 1024;

void check_cuda(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  throw SystemError(static_cast<int>(status), fmt::format("CUDA: {}: {}", doing, cudaGetErrorString(status)));
}

/// Lists of exchanges under way, in memory of the host that the device reads; reused once its kernel has ended.
class Lists {
 public:
  struct Slot {
    std::byte* bytes = nullptr;
    size_t size = 0;
    cudaEvent_t read = nullptr;
  };
  ~Lists() { clear(); }
  /// Waits for all of them.
  void clear() {
    for (Slot& slot : slots_) {
      cudaEventSynchronize(slot.read);
      cudaEventDestroy(slot.read);
      cudaFreeHost(slot.bytes);
    }
    slots_.clear();
  }
  Slot& slot_for(size_t size) {
    for (Slot& slot : slots_) {
      if (slot.size >= size && cudaEventQuery(slot.read) == cudaSuccess) return slot;
    }
    Slot slot;
    slot.size = std::max<size_t>(size, 4096);
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&slot.bytes), slot.size), "making room for a list");
    check_cuda(cudaEventCreateWithFlags(&slot.read, cudaEventDisableTiming), "making an event");
    slots_.push_back(slot);
    return slots_.back();
  }

 private:
  std::list<Slot> slots_;
};

class Windows : public WindowExchange {
 public:
  Windows(ncclComm_t comm, int rank, int size, const uint32_t* stop) : comm_(comm), rank_(rank), stop_(stop) {
    const WindowLibrary& l = window_library();
    const auto bytes = static_cast<size_t>(window_bytes(size, kBlocks, kBoxBytes));
    cudaStream_t stream = nullptr;
    std::byte** places = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    check(l.allocate(reinterpret_cast<void**>(&memory_), bytes), "making room for a window");
    check_cuda(cudaMemsetAsync(memory_, 0, bytes, stream), "clearing a window");
    check_cuda(cudaStreamSynchronize(stream), "clearing a window");
    check(l.enter(comm, memory_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC), "registering a window");
    if (window_ == nullptr) throw SystemError(1, "NCCL: registering a window: this machine's ranks can have none");
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&places), static_cast<size_t>(size) * sizeof *places),
               "making room for a list");
    launch_window_places(window_, size, places, stream);
    check_cuda(cudaGetLastError(), "asking where windows are");
    check_cuda(cudaStreamSynchronize(stream), "asking where windows are");
    windows_.assign(places, places + size);
    check_cuda(cudaFreeHost(places), "giving back the room for a list");
    check_cuda(cudaStreamDestroy(stream), "ending a stream");
  }
  ~Windows() override {
    lists_.clear();
    while (!stopped() && peers_still_write()) std::this_thread::yield();
    if (stopped()) return;  // the communicator is gone with all it had
    window_library().leave(comm_, window_);
    window_library().free(memory_);
  }

  void exchange(const void* send, std::span<const Piece> sends, void* receive, std::span<const Piece> receives,
                void* stream) override {
    const size_t n = windows_.size();
    std::vector<WindowPeer> peers(n);
    std::vector<std::vector<WindowRun>> out(n), in(n);
    size_t runs = 0;
    const auto list = [&](const void* base, std::span<const Piece> pieces, auto& of, int64_t WindowPeer::*bytes) {
      for (const Piece& p : pieces) {
        if (p.peer == rank_ || p.bytes == 0) continue;
        const auto peer = static_cast<size_t>(p.peer);
        of[peer].push_back({static_cast<std::byte*>(const_cast<void*>(base)) + p.offset, p.bytes});
        peers[peer].*bytes += p.bytes;
        ++runs;
      }
    };
    list(send, sends, out, &WindowPeer::send_bytes);
    list(receive, receives, in, &WindowPeer::receive_bytes);
    if (runs == 0) return;
    Lists::Slot& slot = lists_.slot_for(n * sizeof(WindowPeer) + runs * sizeof(WindowRun));
    auto* next = reinterpret_cast<WindowRun*>(slot.bytes + n * sizeof(WindowPeer));
    const auto put = [&](const std::vector<WindowRun>& of, const WindowRun*& at, int32_t& count) {
      at = next;
      count = static_cast<int32_t>(of.size());
      next = std::copy(of.begin(), of.end(), next);
    };
    for (size_t p = 0; p < n; ++p) {
      peers[p].window = windows_[p];
      put(out[p], peers[p].sends, peers[p].send_runs);
      put(in[p], peers[p].receives, peers[p].receive_runs);
    }
    std::memcpy(slot.bytes, peers.data(), n * sizeof(WindowPeer));
    launch_window_exchange({.peers = reinterpret_cast<const WindowPeer*>(slot.bytes),
                            .stop = stop_,
                            .box_bytes = kBoxBytes,
                            .rank = rank_,
                            .ranks = static_cast<int32_t>(n),
                            .blocks = kBlocks},
                           stream);
    check_cuda(cudaGetLastError(), "exchanging through windows");
    check_cuda(cudaEventRecord(slot.read, static_cast<cudaStream_t>(stream)), "recording an event");
  }

 private:
  bool stopped() const { return *static_cast<const volatile uint32_t*>(stop_) != 0; }
  /// Whether a peer has yet to say that it took the last chunk from here: the last that anyone stores here.
  bool peers_still_write() const {
    const auto n = static_cast<int64_t>(windows_.size());
    std::vector<std::byte> flags(static_cast<size_t>(box_offset(0, 0, 0, n, kBlocks, kBoxBytes)));
    if (cudaMemcpy(flags.data(), memory_, flags.size(), cudaMemcpyDeviceToHost) != cudaSuccess) return false;
    const auto number = [&](WindowFlag flag, int64_t peer, int64_t block) {
      uint32_t found = 0;
      std::memcpy(&found, flags.data() + flag_offset(flag, peer, block, n, kBlocks), sizeof found);
      return found;
    };
    for (int64_t i = 0; i < n * kBlocks; ++i) {
      if (number(WindowFlag::freed, i / kBlocks, i % kBlocks) !=
          number(WindowFlag::sent, i / kBlocks, i % kBlocks)) {
        return true;
      }
    }
    return false;
  }

  ncclComm_t comm_;
  int rank_;
  const uint32_t* stop_;
  std::byte* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
  std::vector<std::byte*> windows_;
  Lists lists_;
};

}  // namespace

bool windows_asked() {
  const char* const asks = std::getenv("HEDDLE_NCCL_WINDOWS");
  if (asks == nullptr || std::string_view(asks) != "1") return false;
  if (!window_library().missing.empty()) config_error("HEDDLE_NCCL_WINDOWS=1: {}", window_library().missing);
  return true;
}

std::unique_ptr<WindowExchange> window_exchange(ncclComm_t comm, int rank, int size, const uint32_t* stop) {
  if (size > kMostRanks || window_library().domain(comm).nRanks != size) return nullptr;
  return std::make_unique<Windows>(comm, rank, size, stop);
}

}  // namespace heddle::comm::nccl
