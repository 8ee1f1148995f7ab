#include "heddle/job/hosts/host_pool.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::job {

HostPool::Member& HostPool::member(const std::string& name) {
  const auto at =
      std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.host.name == name; });
  HEDDLE_CHECK(at != members_.end(), "no host {} in this job", name);
  return *at;
}

void HostPool::lost(const std::string& name, double now_s, bool answers) {
  constexpr int kMostDoublings = 8;
  Member& m = member(name);
  if (m.is_out) return;
  m.is_out = true;
  // The first time is bad luck: it may come back as soon as it answers. One that answers all the time has to wait.
  m.until_s = m.times_lost == 0 && !answers
                  ? now_s
                  : now_s + probation_s_ * (1 << std::clamp(m.times_lost - 1, 0, kMostDoublings));
  ++m.times_lost;
}

bool HostPool::answers(const std::string& name, double now_s) {
  Member& m = member(name);
  if (m.is_out && now_s >= m.until_s) m.is_out = false;
  return !m.is_out;
}

std::vector<Host> HostPool::up() const {
  std::vector<Host> hosts;
  for (const Member& m : members_) {
    if (!m.is_out) hosts.push_back(m.host);
  }
  return hosts;
}

std::vector<Host> HostPool::out() const {
  std::vector<Host> hosts;
  for (const Member& m : members_) {
    if (m.is_out) hosts.push_back(m.host);
  }
  return hosts;
}

std::vector<Host> HostPool::with_slots(int ranks) const {
  std::vector<Host> chosen;
  for (Host host : up()) {
    if (ranks == 0) break;
    host.slots = std::min(host.slots, ranks);
    ranks -= host.slots;
    chosen.push_back(std::move(host));
  }
  return chosen;
}

}  // namespace heddle::job
