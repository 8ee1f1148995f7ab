#include "heddle/session/ranks/rank_watch.h"

#include <fmt/format.h>

#include "heddle/observe/units.h"

namespace heddle::session {

RankWatch::RankWatch(const train::Trainer& trainer, const comm::World* world, const train::Sharing& sharing) {
  if (world == nullptr || world->size() == 1 || sharing.cores > 1) return;
  for (int r = 0; r < world->size(); ++r) node_of_.push_back(world->node_of(r));
  ranks_.emplace(trainer.lowered().program.class_of_rank);
}

std::vector<std::string> RankWatch::after(const train::StepResult& result) {
  std::vector<std::string> lines;
  if (!ranks_ || !ranks_->add(result.step, result.work)) return lines;
  last_ = result.step;
  const auto who = [&](const SlowRank& slow) {
    return fmt::format("rank {} (node {})", slow.rank, node_of_[static_cast<size_t>(slow.rank)]);
  };
  for (const SlowRank& slow : ranks_->found())
    lines.push_back(
        fmt::format("{} is slow since step {}: {} takes {:.2f} times as long as on ranks that do the "
                    "same, {} of a step of {}",
                    who(slow), slow.since, name_of(slow.kind), slow.times, observe::duration_text(slow.excess_s),
                    observe::duration_text(result.seconds)));
  for (const SlowRank& slow : ranks_->ended())
    lines.push_back(fmt::format("{} is as quick at {} as others again", who(slow), name_of(slow.kind)));
  return lines;
}

std::optional<std::vector<SlowRank>> RankWatch::slow() const {
  return ranks_ ? std::optional(ranks_->slow()) : std::nullopt;
}

observe::RankSpeeds RankWatch::speeds() const {
  observe::RankSpeeds speeds;
  if (last_ == 0) return speeds;
  speeds.first_step = last_ - SlowRanks::kWindow + 1;
  speeds.last_step = last_;
  for (size_t k = 0; k < kWorkKinds; ++k) speeds.kinds.emplace_back(name_of(static_cast<WorkKind>(k)));
  for (const auto& ratios : ranks_->ratios()) speeds.ratio.emplace_back(ratios.begin(), ratios.end());
  return speeds;
}

}  // namespace heddle::session
