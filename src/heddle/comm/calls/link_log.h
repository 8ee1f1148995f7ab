// Times a rank's exchanges by peer: the seconds from the call's begin until the peer's last byte had come, and the
// peer's bytes. Only a part of many calls is kept, the same part on both ends of a link, so that one call's
// times can be laid side by side.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::comm {

class LinkLog {
 public:
  static constexpr size_t kMostCalls = 64;     // kept of a peer on a channel
  static constexpr int64_t kLeastBytes = 256;  // of a piece that says something of a link's rate

  /// One peer's part of a call. `call` is its number on the channel, the same on all ranks.
  struct Seen {
    uint32_t call = 0;
    int32_t listing = -1;
    uint32_t op = 0;
    float seconds = 0, bytes = 0;
  };
  struct Channel {
    std::string name;
    std::vector<int> ranks;
    std::vector<std::vector<Seen>> of_peer;  // by place in `ranks`
  };

  /// Nothing is kept before.
  void start() { on_.store(true, std::memory_order_relaxed); }
  bool is_on() const { return on_.load(std::memory_order_relaxed); }

  /// The place of a channel; the same for the same name and ranks.
  int channel(std::string_view name, const std::vector<int>& ranks);
  /// Counts an exchange, kept or not; returns its number.
  uint32_t count(int channel);
  /// By peer in the group, seconds and bytes; 0 seconds: not known.
  void add(int channel, uint32_t call, std::span<const double> seconds, std::span<const int64_t> bytes);
  /// Returns what was kept since the last time.
  std::vector<Channel> take();

 private:
  struct Kept {
    Channel seen;
    uint32_t calls = 0;
    std::vector<uint32_t> every;  // by peer: which calls are kept
  };
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::vector<Kept> channels_;
};

}  // namespace heddle::comm
