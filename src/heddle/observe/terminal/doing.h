// Progress of long work, while it lasts: one line of standard error.
//
//   tokenizing: 43 %, 0:12, about 0:16 left
//
// On a terminal it is redrawn twice a second, from the first second on, and taken away at the end. Elsewhere there
// is a line now and then. A thread of its own draws it, so that work shows that reports nothing itself. Where a
// program holds Heddle (base/holder.h), it learns of the work in place of the line.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "heddle/observe/terminal/terminal.h"

namespace heddle::observe {

struct DoingPace {
  double first_s = 1, every_s = 0.5;           // on a terminal
  double line_first_s = 5, line_every_s = 15;  // elsewhere
};

class Doing {
 public:
  using Write = std::function<void(std::string_view)>;
  static constexpr double kUnknown = -1;

  /// Writes to standard error.
  explicit Doing(std::string what);
  Doing(std::string what, const Terminal& terminal, Write write, const DoingPace& pace);
  /// Takes the line away.
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

  /// Sets what is being done, and how much of it is, 0 to 1 or kUnknown. Cheap; any thread may call it. Throws
  /// Stopped where a holder asked to stop at once.
  void now(std::string_view what, double share = kUnknown);
  void now(double share);

 private:
  void draw_until_ended();
  std::string line() const;
  void take_share(double share);

  Terminal terminal_;
  Write write_;
  DoingPace pace_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::string what_;
  double share_ = kUnknown;
  double began_s_;
  double first_share_ = 0,
         first_share_s_ = 0;  // where the share of the present work began to rise, and when
  bool end_ = false, shown_ = false;
  std::thread drawer_;
};

}  // namespace heddle::observe
