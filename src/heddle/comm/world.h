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

  /// A communicator of its own (traffic never mixes with another's) for `ranks`, in that order; this rank is one of
  /// them, and every one of them asks for the same name. The world outlives it. `name` also says in errors which
  /// stream waited: "comm.tp".
  virtual std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) = 0;

  /// Ends every pending and later call of every rank with this reason.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace heddle::comm
