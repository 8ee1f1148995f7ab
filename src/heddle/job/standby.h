// Ranks that wait to be a job's next generation, on the hosts and in the layout of the one that trains. They have
// started, joined each other and read their configuration. They hold no weights and write nothing. After a fault
// they go on at once, unless hosts or layout have changed.
#pragma once

#include <memory>

#include "heddle/job/journal.h"
#include "heddle/job/layout.h"
#include "heddle/job/ranks.h"

namespace heddle::job {

class Standby {
 public:
  /// True if none waits and another may be started. The journal gets a standby that has ended by itself. Another
  /// one is wanted after a pause.
  bool is_wanted(Journal& journal);
  void begin(JobPlan plan, std::unique_ptr<Ranks> ranks);

  bool waits() { return ranks_ && !ranks_->poll(0); }
  pid_t process() const { return ranks_->process(); }
  /// Returns the ranks where they wait and are of that plan. Otherwise returns null and ends them.
  std::unique_ptr<Ranks> take(const JobPlan& plan, Journal& journal);
  void end() { ranks_.reset(); }

 private:
  JobPlan plan_;
  std::unique_ptr<Ranks> ranks_;
  double again_s_ = 0;  // none is started before
};

}  // namespace heddle::job
