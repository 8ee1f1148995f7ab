#include "heddle/comm/placement/relay.h"

#include <algorithm>

namespace heddle::comm {

namespace {

constexpr int64_t kAligned = 64;  // parts begin at such multiples

}  // namespace

std::vector<Handover> handovers(std::span<const int32_t> expert_of_slot, const Holders& holders) {
  const int64_t count = holders.count(), each = std::ssize(expert_of_slot) / count, own = each - holders.replicas;
  struct Held {
    int64_t expert, holder;
  };
  std::vector<Held> held;
  for (int64_t h = 0; h < count; ++h) {
    for (int64_t c = own; c < each; ++c) {
      const int32_t expert = expert_of_slot[h * each + c];
      if (expert >= 0) held.push_back({expert, h});
    }
  }
  std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.expert < b.expert; });
  std::vector<Handover> all;
  for (size_t first = 0; first < held.size();) {
    std::vector<std::vector<int64_t>> nodes;  // holders of this expert's copies
    const int64_t expert = held[first].expert;
    for (; first < held.size() && held[first].expert == expert; ++first) {
      const auto at = std::find_if(nodes.begin(), nodes.end(), [&](const std::vector<int64_t>& node) {
        return holders.near(node.front(), held[first].holder);
      });
      (at == nodes.end() ? nodes.emplace_back() : *at).push_back(held[first].holder);
    }
    for (const std::vector<int64_t>& node : nodes) {
      const int64_t parts = std::ssize(node);
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t taker = node[i];
        all.push_back({expert, expert / own, taker, i, parts, false});
        for (const int64_t other : node) {
          if (other != taker) all.push_back({expert, taker, other, i, parts, true});
        }
      }
    }
  }
  return all;
}

PartBytes part_of(int64_t bytes, int64_t part, int64_t parts) {
  const auto begin = [&](int64_t i) { return i == parts ? bytes : bytes * i / parts / kAligned * kAligned; };
  return {begin(part), begin(part + 1) - begin(part)};
}

}  // namespace heddle::comm
