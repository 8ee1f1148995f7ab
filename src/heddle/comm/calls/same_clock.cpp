#include "heddle/comm/calls/same_clock.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace heddle::comm {

namespace {

using Key = std::pair<uint64_t, uint64_t>;  // channel and sequence

std::map<Key, int64_t> exits(const RankStatus& page) {
  std::map<Key, int64_t> left;
  for (const OpenCall& call : page.recent) {
    if (call.kind == CallKind::exchange) left[{call.members, call.sequence}] = call.left_ns;
  }
  return left;
}

}  // namespace

void shift(RankStatus& page, int64_t ns) {
  const auto later = [&](OpenCall& call) {
    if (call.entered_ns != 0) call.entered_ns += ns;
    if (call.left_ns != 0) call.left_ns += ns;
  };
  page.moved_ns += ns;
  for (OpenCall& call : page.open) later(call);
  for (OpenCall& call : page.recent) later(call);
  if (page.last) later(*page.last);
}

std::vector<RankStatus> by_one_clock(std::vector<RankStatus> pages, const std::string& host) {
  if (pages.empty()) return pages;
  std::vector<std::map<Key, int64_t>> left;
  for (const RankStatus& page : pages) left.push_back(exits(page));
  const auto own =
      std::find_if(pages.begin(), pages.end(), [&](const RankStatus& page) { return page.host == host; });
  std::map<std::string, int64_t> ahead{{own == pages.end() ? pages[0].host : own->host, 0}};  // that are known
  std::deque<std::string> next{ahead.begin()->first};
  for (; !next.empty(); next.pop_front()) {
    std::map<std::string, std::vector<int64_t>>
        apart;  // of hosts that are not known yet, by what they share with it
    for (size_t a = 0; a < pages.size(); ++a) {
      if (pages[a].host != next.front()) continue;
      for (size_t b = 0; b < pages.size(); ++b) {
        if (ahead.contains(pages[b].host)) continue;
        for (const auto& [key, left_ns] : left[b]) {
          if (const auto met = left[a].find(key); met != left[a].end())
            apart[pages[b].host].push_back(left_ns - met->second);
        }
      }
    }
    for (auto& [name, found] : apart) {
      const auto middle = found.begin() + std::ssize(found) / 2;
      std::nth_element(found.begin(), middle, found.end());
      ahead[name] = ahead[next.front()] + *middle;
      next.push_back(name);
    }
  }
  for (RankStatus& page : pages) {
    if (const auto known = ahead.find(page.host); known != ahead.end()) shift(page, -known->second);
  }
  return pages;
}

}  // namespace heddle::comm
