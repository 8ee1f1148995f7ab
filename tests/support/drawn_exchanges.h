// Times of exchanges among simulated ranks, as both ends of each link would time them. The noise:
//
//   jitter      a call on a link takes exp(0.1 z) of its time, one of fifty 1.5 to 2.5 times as long
//   bytes       exp(0.3 z) by link, exp(0.1 z) by call; the time follows them in proportion
//   links       exp(0.02 z): none is quite like another
//   order       a rank's peers come one after another: up to a fifth longer for the last, by their distance
//   stragglers  a rank enters late by up to twice a call's time, in every call another one
//   bursts      in one window of three hundred a link takes 1.3 times as long, in one of a hundred a rank's links
//   do
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "heddle/base/random.h"
#include "heddle/session/slow/link_fits.h"

namespace heddle::test {

class DrawnExchanges {
 public:
  DrawnExchanges(uint64_t seed, int ranks, int ranks_on_node)
      : key_(RandomKey(seed).with("exchanges")), ranks_(ranks), calls_(ranks <= 16 ? 32 : 12) {
    for (int r = 0; r < ranks; ++r) node_of_.push_back(r / ranks_on_node);
    for (int a = 0; a < ranks; ++a) {
      for (int b = 0; b < ranks; ++b) {
        bytes_.push_back(1e6 * std::exp(0.3 * normal()));
        own_.push_back(std::exp(0.02 * normal()));
      }
    }
  }
  const std::vector<int>& node_of() const { return node_of_; }
  uint64_t below(uint64_t count) { return key_.bits(at_++) % count; }

  bool touches(const session::SlowLink& slow, int a, int b) const {
    switch (slow.scope) {
      case session::LinkScope::pair: return std::min(a, b) == slow.a && std::max(a, b) == slow.b;
      case session::LinkScope::rank: return (crosses(a, b) || node_of_.back() == 0) && (a == slow.a || b == slow.a);
      case session::LinkScope::node: break;
    }
    const auto on = [&](int rank) { return node_of_[static_cast<size_t>(rank)] == slow.a; };
    return on(a) != on(b);
  }

  /// A window in which the links of `slow` take so many times as long; null: none does.
  std::vector<session::LinkTime> window(const session::SlowLink* slow = nullptr) {
    std::vector<double> busy;
    for (int r = 0; r < ranks_; ++r) busy.push_back(below(100) == 0 ? 1.3 : 1);
    std::vector<double> late_s;  // by call and rank
    for (int i = 0; i < calls_ * ranks_; ++i) late_s.push_back(0);
    for (int call = 0; call < calls_; ++call)
      late_s[static_cast<size_t>(call * ranks_) + below(static_cast<uint64_t>(ranks_))] = 2e-3 * uniform();
    std::vector<session::LinkTime> all;
    std::vector<session::SeenCall> own(static_cast<size_t>(calls_)), theirs(own);
    for (int a = 0; a < ranks_; ++a) {
      for (int b = a + 1; b < ranks_; ++b) {
        double times = busy[static_cast<size_t>(a)] * busy[static_cast<size_t>(b)] * (below(300) == 0 ? 1.3 : 1);
        if (slow != nullptr && touches(*slow, a, b)) times *= slow->times;
        for (int call = 0; call < calls_; ++call) {
          const auto at = static_cast<size_t>(call * ranks_);
          const double waits_s = late_s[at + static_cast<size_t>(b)] - late_s[at + static_cast<size_t>(a)];
          own[static_cast<size_t>(call)] = seen(call, a, b, times, std::max(0.0, waits_s));
          theirs[static_cast<size_t>(call)] = seen(call, b, a, times, std::max(0.0, -waits_s));
        }
        const std::vector<session::LinkTime> of = session::times_of_pair(a, b, own, theirs);
        all.insert(all.end(), of.begin(), of.end());
      }
    }
    return all;
  }

 private:
  bool crosses(int a, int b) const { return node_of_[static_cast<size_t>(a)] != node_of_[static_cast<size_t>(b)]; }
  // What rank `to` times of `from`.
  session::SeenCall seen(int call, int to, int from, double times, double waits_s) {
    const auto at = static_cast<size_t>(to * ranks_ + from);
    const double bytes = bytes_[at] * std::exp(0.1 * normal());
    const double place = static_cast<double>((from - to + ranks_) % ranks_) / ranks_;
    const double far = below(50) == 0 ? 1.5 + uniform() : 1;
    const double rate = crosses(from, to) ? 1e9 : 8e9;
    const double s = bytes / rate * own_[at] * (1 + 0.2 * place) * times * far * std::exp(0.1 * normal());
    return {static_cast<uint64_t>(call), 1, static_cast<float>(s + waits_s), static_cast<float>(bytes)};
  }
  double uniform() { return static_cast<double>(key_.bits(at_++) >> 11) * 0x1p-53; }
  double normal() { return key_.normal(at_++); }

  RandomKey key_;
  uint64_t at_ = 0;
  int ranks_, calls_;
  std::vector<int> node_of_;
  std::vector<double> bytes_, own_;  // by receiver and sender
};

/// A link of these exchanges to slow: a pair, a rank or a node, as the layout allows.
inline session::SlowLink drawn_link(DrawnExchanges& exchanges, double times) {
  const std::vector<int>& node_of = exchanges.node_of();
  const auto ranks = static_cast<uint64_t>(node_of.size());
  const int nodes = node_of.back() + 1;
  const bool shared = nodes < static_cast<int>(ranks);
  session::SlowLink slow;
  slow.times = times;
  slow.scope = static_cast<session::LinkScope>(exchanges.below(shared && nodes > 2 ? 3 : 2));
  if (slow.scope == session::LinkScope::node) {
    slow.a = static_cast<int>(exchanges.below(static_cast<uint64_t>(nodes)));
    return slow;
  }
  slow.a = static_cast<int>(exchanges.below(ranks));
  if (slow.scope == session::LinkScope::rank) return slow;
  slow.b = static_cast<int>((static_cast<uint64_t>(slow.a) + 1 + exchanges.below(ranks - 1)) % ranks);
  if (slow.a > slow.b) std::swap(slow.a, slow.b);
  return slow;
}

struct FoundLink {
  bool named = false;  // it was found, and as what it is
  int others = 0;      // blamed beside it
  int windows = 0;     // until it was
};

/// A link that gets slower after so many windows.
inline FoundLink find_drawn_link(uint64_t seed, int ranks, int ranks_on_node, double times, int quiet = 30,
                                 int most = 30) {
  DrawnExchanges exchanges(seed, ranks, ranks_on_node);
  const session::SlowLink slow = drawn_link(exchanges, times);
  session::LinkFits fits(exchanges.node_of());
  FoundLink found;
  for (int window = 0; window < quiet + most && !found.named; ++window) {
    fits.add(1 + 20 * window, exchanges.window(window >= quiet ? &slow : nullptr));
    if (window >= quiet) ++found.windows;
    for (const session::SlowLink& one : fits.found()) {
      const bool right = one.scope == slow.scope && one.a == slow.a && one.b == slow.b && window >= quiet;
      found.named |= right;
      found.others += !right;
    }
  }
  return found;
}

}  // namespace heddle::test
