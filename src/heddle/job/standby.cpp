#include "heddle/job/standby.h"

#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/escaped.h"

namespace heddle::job {

namespace {

constexpr double kPause_s = 30;  // from the end of a standby that nobody ended to the next

}  // namespace

bool Standby::is_wanted(Journal& journal) {
  if (!ranks_) return now_s() >= again_s_;
  const std::optional<int> status = ranks_->poll(0);
  if (!status) return false;
  const std::vector<std::string> said = ranks_->said();
  journal.add("standby", {{"generation", ranks_->fence().number},
                          {"ended", *status},
                          {"said", said.empty() ? "" : escaped(said.back())}});
  ranks_.reset();
  again_s_ = now_s() + kPause_s;
  return false;
}

void Standby::begin(JobPlan plan, std::unique_ptr<Ranks> ranks) {
  plan_ = std::move(plan);
  ranks_ = std::move(ranks);
}

std::unique_ptr<Ranks> Standby::take(const JobPlan& plan, Journal& journal) {
  const bool fits = waits() && plan_.hosts == plan.hosts && plan_.layout.set == plan.layout.set;
  std::unique_ptr<Ranks> ranks = std::exchange(ranks_, nullptr);
  if (fits || !ranks) return ranks;
  journal.add("standby", {{"generation", ranks->fence().number}, {"ended", "of another layout, or gone"}});
  return nullptr;
}

}  // namespace heddle::job
