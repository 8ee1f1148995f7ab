// What a rank of a run tells of its communication (comm/calls), from its start to its end; and that it ends with
// whoever has started it.
#pragma once

#include <functional>
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
  /// Of a rank that is alone (null) nothing is told, unless it is one of a supervisor's job. Of such a job the page
  /// is to be seen at once.
  explicit RankCalls(comm::World* world);

  comm::World* world() { return noted_ ? &*noted_ : nullptr; }
  comm::CallLog* log() { return log_ ? &*log_ : nullptr; }

  /// What `body` returns; what it throws stands in the page first.
  template <class Body>
  auto told(const Body& body) {
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

  /// Of a rank that has ended well nothing stays; the last one takes the folder with it.
  void end(const std::string& run_folder);

 private:
  void failed(const std::string& reason, int accused, bool input);
  int own_rank() const { return log_ ? log_->page().rank : 0; }
  std::optional<comm::CallLog> log_;
  std::optional<comm::NotedWorld> noted_;
};

}  // namespace heddle::session
