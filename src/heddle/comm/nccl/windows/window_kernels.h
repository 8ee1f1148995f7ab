// The kernel of an exchange through windows (../window_exchange.h). n ranks, B blocks, boxes of `box_bytes`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::comm::nccl {

constexpr int kWindowThreads = 512;
constexpr int64_t kFlagBytes = 32;  // a flag has a sector of its own

/// A run of a message. A message is its runs one behind the other.
struct WindowRun {
  std::byte* at;
  int64_t bytes;
};
/// What goes to a rank and comes from it, and its window as this rank sees it.
struct WindowPeer {
  std::byte* window;
  int64_t send_bytes, receive_bytes;
  const WindowRun *sends, *receives;
  int32_t send_runs, receive_runs;
};
struct WindowArgs {
  const WindowPeer* peers;  // [n]
  const uint32_t* stop;
  int64_t box_bytes;  // a multiple of 16
  int32_t rank, ranks, blocks;
};

// A window: for each rank and block the number of the last chunk that has arrived from it, of the last that it has
// taken, and (for the owner alone) of the last sent and taken here; then the boxes.
enum class WindowFlag : int32_t { arrived, freed, sent, taken };
constexpr int64_t flag_offset(WindowFlag flag, int64_t peer, int64_t block, int64_t ranks, int64_t blocks) {
  return ((static_cast<int64_t>(flag) * ranks + peer) * blocks + block) * kFlagBytes;
}
constexpr int64_t box_offset(int64_t peer, int64_t block, int64_t which, int64_t ranks, int64_t blocks,
                             int64_t box_bytes) {
  return 4 * ranks * blocks * kFlagBytes + ((peer * blocks + block) * 2 + which) * box_bytes;
}
constexpr int64_t window_bytes(int64_t ranks, int64_t blocks, int64_t box_bytes) {
  return box_offset(ranks, 0, 0, ranks, blocks, box_bytes);
}
/// Of a message, so that all blocks have a part where it is long enough: the same at both ends.
constexpr int64_t chunk_of(int64_t bytes, int64_t blocks, int64_t box_bytes) {
  constexpr int64_t least = 4096;
  const int64_t part = ((bytes + blocks - 1) / blocks + 15) / 16 * 16;
  const int64_t chunk = part < least ? least : part;
  return chunk < box_bytes ? chunk : box_bytes;
}

/// Puts the exchange on the stream: `blocks` blocks of kWindowThreads, each of which waits for the same one of its
/// peers only.
void launch_window_exchange(const WindowArgs& args, void* stream);

}  // namespace heddle::comm::nccl
