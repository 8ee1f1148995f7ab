#include "heddle/observe/plans/plan_charts.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/observe/charts/schedule_timeline.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

/// Bytes of a rank's activations from each moment on; the highest is the rank's peak of the schedule.
struct Activations {
  std::vector<double> at_us, bytes;
};

// Activations as schedule::peaks_of counts them: a forward's from its start on, a backward's until its end. Where
// actions meet, the one that ends goes first.
Activations activations_of(const search::TimedSchedule& run, int rank, double unit_us) {
  const schedule::Schedule& s = run.prepared->schedule;
  const auto r = static_cast<size_t>(rank);
  Activations a{{0}, {0}};
  double held = 0;
  const auto step_to = [&](double at_us) {
    if (at_us > a.at_us.back()) a.at_us.push_back(at_us), a.bytes.push_back(held);
    a.bytes.back() = held;
  };
  for (size_t i = 0; i < s.order[r].size(); ++i) {
    const schedule::Interval& at = run.timing.of[r][i];
    double freed = 0;
    for (const schedule::Compute& c : s.order[r][i].computes()) {
      const schedule::StageBytes& bytes = run.staged.stage_bytes[static_cast<size_t>(c.stage % s.placement.stages)];
      using schedule::Kind;
      if (c.kind == Kind::F) held += bytes.until_input_grad + bytes.until_weight_grad;
      if (c.kind == Kind::I || c.kind == Kind::B) freed += bytes.until_input_grad;
      if (c.kind == Kind::W || c.kind == Kind::B) freed += bytes.until_weight_grad;
    }
    step_to(at.start * unit_us);
    held = std::max(0.0, held - freed);
    step_to(at.end * unit_us);
  }
  return a;
}

}  // namespace

std::string pipeline_figure(const search::TimedPlan& plan, double scale) {
  if (!plan.run) return "";
  const search::TimedSchedule& run = *plan.run;
  const double unit_us = 1e6 * scale;
  const Timeline timeline = schedule_timeline(run.prepared->schedule, run.timing, unit_us);
  Lanes lanes_of_ranks;
  lanes_of_ranks.title = fmt::format("The pipeline: {}, {} microbatches", run.prepared->schedule.name,
                                     run.prepared->schedule.microbatches);
  lanes_of_ranks.note =
      fmt::format("{}, then gradients, optimizer and jitter until {}", duration_text(run.timing.makespan * scale),
                  duration_text(plan.exact.step_s * scale));
  lanes_of_ranks.timeline = &timeline;
  lanes_of_ranks.kind_word = "chunk";
  lanes_of_ranks.until_us = plan.exact.step_s * unit_us;
  return lanes(lanes_of_ranks);
}

std::string memory_figure(const search::TimedPlan& plan, double scale, double memory_bytes) {
  if (!plan.run) return "";
  const search::TimedSchedule& run = *plan.run;
  const auto rank = static_cast<size_t>(run.fullest_rank);
  Activations a = activations_of(run, run.fullest_rank, 1e6 * scale);
  a.at_us.push_back(plan.exact.step_s * 1e6 * scale);
  a.bytes.push_back(0);
  StackedArea chart;
  chart.title = fmt::format("Memory of rank {}, the fullest, over the step", run.fullest_rank);
  chart.x_label = "time in step";
  chart.x = a.at_us;
  const auto flat = [&](double bytes) { return std::vector<double>(a.at_us.size(), bytes); };
  const double fixed = run.staged.fixed_bytes[rank], working = run.staged.working_bytes[rank];
  chart.layers = {{"weights, gradients, states", {}, flat(fixed), 0},
                  {"head and work space", {}, flat(working), 4}};
  // Memory reserved beside live tensors belongs to the peak.
  const double beside = plan.exact.rank_peak_bytes[rank] - fixed - working - run.peaks[rank].bytes;
  if (beside > 1) chart.layers.push_back({"reserved beside", {}, flat(beside), 7});
  chart.layers.push_back({"activations", {}, a.bytes, 1});
  chart.levels = {{"a plan may use", memory_bytes}};
  return stacked_area(chart);
}

}  // namespace heddle::observe
