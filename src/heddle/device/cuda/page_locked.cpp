#include "heddle/device/cuda/page_locked.h"

#include <mutex>
#include <utility>
#include <vector>

#include "heddle/device/cuda/cuda_check.h"

namespace heddle::device {

namespace {

constexpr int64_t kRankBytes = int64_t{64} << 20;  // rings of four streams
constexpr int64_t kAlignment = 256;

struct Rest {
  std::byte* next;
  int64_t left;
};
struct Room {
  std::mutex mutex;
  std::vector<Rest> rests;  // of what was prepared
};
Room& room() {
  static Room one;
  return one;
}

std::byte* lock_pages(int64_t bytes) {
  void* at = nullptr;
  check_cuda(cudaMallocHost(&at, static_cast<size_t>(bytes)), "locking memory of the host");
  return static_cast<std::byte*>(at);
}

}  // namespace

std::byte* take_page_locked(int64_t bytes) {
  const int64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard lock(room().mutex);
  for (Rest& rest : room().rests) {
    if (rest.left < whole) continue;
    rest.left -= whole;
    return std::exchange(rest.next, rest.next + whole);
  }
  return lock_pages(whole);
}

void prepare_page_locked(int ranks) {
  const std::lock_guard lock(room().mutex);
  int64_t left = 0;
  for (const Rest& rest : room().rests) left += rest.left;
  for (; left < ranks * kRankBytes; left += kRankBytes)
    room().rests.push_back({lock_pages(kRankBytes), kRankBytes});
}

}  // namespace heddle::device
