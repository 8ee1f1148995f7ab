#include "heddle/comm/nccl/windows/window_kernels.h"

#ifdef __CUDACC__
#define WINDOW_DEVICE __device__ __forceinline__
#define WINDOW_KERNEL __global__ __launch_bounds__(heddle::comm::nccl::kWindowThreads)
#define HEDDLE_SHARED(T, name, count) __shared__ T name[count]
#else
#include <atomic>
#include <thread>

#include HEDDLE_EMULATOR
#define WINDOW_DEVICE inline
#define WINDOW_KERNEL
#endif

namespace heddle::comm::nccl {

namespace {

struct alignas(16) Wide {
  uint32_t word[4];
};

/// Of flags that ranks on other devices raise.
WINDOW_DEVICE uint32_t acquired(const std::byte* at) {
#ifdef __CUDACC__
  uint32_t word;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
  return word;
#else
  std::this_thread::yield();
  auto* const word = reinterpret_cast<uint32_t*>(const_cast<std::byte*>(at));
  return std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire);
#endif
}
WINDOW_DEVICE void release(std::byte* at, uint32_t word) {
#ifdef __CUDACC__
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
#else
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at)).store(word, std::memory_order_release);
#endif
}

/// By all threads of the block.
template <class Word>
WINDOW_DEVICE void copy_words(std::byte* to, const std::byte* from, int64_t bytes) {
  constexpr int64_t each = sizeof(Word);
  const auto distance = reinterpret_cast<uintptr_t>(to) % each;
  int64_t head = distance == 0 ? 0 : each - static_cast<int64_t>(distance);
  if (head > bytes) head = bytes;
  const int64_t words = (bytes - head) / each, thread = threadIdx.x, step = blockDim.x;
  for (int64_t i = thread; i < words; i += step) {
    reinterpret_cast<Word*>(to + head)[i] = reinterpret_cast<const Word*>(from + head)[i];
  }
  for (int64_t i = thread; i < head; i += step) to[i] = from[i];
  for (int64_t i = head + words * each + thread; i < bytes; i += step) to[i] = from[i];
}
WINDOW_DEVICE void move_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  const uintptr_t apart = reinterpret_cast<uintptr_t>(to) ^ reinterpret_cast<uintptr_t>(from);
  if (apart % 16 == 0) {
    copy_words<Wide>(to, from, bytes);
  } else if (apart % 4 == 0) {
    copy_words<uint32_t>(to, from, bytes);
  } else {
    copy_words<std::byte>(to, from, bytes);
  }
}

/// Bytes [first, last) of a message between its runs and a box.
template <bool into_box>
WINDOW_DEVICE void carry(const WindowRun* runs, int32_t count, int64_t first, int64_t last, std::byte* box) {
  int64_t at = 0;
  for (int32_t r = 0; r < count && at < last; ++r) {
    const WindowRun run = runs[r];
    const int64_t begin = first > at ? first : at, end = last < at + run.bytes ? last : at + run.bytes;
    if (begin < end) {
      std::byte *const here = run.at + (begin - at), *const there = box + (begin - first);
      move_bytes(into_box ? there : here, into_box ? here : there, end - begin);
    }
    at += run.bytes;
  }
}

/// Whether the number at `flag` came to `least`, and not the end of all. For the whole block.
WINDOW_DEVICE bool await(const std::byte* flag, uint32_t least, const uint32_t* stop) {
  HEDDLE_SHARED(int, came, 1);
  if (threadIdx.x == 0) {
    *came = 1;
    while (static_cast<int32_t>(acquired(flag) - least) < 0) {
      if (acquired(reinterpret_cast<const std::byte*>(stop)) == 0) continue;
      *came = 0;
      break;
    }
  }
  __syncthreads();
  const bool yes = *came != 0;
  __syncthreads();
  return yes;
}

/// The c-th chunk of a message; none where it begins at the end or beyond.
struct Stretch {
  int64_t first, last;
};
WINDOW_DEVICE Stretch chunk_number(int64_t c, int64_t bytes, int64_t blocks, int64_t box_bytes) {
  const int64_t chunk = chunk_of(bytes, blocks, box_bytes), first = c * chunk;
  return {first, first + chunk < bytes ? first + chunk : bytes};
}
/// Chunks of a message that a block carries.
WINDOW_DEVICE int64_t rounds_of(int64_t bytes, int64_t block, int64_t blocks, int64_t box_bytes) {
  const int64_t chunk = chunk_of(bytes, blocks, box_bytes), chunks = (bytes + chunk - 1) / chunk;
  return chunks <= block ? 0 : (chunks - block - 1) / blocks + 1;
}

}  // namespace

WINDOW_KERNEL void window_exchange_kernel(WindowArgs args) {
  const int64_t n = args.ranks, B = args.blocks, block = blockIdx.x, rank = args.rank;
  std::byte* const own = args.peers[rank].window;
  const auto flag = [&](std::byte* window, WindowFlag which, int64_t peer) {
    return window + flag_offset(which, peer, block, n, B);
  };
  const auto number = [&](WindowFlag which, int64_t peer) {
    return reinterpret_cast<uint32_t*>(flag(own, which, peer));
  };
  bool more = true;
  for (uint32_t round = 0; more; ++round) {
    more = false;
    const int64_t c = block + round * B;
    for (int64_t step = 1; step < n; ++step) {
      const int64_t p = (rank + step) % n;
      const WindowPeer peer = args.peers[p];
      const Stretch part = chunk_number(c, peer.send_bytes, B, args.box_bytes);
      if (part.first >= part.last) continue;
      more = true;
      const uint32_t sent = *number(WindowFlag::sent, p) + round;
      if (!await(flag(own, WindowFlag::freed, p), sent - 1, args.stop)) return;
      carry<true>(peer.sends, peer.send_runs, part.first, part.last,
                  peer.window + box_offset(rank, block, sent % 2, n, B, args.box_bytes));
      __syncthreads();
      if (threadIdx.x == 0) release(flag(peer.window, WindowFlag::arrived, rank), sent + 1);
    }
    for (int64_t step = 1; step < n; ++step) {
      const int64_t p = (rank + n - step) % n;
      const WindowPeer peer = args.peers[p];
      const Stretch part = chunk_number(c, peer.receive_bytes, B, args.box_bytes);
      if (part.first >= part.last) continue;
      more = true;
      const uint32_t taken = *number(WindowFlag::taken, p) + round;
      if (!await(flag(own, WindowFlag::arrived, p), taken + 1, args.stop)) return;
      carry<false>(peer.receives, peer.receive_runs, part.first, part.last,
                   own + box_offset(p, block, taken % 2, n, B, args.box_bytes));
      __syncthreads();
      if (threadIdx.x == 0) release(flag(peer.window, WindowFlag::freed, rank), taken + 1);
    }
  }
  __syncthreads();
  for (int64_t p = threadIdx.x; p < n; p += blockDim.x) {
    const WindowPeer peer = args.peers[p];
    *number(WindowFlag::sent, p) += static_cast<uint32_t>(rounds_of(peer.send_bytes, block, B, args.box_bytes));
    *number(WindowFlag::taken, p) += static_cast<uint32_t>(rounds_of(peer.receive_bytes, block, B, args.box_bytes));
  }
}

#ifdef __CUDACC__  // the emulator's launch is the tests'
void launch_window_exchange(const WindowArgs& args, void* stream) {
  window_exchange_kernel<<<static_cast<unsigned>(args.blocks), kWindowThreads, 0,
                           static_cast<cudaStream_t>(stream)>>>(args);
}
#endif

}  // namespace heddle::comm::nccl
