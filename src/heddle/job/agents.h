// The agents of a job (session/agent/agent.h): one on each host that trains, started before the ranks and outliving
// them. A generation finds there what the one before held in memory; each host's agent keeps a copy for the next
// host's in the row, so that a host's memory is not lost with it.
//
// An agent hangs on its standard input: where the supervisor goes, however it goes, its agents write what they hold
// to disk and end. One that dies is started again, at once and then after 1 s, 2 s, 4 s, ..., and takes over what
// the one before has left in memory.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "heddle/job/child.h"
#include "heddle/job/hosts/hosts.h"
#include "heddle/job/journal.h"
#include "heddle/job/launcher.h"

namespace heddle::job {

struct AgentsOptions {
  std::string program, run, shell;
  std::string listen;  // the interface through which they reach each other; "": none, and no partners
};

class Agents {
 public:
  using Tell = std::function<void(const std::string& line)>;
  Agents(AgentsOptions options, const Launcher& launcher, Journal& journal, Tell tell);

  /// One on each of these hosts, partners in their order, and waits until they are ready; those on hosts that are
  /// up besides go on as they are. Told where one does not come to be: its host's ranks then have none.
  void start(const std::vector<Host>& hosts);
  /// Takes what they have said, and starts again who has died; to be called often.
  void look();
  /// A host is out: what it holds can't be had.
  void lose(const std::string& host);
  /// Whom the end of a generation spares.
  std::vector<pid_t> processes() const;
  /// Has all end: with what they hold on disk, or where the job has ended well with nothing left.
  void end(bool well);

 private:
  struct One {
    std::string host;
    std::unique_ptr<Child> child;  // null: to be started
    std::string address, entry;    // once it is ready; its line in RUN/.agents
    std::string partner;           // as it was told last
    double again_s = 0, began_s = 0;
    int died = 0;         // in a row
    bool trains = false;  // its host, in this generation
    bool is_ready() const { return !entry.empty(); }
  };
  void begin(One& one);
  void hear(One& one, const std::string& line);
  void pair_up();
  void forget_address(const One& one) const;

  AgentsOptions options_;
  const Launcher& launcher_;
  Journal& journal_;
  Tell tell_;
  std::string token_;
  std::vector<std::unique_ptr<One>> all_;
  std::set<std::string> lost_;  // hosts
};

}  // namespace heddle::job
