// The hosts of a job that may be used now. A host that does not answer, or that a probe has found wanting, is out.
// It comes back when it answers again. One that failed before, or answered all the time, is back only after a while
// that doubles each time.
#pragma once

#include <string>
#include <vector>

#include "heddle/job/hosts/hosts.h"

namespace heddle::job {

class HostPool {
 public:
  explicit HostPool(std::vector<Host> hosts, double probation_s = 30) : probation_s_(probation_s) {
    for (Host& host : hosts) members_.push_back({std::move(host)});
  }

  /// Takes a host out. `answers`: it does, and is out all the same.
  void lost(const std::string& name, double now_s, bool answers = false);
  /// Records that it answers. True if it is back now: not yet, where it is on probation.
  bool answers(const std::string& name, double now_s);

  std::vector<Host> up() const;
  std::vector<Host> out() const;
  /// Hosts with `ranks` slots in all, the first that are up, the last with fewer slots where it must be; all that
  /// are up where those have not so many.
  std::vector<Host> with_slots(int ranks) const;

 private:
  struct Member {
    Host host;
    bool is_out = false;
    int times_lost = 0;
    double until_s = 0;  // out at least so long
  };
  Member& member(const std::string& name);
  std::vector<Member> members_;
  double probation_s_;
};

}  // namespace heddle::job
