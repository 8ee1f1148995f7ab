#include "heddle/comm/calls/link_log.h"

#include <utility>

#include "heddle/device/running_op.h"

namespace heddle::comm {

int LinkLog::channel(std::string_view name, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  for (size_t c = 0; c < channels_.size(); ++c) {
    const Channel& known = channels_[c].seen;
    if (known.name == name && known.ranks == ranks) return static_cast<int>(c);
  }
  Kept& made = channels_.emplace_back();
  made.seen = {std::string(name), ranks, std::vector<std::vector<Seen>>(ranks.size())};
  made.every.assign(ranks.size(), 1);
  return static_cast<int>(channels_.size()) - 1;
}

uint32_t LinkLog::count(int channel) {
  const std::lock_guard lock(mutex_);
  return channels_[static_cast<size_t>(channel)].calls++;
}

void LinkLog::add(int channel, uint32_t call, std::span<const double> seconds, std::span<const int64_t> bytes) {
  const std::lock_guard lock(mutex_);
  Kept& kept = channels_[static_cast<size_t>(channel)];
  for (size_t peer = 0; peer < seconds.size(); ++peer) {
    uint32_t& every = kept.every[peer];
    if (seconds[peer] <= 0 || bytes[peer] < kLeastBytes || call % every != 0) continue;
    std::vector<Seen>& seen = kept.seen.of_peer[peer];
    seen.push_back({call, device::running_op.listing, device::running_op.index, static_cast<float>(seconds[peer]),
                    static_cast<float>(bytes[peer])});
    if (seen.size() < kMostCalls) continue;
    every *= 2;
    std::erase_if(seen, [every](const Seen& one) { return one.call % every != 0; });
  }
}

std::vector<LinkLog::Channel> LinkLog::take() {
  const std::lock_guard lock(mutex_);
  std::vector<Channel> all;
  for (Kept& kept : channels_) {
    Channel& taken =
        all.emplace_back(kept.seen.name, kept.seen.ranks, std::vector<std::vector<Seen>>(kept.seen.ranks.size()));
    std::swap(taken.of_peer, kept.seen.of_peer);
  }
  return all;
}

}  // namespace heddle::comm
