// The ranks of a job, as one of them sees them: who it is, on which node everybody runs, and communicators of
// groups.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/comm/communicator.h"

namespace heddle::comm {

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The node of a rank, numbered from 0 in order of first rank.
  virtual int node_of(int rank) const = 0;
  virtual const std::string& host_of(int rank) const = 0;

  /// A communicator of its own for `ranks`, in that order; traffic never mixes with another's. This rank is one of
  /// them, and every one of them asks for the same name. The world outlives it. `name` also says in errors which
  /// stream waited: "comm.tp".
  virtual std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) = 0;

  /// Ends every pending and later call of every rank with this reason. It ends them with ConfigError where the
  /// user's `input` is to blame, so that all end with the same status, else with SystemError.
  virtual void abort(const std::string& reason, bool input = false) = 0;

  /// From now on a call of this rank that waits longer for a peer whose process is alive ends every rank. Where
  /// ranks are threads of one process it is said for all of them.
  virtual void set_patience(double /*seconds*/) {}

  /// Threads that the world has of its own to move messages run on this core from now on.
  virtual void move_on(int /*core*/) {}
};

}  // namespace heddle::comm
