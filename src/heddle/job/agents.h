// The agents of a job (session/agent/agent.h): one on each host that trains, started before the ranks and outliving
// them. A generation finds there what the one before held in memory. Each host's agent keeps a copy for the next
// host's in the row, so that a host's memory is not lost with it.
//
// An agent hangs on its standard input: where the supervisor goes, however it goes, its agents write what they hold
// to disk and end. One that dies is started again, at once and then after 1 s, 2 s, 4 s, ..., and takes over what
// the one before has left in memory. Each is asked for an answer every few seconds, over the same input. One that
// stands still is ended; another one in its place frees what it holds and takes that over. A host where that one
// does not start either is lost.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
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
  /// Ends the agents that are still there, with what they hold on disk.
  ~Agents();
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;

  /// Starts one on each of these hosts, partners in their order, and waits until they are ready. Agents on other
  /// hosts that are up go on as they are. `tell` receives a host where none starts: its ranks then have no agent.
  void start(const std::vector<Host>& hosts);
  /// Takes what they have said, asks them for an answer, and restarts those that have died or stand still; to be
  /// called often. Returns hosts on which no other one started instead of one that stood still: they are as
  /// good as lost.
  std::vector<std::string> look();
  /// Takes a host out: what it holds can't be had.
  void lose(const std::string& host);
  /// Processes that the end of a generation spares.
  std::vector<pid_t> processes() const;
  /// Ends all: with what they hold on disk, or where the job has ended well with nothing left.
  void end(bool well);

 private:
  struct One {
    std::string host;
    std::unique_ptr<Child> child;  // null: to be started
    std::string address, entry;    // once it is ready; its line in RUN/.agents
    std::string partner;           // the last one that it was given
    std::string replaces;          // the folder's ID of the one before, which stands still; "": it has ended
    double again_s = 0, began_s = 0;
    double asked_s = 0;    // when it was asked last
    double silent_s = 0;   // wait for its answer
    bool answered = true;  // since then
    int died = 0;          // in a row
    bool trains = false;   // its host, in this generation
    bool is_ready() const { return !entry.empty(); }
    std::string id() const { return entry.substr(entry.rfind('/') + 1); }  // only where it is ready
  };
  void begin(One& one);
  void hear(One& one, const std::string& line);
  void pair_up();
  void forget_address(const One& one) const;
  void ask(One& one) const;
  void replace(One& one);
  void await_ends(double seconds);

  AgentsOptions options_;
  const Launcher& launcher_;
  Journal& journal_;
  Tell tell_;
  std::string token_;
  double checked_s_ = 0;
  std::vector<std::unique_ptr<One>> all_;
  std::map<std::string, std::string> lost_;  // hosts, with the folder's ID of their last agent ("": it had none)
};

}  // namespace heddle::job
