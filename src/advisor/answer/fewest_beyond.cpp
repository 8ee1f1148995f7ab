#include "advisor/answer/fewest_beyond.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::advisor {

std::optional<search::Fewest> fewest_from(const search::Query& given, int first, int most,
                                          const std::function<bool()>& stop) {
  const auto stopped = [&] { return stop && stop(); };
  const auto run = [&](const search::Query& asked) { return search::search(asked, {}, stop); };
  search::Query query = given;
  for (int64_t devices = first; devices <= most && !stopped(); devices *= 2) {
    query.space.devices = static_cast<int>(devices);
    if (search::surely_too_few(query, query.space.devices)) continue;
    try {
      search::Query one = query;
      one.any = true;
      if (search::search(one, {}, stop).top.empty()) continue;
      return search::fewest_devices(query, run, run);
    } catch (const ConfigError&) {  // the batch doesn't divide over so many
    }
  }
  return std::nullopt;
}

int fewest_beyond(const search::Query& query, int most, const std::function<bool()>& stop) {
  const std::optional<search::Fewest> found = fewest_from(query, 2 * query.space.devices, most, stop);
  return found ? found->devices : 0;
}

int times_devices(const search::Query& query, int times) {
  constexpr int64_t kMostDevices = 1 << 16;
  return static_cast<int>(std::min(int64_t{times} * query.space.devices, kMostDevices));
}

}  // namespace heddle::advisor
