#include "heddle/session/slow/link_fits.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "heddle/base/statistics.h"

namespace heddle::session {

namespace {

constexpr double kLinkNormal = 1.4826, kLinkMedian = 1.2533;  // as in slow_ranks.cpp
constexpr double kLeastChance = 0.01;                         // of a logarithm: clocks
constexpr size_t kLeastSpread = 8;                            // excesses that tell how far such excesses lie apart
constexpr double kBeyondSpread = 6;                           // of links that have been so since the start
constexpr int kMostUsual = 64;                                // windows that a usual value remembers
constexpr double kMostStep = 0.1;                             // of a usual value in a window

double middle_of(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double spread_of(const std::vector<double>& values) {
  const double middle = middle_of(values);
  std::vector<double> away;
  for (const double value : values) away.push_back(std::abs(value - middle));
  return kLinkNormal * middle_of(std::move(away));
}

// Times of one kind of call, less what the bytes explain. A call's time is in proportion to its bytes, or not at
// all where many share a card: of many links, those with few and with many bytes tell. Few links leave it at
// proportion; where that is wrong, it is so in every window alike, and part of what is usual.
std::vector<double> beside_bytes(const std::vector<LinkTime>& times) {
  constexpr size_t kLeastLinks = 24;
  constexpr double kLeastRange = 0.1;
  std::vector<double> log_bytes;
  for (const LinkTime& time : times) log_bytes.push_back(time.log_bytes);
  const double low = quantile(log_bytes, 1.0 / 3), high = quantile(log_bytes, 2.0 / 3);
  double slope = 1;
  if (times.size() >= kLeastLinks && high - low > kLeastRange) {
    std::vector<double> few, few_s, many, many_s;
    for (const LinkTime& time : times) {
      if (time.log_bytes <= low) {
        few.push_back(time.log_bytes);
        few_s.push_back(time.log_s);
      } else if (time.log_bytes >= high) {
        many.push_back(time.log_bytes);
        many_s.push_back(time.log_s);
      }
    }
    slope = (middle_of(many_s) - middle_of(few_s)) / (middle_of(many) - middle_of(few));
    slope = std::clamp(slope, 0.0, 1.0);
  }
  std::vector<double> rest;
  for (const LinkTime& time : times) rest.push_back(time.log_s - slope * time.log_bytes);
  const double middle = middle_of(rest);
  for (double& value : rest) value -= middle;
  return rest;
}

struct FittedLink {
  int a = 0, b = 0;
  double weight = 0, log_times = 0, log_s = 0;  // log_times and log_s: sums over the kinds of calls, then means
  double chance() const { return std::max(kLeastChance, 1 / std::sqrt(weight)); }
};

std::vector<FittedLink> links_of(std::span<const LinkTime> times) {
  std::map<uint32_t, std::vector<LinkTime>> of_kind;
  for (const LinkTime& time : times) of_kind[time.kind].push_back(time);
  std::map<std::pair<int, int>, FittedLink> all;
  for (const auto& [kind, alike] : of_kind) {
    const std::vector<double> rest = beside_bytes(alike);
    for (size_t i = 0; i < alike.size(); ++i) {
      const double chance = std::max(static_cast<double>(alike[i].chance), kLeastChance);
      const double weight = 1 / (chance * chance);
      FittedLink& link = all[{alike[i].a, alike[i].b}];
      link.a = alike[i].a;
      link.b = alike[i].b;
      link.weight += weight;
      link.log_times += weight * rest[i];
      link.log_s += weight * alike[i].log_s;
    }
  }
  std::vector<FittedLink> links;
  for (const auto& [ends, link] : all) {
    links.push_back(link);
    links.back().log_times /= link.weight;
    links.back().log_s /= link.weight;
  }
  return links;
}

// The links of a rank or a node.
struct LinksOf {
  std::vector<size_t> links;
  double middle = 0, low = 0;  // of the links' log_times; low: a third lie below
};

}  // namespace

std::vector<LinkFits::Excess> LinkFits::excesses(bool across, std::span<const LinkTime> times) const {
  const std::vector<FittedLink> links = links_of(times);
  std::map<int, LinksOf> ranks, nodes;
  for (size_t i = 0; i < links.size(); ++i) {
    for (const int rank : {links[i].a, links[i].b}) {
      ranks[rank].links.push_back(i);
      nodes[node_of_[static_cast<size_t>(rank)]].links.push_back(i);
    }
  }
  const auto middle_of_links = [&](const std::vector<size_t>& of, auto keeps) {
    std::vector<double> values;
    for (const size_t i : of) {
      if (keeps(links[i])) values.push_back(links[i].log_times);
    }
    return values.empty() ? std::optional<double>() : middle_of(std::move(values));
  };
  const auto any = [](const FittedLink&) { return true; };
  std::vector<size_t> every(links.size());
  for (size_t i = 0; i < every.size(); ++i) every[i] = i;
  for (auto* of : {&ranks, &nodes}) {
    for (auto& [number, touching] : *of) {
      std::vector<double> values;
      for (const size_t i : touching.links) values.push_back(links[i].log_times);
      touching.middle = middle_of(values);
      touching.low = quantile(std::move(values), 1.0 / 3);  // so that one slow pair of three is not the rank
    }
  }
  // Among many links, those that touch one hardly move the middle of all.
  constexpr size_t kMany = 16;
  const double all = links.empty() ? 0 : *middle_of_links(every, any);
  const auto without = [&](size_t count, auto touches) {
    return count > kMany ? std::optional<double>(all)
                         : middle_of_links(every, [&](const FittedLink& link) { return !touches(link); });
  };
  const auto mean_chance = [&](const std::vector<size_t>& of) {
    double sum = 0;
    for (const size_t i : of) sum += links[i].chance();
    const auto n = static_cast<double>(of.size());
    return std::max(kLeastChance, kLinkMedian * sum / n / std::sqrt(n));
  };
  const auto middle_s = [&](const std::vector<size_t>& of) {
    std::vector<double> values;
    for (const size_t i : of) values.push_back(links[i].log_s);
    return middle_of(std::move(values));
  };
  std::vector<Excess> found;
  std::map<int, std::vector<int>> ranks_of;
  for (const auto& [rank, touching] : ranks) ranks_of[node_of_[static_cast<size_t>(rank)]].push_back(rank);
  const bool shared =
      std::any_of(ranks_of.begin(), ranks_of.end(), [](const auto& of) { return of.second.size() > 1; });
  if (across && shared) {
    for (const auto& [node, touching] : nodes) {
      const int n = node;
      const auto of_node = [&](const FittedLink& link) {
        return node_of_[static_cast<size_t>(link.a)] == n || node_of_[static_cast<size_t>(link.b)] == n;
      };
      const std::optional<double> others = without(nodes.size(), of_node);
      if (!others) continue;
      found.push_back({{across, LinkScope::node, node, -1},
                       touching.middle - *others,
                       mean_chance(touching.links),
                       middle_s(touching.links)});
    }
  }
  for (const auto& [rank, touching] : ranks) {
    const int r = rank;
    if (touching.links.size() < 2) continue;
    std::optional<double> others =
        without(ranks.size(), [&](const FittedLink& link) { return link.a == r || link.b == r; });
    if (!others) continue;
    std::vector<double> beside;
    for (const int other : ranks_of[node_of_[static_cast<size_t>(rank)]]) {
      if (across && other != rank) beside.push_back(ranks[other].low);
    }
    if (!beside.empty()) others = std::max(*others, middle_of(std::move(beside)));
    found.push_back({{across, LinkScope::rank, rank, -1},
                     touching.middle - *others,
                     mean_chance(touching.links),
                     middle_s(touching.links)});
  }
  for (const FittedLink& link : links) {
    double others = 0;
    bool known = false;
    for (const int rank : {link.a, link.b}) {
      const LinksOf& touching = ranks[rank];
      std::optional<double> middle = touching.middle;
      if (touching.links.size() <= kMany)
        middle = middle_of_links(touching.links, [&](const FittedLink& one) { return &one != &link; });
      if (!middle) continue;
      others = known ? std::max(others, *middle) : *middle;
      known = true;
    }
    if (!known) continue;
    found.push_back(
        {{across, LinkScope::pair, link.a, link.b}, link.log_times - others, link.chance(), link.log_s});
  }
  return found;
}

void LinkFits::add(int64_t first_step, std::span<const LinkTime> times) {
  found_.clear();
  ended_.clear();
  for (const bool across : {false, true}) {
    std::vector<LinkTime> of_kind;
    for (const LinkTime& time : times) {
      const bool crosses = node_of_[static_cast<size_t>(time.a)] != node_of_[static_cast<size_t>(time.b)];
      if (crosses == across) of_kind.push_back(time);
    }
    if (of_kind.empty()) continue;
    const std::vector<Excess> all = excesses(across, of_kind);
    constexpr double kWindowsOfRuns = 1e6;
    const double bound = std::log(std::max<double>(1, static_cast<double>(all.size())) * kWindowsOfRuns);
    for (const LinkScope scope : {LinkScope::node, LinkScope::rank, LinkScope::pair}) {
      std::vector<Excess> of_scope;
      for (const Excess& excess : all) {
        if (std::get<1>(excess.key) == scope) of_scope.push_back(excess);
      }
      judge(first_step, of_scope, bound);
    }
  }
}

void LinkFits::judge(int64_t first_step, const std::vector<Excess>& of_scope, double bound) {
  const double slow = std::log(kSlow), least = std::log(kLeast), cap = bound / kWindows;
  // How far excesses lie apart, as they are and from what is usual for each.
  std::array<double, 2> spread{0, 0};
  std::array<std::vector<double>, 2> values;
  for (const Excess& excess : of_scope) {
    values[0].push_back(excess.log_times);
    const Track& track = tracks_[excess.key];
    if (track.known >= kUsualWindows) values[1].push_back(excess.log_times - track.usual);
  }
  for (size_t i = 0; i < 2; ++i) {
    if (values[i].size() >= kLeastSpread) spread[i] = spread_of(values[i]);
  }
  for (const Excess& excess : of_scope) {
    Track& track = tracks_[excess.key];
    const auto weigh = [&](double& evidence, double value, double apart) {
      const double chance = std::max(excess.chance, apart);
      evidence += std::clamp((value - least) * slow / (chance * chance), -cap, cap);
      evidence = std::clamp(evidence, 0.0, bound);
    };
    // As it is: beyond what tells links apart that are well. Of few links nobody knows that.
    if (values[0].size() >= kLeastSpread)
      weigh(track.beside_others, excess.log_times - std::max(0.0, kBeyondSpread * spread[0] - least), spread[0]);
    if (track.known >= kUsualWindows)
      weigh(track.beside_usual, excess.log_times - track.usual, std::max(spread[1], track.scatter));
    const double evidence = std::max(track.beside_others, track.beside_usual);
    const bool counts = evidence > 0;
    if (counts) {
      if (track.windows++ == 0) track.since = first_step;
      track.quiet = 0;
    } else {
      track.windows = 0;
      ++track.quiet;
    }
    // A window that hardly counts is still part of what is usual: without such the usual value would sink.
    if (!track.slow && evidence <= bound / 2) learn(track, excess.log_times);
    const bool is_slow = evidence >= bound && track.windows >= kWindows;
    if (is_slow || (track.slow && counts)) {
      const bool by_usual = track.beside_usual > track.beside_others;
      const double log_times = excess.log_times - (by_usual ? track.usual : 0);
      const auto& [across, scope, a, b] = excess.key;
      const SlowLink now{scope, a, b, track.since, std::exp(log_times), std::exp(excess.log_s)};
      if (!track.slow) found_.push_back(now);
      track.slow = now;
    } else if (track.slow && track.quiet >= kWindows) {
      ended_.push_back(*track.slow);
      track.slow.reset();
    }
  }
}

void LinkFits::learn(Track& track, double log_times) {
  const double weight = 1.0 / std::min(++track.known, kMostUsual), away = log_times - track.usual;
  if (track.known <= kUsualWindows) {
    track.first.push_back(log_times);
    track.usual = middle_of(track.first);
    track.scatter = spread_of(track.first);
    return;
  }
  track.first = {};
  track.scatter += weight * std::clamp(kLinkMedian * std::abs(away) - track.scatter, -kMostStep, kMostStep);
  track.usual += weight * std::clamp(away, -kMostStep, kMostStep);
}

std::vector<SlowLink> LinkFits::slow() const {
  std::vector<SlowLink> all;
  for (const auto& [key, track] : tracks_) {
    if (track.slow) all.push_back(*track.slow);
  }
  return all;
}

}  // namespace heddle::session
