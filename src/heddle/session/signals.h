// What signals ask of a run: nothing is lost by one that may be answered before the process is killed.
//
//   SIGINT, SIGTERM, SIGHUP   end after the step under way, with a checkpoint; a second one does what it always
//   does SIGUSR2                   the same; mpirun passes it on and kills nobody afterwards SIGUSR1 write a
//   checkpoint after the step under way, and go on SIGPIPE                   ignored: nobody reads what is printed
//   any more
//
// The first that asks to end is answered at once, by what is being waited for; the second by what becomes of the
// state.
#pragma once

#include <csignal>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::session {

struct Wishes {
  bool stop = false, save = false;
  int64_t op_times = 0;  // steps whose ops are to be timed; no signal's to say
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

  /// From now on standard error is told "stopping: FIRST" by the first signal that asks to end, and "ended at once:
  /// SECOND" by the next one of its kind, which ends the process. Texts of up to 250 bytes; both empty: nothing is
  /// said, as by the ranks of a job but its first.
  static void answer(std::string_view first, std::string_view second);

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace heddle::session
