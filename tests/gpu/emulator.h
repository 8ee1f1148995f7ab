// CUDA's model of a block of threads, on the CPU: every thread is a fiber, a barrier switches between them, warps
// exchange values through a board. It is as strict as a device, or stricter:
// - shared memory is poisoned as a block begins, and between any two barriers threads run in another drawn order,
// so
//   that a missing barrier shows;
// - an asynchronous copy poisons where it goes, and comes there at the wait that covers it, not before;
// - all lanes of a warp, and all threads of a block, have to meet at one place of the text;
// - a lane that is not there, or has ended, has no value to read;
// - accesses of 16 bytes are aligned; static and dynamic shared memory are what a block can have.
// Warps have kWarp lanes: tests run with 32 and with 64.
// It knows nothing of races within a warp's own steps, of caches, and of speed.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda::emulator {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
extern constinit thread_local Index thread_index, block_index, block_size, grid_size;

/// Waits for all threads of the block, or of the warp, that have not ended. They all have to wait at this place.
using Place = std::source_location;
void block_barrier(const Place& place = Place::current());
void warp_barrier(const Place& place = Place::current());
/// Copies of this thread: begun, ended as a group, and done until `open` groups are left.
void begin_copy(void* to, const void* from, int bytes);
void end_copies();
void finish_copies(int open);
/// Ends the block with an error unless an access of 16 bytes may be made here.
void check_aligned(const void* at);

/// While it lives, a grid of this thread's launches that has more blocks runs only as many: the first, the last and
/// drawn ones. So grids run whose indices go beyond 2³¹, over memory that is mapped but not there.
class SomeBlocks {
 public:
  SomeBlocks(int64_t most, uint64_t seed);
  ~SomeBlocks();
  SomeBlocks(const SomeBlocks&) = delete;
  SomeBlocks& operator=(const SomeBlocks&) = delete;
};
/// Launches of this thread so far.
int64_t launches();
/// Shared memory of the block: one piece for each key, poisoned at first.
void* shared(const void* key, int64_t bytes);
unsigned char* dynamic_shared();
constexpr int kBoardBytes = 64;
/// Shows the warp's lanes `bytes` bytes at `value`, once all of them have come to this place. What a lane shows
/// stands until the warp's exchange after the next, so that one barrier is enough.
void exchange(const void* value, int bytes, const Place& place = Place::current());
/// What a lane has shown in this thread's last exchange; null where the lane was not there.
const unsigned char* shown_or_null(int lane);
/// The same; ends the block with an error where the lane was not there.
const unsigned char* shown(int lane);

inline uint32_t word_of(float value) { return std::bit_cast<uint32_t>(value); }
inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint16_t bf16_of(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((word >> 16) | 0x40u);
  return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

inline int lane() { return static_cast<int>(thread_index.x % kWarp); }

template <class T>
T from_lane(T value, int source, const Place& place = Place::current()) {
  static_assert(sizeof value <= kBoardBytes);
  exchange(&value, sizeof value, place);
  T found;
  std::memcpy(&found, shown(source), sizeof found);
  return found;
}

}  // namespace heddle::kernels::cuda::emulator

// The names that kernels use.
#define threadIdx ::heddle::kernels::cuda::emulator::thread_index
#define blockIdx ::heddle::kernels::cuda::emulator::block_index
#define blockDim ::heddle::kernels::cuda::emulator::block_size
#define gridDim ::heddle::kernels::cuda::emulator::grid_size
#define HEDDLE_SHARED(T, name, count) \
  static char name##_key;             \
  T* const name = static_cast<T*>(::heddle::kernels::cuda::emulator::shared(&name##_key, sizeof(T) * (count)))
#define HEDDLE_DYNAMIC_SHARED(name) unsigned char* const name = ::heddle::kernels::cuda::emulator::dynamic_shared()

inline void __syncthreads(const std::source_location& place = std::source_location::current()) {
  heddle::kernels::cuda::emulator::block_barrier(place);
}
inline void __syncwarp(const std::source_location& place = std::source_location::current()) {
  heddle::kernels::cuda::emulator::warp_barrier(place);
}
template <class T>
T __shfl_xor_sync(heddle::kernels::cuda::Lanes, T value, int mask,
                  const std::source_location& place = std::source_location::current()) {
  return heddle::kernels::cuda::emulator::from_lane(value, heddle::kernels::cuda::emulator::lane() ^ mask, place);
}
template <class T>
T __shfl_sync(heddle::kernels::cuda::Lanes, T value, int source,
              const std::source_location& place = std::source_location::current()) {
  return heddle::kernels::cuda::emulator::from_lane(value, source, place);
}
inline heddle::kernels::cuda::Lanes __ballot_sync(
    heddle::kernels::cuda::Lanes, bool yes, const std::source_location& place = std::source_location::current()) {
  namespace e = heddle::kernels::cuda::emulator;
  using heddle::kernels::cuda::Lanes;
  const unsigned char mark = yes ? 1 : 0;
  e::exchange(&mark, 1, place);
  Lanes votes = 0;
  for (int l = 0; l < heddle::kernels::cuda::kWarp; ++l)
    if (const unsigned char* vote = e::shown_or_null(l)) votes |= static_cast<Lanes>(*vote) << l;
  return votes;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
using std::copysign;
using std::max;
using std::min;
