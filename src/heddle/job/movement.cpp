#include "heddle/job/movement.h"

#include <algorithm>

#include "heddle/comm/calls/same_clock.h"

namespace heddle::job {

void Movement::see(const std::vector<comm::RankStatus>& pages, double now_s) {
  for (const comm::RankStatus& page : pages) {
    const auto [at, is_new] = seen_.try_emplace(page.rank);
    Seen& seen = at->second;
    if (!is_new && seen.process == page.process && seen.moved_ns == page.moved_ns && seen.step == page.step)
      continue;
    seen = {page.process, page.moved_ns, page.step, now_s};
    newest_s_ = std::max(newest_s_, now_s);
  }
}

std::vector<comm::RankStatus> Movement::by_clock(std::vector<comm::RankStatus> pages, double now_s,
                                                 int64_t clock_ns) const {
  for (comm::RankStatus& page : pages) {
    const auto at = seen_.find(page.rank);
    if (at == seen_.end() || at->second.moved_ns != page.moved_ns) continue;
    const auto idle_ns = static_cast<int64_t>((now_s - at->second.at_s) * 1e9);
    comm::shift(page, clock_ns - idle_ns - page.moved_ns);
  }
  return pages;
}

}  // namespace heddle::job
