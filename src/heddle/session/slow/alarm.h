// Alarms about slow ranks and links: a line for people, an object for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "heddle/session/slow/link_fits.h"
#include "heddle/session/slow/long_waits.h"
#include "heddle/session/slow/pair_probe.h"
#include "heddle/session/slow/slow_op.h"

namespace heddle::session {

struct Alarm {
  std::string line;
  nlohmann::ordered_json json;
};

/// A slow rank with the findings of level 2 and the simulator.
struct NamedSlowRank {
  SlowRank slow;
  std::string host;
  int node = 0;
  double step_s = 0;                // length of a step
  std::string op, op_phase, scope;  // "": its ops were not timed
  std::string op_text;
  double op_share = 0, op_times = 0;
  std::optional<double> without_s;  // a step, were it as quick as the others
};
nlohmann::ordered_json json_of(const NamedSlowRank& rank);
Alarm alarm_of(const NamedSlowRank& rank);
Alarm ended_alarm(const NamedSlowRank& rank);

/// Long waits, or a first probe's findings (without them), and the pairs that were found slow.
struct SlowLinks {
  std::optional<LongWait> wait;
  int64_t since = 0;
  std::vector<SlowPair> pairs;
};
nlohmann::ordered_json json_of(const SlowLinks& links, const std::vector<std::string>& hosts);
Alarm alarm_of(const SlowLinks& links, const std::vector<std::string>& hosts);
Alarm ended_alarm(const SlowLinks& links, const std::vector<std::string>& hosts);

/// A link that the exchanges of the steps show. `places`: hosts and nodes by rank.
struct RankPlaces {
  std::vector<std::string> hosts;
  std::vector<int> node_of;
};
nlohmann::ordered_json json_of(const SlowLink& link, const RankPlaces& places);
Alarm alarm_of(const SlowLink& link, const RankPlaces& places);
Alarm ended_alarm(const SlowLink& link, const RankPlaces& places);
/// In a few words: "1-3", "rank 2", "node 4".
std::string short_name(const SlowLink& link);

}  // namespace heddle::session
