// Signals and their effect on a run. Nothing is lost by one that may be answered before the process is killed.
//
//   - SIGINT, SIGTERM, SIGHUP: End after the step under way, with a checkpoint. A second one has its usual effect.
//   - SIGUSR2: The same; mpirun passes it on and kills nobody afterwards.
//   - SIGXCPU, SIGALRM: The same; a limit on processor time gives the run some seconds after the first.
//   - SIGUSR1: Write a checkpoint after the step under way, and go on.
//
// The first that asks to end is answered at once, by what is being waited for; the second by what becomes of the
// state. Before there is anything to lose, the first one ends the process.
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

/// Listens while it lives. What the process was started to ignore (nohup) stays ignored. In a program that holds
/// Heddle (base/holder.h) it listens to no signal, but to that program's wish to stop.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Wishes since the last call; a wish to stop stays.
  static Wishes take();

  /// From now on the first signal that asks to end prints "stopping: FIRST" on standard error. The next one of its
  /// kind prints "ended at once: SECOND" and ends the process. Texts of up to 250 bytes. Both empty: nothing is
  /// printed, as by the ranks of a job but its first.
  static void answer(std::string_view first, std::string_view second);

  /// From now on, until the next `answer`, the first signal that asks to end does so at once, and WHY is printed as
  /// SECOND is.
  static void end_at_once(std::string_view why);

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace heddle::session
