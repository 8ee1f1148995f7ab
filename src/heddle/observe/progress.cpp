#include "heddle/observe/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <vector>

#include "heddle/base/holder.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::observe {
namespace {

constexpr double kHalfLifeSteps = 20;
constexpr int64_t kLineEverySteps = 10;  // off a terminal
struct Field {
  std::string text;
  std::string_view colour;  // escape sequence, "" for none
  int rank;                 // fields of the highest rank are left out first
};

// The fields a step has, in the order of display.
std::vector<Field> fields_of(const StepMetrics& metrics, double eta_s) {
  std::vector<Field> fields;
  constexpr std::string_view kRed = "\x1b[1;31m";
  if (!metrics.alarm.empty()) fields.push_back({metrics.alarm, kRed, 0});
  for (const Figure* row : figures::kRows) {
    const auto value = row->line.rank >= 0 ? metrics.get(*row) : std::nullopt;
    if (!value) continue;
    const std::string_view word = row->line.word;
    fields.push_back({fmt::format("{}{}{}", word, word.empty() ? "" : " ", text_of(*row, *value)),
                      std::isfinite(*value) ? row->line.colour : kRed, row->line.rank});
  }
  if (std::isfinite(eta_s)) {
    // Below a minute as 0:42: tenths of a second would flicker.
    const double whole_s = std::ceil(eta_s);
    fields.push_back(
        {"ETA " + (whole_s < 60 ? fmt::format("0:{:02.0f}", whole_s) : duration_text(whole_s)), "\x1b[36m", 1});
  }
  return fields;
}

// "2026-11-22 15:45:10"
std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &utc)};
}

// "2:05", "1:02:05".
std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string blocks(double fraction, int columns, bool unicode) {
  static constexpr std::array<const char*, 8> eighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int filled = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * columns * 8));
  std::string bar;
  for (int i = 0; i < filled / 8; ++i) bar += unicode ? "█" : "#";
  int used = filled / 8;
  if (unicode && filled % 8 != 0) {
    bar += eighths[filled % 8];
    ++used;
  }
  for (; used < columns; ++used) bar += unicode ? " " : ".";
  return bar;
}

}  // namespace

void EtaEstimate::add(double seconds, double steps) {
  if (!(seconds >= 0) || !(steps > 0)) return;
  const double keep = std::exp2(-steps / kHalfLifeSteps);
  sum_s_ = keep * sum_s_ + (1 - keep) * seconds / steps;
  weight_ = keep * weight_ + (1 - keep);
}

double EtaEstimate::remaining_s(double steps) const {
  return weight_ > 0 ? steps * sum_s_ / weight_ : std::numeric_limits<double>::quiet_NaN();
}

Progress::Progress(ProgressOptions options, Terminal terminal, Write write, Columns columns)
    : options_(options), terminal_(terminal), write_(std::move(write)), columns_(std::move(columns)) {}

Progress::Progress(ProgressOptions options, int descriptor)
    : Progress(
          options, describe_terminal(descriptor),
          [descriptor](std::string_view text) { write_now(descriptor, text); },
          [descriptor] { return terminal_columns(descriptor); }) {}

void Progress::update(const StepMetrics& metrics) {
  update(metrics, std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

void Progress::update(const StepMetrics& metrics, double now_s) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  const double before = any_ ? done() : by_clock() ? options_.first_s : static_cast<double>(options_.first_step);
  const bool is_first = !any_;
  // Without a step's own time the first update doesn't know how long it took.
  last_ = metrics;
  if (any_) {
    eta_.add(now_s - last_update_s_, done() - before);
  } else if (const auto step_s = metrics.get(figures::kStepSeconds)) {
    eta_.add(*step_s, by_clock() ? *step_s : 1);
  }
  last_update_s_ = now_s;
  const bool is_last = done() >= total();
  any_ = true;
  if (options_.quiet) return;
  const int64_t line_every = options_.line_every_steps > 0 ? options_.line_every_steps
                             : terminal_.interactive       ? std::numeric_limits<int64_t>::max()
                                                           : kLineEverySteps;
  const bool lined = metrics.step - last_lined_step_ >= line_every;
  if (lined || (!terminal_.interactive && (is_first || is_last))) {
    last_lined_step_ = metrics.step;
    print_line(fields_line());
  }
  if (!terminal_.interactive) return;
  if (!is_first && !is_last && now_s - last_drawn_s_ < options_.redraw_every_s) return;
  last_drawn_s_ = now_s;
  draw();
}

void Progress::draw() {
  // The last column stays free: a terminal may wrap upon it.
  write_(fmt::format("{}{}", kClearLine, bar(columns_() - 1)));
  shown_ = true;
}

double Progress::done() const {
  return by_clock() ? last_.get(figures::kTrainedSeconds, options_.first_s) : static_cast<double>(last_.step);
}

double Progress::total() const { return by_clock() ? options_.total_s : static_cast<double>(options_.total_steps); }

double Progress::eta_s() const { return eta_.remaining_s(std::max(0.0, total() - done())); }

// "120/640", "120/640, epoch 0.38/2", or "120, 0:32/3:00".
std::string Progress::place() const {
  if (!by_clock()) {
    const std::string total = grouped_text(options_.total_steps);
    std::string text =
        fmt::format("{:>{}}/{}", grouped_text(last_.step), terminal_.interactive ? total.size() : 0, total);
    const auto epoch = last_.get(figures::kEpoch);
    if (options_.total_epochs > 0 && epoch)
      text += fmt::format(", epoch {:.2f}/{:g}", std::min(*epoch, options_.total_epochs), options_.total_epochs);
    return text;
  }
  return fmt::format("{}, {}/{}", grouped_text(last_.step), clock_text(std::min(done(), total())),
                     clock_text(total()));
}

std::string Progress::fields_line() const {
  std::string text = "step " + place();
  for (const Field& field : fields_of(last_, eta_s())) text += "  " + field.text;
  return text;
}

std::string Progress::bar(int columns) const {
  constexpr int shortest_bar = 8, longest_bar = 30;
  const double fraction = total() > 0 ? done() / total() : 0;
  const std::string head = place() + " ";
  const std::string percent = fmt::format(" {:3.0f}%", std::floor(100 * std::clamp(fraction, 0.0, 1.0)));
  std::vector<Field> fields = fields_of(last_, eta_s());
  const auto used = [&] {
    int width = display_width(head) + display_width(percent);
    for (const Field& field : fields) width += 2 + display_width(field.text);
    return width;
  };
  while (!fields.empty() && used() + shortest_bar > columns) {
    fields.erase(std::max_element(fields.begin(), fields.end(),
                                  [](const Field& a, const Field& b) { return a.rank < b.rank; }));
  }
  const int room = columns - used();
  if (room < shortest_bar) return cut_to_width(head + percent.substr(1), std::max(0, columns));
  const auto coloured = [&](std::string_view colour, const std::string& text) {
    return terminal_.colour && !colour.empty() ? fmt::format("{}{}\x1b[0m", colour, text) : text;
  };
  std::string text = head;
  text += coloured("\x1b[34m", blocks(fraction, std::min(room, longest_bar), terminal_.unicode));
  text += percent;
  for (const Field& field : fields) text += "  " + coloured(field.colour, field.text);
  return text;
}

void Progress::line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!options_.quiet) print_line(text);
}

void Progress::warning(std::string_view text) {
  const std::lock_guard lock(mutex_);
  print_line(fmt::format("warning: {}", text));
}

void Progress::print_line(std::string_view text) {
  const std::string stamped = options_.timestamps ? fmt::format("{}  {}", time_stamp(), text) : std::string(text);
  if (!shown_ || finished_) {
    write_(stamped + "\n");
  } else {
    write_(fmt::format("{}{}\n{}", kClearLine, stamped, bar(columns_() - 1)));
  }
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (shown_) write_(fmt::format("{}{}\n", kClearLine, bar(columns_() - 1)));
}

}  // namespace heddle::observe
