// Records a rank's communication (comm/calls) from its start to its end, and ends the rank with the process that
// has started it.
#pragma once

#include <optional>
#include <string>

#include "heddle/base/failure.h"
#include "heddle/comm/calls/noted_world.h"

namespace heddle::session {

/// A rank of a job that a supervisor has started is killed when its parent dies: nothing of an old generation stays
/// behind. A program that nobody supervises is left as it is.
void end_with_parent();

class RankCalls {
 public:
  /// A rank that is alone (null) records nothing, unless it is one of a supervisor's job. The page of such a job is
  /// visible at once.
  explicit RankCalls(comm::World* world);

  comm::World* world() { return noted_ ? &*noted_ : nullptr; }
  comm::CallLog* log() { return log_ ? &*log_ : nullptr; }

  /// Returns what `body` returns; an error that it throws goes into the page first.
  template <class Body>
  auto recorded(const Body& body) {
    try {
      return body();
    } catch (const PeerError& error) {
      failed(error.reason, error.rank, false);
      throw;
    } catch (const ConfigError& error) {
      failed(error.what(), own_rank(), true);
      throw;
    } catch (const std::exception& error) {
      failed(error.what(), own_rank(), false);
      throw;
    }
  }

  /// A rank that has ended well leaves nothing; the last one takes the folder with it.
  void end();

 private:
  void failed(const std::string& reason, int accused, bool input);
  int own_rank() const { return log_ ? log_->page().rank : 0; }
  std::optional<comm::CallLog> log_;
  std::optional<comm::NotedWorld> noted_;
};

}  // namespace heddle::session
