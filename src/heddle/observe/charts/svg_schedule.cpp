#include "heddle/observe/charts/svg_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "heddle/observe/assets/assets.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/svg_axis.h"
#include "heddle/schedule/text.h"

namespace heddle::observe {

namespace {

using schedule::Action;
using schedule::Compute;
using schedule::Interval;
using schedule::Kind;

constexpr double kLeft = 64, kRight = 28, kTop = 112, kBelow = 52;
constexpr double kLeastWidth = 960, kMostWidth = 3600;
constexpr double kNarrow = 2.5;  // actions of fewer pixels are joined with their like
constexpr int kMostDrawnRanks = 256, kDrawnShades = 4;

struct Box {
  double x, width, y, height;
};

// All boxes of one colour as one path.
using Paths = std::map<std::pair<Kind, int>, std::string>;

class Drawing {
 public:
  Drawing(const schedule::Schedule& s, const schedule::Timing& timing)
      : schedule_(s), timing_(timing), name_(s.placement), ranks_(std::min(s.placement.ranks, kMostDrawnRanks)) {
    double shortest = timing.makespan;
    for (int r = 0; r < ranks_; ++r) {
      for (const Interval& i : timing.of[r]) {
        if (i.end > i.start) shortest = std::min(shortest, i.end - i.start);
      }
    }
    const double natural = timing.makespan > 0 ? 16 * timing.makespan / shortest : 0;
    plot_width_ = std::clamp(natural, kLeastWidth, kMostWidth);
    scale_ = timing.makespan > 0 ? plot_width_ / timing.makespan : 0;
    pitch_ = ranks_ <= 32 ? 30 : 16;
    bar_ = pitch_ - (ranks_ <= 32 ? 6 : 3);
  }

  std::string text(const std::string& subtitle, const std::string& time_label) {
    const double width = kLeft + plot_width_ + kRight, bottom = kTop + ranks_ * pitch_, height = bottom + kBelow;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n<style>{3}</style>\n<rect class=\"page\" width=\"100%\" "
        "height=\"100%\"/>\n",
        width, height, escape_html(schedule_.name), kScheduleStyle);
    text += fmt::format("<text class=\"title\" x=\"{}\" y=\"36\">{}</text>\n<text x=\"{}\" y=\"57\">{}</text>\n",
                        kLeft, escape_html(schedule_.name), kLeft, escape_html(subtitle));
    for (int r = 0; r < ranks_; ++r) draw_rank(r);
    text += legend();
    for (int r = 0; r < ranks_; ++r) {
      text += fmt::format("<rect class=\"lane\" x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>", kLeft,
                          top_of(r), plot_width_, bar_);
    }
    text += axis(bottom, time_label);
    for (const auto& [colour, path] : paths_) {
      text += fmt::format("<path class=\"{}{}\" d=\"{}\"/>\n", letter_of(colour.first), colour.second, path);
    }
    text += numbers_;
    const int every = ranks_ <= 32 ? 1 : 8;
    for (int r = 0; r < ranks_; r += every) {
      text += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}{}</text>\n", kLeft - 10,
                          top_of(r) + bar_ / 2 + 4, r == 0 ? "rank " : "", r);
    }
    if (schedule_.placement.ranks > ranks_) {
      text += fmt::format("<text x=\"{}\" y=\"{:.1f}\">the first {} of {} ranks</text>\n", kLeft, bottom + 44,
                          ranks_, schedule_.placement.ranks);
    }
    return text + "</svg>\n";
  }

 private:
  double top_of(int rank) const { return kTop + rank * pitch_ + (pitch_ - bar_) / 2; }
  int shade_of(const Compute& c) const {
    const auto stages = static_cast<int>(schedule_.placement.rank_of.size());
    const int chunks = std::max(kDrawnShades, (stages + schedule_.placement.ranks - 1) / schedule_.placement.ranks);
    return std::min(name_.chunk_of(c.stage) * kDrawnShades / chunks, kDrawnShades - 1);
  }

  void draw_rank(int r) {
    const auto at = static_cast<size_t>(r);
    const std::vector<Action>& list = schedule_.order[at];
    std::map<std::pair<Kind, int>, Box> open;  // narrow boxes that may go on, by colour
    for (size_t i = 0; i < list.size(); ++i) {
      const Interval& when = timing_.of[at][i];
      const double x = kLeft + when.start * scale_, width = (when.end - when.start) * scale_;
      if (width <= 0) continue;
      const double half = bar_ / 2 - 0.5;
      if (list[i].with) {
        pairs_ = true;
        place(list[i].first, {x, width, top_of(r), half}, open);
        place(*list[i].with, {x, width, top_of(r) + half + 1, half}, open);
      } else {
        place(list[i].first, {x, width, top_of(r), bar_}, open);
      }
    }
    for (const auto& [colour, box] : open) add(colour, box);
  }

  void place(const Compute& c, const Box& box, std::map<std::pair<Kind, int>, Box>& open) {
    const std::pair<Kind, int> colour{c.kind, shade_of(c)};
    if (box.width >= kNarrow) {
      add(colour, box);
      const std::string number = std::to_string(c.microbatch);
      if (box.width < 6.5 * static_cast<double>(number.size()) + 3 || box.height < 10) return;
      numbers_ += fmt::format("<text class=\"number{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                              c.kind == Kind::W ? " on-light" : "", box.x + box.width / 2,
                              box.y + box.height / 2 + 3.7, number);
      return;
    }
    joined_ = true;  // forwards above the rest, so that neither hides the other
    Box narrow = box;
    if (box.height > bar_ / 2) {
      narrow.height = bar_ / 2;
      if (c.kind != Kind::F) narrow.y += bar_ / 2;
    }
    const auto [at, fresh] = open.try_emplace(colour, narrow);
    if (fresh) return;
    Box& last = at->second;
    if (narrow.x - (last.x + last.width) < 1 && narrow.y == last.y && narrow.height == last.height) {
      last.width = narrow.x + narrow.width - last.x;
    } else {
      add(colour, last);
      last = narrow;
    }
  }

  void add(const std::pair<Kind, int>& colour, const Box& box) {
    const double gap = box.width >= 6 ? 1 : 0, width = std::max(0.3, box.width - gap);
    const double round = std::min({3.0, width / 3, box.height / 3});
    std::string& path = paths_[colour];
    if (gap == 0) {
      path += fmt::format("M{:.2f} {:.1f}h{:.2f}v{:.1f}h{:.2f}z", box.x, box.y, width, box.height, -width);
      return;
    }
    const double across = width - 2 * round, down = box.height - 2 * round;
    path += fmt::format(
        "M{:.2f} {:.1f}h{:.2f}q{r:.1f} 0 {r:.1f} {r:.1f}v{d:.1f}q0 {r:.1f} -{r:.1f} {r:.1f}h-{a:.2f}q-{r:.1f} 0 "
        "-{r:.1f} "
        "-{r:.1f}v-{d:.1f}q0 -{r:.1f} {r:.1f} -{r:.1f}z",
        box.x + round, box.y, across, fmt::arg("r", round), fmt::arg("d", down), fmt::arg("a", across));
  }

  std::string legend() const {
    constexpr std::array<const char*, 4> kWords = {"forward", "input gradient", "weight gradient",
                                                   "backward (both)"};
    std::string text;
    double x = kLeft;
    const double y = 74;
    const auto entry = [&](const std::string& swatch, const std::string& word) {
      text += fmt::format("{}<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", swatch, x + 20, y + 11, word);
      x += 20 + 6.6 * static_cast<double>(word.size()) + 22;
    };
    const auto square = [&](double dx, double dy, double w, double h, Kind kind, int shade) {
      return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2.5\" class=\"{}{}\"/>", x + dx,
                         y + dy, w, h, letter_of(kind), shade);
    };
    int shades = 0;
    for (const Kind kind : {Kind::F, Kind::I, Kind::W, Kind::B}) {
      bool used = false;
      for (const auto& [colour, path] : paths_) {
        if (colour.first != kind) continue;
        used = true;
        shades = std::max(shades, colour.second + 1);
      }
      if (used) entry(square(0, 0, 14, 14, kind, 0), kWords[static_cast<size_t>(kind)]);
    }
    if (pairs_) entry(square(0, 0, 14, 6.5, Kind::F, 0) + square(0, 7.5, 14, 6.5, Kind::B, 0), "fused pair");
    if (joined_) entry("", "too narrow to tell apart: forwards above, the rest below");
    if (shades > 1) {
      std::string swatch;
      for (int i = 0; i < shades; ++i) swatch += square(i * 15, 0, 14, 14, Kind::F, i);
      text += swatch;
      x += 15 * (shades - 1);
      entry("", "chunk by chunk");
    }
    return text;
  }

  std::string axis(double bottom, const std::string& time_label) const {
    const Axis axis = make_axis({0, std::max(timing_.makespan, 1e-9), AxisScale::linear, AxisUnit::plain,
                                 static_cast<int>(plot_width_ / 110), false, true});
    std::string text;
    for (const Tick& tick : axis.ticks) {
      const double x = kLeft + tick.value * scale_;
      text += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.0f}\"/>", x, kTop,
                          bottom);
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", x, bottom + 17,
                          escape_html(tick.label));
    }
    return text + fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
                              kLeft + plot_width_ / 2, bottom + 38, escape_html(time_label));
  }

  const schedule::Schedule& schedule_;
  const schedule::Timing& timing_;
  const schedule::ActionNames name_;
  const int ranks_;
  double plot_width_ = 0, scale_ = 0, pitch_ = 0, bar_ = 0;
  bool pairs_ = false, joined_ = false;
  Paths paths_;
  std::string numbers_;
};

}  // namespace

std::string svg_schedule(const schedule::Schedule& schedule, const schedule::Timing& timing,
                         const std::string& subtitle, const std::string& time_label) {
  return Drawing(schedule, timing).text(subtitle, time_label);
}

}  // namespace heddle::observe
