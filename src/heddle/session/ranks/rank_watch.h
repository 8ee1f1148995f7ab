// Watches the speed of a run's ranks: which are slow, with which op, since when, by how much, and what that costs.
// It also finds slow links, and has a picture of all ranks over the run.
//
// Level 0 is always on (slow_ranks.h, slow/long_waits.h). Its findings turn level 2 on for a few steps (op_times.h)
// or, where no rank is slow, probe pairs (pair_probe.h). Exchanges themselves show slow links too
// (slow/link_fits.h).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/comm/calls/call_log.h"
#include "heddle/comm/world.h"
#include "heddle/config/step_range.h"
#include "heddle/observe/report.h"
#include "heddle/session/slow/alarm.h"
#include "heddle/session/slow/link_fits.h"
#include "heddle/session/slow/link_times.h"
#include "heddle/train/run_config_plan.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

class RankWatch {
 public:
  /// Ranks that share their cores slow each other, which says nothing of any: such are not watched, their ops are
  /// timed if it is asked for. `world` null: one rank. `ops`: steps whose ops are timed.
  /// `calls`: the log of this rank's calls, if any rank has one; times of its exchanges tell of links.
  RankWatch(train::Trainer& trainer, comm::World* world, const train::Sharing& sharing, config::StepRange ops = {},
            comm::CallLog* calls = nullptr);

  /// Times the ops of so many steps, beginning with the next.
  void time_ops(int64_t steps);
  /// True if the ops of this step are timed: work that runs ahead of it or beside it must have ended before and
  /// after.
  bool times_ops(int64_t step);
  void before_step();
  void after_step();

  // All ranks call these together.

  /// Alarms after a step's result, on rank 0.
  std::vector<Alarm> after(const train::StepResult& result);
  /// Alarms at the end of the run: those that wait for times of ops that will not come.
  std::vector<Alarm> rest();

  /// Times of the ops that were asked for, once they have been taken; rank 0's. JSON.
  std::optional<std::string> take_op_times() { return std::exchange(op_times_, std::nullopt); }
  /// None where ranks are not watched.
  std::optional<std::vector<NamedSlowRank>> slow() const;
  /// Links that are slow now: how many, and which. JSON, null: none.
  std::pair<size_t, nlohmann::ordered_json> slow_links() const;
  /// Ranks and links that are slow now, in a few words; "": none.
  std::string summary() const;
  /// Speeds in all windows of steps; empty before there is one.
  observe::RankSpeeds speeds() const;

  static constexpr int64_t kTimedSteps = 5;
  static constexpr int kMostProbedRanks = 64;

 private:
  struct Window {
    int64_t first = 0, last = 0;
    std::vector<std::array<double, kWorkKinds>> ratios;
  };
  void judge(const train::StepResult& result, std::vector<Alarm>& alarms);
  void judge_links(std::vector<Alarm>& alarms);
  bool judge_exchanges(std::vector<Alarm>& alarms);
  void name_ops(std::vector<Alarm>& alarms);
  bool tells_ops(int rank) const;
  void keep(const train::StepResult& result);
  std::vector<std::vector<double>> probe();

  train::Trainer& trainer_;
  RankPlaces places_;
  config::StepRange asked_;
  std::optional<SlowRanks> ranks_;  // none: they are not watched
  LongWaits waits_;
  std::optional<LinkTimes> exchanges_;            // none: nobody times them
  std::optional<LinkFits> fits_;                  // rank 0's
  std::unique_ptr<comm::Communicator> link_;      // link of the probes; null: there are none
  std::vector<std::vector<double>> transfers_s_;  // times as the run began
  OpClock clock_;
  bool timed_ = false;   // the clock has run out, and all ranks' times are to be shared
  bool wanted_ = false;  // not only for an alarm
  int64_t timed_first_ = 0, timed_last_ = 0;
  std::vector<NamedSlowRank> pending_;  // found, and their ops are being timed
  std::vector<NamedSlowRank> named_;    // ranks that were reported and are still slow
  std::optional<SlowLinks> links_;
  std::optional<std::string> op_times_;
  std::deque<Window> windows_;
};

}  // namespace heddle::session
