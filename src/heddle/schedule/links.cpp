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
    for (const Action& action : schedule.order[r]) {
      const auto refuse = [&](const std::string& why) {
        const std::vector<Action>& list = schedule.order[r];
        config_error("schedule {}: rank {}, action {}: {}", schedule.name, r, &action - list.data() + 1, why);
      };
      for (const Compute& c : parts_of(action)) {
        if (c.stage < 0 || c.stage >= stages)
          refuse(fmt::format("stage {}, accepted 0 to {}", c.stage, stages - 1));
        const auto [low, high] = placement.microbatches_of(c.stage, schedule.microbatches);
        if (c.microbatch < low || c.microbatch >= high) {
          refuse(fmt::format("microbatch {} on stage {}, accepted {} to {}", c.microbatch, c.stage, low, high - 1));
        }
        if (placement.rank_of[c.stage] != r) {
          refuse(fmt::format("stage {}, which is on rank {}", c.stage, placement.rank_of[c.stage]));
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
    for (const Compute& c : parts_of(*links.at[a])) {
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
  Progress progress = run_lists(links, [](int, const std::vector<char>&) { return -1; });
  if (progress.order.size() < links.at.size()) {
    config_error("schedule {}: it can't go on, every rank waits:\n{}", schedule.name,
                 stuck_picture(schedule, links, progress, [](int) { return ""; }));
  }
  return std::move(progress.order);
}

std::string stuck_picture(const Schedule& schedule, const Links& links, const Progress& progress,
                          const std::function<std::string(int action)>& also_waits) {
  constexpr int kBefore = 6, kAfter = 4, kMostLines = 64;
  const ActionNames name(schedule.placement);
  std::string text;
  int lines = 0;
  for (size_t r = 0; r < progress.next.size(); ++r) {
    const int first = links.first_of[r], end = links.first_of[r + 1], stuck = progress.next[r];
    if (stuck == end && lines > kMostLines / 2) continue;
    if (++lines > kMostLines) return text + "…\n";
    const int from = std::max(first, stuck - kBefore), to = std::min(end, stuck + kAfter + 1);
    text += fmt::format("r{}{}", r, from > first ? " …" : "");
    for (int a = from; a < to; ++a) {
      const std::string action = name(*links.at[a]);
      text += a == stuck ? fmt::format(" >{}<", action) : " " + action;
    }
    text += to < end ? " …" : "";
    if (stuck == end) {
      text += "  done\n";
      continue;
    }
    const auto at = static_cast<size_t>(stuck);
    std::string waits = also_waits(stuck);
    for (int i = links.begin[at]; i < links.begin[at + 1]; ++i) {
      const auto need = static_cast<size_t>(links.from[i]);
      if (progress.done[need]) continue;
      waits +=
          fmt::format("{}{} of rank {}", waits.empty() ? "" : ", ", name(*links.at[need]), links.rank_of[need]);
    }
    text += fmt::format("  waits for {}\n", waits);
  }
  return text;
}

}  // namespace heddle::schedule
