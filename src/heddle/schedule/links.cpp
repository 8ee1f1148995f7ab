#include "heddle/schedule/links.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/schedule/text.h"

namespace heddle::schedule {

void check_size(const Placement& placement, int64_t microbatches) {
  const auto within = [](const char* what, int64_t found, int64_t most) {
    if (found < 1 || found > most) config_error("schedule: {} {}, accepted 1 to {}", found, what, most);
  };
  within("ranks", placement.ranks, kMostRanks);
  within("stages", placement.stages, kMostStages);
  within("routes", placement.routes, 2);
  within("microbatches", microbatches, kMostCells);
  const int64_t stages = static_cast<int64_t>(placement.stages) * placement.routes;
  if (stages * microbatches > kMostCells) {
    config_error("schedule: {} stages × {} microbatches, accepted products up to {}", stages, microbatches,
                 kMostCells);
  }
  if (std::ssize(placement.rank_of) != stages)
    config_error("schedule: {} stages, but a rank given for {}", stages, placement.rank_of.size());
  for (const int rank : placement.rank_of) {
    if (rank < 0 || rank >= placement.ranks)
      config_error("schedule: a stage on rank {}, accepted 0 to {}", rank, placement.ranks - 1);
  }
}

namespace {

// The parts of F, I and W that a computation stands for.
template <class Do>
void each_kind(Kind kind, const Do& act) {
  if (kind == Kind::B) {
    act(Kind::I);
    act(Kind::W);
  } else {
    act(kind);
  }
}

}  // namespace

Links links_of(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  check_size(placement, schedule.microbatches);
  if (std::ssize(schedule.order) != placement.ranks)
    config_error("schedule: {} lists of actions for {} ranks", schedule.order.size(), placement.ranks);
  const Numbering number(schedule);
  Links links;
  links.producer.assign(number.size(), -1);
  size_t total = 0;
  for (const auto& list : schedule.order) total += list.size();
  if (total > number.size()) config_error("schedule: {} actions, accepted at most {}", total, number.size());
  links.at.reserve(total);
  links.rank_of.reserve(total);

  const auto stages = static_cast<int>(placement.rank_of.size());
  for (int r = 0; r < placement.ranks; ++r) {
    links.first_of.push_back(links.actions());
    for (const Action& action : schedule.order[static_cast<size_t>(r)]) {
      const auto refuse = [&](const std::string& why) {
        const std::vector<Action>& list = schedule.order[static_cast<size_t>(r)];
        config_error("schedule {}: rank {}, action {}: {}", schedule.name, r, &action - list.data() + 1, why);
      };
      for (const Compute& c : parts_of(action)) {
        if (c.stage < 0 || c.stage >= stages)
          refuse(fmt::format("stage {}, accepted 0 to {}", c.stage, stages - 1));
        const auto [low, high] = placement.microbatches_of(c.stage, schedule.microbatches);
        if (c.microbatch < low || c.microbatch >= high) {
          refuse(fmt::format("microbatch {} on stage {}, accepted {} to {}", c.microbatch, c.stage, low, high - 1));
        }
        if (placement.rank_of[static_cast<size_t>(c.stage)] != r) {
          refuse(fmt::format("stage {}, which is on rank {}", c.stage,
                             placement.rank_of[static_cast<size_t>(c.stage)]));
        }
        each_kind(c.kind, [&](Kind kind) {
          int& producer = links.producer[number(kind, c.stage, c.microbatch)];
          if (producer >= 0) {
            refuse(
                fmt::format("{} of stage {}, microbatch {} a second time", letter_of(kind), c.stage, c.microbatch));
          }
          producer = links.actions();
        });
      }
      if (action.with &&
          (action.first.kind != Kind::F || (action.with->kind != Kind::B && action.with->kind != Kind::I))) {
        refuse(fmt::format("a pair of {} and {}, accepted F and B, or F and I", letter_of(action.first.kind),
                           letter_of(action.with->kind)));
      }
      links.at.push_back(&action);
      links.rank_of.push_back(r);
    }
  }
  links.first_of.push_back(links.actions());

  links.begin.reserve(total + 1);
  for (int a = 0; a < links.actions(); ++a) {
    links.begin.push_back(static_cast<int>(links.from.size()));
    for (const Compute& c : parts_of(*links.at[static_cast<size_t>(a)])) {
      for (const Compute& need : needs(placement, c)) {
        const int producer = links.producer[number(need.kind, need.stage, need.microbatch)];
        if (producer < 0) {
          config_error("schedule {}: {} of stage {}, microbatch {} needs {} of stage {}, which no rank computes",
                       schedule.name, letter_of(c.kind), c.stage, c.microbatch, letter_of(need.kind), need.stage);
        }
        links.from.push_back(producer);
      }
    }
  }
  links.begin.push_back(static_cast<int>(links.from.size()));
  return links;
}

std::vector<int> running_order(const Schedule& schedule, const Links& links) {
  const auto ranks = static_cast<size_t>(schedule.placement.ranks);
  std::vector<int> order, next(links.first_of.begin(), links.first_of.end() - 1), ready(ranks);
  order.reserve(links.at.size());
  std::vector<char> done(links.at.size(), 0);
  std::vector<int> first_waiting(links.at.size(), -1), next_waiting(ranks, -1);  // ranks, by what they wait for
  for (size_t r = 0; r < ranks; ++r) ready[r] = static_cast<int>(ranks - 1 - r);
  while (!ready.empty()) {
    const auto r = static_cast<size_t>(ready.back());
    ready.pop_back();
    for (int& a = next[r]; a < links.first_of[r + 1]; ++a) {
      const auto at = static_cast<size_t>(a);
      int missing = -1;
      for (int i = links.begin[at]; i < links.begin[at + 1] && missing < 0; ++i) {
        const int need = links.from[static_cast<size_t>(i)];
        if (!done[static_cast<size_t>(need)]) missing = need;
      }
      if (missing >= 0) {
        next_waiting[r] = first_waiting[static_cast<size_t>(missing)];
        first_waiting[static_cast<size_t>(missing)] = static_cast<int>(r);
        break;
      }
      done[at] = 1;
      order.push_back(a);
      for (int w = first_waiting[at]; w >= 0; w = next_waiting[static_cast<size_t>(w)]) ready.push_back(w);
    }
  }
  if (order.size() == links.at.size()) return order;

  const ActionNames name(schedule.placement);
  std::vector<int> reached(ranks);
  std::vector<std::string> waits_for(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    reached[r] = next[r] - links.first_of[r];
    if (next[r] == links.first_of[r + 1]) continue;
    const auto at = static_cast<size_t>(next[r]);
    for (int i = links.begin[at]; i < links.begin[at + 1]; ++i) {
      const auto need = static_cast<size_t>(links.from[static_cast<size_t>(i)]);
      if (done[need]) continue;
      waits_for[r] += fmt::format("{}{} of rank {}", waits_for[r].empty() ? "" : ", ", name(*links.at[need]),
                                  links.rank_of[need]);
    }
  }
  config_error("schedule {}: it can't go on, every rank waits:\n{}", schedule.name,
               stuck_picture(schedule, reached, waits_for));
}

std::string stuck_picture(const Schedule& schedule, const std::vector<int>& reached,
                          const std::vector<std::string>& waits_for) {
  constexpr int kBefore = 6, kAfter = 4, kMostLines = 64;
  const ActionNames name(schedule.placement);
  std::string text;
  int lines = 0;
  for (size_t r = 0; r < reached.size(); ++r) {
    const std::vector<Action>& list = schedule.order[r];
    const auto size = static_cast<int>(list.size());
    if (reached[r] == size && lines > kMostLines / 2) continue;
    if (++lines > kMostLines) return text + "…\n";
    const int from = std::max(0, reached[r] - kBefore), to = std::min(size, reached[r] + kAfter + 1);
    text += fmt::format("r{}{}", r, from > 0 ? " …" : "");
    for (int i = from; i < to; ++i) {
      const std::string action = name(list[static_cast<size_t>(i)]);
      text += i == reached[r] ? fmt::format(" >{}<", action) : " " + action;
    }
    if (to < size) text += " …";
    text += reached[r] == size ? "  done" : fmt::format("  waits for {}", waits_for[r]);
    text += '\n';
  }
  return text;
}

}  // namespace heddle::schedule
