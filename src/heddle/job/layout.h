// The layout in which a job goes on with another number of ranks than it was written for: the same global batch,
// the shortest predicted step. Under train.exact_sums only layouts that keep the same bits, so that nobody can tell
// from the weights that a host was lost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/cost/machine_profile.h"
#include "heddle/job/hosts/hosts.h"

namespace heddle::job {

struct Layout {
  int ranks = 0;
  std::vector<std::string> set;  // over the configuration's: "mesh.ranks=3", "mesh.pp=1", …
  double step_s = 0;             // predicted
  int considered = 0;            // layouts that could be
};

/// A layout and the hosts that train in it.
struct JobPlan {
  std::vector<Host> hosts;
  Layout layout;
};

/// Returns the layout for the slots of these hosts, or for the most of them that any layout takes. `set`: the
/// user's settings; the layout may change its own ones. None: not even one rank can go on.
std::optional<Layout> layout_for(const std::string& config, const std::vector<std::string>& set,
                                 const std::vector<Host>& hosts, const cost::MachineProfile& profile,
                                 double seconds);

}  // namespace heddle::job
