#include "heddle/schedule/generators/zero_bubble.h"

#include <algorithm>

#include "heddle/schedule/lane.h"

namespace heddle::schedule {

namespace {

struct Choices {
  bool eager_warm_up, backward_first, fill_small_gaps;
};

class NoRoom {};

/// One attempt. Time and memory of every rank run along with what is placed on it.
class Attempt {
 public:
  Attempt(Schedule& schedule, const ZeroBubbleOptions& options, Choices choices)
      : options_(options), choices_(choices), ranks_(options.ranks), all_(options.microbatches) {
    for (int r = 0; r < ranks_; ++r) {
      rank_.push_back({Lane(schedule, r), options.times[options.times.size() == 1 ? 0 : static_cast<size_t>(r)]});
    }
  }

  /// The longest span of a rank; NoRoom where the cap is too small.
  double run() {
    for (int r = 0; r < ranks_; ++r) place(r, Kind::F);
    warm_up();
    for (int r = ranks_ - 1; r >= 0; --r) place(r, Kind::I);
    for (int m = 1; m < all_; ++m) {
      forwards();
      for (int r = ranks_ - 1; r >= 0; --r) {
        make_room(r, Kind::I);
        if (r + 1 < ranks_) fill(r, arrival(r, Kind::I));
        if (r == 0 && done(r, Kind::F) == all_) weights(r);
        place(r, Kind::I);
      }
    }
    double longest = 0;
    for (int r = 0; r < ranks_; ++r) {
      weights(r);
      longest = std::max(longest, at(r).now - at(r).began);
    }
    return longest;
  }

 private:
  struct Rank {
    Lane lane;
    StageTimes times;
    double now = 0, began = 0, held = 0;
    double bubble = 0;                 // waiting after the first forward
    std::vector<double> ends[3] = {};  // by kind and microbatch
  };
  static constexpr double kSlack = 1e-9;  // of the unit of memory: sums of shares aren't exact

  Rank& at(int r) { return rank_[r]; }
  int done(int r, Kind kind) { return at(r).lane.done(kind, r); }
  bool weight_waits(int r) { return done(r, Kind::W) < done(r, Kind::I); }
  double length(int r, Kind kind) {
    const StageTimes& times = at(r).times;
    switch (kind) {
      case Kind::F: return times.forward + times.all_to_all;
      case Kind::I: return times.input_grad + times.all_to_all;
      default: return times.weight_grad;
    }
  }
  double memory(Kind kind) const {
    if (kind == Kind::F) return 1;
    return kind == Kind::I ? options_.kept_for_w - 1 : -options_.kept_for_w;
  }
  /// The time at which what the rank's next F or I needs from its neighbour is there; the past where it needs
  /// nothing.
  double arrival(int r, Kind kind) {
    const int from = kind == Kind::F ? r - 1 : r + 1;
    if (from < 0 || from >= ranks_) return 0;
    return at(from).ends[static_cast<size_t>(kind)][static_cast<size_t>(done(r, kind))] + options_.hop;
  }
  double worst_bubble() const {
    double worst = 0;
    for (const Rank& rank : rank_) worst = std::max(worst, rank.bubble);
    return worst;
  }

  void place(int r, Kind kind) {
    Rank& rank = at(r);
    const double start = std::max(rank.now, kind == Kind::W ? 0 : arrival(r, kind));
    if (done(r, Kind::F) == 0) {
      rank.began = start;
    } else {
      rank.bubble += start - rank.now;
    }
    rank.now = start + length(r, kind);
    rank.held += memory(kind);
    rank.ends[static_cast<size_t>(kind)].push_back(rank.now);
    if (kind == Kind::F) {
      rank.lane.F(r);
    } else if (kind == Kind::I) {
      rank.lane.I(r);
    } else {
      rank.lane.W(r);
    }
  }
  void weights(int r) {
    while (weight_waits(r)) place(r, Kind::W);
  }
  void make_room(int r, Kind kind) {
    while (at(r).held + memory(kind) > options_.cap + kSlack) {
      if (!weight_waits(r)) throw NoRoom();
      place(r, Kind::W);
    }
  }
  /// Weight gradients in the waiting until `until`; the last may end later when that costs less than it saves.
  void fill(int r, double until) {
    while (weight_waits(r) && at(r).now + length(r, Kind::W) <= until) place(r, Kind::W);
    const double gap = until - at(r).now;
    if (!weight_waits(r) || gap <= 0) return;
    if (choices_.fill_small_gaps || gap > worst_bubble() - at(r).bubble) place(r, Kind::W);
  }

  /// The forwards between a rank's first and its first input gradient.
  void warm_up() {
    std::vector<int> more(static_cast<size_t>(ranks_), 0);
    double ready = at(ranks_ - 1).now + length(ranks_ - 1, Kind::I);  // the end of the next rank's first I
    for (int r = ranks_ - 2; r >= 0; --r) {
      const double forward = length(r, Kind::F), gradient = ready + options_.hop;
      double now = at(r).now, held = at(r).held;
      int& count = more[r];
      while (1 + count < all_ && held + 1 <= options_.cap + kSlack) {
        if (choices_.eager_warm_up ? now >= gradient : now + forward > gradient) break;
        now += forward;
        ++held;
        ++count;
      }
      ready = std::max(now, gradient) + length(r, Kind::I);
    }
    for (size_t r = 1; r < more.size(); ++r) {  // each rank fewer than the one before it
      while (more[r] > 0 && more[r] >= more[r - 1] && 1 + more[r] < all_) --more[r];
    }
    for (int r = 0; r < ranks_; ++r) {
      for (int i = 0; i < more[r]; ++i) place(r, Kind::F);
    }
  }

  /// At most one forward on each rank, on none whose follower has none.
  void forwards() {
    std::vector<char> wanted(static_cast<size_t>(ranks_));
    for (int r = 0; r < ranks_; ++r) wanted[r] = done(r, Kind::F) < all_ && !better_without(r);
    for (size_t r = wanted.size() - 1; r-- > 0;) wanted[r] = wanted[r] && wanted[r + 1];
    for (int r = 0; r < ranks_; ++r) {
      if (!wanted[r]) continue;
      make_room(r, Kind::F);
      if (r > 0) fill(r, arrival(r, Kind::F));
      place(r, Kind::F);
    }
  }
  /// True if this rank's next input gradient should come before its next forward.
  bool better_without(int r) {
    if (!choices_.backward_first || r + 1 == ranks_ || done(r, Kind::F) < done(r + 1, Kind::F) + 2) return false;
    const double next = at(r + 1).now + length(r + 1, Kind::F) + length(r + 1, Kind::I) + options_.hop;
    if (at(r).now >= next) return true;
    double weights = 0, held = at(r).held + 1;
    for (int w = done(r, Kind::W); held > options_.cap + kSlack && w < done(r, Kind::I); ++w) {
      weights += length(r, Kind::W);
      held += memory(Kind::W);
    }
    if (at(r).now + length(r, Kind::F) + weights <= next) return false;
    return next - at(r).now <= worst_bubble() - at(r).bubble;
  }

  const ZeroBubbleOptions& options_;
  Choices choices_;
  int ranks_, all_;
  std::vector<Rank> rank_;
};

}  // namespace

Schedule zero_bubble(const ZeroBubbleOptions& options, const char* name) {
  const Schedule blank = blank_schedule(
      name, [](int ranks) { return loop_placement(ranks); }, options.ranks, options.microbatches);
  const auto number = [&](const char* what, double found, double least, double most) {
    if (!(found >= least && found <= most))
      config_error("schedule {}: {} {}, accepted {} to {}", name, what, found, least, most);
  };
  constexpr double kMost = 1e15;
  if (options.times.size() != 1 && std::ssize(options.times) != options.ranks)
    config_error("schedule {}: times of {} stages, accepted of 1 or {}", name, options.times.size(), options.ranks);
  for (const StageTimes& times : options.times) {
    for (const double time : {times.forward, times.input_grad, times.weight_grad, times.all_to_all})
      number("time", time, 0, kMost);
  }
  number("hop", options.hop, 0, kMost);
  number("cap", options.cap, 1, kMost);
  number("share of activations kept for W", options.kept_for_w, 0, 1);

  Schedule best;
  double least = 0;
  for (const bool eager : {true, false}) {
    for (const bool backward : {true, false}) {
      for (const bool small_gaps : {true, false}) {
        Schedule schedule = blank;
        try {
          const double span = Attempt(schedule, options, {eager, backward, small_gaps}).run();
          if (best.order.empty() || span < least) {
            best = std::move(schedule);
            least = span;
          }
        } catch (const NoRoom&) {
        }
      }
    }
  }
  if (best.order.empty())
    config_error("schedule {}: no order of {} ranks fits into {} microbatches", name, options.ranks, options.cap);
  return best;
}

Schedule zb_1p(ZeroBubbleOptions options) {
  options.cap = options.ranks;
  return zero_bubble(options, "zb_1p");
}

Schedule zb_2p(ZeroBubbleOptions options) {
  options.cap = 2.0 * options.ranks;
  return zero_bubble(options, "zb_2p");
}

}  // namespace heddle::schedule
