// A program that this process has started, with all that it starts in turn: nothing of it outlives this process,
// and `end` leaves nothing of it behind.
//
// It has a process group of its own, so that a Ctrl-C is answered by its parent alone, and is killed when its
// parent dies. What leaves the group or loses its own parent becomes this process's child (adopt_orphans) and is
// found among those by `end`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::job {

/// Makes descendants whose parents die from now on this process's children.
void adopt_orphans();
/// Kills every process that descends from this one but these and theirs, and waits until they are gone.
void end_descendants(const std::vector<pid_t>& spared = {});

using Environment = std::vector<std::pair<std::string, std::string>>;

class Child {
 public:
  using Line = std::function<void(const std::string& line)>;
  /// Standard input: nothing, or the lines that `tell` writes. A child with `lines` outlives its parent until it
  /// sees that the input has ended.
  enum class Input : uint8_t { none, lines };
  /// `words`: the program, looked for along PATH, and its arguments; no shell reads them. `poll` passes on whole
  /// lines of its two outputs. `end_signal`: as a launcher has it. SystemError where it can't be started.
  Child(const std::vector<std::string>& words, const Environment& environment, Line out, Line error,
        int end_signal = 0, Input input = Input::none);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits so long for something to happen, and takes what has come. Returns the exit status once it has ended, 128
  /// + N where signal N ended it.
  std::optional<int> poll(double seconds);
  /// Writes a line to its standard input; nothing where it no longer reads.
  void tell(const std::string& line);
  void end_input();
  pid_t process() const { return process_; }
  void signal(int number) const;
  /// Ends the whole group, by force where it does not end by its signal.
  void kill();

 private:
  struct Pipe {
    int file = -1;
    std::string held;  // the part of a line that is not whole yet
    Line pass_on;
  };
  static void take(Pipe& pipe);
  void end_by_signal();
  const int end_signal_;
  pid_t process_ = -1;
  Pipe out_, error_;
  int input_ = -1;
  std::optional<int> status_;
};

/// Result of a program that runs to its end, for so long at most. `status`: exit status; none: it was not there in
/// time, or not at all.
struct Ran {
  std::optional<int> status;
  std::string out, error;
};
Ran run_for(const std::vector<std::string>& words, const Environment& environment, int end_signal, double seconds);

}  // namespace heddle::job
