#include "heddle/ir/walk/repeats.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "heddle/ir/walk/frames.h"

namespace heddle::ir {

namespace {

constexpr size_t kFewestPeriods = 16;    // a state is rarely found again in fewer
constexpr size_t kMostPeriod = 4096;     // actions
constexpr size_t kMostBoundaries = 512;  // that are looked at

// The number of microbatches by which b is later than a, or 0 where it is not the same again.
int later_by(const Action& a, const Action& b) {
  if (a.block != b.block || a.microbatches.size() != b.microbatches.size() || a.microbatches.empty()) return 0;
  const int by = b.microbatches[0] - a.microbatches[0];
  for (size_t i = 0; i < a.microbatches.size(); ++i) {
    if (a.microbatches[i] < 0 || b.microbatches[i] - a.microbatches[i] != by) return 0;
  }
  return by;
}

/// Counts of one kind in two states: whether they can be told to stay or to move on.
class CountsOfStates {
 public:
  explicit CountsOfStates(uint64_t moves_by) : moves_by_(moves_by) {}
  bool add(uint64_t before, uint64_t after) {
    if (before == after) {
      if (moves_by_ > 0) most_staying_ = std::max(most_staying_, before);
      return true;
    }
    least_moving_ = std::min(least_moving_, before);
    return before > 0 && after == before + moves_by_;
  }
  bool ordered() const { return most_staying_ < least_moving_; }
  uint64_t most_staying() const { return most_staying_; }

 private:
  uint64_t moves_by_, most_staying_ = 0, least_moving_ = std::numeric_limits<uint64_t>::max();
};

}  // namespace

RepeatedActions repeated_actions(const std::vector<Action>& actions) {
  const size_t middle = actions.size() / 2, most = std::min(kMostPeriod, actions.size() / kFewestPeriods);
  for (size_t period = 1; period <= most; ++period) {
    const int by = later_by(actions[middle], actions[middle + period]);
    if (by <= 0) continue;
    const auto again = [&](size_t i) { return later_by(actions[i], actions[i + period]) == by; };
    size_t begin = middle, end = middle;  // of those that come again
    while (begin > 0 && again(begin - 1)) --begin;
    while (end + period < actions.size() && again(end)) ++end;
    const size_t times = (end - begin) / period + 1;
    if (times >= kFewestPeriods) return {begin, period, times, by};
  }
  return {};
}

int least_microbatch(const std::vector<Action>& actions, size_t begin) {
  int least = std::numeric_limits<int>::max();
  for (size_t i = begin; i < actions.size(); ++i) {
    for (const int m : actions[i].microbatches) least = m < 0 ? least : std::min(least, m);
  }
  return least;
}

bool WalkState::repeats_in(const WalkState& later, uint64_t settled) const {
  if (exact != later.exact || marks.size() != later.marks.size() || clocks.size() != later.clocks.size())
    return false;
  for (size_t stream = 0; stream < kMostStreams; ++stream) {
    CountsOfStates counts(later.issued[stream] - issued[stream]);
    for (size_t i = 0; i < marks.size(); ++i) {
      if (!counts.add(marks[i][stream], later.marks[i][stream])) return false;
    }
    if (!counts.ordered()) return false;
  }
  for (size_t space = 0; space < clock_now.size(); ++space) {
    CountsOfStates counts(later.clock_now[space] - clock_now[space]);
    for (size_t i = 0; i < clocks.size(); ++i) {
      if (clocks[i].space == space && !counts.add(clocks[i].at, later.clocks[i].at)) return false;
    }
    if (!counts.ordered()) return false;
    // Clocks that stay must have settled already, lest they do so later.
    const bool moves = later.clock_now[space] > clock_now[space];
    if (moves && clock_now[space] - counts.most_staying() <= settled) return false;
  }
  return true;
}

// Visits what decides how the walk goes on. Microbatches are counted from `since`.
template <class Exact, class OnMarks, class OnClock>
void Walk::each_of_state(int since, const Exact& exact, const OnMarks& marks, const OnClock& clock) {
  const auto slot = [&](Slot& s) {
    exact(s.offset);
    exact(s.bytes);
    exact(s.uses_left);
    exact(std::ssize(s.segments));
    marks(s.whole.written);
    marks(s.whole.read);
    for (Slot::Segment& segment : s.segments) {
      marks(segment.written);
      marks(segment.read);
    }
  };
  const auto slots = [&](const std::vector<int32_t>& places) {
    for (size_t v = 0; v < places.size(); ++v) {
      if (places[v] < 0) continue;
      exact(static_cast<int64_t>(v));
      slot(*slots_[static_cast<size_t>(places[v])]);
    }
  };
  for (size_t space = 0; space < storage_.size(); ++space) {
    storage_[space].each_of_state(exact, marks, [&](uint64_t& at) { clock(space, at); });
  }
  for (const int s : listings_) {
    exact(s);
    slots(persistent_[s]);
    auto& frames = frames_[s];
    for (size_t m = 0; m < frames.size(); ++m) {
      if (!frames[m] || frames[m]->in_use == 0) continue;
      exact(m == 0 ? -1 : static_cast<int64_t>(m) - 1 - since);
      exact(frames[m]->in_use);
      for (const int64_t rows : frames[m]->rows_of) exact(rows);
      slots(frames[m]->places);
    }
    exact(std::count(touched_[s].begin(), touched_[s].end(), 1));
  }
  marks(issued_);
  marks(ended_);
  for (Marks& waited : waited_) marks(waited);
  for (Wait& last : last_of_channel_) {
    exact(last.stream);
    Marks of{};
    if (last.stream >= 0) of[last.stream] = last.count;
    marks(of);
    if (last.stream >= 0) last.count = of[last.stream];
  }
}

WalkState Walk::state(int since) {
  WalkState made;
  each_of_state(
      since, [&](int64_t value) { made.exact.push_back(value); }, [&](Marks& m) { made.marks.push_back(m); },
      [&](size_t space, uint64_t& at) {
        made.clocks.push_back({space, at});
      });
  for (const Storage& arena : storage_) {
    made.clock_now.push_back(arena.clock());
    made.fragments.push_back(arena.fragments());
    made.reserved_bytes.push_back(arena.reserved_bytes());
  }
  made.issued = issued_;
  made.copied_out_bytes = copied_out_bytes_;
  made.copied_in_bytes = copied_in_bytes_;
  return made;
}

// Goes on as if what came between the two states had come so many times more.
void Walk::skip(const WalkState& from, const WalkState& to, int64_t times, int microbatches) {
  const auto more = static_cast<uint64_t>(times);
  size_t mark = 0, clock = 0;
  each_of_state(
      0, [](int64_t) {},
      [&](Marks& m) {
        const Marks &before = from.marks[mark], &after = to.marks[mark];
        ++mark;
        for (size_t i = 0; i < m.size(); ++i) m[i] += more * (after[i] - before[i]);
      },
      [&](size_t, uint64_t& at) {
        at += more * (to.clocks[clock].at - from.clocks[clock].at);
        ++clock;
      });
  for (size_t space = 0; space < storage_.size(); ++space)
    storage_[space].advance(more * (to.clock_now[space] - from.clock_now[space]));
  copied_out_bytes_ += times * (to.copied_out_bytes - from.copied_out_bytes);
  copied_in_bytes_ += times * (to.copied_in_bytes - from.copied_in_bytes);
  const auto by = static_cast<size_t>(times * microbatches);
  for (const int s : listings_) {
    auto& frames = frames_[s];
    for (size_t m = frames.size(); m-- > 1 + by;) frames[m] = std::move(frames[m - by]);
    for (size_t m = 1; m < std::min(1 + by, frames.size()); ++m) frames[m] = nullptr;
  }
}

// Returns the action with which the walk goes on: the next one, or one behind those that come to the same again.
size_t Walk::past_repeats(Cycle& cycle, const std::vector<Action>& actions, size_t next) {
  const RepeatedActions& of = cycle.actions;
  if (of.period == 0 || next <= of.begin || (next - of.begin) % of.period != 0) return next;
  const size_t boundary = (next - of.begin) / of.period;
  if (boundary >= std::min(of.times, kMostBoundaries)) return next;
  const auto since_of = [&](size_t at) { return static_cast<int>(at) * of.microbatches; };
  const auto alike = [&](size_t space) {
    return storage_[space].fragments() == cycle.saved.fragments[space] &&
           storage_[space].reserved_bytes() == cycle.saved.reserved_bytes[space];
  };
  if (cycle.saved_at > 0 && alike(0) && alike(1) && alike(2)) {
    const WalkState now = state(since_of(boundary));
    if (cycle.saved.repeats_in(now, Storage::kSettled)) {
      const size_t periods = boundary - cycle.saved_at, times = (of.times - boundary) / periods;
      const int microbatches = since_of(periods);
      const size_t to = next + times * periods * of.period;
      cycle.actions.period = 0;
      // A frame of those that follow is made of the one that came so many microbatches before it.
      const int64_t by = static_cast<int64_t>(times) * microbatches;
      if (times == 0 || least_microbatch(actions, to) < by) return next;
      skip(cycle.saved, now, static_cast<int64_t>(times), microbatches);
      if (watcher != nullptr) watcher->repeated(static_cast<int64_t>(times), microbatches);
      return to;
    }
  }
  if (std::has_single_bit(boundary)) {
    cycle.saved = state(since_of(boundary));
    cycle.saved_at = boundary;
    if (watcher != nullptr) watcher->began_cycle();
  }
  return next;
}

}  // namespace heddle::ir
