// A job that goes on. Its ranks are started and watched. After a fault they start again from the newest whole
// checkpoint, on the hosts that are left. A new generation number fences the old one (base/files/fence.h). Nothing
// in a rank is repaired: what has failed is killed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/base/files/fence.h"
#include "heddle/job/agents.h"
#include "heddle/job/alarms.h"
#include "heddle/job/ending.h"
#include "heddle/job/hosts/host_pool.h"
#include "heddle/job/hosts/reach.h"
#include "heddle/job/journal.h"
#include "heddle/job/launcher.h"
#include "heddle/job/layout.h"
#include "heddle/job/movement.h"
#include "heddle/job/persistence.h"
#include "heddle/job/ranks.h"
#include "heddle/job/standby.h"
#include "heddle/session/run_folder.h"

namespace heddle::job {

/// Exit status where no host answers: another allocation may do better. It is EX_TEMPFAIL of sysexits.h.
inline constexpr int kNoHosts = 75;

struct JobOptions {
  std::string program;             // the ranks' own: this one
  std::string config;              // path
  std::vector<std::string> set;    // the user's
  std::vector<std::string> flags;  // flags of `heddle train`, passed on
  std::vector<Host> hosts;
  std::string by, shell;          // launcher and what reaches a host; "": as it suits
  std::string listen;             // the interface through which agents reach each other; "": as it suits
  std::vector<std::string> more;  // words for the launcher
  int ranks = 0, spares = 0;      // 0 ranks: all slots but the spares'
  bool resume = false, grow = true, probe = true, replace_slow = false, standby = false, json = false;
  int attempts = 3;
  double pause_s = 1, longest_pause_s = 300;
  double look_s = 30;         // how often hosts that are out are asked
  double wait_hosts_s = 600;  // for the first of them
  double choose_s = 5;        // to find a layout
  cost::MachineProfile profile;
};

struct JobSummary {
  int status = 0;  // exit status
  std::string folder, reason;
  int64_t generations = 0, faults = 0;
  int ranks = 0;                  // the last generation's
  std::vector<std::string> lost;  // hosts that are out at the end
  std::string said;               // standard output of the last generation's ranks
};

class Supervisor {
 public:
  using Tell = std::function<void(const std::string& line)>;
  Supervisor(JobOptions options, Tell tell);
  ~Supervisor();

  JobSummary run();

 private:
  int wanted() const;
  bool ask_hosts();
  std::optional<JobPlan> plan_for(const std::vector<Host>& hosts);
  std::optional<JobPlan> next_plan();
  Ending generation(const JobPlan& plan);
  std::unique_ptr<Ranks> start_ranks(const JobPlan& plan, Fence fence) const;
  void look_for_standby(const JobPlan& plan);
  std::vector<std::string> words_of(const JobPlan& plan) const;
  void end_ranks();
  void look_for_hosts(const JobPlan& plan, Ranks& ranks);
  void look_for_slow(const JobPlan& plan, Ranks& ranks);
  void look_for_agents(const JobPlan& plan, Ranks& ranks);
  void look_for_steps(const std::vector<comm::RankStatus>& standing);
  std::string why_force(const std::vector<comm::RankStatus>& standing, const std::vector<std::string>& said);
  std::vector<comm::RankStatus> statuses_by_our_clock();
  std::string why_away() const;
  void look_again_at_mistake(Ending& ending);
  void tell_end(const Ending& ending, const JobPlan& plan);
  void probe(const Ending& ending, const JobPlan& plan);
  void lose(const std::string& host, const std::string& why, bool answers);

  JobOptions options_;
  Tell tell_;
  const Launcher& launcher_;
  HostPool pool_;
  Persistence persistence_;
  session::HeldFolder held_;
  Journal journal_;
  std::unique_ptr<Agents> agents_;  // null: the run keeps no copies in memory
  AlarmTail alarms_;
  Fence fence_;
  Standby standby_;
  JobSummary summary_;
  bool asked_ = false;    // to stop, by a signal
  bool growing_ = false;  // stopped by us, for more hosts or another
  bool running_ = false;  // this generation has done a step
  bool trained_ = false;  // any has
  bool mistake_ = false;  // the generation before blamed the input, and none has trained since
  Movement movement_;
  double began_s_ = 0;   // this generation
  double failed_s_ = 0;  // when a rank was first seen to have failed; 0: none
  double seen_s_ = 0;    // when a rank's page was seen last; 0: never
  double checked_s_ = 0;
  std::unique_ptr<Reach> reach_;
};

}  // namespace heddle::job
