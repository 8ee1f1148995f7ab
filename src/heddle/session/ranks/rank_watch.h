// What a run tells of its ranks' speed: which are slow, since when and by how much, and a picture of all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/observe/report.h"
#include "heddle/session/ranks/slow_ranks.h"
#include "heddle/train/run_config_plan.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

class RankWatch {
 public:
  /// Ranks that share their cores slow each other, which says nothing of any: such are not watched. `world` null:
  /// one rank.
  RankWatch(const train::Trainer& trainer, const comm::World* world, const train::Sharing& sharing);

  /// What there is to tell after a step, a line each.
  std::vector<std::string> after(const train::StepResult& result);
  /// None where ranks are not watched.
  std::optional<std::vector<SlowRank>> slow() const;
  /// Of the last window of steps; empty before there is one.
  observe::RankSpeeds speeds() const;

 private:
  std::vector<int> node_of_;
  std::optional<SlowRanks> ranks_;  // none: they are not watched
  int64_t last_ = 0;                // step of the last window
};

}  // namespace heddle::session
