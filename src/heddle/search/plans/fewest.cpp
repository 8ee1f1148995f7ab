#include "heddle/search/plans/fewest.h"

#include <algorithm>
#include <map>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/search/lowered_blocks.h"

namespace heddle::search {

namespace {

constexpr double kSurely = 0.95;  // part of the memory: estimates err by no more

}  // namespace

std::vector<int> counts_of_nodes(const cost::Accelerator& device, int most) {
  const int node = std::max(1, device.inner.ranks);
  std::vector<int> counts;
  for (const int part : divisors(node)) {
    if (part < node && part <= most) counts.push_back(part);
  }
  for (int64_t n = node; n <= most; n += node) counts.push_back(static_cast<int>(n));
  return counts;
}

bool surely_too_few(const Query& query, int devices) {
  const Job& job = query.space.job;
  std::vector<PricedResidency> homes{job.residency};
  if (query.space.restriction.residencies && job.software.lowered != nullptr)
    homes = job.software.lowered->residencies(job);
  const double memory_bytes = query.memory_bytes > 0 ? query.memory_bytes : usable_bytes(job.device);
  const double parameters = model::total_parameters(job.shape) / devices, trained = job.frozen_base ? 0.0 : 1.0;
  const auto fits = [&](const PricedResidency& home) {
    const double weights = 2, gradients = trained * job.software.gradient_bytes;
    const double on_device = (home.weights.empty() ? weights : 0) + (home.gradients.empty() ? gradients : 0) +
                             trained * (job.software.state_bytes - home.away_bytes);
    const double on_host = (home.weights.empty() ? 0 : weights) + (home.gradients.empty() ? 0 : gradients) +
                           trained * home.host_bytes;
    return parameters * on_device <= memory_bytes && parameters * on_host <= usable_host_bytes(job.device);
  };
  return std::none_of(homes.begin(), homes.end(), fits);
}

std::optional<Fewest> fewest_devices(const Query& query, const std::function<Answer(const Query&)>& search,
                                     const std::function<Answer(const Query&)>& whole,
                                     const std::function<void(int devices)>& asking) {
  Fewest found;
  std::vector<int> counts = counts_of_nodes(query.space.job.device, query.space.devices);
  std::erase_if(counts, [&](int n) { return n < counts.back() && surely_too_few(query, n); });
  const auto asked_of = [&](const std::function<Answer(const Query&)>& run, int devices, bool any) {
    Query asked = query;
    asked.space.devices = devices;
    asked.any = any;
    if (asking) asking(devices);
    ++found.searches;
    try {
      Answer answer = run(asked);
      if (!answer.top.empty() || answer.stopped) return answer;
      if (any && answer.timed == 0) return answer;  // no estimate fits, nor would one in less
      // The short list may be full of plans that fit by estimate alone: again, of those that do with room to spare.
      const double memory_bytes =
          query.memory_bytes > 0 ? query.memory_bytes : usable_bytes(query.space.job.device);
      asked.memory_bytes = kSurely * memory_bytes;
      answer = run(asked);
      answer.memory_bytes = memory_bytes;
      return answer;
    } catch (const ConfigError&) {
      // The model can't be cut for so few; of all devices that is the user's to know.
      if (devices == query.space.devices) throw;
      return Answer{};
    }
  };
  std::map<int, bool> known;
  const auto trains = [&](size_t i) {
    const auto [at, fresh] = known.try_emplace(counts[i]);
    if (fresh) at->second = !asked_of(search, counts[i], true).top.empty();
    return at->second;
  };
  size_t none = 0, some = counts.size() - 1;  // counts below `none` are not known to do
  if (!trains(some)) return std::nullopt;
  while (none < some) {
    const size_t middle = (none + some) / 2;
    (trains(middle) ? some : none) = trains(middle) ? middle : middle + 1;
  }
  size_t least = some;
  for (size_t i = 0; i < some; ++i) {
    if (!trains(i)) continue;
    least = i;
    break;
  }
  for (; least < counts.size(); ++least) {
    if (!trains(least)) continue;
    found.answer = asked_of(whole, counts[least], false);
    found.devices = counts[least];
    if (!found.answer.top.empty() || found.answer.stopped) return found;
  }
  return std::nullopt;
}

}  // namespace heddle::search
