// Shows how far the run is: one bar that redraws itself on a terminal, a line every so many steps elsewhere.
//
//   1,240/5,000 ███████▍              25%  loss 3.214  lr 2.2e-04  grad 0.81  12.3 Ktok/s  1.2 TFLOP/s  ETA 1:02:03
//
// All output of the run goes through here while it trains: `line` takes the bar away, prints the text and draws the
// bar below it, in one write under one lock, so bar and log never run into each other. Fields that don't fit the
// width are left out, the least telling first. Thread-safe. Never throws on a failed write: a closed terminal must
// not end a training run.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "heddle/observe/step_metrics.h"
#include "heddle/observe/terminal/terminal.h"

namespace heddle::observe {

/// Remaining time from smoothed step times: an exponential mean with a half-life of 20 steps, corrected for its
/// start. So the first estimate is the first step's time, and a slow first step is soon forgotten.
class EtaEstimate {
 public:
  void add(double seconds, double steps);
  /// Seconds, or NaN before the first step.
  double remaining_s(double steps) const;

 private:
  double sum_s_ = 0;
  double weight_ = 0;
};

struct ProgressOptions {
  int64_t first_step = 0;  // steps already done when this run began
  int64_t total_steps = 0;
  // Time that the steps of a run by the clock may take, in place of total_steps.
  double first_s = 0, total_s = 0;
  // Passes over the data of a run that is counted in them; figures::kEpoch then says where it is.
  double total_epochs = 0;
  // Steps between lines of their own, on a terminal above the bar; 0: every tenth off a terminal.
  int64_t line_every_steps = 0;
  bool timestamps = false;      // ahead of every line, in UTC
  bool quiet = false;           // nothing but warnings
  double redraw_every_s = 0.1;  // on a terminal
};

class Progress {
 public:
  using Write = std::function<void(std::string_view)>;
  using Columns = std::function<int()>;

  Progress(ProgressOptions options, Terminal terminal, Write write, Columns columns);

  /// Writes to a descriptor, usually 2.
  Progress(ProgressOptions options, int descriptor);
  ~Progress() { finish(); }

  /// `metrics.step` counts finished steps. `now_s`: any clock that only moves forward.
  void update(const StepMetrics& metrics, double now_s);
  void update(const StepMetrics& metrics);

  /// Prints a line of the log (without its end) above the bar.
  void line(std::string_view text);
  /// "warning: " and the text, however quiet.
  void warning(std::string_view text);

  /// Leaves the last bar standing and ends its line. Later calls do nothing.
  void finish();

 private:
  bool by_clock() const { return options_.total_s > 0; }
  double done() const;   // in steps, or in seconds
  double total() const;  // likewise
  std::string place() const;
  double eta_s() const;
  std::string bar(int columns) const;
  std::string fields_line() const;
  void draw();
  void print_line(std::string_view text);

  ProgressOptions options_;
  Terminal terminal_;
  Write write_;
  Columns columns_;
  std::mutex mutex_;
  StepMetrics last_;
  EtaEstimate eta_;
  double last_update_s_ = 0;
  double last_drawn_s_ = 0;
  int64_t last_lined_step_ = -1;
  bool any_ = false;
  bool shown_ = false;
  bool finished_ = false;
};

}  // namespace heddle::observe
