#include "heddle/observe/plan_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "heddle/observe/charts/svg_schedule.h"
#include "heddle/plan/layout.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/search/block_work.h"

namespace heddle::observe {

namespace {

void add(schedule::StageTimes& to, const schedule::StageTimes& t, double count) {
  to.forward += count * t.forward;
  to.input_grad += count * t.input_grad;
  to.weight_grad += count * t.weight_grad;
}

std::vector<int> stages_of(const search::Launch& launch, int stages) {
  if (!launch.layout.empty()) {
    std::vector<int> layers;
    for (const std::string& letters : plan::letters_of_layout(launch.layout, stages))
      layers.push_back(static_cast<int>(std::count(letters.begin(), letters.end(), 't')));
    return layers;
  }
  search::Job job = launch.job;
  if (search::pipeline_of(job)->chunks() == 0) job.layout.vpp = stages / job.layout.pp;
  return search::layers_of_stages(job);
}

}  // namespace

PlanPicture picture_of(const search::Launch& launch) {
  const search::Job& j = launch.job;
  const model::Shape& s = j.shape;
  const search::Behaviour behaviour;
  PlanPicture p;
  p.of_microbatches = static_cast<int>(std::min(1e6, search::microbatches(j)));
  schedule::GeneratorOptions options;
  options.ranks = j.layout.pp;
  options.chunks = j.layout.vpp > 1 ? j.layout.vpp : 0;
  // Enough to fill the pipeline and show it steady; whole groups, as interleaved schedules take them.
  const int shown = 4 * j.layout.pp * std::max(1, std::min(2, 16 / j.layout.pp));
  options.microbatches = p.microbatches = std::min(p.of_microbatches, shown);
  p.schedule = schedule::make_schedule(launch.schedule, options);
  const schedule::Placement& placement = p.schedule.placement;

  const model::Parameters parameters = model::parameters_of(s);
  const search::Layers of = search::layers_of(j, search::prices_of(j, parameters, behaviour), behaviour);
  const schedule::StageTimes layer{of.forward_s, of.layer_s - of.forward_s - of.weight_s, of.weight_s, 0};
  // The head's backward is twice its forward, half of it for the weights.
  const schedule::StageTimes head{of.head_s / 3, of.head_s / 3, of.head_s / 3, 0};

  schedule::Times times;
  std::vector<int> count = stages_of(launch, placement.stages);
  for (int stage = 0; stage < placement.stages; ++stage) {
    schedule::StageTimes t{0, 0, 0, 0};
    add(t, layer, count[static_cast<size_t>(stage)]);
    if (stage + 1 == placement.stages) add(t, head, 1);
    times.stages.push_back(t);
  }
  p.timing = schedule::timing_of(p.schedule, times);

  // Activations: from the start of F to the end of the last gradient that reads them.
  const model::SavedBytes& kept = of.kept;
  const double tokens = j.microbatch * j.sequence / j.layout.cp;
  const double layer_bytes =
      tokens *
      (kept.attention * static_cast<double>(s.attention_blocks()) +
       kept.dense * static_cast<double>(s.dense_blocks()) + kept.moe * static_cast<double>(s.moe_blocks()) +
       kept.mamba * static_cast<double>(s.mamba_blocks())) /
      static_cast<double>(s.layers);
  double highest = -1;
  for (size_t r = 0; r < p.schedule.order.size(); ++r) {
    std::map<double, double> change;
    const auto mark = [&](const schedule::Compute& c, const schedule::Interval& at) {
      const double bytes = layer_bytes * count[static_cast<size_t>(c.stage % placement.stages)];
      if (c.kind == schedule::Kind::F) change[at.start * 1e6] += bytes;
      if (c.kind == schedule::Kind::B || c.kind == schedule::Kind::W) change[at.end * 1e6] -= bytes;
    };
    for (size_t a = 0; a < p.schedule.order[r].size(); ++a) {
      mark(p.schedule.order[r][a].first, p.timing.of[r][a]);
      if (p.schedule.order[r][a].with) mark(*p.schedule.order[r][a].with, p.timing.of[r][a]);
    }
    std::vector<double> at{0}, bytes{0};
    for (const auto& [when, by] : change) {
      if (when > at.back()) at.push_back(when), bytes.push_back(bytes.back());
      bytes.back() = std::max(0.0, bytes.back() + by);
    }
    const double top = *std::max_element(bytes.begin(), bytes.end());
    if (top <= highest) continue;
    highest = top;
    p.rank = static_cast<int>(r);
    p.at_us = std::move(at);
    p.activation_bytes = std::move(bytes);
  }
  p.fixed_bytes = search::estimate(j).static_bytes;
  return p;
}

std::string svg_of(const PlanPicture& p) {
  const std::string part = p.microbatches < p.of_microbatches
                               ? fmt::format("the first {} of {} microbatches", p.microbatches, p.of_microbatches)
                               : fmt::format("{} microbatches", p.microbatches);
  return svg_schedule(p.schedule, p.timing, part, "seconds");
}

}  // namespace heddle::observe
