#include "heddle/schedule/timing.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"

namespace heddle::schedule {

Times even_times(const Placement& placement, const StageTimes& rank, double pair, double hop) {
  const double part = static_cast<double>(placement.ranks) / placement.stages;
  const StageTimes stage{rank.forward * part, rank.input_grad * part, rank.weight_grad * part,
                         rank.all_to_all * part};
  return {std::vector<StageTimes>(static_cast<size_t>(placement.stages), stage), pair, hop};
}

namespace {

double useful_time(const StageTimes& of, Kind kind) {
  switch (kind) {
    case Kind::F: return of.forward;
    case Kind::I: return of.input_grad;
    case Kind::W: return of.weight_grad;
    case Kind::B: return of.input_grad + of.weight_grad;
  }
  return 0;
}

double useful_time(const Placement& placement, const Times& times, const Compute& c) {
  return useful_time(times.stages[c.stage % placement.stages], c.kind);
}

void check(const Placement& placement, const Times& times) {
  if (std::ssize(times.stages) != placement.stages)
    config_error("schedule times: of {} stages, accepted of {}", times.stages.size(), placement.stages);
  const auto check = [](const char* what, double time) {
    if (!std::isfinite(time) || time < 0)
      config_error("schedule times: {} {}, accepted finite numbers of at least 0", what, time);
  };
  for (const StageTimes& of : times.stages) {
    check("forward", of.forward);
    check("input gradient", of.input_grad);
    check("weight gradient", of.weight_grad);
    check("all-to-all", of.all_to_all);
  }
  check("pair", times.pair);
  check("hop", times.hop);
}

}  // namespace

double duration_of(const Placement& placement, const Times& times, const Action& action) {
  if (action.with) {
    return times.pair * (useful_time(placement, times, action.first) + useful_time(placement, times, *action.with));
  }
  const Compute& c = action.first;
  const StageTimes& of = times.stages[c.stage % placement.stages];
  return useful_time(of, c.kind) + (c.kind == Kind::W ? 0 : of.all_to_all);
}

Timing timing_of(const Schedule& schedule, const Times& times) {
  const Links links = links_of(schedule);
  return timing_of(schedule, times, links, running_order(schedule, links));
}

Timing timing_of(const Schedule& schedule, const Times& times, const Links& links, const std::vector<int>& order) {
  const Placement& placement = schedule.placement;
  check(placement, times);
  const auto ranks = static_cast<size_t>(placement.ranks);
  Timing timing;
  timing.of.resize(ranks);
  timing.busy.assign(ranks, 0);
  for (size_t r = 0; r < ranks; ++r) timing.of[r].reserve(schedule.order[r].size());
  std::vector<double> ends(links.at.size(), 0), useful(ranks, 0);
  for (const int a : order) {
    const auto at = static_cast<size_t>(a);
    const auto r = static_cast<size_t>(links.rank_of[at]);
    double start = timing.of[r].empty() ? 0 : timing.of[r].back().end;
    for (int i = links.begin[at]; i < links.begin[at + 1]; ++i) {
      const auto need = static_cast<size_t>(links.from[i]);
      const bool far = links.rank_of[need] != links.rank_of[at];
      start = std::max(start, ends[need] + (far ? times.hop : 0));
    }
    const double duration = duration_of(placement, times, *links.at[at]);
    ends[at] = start + duration;
    timing.of[r].push_back({start, ends[at]});
    timing.busy[r] += duration;
    for (const Compute& c : parts_of(*links.at[at])) useful[r] += useful_time(placement, times, c);
  }
  for (size_t r = 0; r < ranks; ++r) {
    timing.work = std::max(timing.work, timing.busy[r]);
    timing.useful = std::max(timing.useful, useful[r]);
    if (timing.of[r].empty()) continue;
    timing.makespan = std::max(timing.makespan, timing.of[r].back().end);
    timing.span = std::max(timing.span, timing.of[r].back().end - timing.of[r].front().start);
  }
  return timing;
}

}  // namespace heddle::schedule
