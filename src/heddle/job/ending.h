// Finds why a generation of a job has ended, from the launcher's exit status, its words and the ranks' last pages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/comm/calls/rank_status.h"

namespace heddle::job {

/// done: the run is over. mistake: the user's, who alone can put it right. asked: somebody wanted it to stop.
/// fault: anything else; it is worth another try.
enum class Cause { done, mistake, asked, fault };
std::string_view name_of(Cause cause);

struct Evidence {
  int status = 0;                       // the launcher's
  bool asked = false;                   // we have asked it to stop
  std::string forced;                   // why we ended it by force; "": we did not
  std::vector<std::string> said;        // the last lines of its standard error
  std::vector<comm::RankStatus> ranks;  // this generation's
};

struct Ending {
  Cause cause = Cause::fault;
  std::string reason;         // one line
  int64_t step = 0;           // the furthest rank's
  std::vector<int> suspects;  // ranks that others or the launcher name
};

Ending ending_of(const Evidence& evidence);

/// Returns the rank that a line of a program's standard error says nobody has heard of (comm/mpi); -1 where it says
/// nothing of the kind of one of `ranks`.
int silent_rank(std::string_view line, int ranks);

/// Returns the first of the tasks that srun says something has killed; -1 where it says nothing of the kind.
int killed_task(std::string_view line);

}  // namespace heddle::job
