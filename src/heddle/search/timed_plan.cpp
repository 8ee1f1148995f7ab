#include "heddle/search/timed_plan.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/plan/layout.h"

namespace heddle::search {

namespace {

// Layers of each stage that the launch names; empty: it leaves them open.
std::vector<int> layers_of(const Launch& launch, int stages) {
  std::vector<int> layers;
  if (launch.layout.empty()) return layers;
  for (const std::string& letters : plan::letters_of_layout(launch.layout, stages))
    layers.push_back(static_cast<int>(std::count(letters.begin(), letters.end(), 't')));
  return layers;
}

TimedSchedule run_of(const Launch& launch, std::shared_ptr<const PreparedSchedule> prepared,
                     const Behaviour& behaviour) {
  const schedule::Placement& placement = prepared->schedule.placement;
  TimedSchedule run;
  Job job = launch.job;
  // A launch without a layout has equal stages.
  job.software.even_stages |= job.mesh.pp > 1 && launch.layout.empty();
  const Keeping alike{job.recompute, job.software.offload_activations};
  run.keeping.assign(static_cast<size_t>(placement.stages), alike);
  std::vector<int> layers = layers_of(launch, placement.stages);
  if (!launch.by_stage.empty() && launch.by_stage.size() != run.keeping.size())
    config_error("what {} stages keep, of a schedule of {}", launch.by_stage.size(), run.keeping.size());
  for (size_t s = 0; s < launch.by_stage.size(); ++s) {
    run.keeping[s] = {launch.by_stage[s].recompute, launch.by_stage[s].offload};
    if (launch.layout.empty()) layers.push_back(launch.by_stage[s].layers);
  }
  run.staged = layers.empty() ? stage_job(job, behaviour, placement)
                              : stage_job(job, behaviour, placement, run.keeping, layers);
  run.timing = schedule::timing_of(prepared->schedule, run.staged.times, prepared->links, prepared->order);
  run.peaks = schedule::peaks_of(prepared->schedule, run.staged.stage_bytes);
  run.prepared = std::move(prepared);
  return run;
}

}  // namespace

Exact closed_step(const Estimate& estimate) {
  Exact e;
  e.step_s = estimate.step_s;
  e.time = estimate.time;
  e.exposed_s = e.time.communication();
  e.peak_bytes = estimate.peak_bytes;
  e.host_bytes = estimate.host_bytes;
  e.rank_peak_bytes = {estimate.peak_bytes};
  return e;
}

std::shared_ptr<const PreparedSchedule> PlanTimer::prepared(const Job& job) {
  std::shared_ptr<const PreparedSchedule>& made = made_[PreparedSchedule::key(job)];
  if (!made) made = std::make_shared<const PreparedSchedule>(job);
  return made;
}

TimedPlan PlanTimer::timed(const Launch& launch) {
  TimedPlan plan{launch, {}, {}, {}};
  const Job& job = launch.job;
  const Estimate closed = estimate(job, behaviour_);
  if (!closed.reason.empty()) config_error("the job can't be: {}", closed.reason);
  try {
    if (const std::string_view misfit = misfit_of(job); !misfit.empty()) config_error("{}", misfit);
    plan.run = run_of(launch, prepared(job), behaviour_);
  } catch (const ConfigError& error) {
    plan.untimed = error.what();
    plan.exact = closed_step(closed);
    return plan;
  }
  plan.exact =
      exact_of(job, behaviour_, plan.run->prepared->schedule, plan.run->staged, plan.run->timing, plan.run->peaks);
  const std::vector<double>& peaks = plan.exact.rank_peak_bytes;
  plan.run->fullest_rank = static_cast<int>(std::max_element(peaks.begin(), peaks.end()) - peaks.begin());
  return plan;
}

Exact PlanTimer::elsewhere(const TimedPlan& plan, const Job& job) const {
  if (!plan.run) return closed_step(estimate(job, behaviour_));
  const TimedSchedule& run = *plan.run;
  return exact_of(job, behaviour_, *run.prepared,
                  stage_job(job, behaviour_, run.prepared->schedule.placement, run.keeping, run.staged.layers));
}

}  // namespace heddle::search
