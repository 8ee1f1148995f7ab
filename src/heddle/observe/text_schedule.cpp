#include "heddle/observe/text_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "heddle/observe/charts/svg_axis.h"
#include "heddle/schedule/text.h"

namespace heddle::observe {

namespace {

using schedule::Action;
using schedule::Compute;
using schedule::Interval;
using schedule::Kind;

constexpr int kMostTextRanks = 64;

// Background colours among the 256 of terminals, by kind (F I W B) and chunk.
constexpr std::array<std::array<int, 4>, 4> kBackground = {
    {{25, 32, 68, 74}, {28, 35, 71, 108}, {151, 157, 194, 193}, {30, 37, 73, 109}}};

// One computation on the time axis.
struct Block {
  Compute what;
  double start, end;
};

std::vector<Block> blocks_of(const std::vector<Action>& list, const std::vector<Interval>& times) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto [start, end] = times[i];
    const double middle = list[i].with ? (start + end) / 2 : end;
    blocks.push_back({list[i].first, start, middle});
    if (list[i].with) blocks.push_back({*list[i].with, middle, end});
  }
  return blocks;
}

class TextLane {
 public:
  TextLane(int columns, const Terminal& terminal, const schedule::ActionNames& name)
      : cells_(static_cast<size_t>(columns), Cell{' ', -1, false}), terminal_(terminal), name_(name) {}

  void draw(const Block& block, double scale) {
    const auto from = std::lround(block.start * scale), to = std::lround(block.end * scale);
    const auto width = static_cast<size_t>(std::max(0L, to - from));
    if (width == 0) return;
    const char letter = letter_of(block.what.kind);
    const std::string full = name_(block.what), number = std::to_string(block.what.microbatch);
    std::string text(1, terminal_.colour ? ' ' : letter);
    for (const std::string& label : {full, letter + number, terminal_.colour ? number : std::string()}) {
      if (label.empty() || label.size() + (terminal_.colour && label != number ? 1 : 0) > width) continue;
      text = label;
      break;
    }
    const int chunk = std::min(name_.chunk_of(block.what.stage), 3);
    const int shade = kBackground[static_cast<size_t>(block.what.kind)][chunk];
    for (size_t i = 0; i < width && static_cast<size_t>(from) + i < cells_.size(); ++i) {
      cells_[static_cast<size_t>(from) + i] = {i < text.size() ? text[i] : '\0', shade, block.what.kind == Kind::W};
    }
  }

  std::string text() const {
    std::string line;
    int shade = -1;
    for (const Cell& cell : cells_) {
      if (terminal_.colour && cell.shade != shade) {
        shade = cell.shade;
        line += shade < 0 ? "\x1b[0m" : fmt::format("\x1b[48;5;{};38;5;{}m", shade, cell.dark_text ? 16 : 231);
      }
      if (cell.letter != '\0') {
        line += cell.letter;
      } else {
        line += terminal_.colour ? " " : terminal_.unicode ? "─" : "-";
      }
    }
    if (shade >= 0) line += "\x1b[0m";
    while (line.ends_with(' ')) line.pop_back();
    return line;
  }

 private:
  struct Cell {
    char letter;  // 0: the rest of an action
    int shade;
    bool dark_text;
  };
  std::vector<Cell> cells_;
  const Terminal& terminal_;
  const schedule::ActionNames& name_;
};

std::string time_axis(double makespan, int columns, double scale, int margin, bool unicode) {
  std::string line(static_cast<size_t>(margin), ' '), labels(static_cast<size_t>(columns), ' ');
  line += unicode ? "└" : "+";
  const Axis axis = make_axis({0, makespan, AxisScale::linear, AxisUnit::plain, columns / 14, false, true});
  size_t free_from = 0;
  for (const Tick& tick : axis.ticks) {
    const auto at = static_cast<size_t>(std::max(0L, std::lround(tick.value * scale)));
    if (at < free_from || at + tick.label.size() > labels.size()) continue;
    labels.replace(at, tick.label.size(), tick.label);
    free_from = at + tick.label.size() + 2;
  }
  for (int i = 0; i < columns; ++i) line += unicode ? "─" : "-";
  labels.erase(labels.find_last_not_of(' ') + 1);
  return fmt::format("{}\n{:{}}{}\n", line, "", margin + 1, labels);
}

}  // namespace

std::string text_schedule(const schedule::Schedule& s, const schedule::Timing& timing, int columns,
                          const Terminal& terminal) {
  const int ranks = std::min(s.placement.ranks, kMostTextRanks);
  const int margin = static_cast<int>(std::to_string(ranks - 1).size()) + 3;
  const int most = std::max(columns, 40) - margin - 1;
  // Natural: the shortest action has room for its name.
  const schedule::ActionNames name(s.placement);
  double shortest = std::numeric_limits<double>::infinity();
  size_t longest_name = 0;
  std::vector<std::vector<Block>> blocks;
  for (int r = 0; r < ranks; ++r) {
    const auto at = static_cast<size_t>(r);
    for (const Block& block : blocks.emplace_back(blocks_of(s.order[at], timing.of[at]))) {
      if (block.end > block.start) shortest = std::min(shortest, block.end - block.start);
      longest_name = std::max(longest_name, name(block.what).size());
    }
  }
  if (timing.makespan <= 0 || !std::isfinite(shortest)) return "nothing takes time\n";
  const double natural = static_cast<double>(longest_name + 1) / shortest;
  const double scale = std::min(natural, most / timing.makespan);
  const int width = std::min(most, static_cast<int>(std::ceil(timing.makespan * scale)));

  std::string text;
  for (int r = 0; r < ranks; ++r) {
    TextLane lane(width, terminal, name);
    for (const Block& block : blocks[r]) lane.draw(block, scale);
    text += fmt::format("{:>{}} {}{}\n", r, margin - 1, terminal.unicode ? "│" : "|", lane.text());
  }
  text += time_axis(timing.makespan, width, scale, margin, terminal.unicode);
  if (s.placement.ranks > ranks) text += fmt::format("and {} ranks more\n", s.placement.ranks - ranks);
  return text;
}

}  // namespace heddle::observe
