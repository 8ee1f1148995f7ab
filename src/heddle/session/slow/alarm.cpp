#include "heddle/session/slow/alarm.h"

#include <fmt/format.h>

#include "heddle/observe/units.h"

namespace heddle::session {

namespace {

using Json = nlohmann::ordered_json;
using observe::duration_text;

std::string who(const NamedSlowRank& r) {
  return fmt::format("rank {} ({}, node {})", r.slow.rank, r.host, r.node);
}

std::string link_text(const SlowPair& pair, const std::vector<std::string>& hosts) {
  const auto named = [&](int rank) { return fmt::format("{} ({})", rank, hosts.at(static_cast<size_t>(rank))); };
  const std::string between = pair.b < 0 ? fmt::format("between rank {} and every other", named(pair.a))
                                         : fmt::format("between ranks {} and {}", named(pair.a), named(pair.b));
  return fmt::format("{} a transfer takes {}, {:.1f} times as long as usual", between,
                     duration_text(pair.transfer_s), pair.times());
}

std::vector<int> ranks_of(const SlowLink& link, const RankPlaces& places) {
  if (link.scope == LinkScope::pair) return {link.a, link.b};
  if (link.scope == LinkScope::rank) return {link.a};
  std::vector<int> ranks;
  for (size_t r = 0; r < places.node_of.size(); ++r) {
    if (places.node_of[r] == link.a) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

std::string link_text(const SlowLink& link, const RankPlaces& places) {
  const auto named = [&](int rank) {
    return fmt::format("{} ({})", rank, places.hosts.at(static_cast<size_t>(rank)));
  };
  switch (link.scope) {
    case LinkScope::pair: return fmt::format("between ranks {} and {}", named(link.a), named(link.b));
    case LinkScope::rank: return fmt::format("between rank {} and every other", named(link.a));
    case LinkScope::node: break;
  }
  return fmt::format("between node {} ({}) and every other", link.a,
                     places.hosts.at(static_cast<size_t>(ranks_of(link, places).at(0))));
}

Json event(const char* name, Json of) {
  Json json{{"event", name}};
  json.update(of);
  return json;
}

}  // namespace

Json json_of(const NamedSlowRank& r) {
  Json json{{"rank", r.slow.rank},
            {"host", r.host},
            {"node", r.node},
            {"work", name_of(r.slow.kind)},
            {"since_step", r.slow.since},
            {"times", r.slow.times},
            {"excess_seconds", r.slow.excess_s},
            {"step_seconds", r.step_s}};
  if (!r.op.empty()) {
    json["op"] = r.op;
    json["op_phase"] = r.op_phase;
    json["op_scope"] = r.scope;
    json["op_times"] = r.op_times;
    json["op_share"] = r.op_share;
  }
  if (r.without_s) json["step_without_seconds"] = *r.without_s;
  return json;
}

Alarm alarm_of(const NamedSlowRank& r) {
  std::string line = fmt::format(
      "{} is slow since step {}: {} takes {:.2f} times as long as on ranks that do the same, {} of a step "
      "of {}",
      who(r), r.slow.since, name_of(r.slow.kind), r.slow.times, duration_text(r.slow.excess_s),
      duration_text(r.step_s));
  if (!r.op_text.empty()) line += "; " + r.op_text;
  if (r.without_s) line += fmt::format("; at their speed a step would take {}", duration_text(*r.without_s));
  return {line, event("slow_rank", json_of(r))};
}

Alarm ended_alarm(const NamedSlowRank& r) {
  return {fmt::format("{} is as fast at {} as the others again", who(r), name_of(r.slow.kind)),
          event("slow_rank_over", json_of(r))};
}

Json json_of(const SlowLinks& links, const std::vector<std::string>& hosts) {
  Json json{{"since_step", links.since}, {"pairs", Json::array()}};
  if (links.wait) {
    json["excess_seconds"] = links.wait->excess_s;
    json["step_seconds"] = links.wait->step_s;
  }
  for (const SlowPair& pair : links.pairs) {
    Json one{{"ranks", Json::array({pair.a})}, {"hosts", Json::array({hosts.at(static_cast<size_t>(pair.a))})}};
    if (pair.b >= 0) {
      one["ranks"].push_back(pair.b);
      one["hosts"].push_back(hosts.at(static_cast<size_t>(pair.b)));
    }
    one.update({{"times", pair.times()}, {"seconds", pair.transfer_s}, {"usual_seconds", pair.usual_s}});
    json["pairs"].push_back(one);
  }
  return json;
}

Alarm alarm_of(const SlowLinks& links, const std::vector<std::string>& hosts) {
  constexpr size_t kMostReported = 3;
  std::string line;
  if (links.wait)
    line = fmt::format("steps wait {} longer since step {}, of {}, and no rank works longer: ",
                       duration_text(links.wait->excess_s), links.since, duration_text(links.wait->step_s));
  for (size_t i = 0; i < links.pairs.size() && i < kMostReported; ++i)
    line += (i > 0 ? "; " : "") + link_text(links.pairs[i], hosts);
  if (links.pairs.size() > kMostReported)
    line += fmt::format("; and {} more pairs", links.pairs.size() - kMostReported);
  if (links.pairs.empty()) line += "transfers between pairs are as fast as before";
  return {line, event(links.pairs.empty() ? "long_waits" : "slow_link", json_of(links, hosts))};
}

Json json_of(const SlowLink& link, const RankPlaces& places) {
  Json one{{"ranks", ranks_of(link, places)}, {"hosts", Json::array()}};
  for (const int rank : ranks_of(link, places)) one["hosts"].push_back(places.hosts.at(static_cast<size_t>(rank)));
  if (link.scope == LinkScope::node) one["node"] = link.a;
  one.update(
      {{"times", link.times}, {"seconds", link.transfer_s}, {"usual_seconds", link.transfer_s / link.times}});
  return {{"since_step", link.since}, {"pairs", Json::array({one})}};
}

Alarm alarm_of(const SlowLink& link, const RankPlaces& places) {
  return {fmt::format("{} exchanges take {:.2f} times as long as on links alike since step {}, {} in place of {}",
                      link_text(link, places), link.times, link.since, duration_text(link.transfer_s),
                      duration_text(link.transfer_s / link.times)),
          event("slow_link", json_of(link, places))};
}

Alarm ended_alarm(const SlowLink& link, const RankPlaces& places) {
  return {fmt::format("{} exchanges are as fast as on links alike again", link_text(link, places)),
          event("slow_link_over", json_of(link, places))};
}

std::string short_name(const SlowLink& link) {
  switch (link.scope) {
    case LinkScope::pair: return fmt::format("{}-{}", link.a, link.b);
    case LinkScope::rank: return fmt::format("rank {}", link.a);
    case LinkScope::node: break;
  }
  return fmt::format("node {}", link.a);
}

Alarm ended_alarm(const SlowLinks& links, const std::vector<std::string>& hosts) {
  return {fmt::format("steps wait no longer than before step {} again", links.since),
          event("slow_link_over", json_of(links, hosts))};
}

}  // namespace heddle::session
