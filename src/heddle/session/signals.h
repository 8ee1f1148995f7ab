// What signals ask of a run: nothing is lost by one that may be answered before the process is killed.
//
//   SIGINT, SIGTERM, SIGHUP   end after the step under way, with a checkpoint; a second one does what it always
//   does SIGUSR2                   the same; mpirun passes it on and kills nobody afterwards SIGUSR1 write a
//   checkpoint after the step under way, and go on SIGPIPE                   ignored: nobody reads what is printed
//   any more
#pragma once

#include <csignal>
#include <utility>
#include <vector>

namespace heddle::session {

struct Wishes {
  bool stop = false, save = false;
};

/// Listens while it lives. What the process was started to ignore (nohup) stays ignored.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// What has been asked since the last call; a wish to stop stays.
  static Wishes take();

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace heddle::session
