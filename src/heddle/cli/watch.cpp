// heddle watch: a run as it trains, in the terminal, from what it writes into its folder.
#include <chrono>
#include <filesystem>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/folder_lock.h"
#include "heddle/base/files/input_file.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/comm/calls/same_clock.h"
#include "heddle/config/run_config.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/runs/metrics_tail.h"
#include "heddle/observe/runs/watched_text.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"
#include "heddle/session/run_folder.h"
#include "heddle/session/slow/read_op_times.h"
#include "heddle/session/slow/wanted_op_times.h"
#include "heddle/session/text/continue_text.h"

namespace heddle::cli {

namespace {

constexpr auto kPause = std::chrono::seconds(1);
constexpr size_t kLately = 60;  // steps that predict how long the rest will take
constexpr int kMostColumns = 140;

struct WatchOptions {
  std::string run;
  bool once = false;
  int64_t ops = 0;  // steps whose ops are to be timed; 0: it is not asked for
  bool calls = false;
};

// The run that wrote last.
std::string newest_run() {
  namespace fs = std::filesystem;
  std::error_code missing;
  std::string newest;
  fs::file_time_type at;
  for (const fs::directory_entry& entry : fs::directory_iterator("runs", missing)) {
    const session::RunFolder folder{entry.path().string()};
    std::error_code none;
    const fs::file_time_type wrote =
        fs::last_write_time(fs::exists(folder.metrics(), none) ? folder.metrics() : folder.config(), none);
    if (none || (!newest.empty() && wrote <= at)) continue;
    newest = folder.path;
    at = wrote;
  }
  if (newest.empty()) config_error("runs: no run is there; name a run's folder");
  return newest;
}

class Watch {
 public:
  explicit Watch(const std::string& folder)
      : folder_{folder}, config_(config::read_run_config(folder_.config())), tail_(folder_.metrics()) {}

  /// True if anything may still come.
  bool look() {
    tail_.read();
    holder_ = FolderLock::holder_of(folder_.path);
    return !holder_.empty();
  }

  std::string frame(const observe::Terminal& terminal) const {
    const int columns = std::min(terminal.columns > 0 ? terminal.columns - 1 : 100, kMostColumns);
    std::string text = fmt::format("{}  {}\n", folder_.path, state());
    const std::vector<observe::StepMetrics>& steps = tail_.steps();
    if (steps.empty()) return text + "no step yet\n";
    text += bar(terminal, columns) + "\n";
    text += observe::watched_text(steps, columns, terminal.unicode);
    return text;
  }

 private:
  std::string state() const {
    if (!holder_.empty()) return "trains: " + holder_;
    if (tail_.steps().empty()) return "does not train";
    const double ago_s = wall_time_s() - tail_.steps().back().wall_time_s;
    return fmt::format("ended {} ago", observe::duration_text(std::max(0.0, ago_s)));
  }

  // The bar that the run itself shows.
  std::string bar(const observe::Terminal& terminal, int columns) const {
    observe::ProgressOptions options;
    options.total_steps = config_.train.steps;
    options.total_epochs = config_.train.epochs;
    options.total_s = config_.length().seconds;
    options.redraw_every_s = 0;
    observe::Terminal wide = terminal;
    wide.interactive = true;
    std::string drawn;
    const std::vector<observe::StepMetrics>& steps = tail_.steps();
    const size_t from = steps.size() - std::min(steps.size(), kLately);
    options.first_step = steps[from].step - 1;
    observe::Progress progress(
        options, wide, [&](std::string_view text) { drawn = text; }, [&] { return columns + 1; });
    double clock_s = 0;
    for (size_t i = from; i < steps.size(); ++i) {
      clock_s += steps[i].get(observe::figures::kStepSeconds, 0);
      progress.update(steps[i], clock_s);
    }
    const std::string clear = "\r\x1b[K";
    return drawn.starts_with(clear) ? drawn.substr(clear.size()) : drawn;
  }

  session::RunFolder folder_;
  config::RunConfig config_;
  observe::MetricsTail tail_;
  std::string holder_;
};

// Asks a run that trains for the times of its ops, and shows the longest.
int watch_ops(const session::RunFolder& folder, int64_t steps) {
  constexpr size_t kShown = 20;
  if (FolderLock::holder_of(folder.path).empty()) config_error("{}: no run trains there", folder.path);
  const auto written = [&] {
    std::error_code none;
    const auto at = std::filesystem::last_write_time(folder.op_times(), none);
    return none ? std::filesystem::file_time_type::min() : at;
  };
  const auto before = written();
  session::want_op_times(folder, steps);
  while (written() == before) {
    if (FolderLock::holder_of(folder.path).empty()) {
      (void)session::take_wanted_steps(folder);
      config_error("{}: the run ended before it had timed {} steps", folder.path, steps);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const session::OpTimesTable times =
      session::read_op_times(read_file(folder.op_times(), int64_t{256} << 20), folder.op_times());
  say("{}: steps {} to {}, {} rank{}; all ops are in {}\n\n", folder.path, times.first_step, times.last_step,
      times.ranks, times.ranks == 1 ? "" : "s", folder.op_times());
  using observe::Align;
  observe::Table table({{"op"},
                        {"phase"},
                        {"stream"},
                        {"calls", Align::right},
                        {"a step", Align::right},
                        {"of rank", Align::right},
                        {"over others", Align::right}});
  for (size_t i = 0; i < std::min(kShown, times.rows.size()); ++i) {
    const session::OpTimesTable::Row& row = times.rows[i];
    table.row({session::terminal_text(row.op), session::terminal_text(row.phase),
               session::terminal_text(row.stream), fmt::format("{:.4g}", row.calls),
               observe::duration_text(row.slowest_s), fmt::format("{}", row.slowest_rank),
               row.over_others ? fmt::format("{:.2f}", *row.over_others) : "-"});
  }
  say("{}", table.text(observe::describe_terminal(1)));
  return kDone;
}

// The last collectives of a run that trains: who came last, and what they took once all were there.
int watch_calls(const session::RunFolder& folder) {
  constexpr size_t kShown = 20;
  std::vector<comm::Meeting> met = comm::meetings(comm::by_one_clock(comm::read_rank_statuses(folder.ranks()), ""));
  if (met.empty()) config_error("{}: no rank there reports its collectives", folder.path);
  if (met.size() > kShown) met.erase(met.begin(), met.end() - kShown);
  using observe::Align;
  observe::Table table({{"channel"},
                        {"number", Align::right},
                        {"ranks", Align::right},
                        {"bytes", Align::right},
                        {"last came", Align::right},
                        {"behind the first", Align::right},
                        {"then took", Align::right}});
  const auto time = [](int64_t ns) { return observe::duration_text(static_cast<double>(ns) * 1e-9); };
  for (const comm::Meeting& m : met)
    table.row({m.channel, fmt::format("{}", m.sequence), fmt::format("{}", m.ranks.size()),
               observe::bytes_text(static_cast<double>(m.bytes)), fmt::format("rank {}", m.last), time(m.spread_ns),
               time(m.shortest_ns)});
  say("{}", table.text(observe::describe_terminal(1)));
  return kDone;
}

int watch(const WatchOptions& options) {
  const std::string folder = options.run.empty() ? newest_run() : options.run;
  session::check_is_run({folder});
  if (options.ops > 0) return watch_ops({folder}, options.ops);
  if (options.calls) return watch_calls({folder});
  Watch run(folder);
  int64_t lines = 0;  // lines of the present frame
  for (;;) {
    const bool more = run.look();
    const observe::Terminal terminal = observe::describe_terminal(1);
    const std::string frame = run.frame(terminal);
    if (lines > 0) say("\x1b[{}A\x1b[J", lines);
    say("{}", frame);
    check_heard();
    if (!more || options.once || !terminal.interactive) return kDone;
    lines = std::count(frame.begin(), frame.end(), '\n');
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

void add_watch(Commands& all) {
  auto [command, options] =
      add_command(all, "watch", "Follow a run in the terminal: its progress, loss and speed", watch);
  command.option("RUN", options.run, "The run's folder; else the one under runs/ that wrote last");
  command.option("--once", options.once, "Show it once; the default where the output is no terminal");
  command
      .option("--ops", options.ops,
              "Time the ops of so many steps on every rank of the run, as it trains, and show the longest")
      .from(1)
      .excludes("--once");
  command.option("--calls", options.calls, "Show the last collectives of a run on several ranks, as it trains")
      .excludes("--once")
      .excludes("--ops");
}

}  // namespace heddle::cli
