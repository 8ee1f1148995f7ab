#include "advisor/answer/launch_figures.h"

#include <algorithm>

#include "heddle/search/space.h"

namespace heddle::advisor {

std::string keeping_of(const search::Launch& launch) {
  if (!launch.by_stage.empty()) return "by stage";
  const std::vector<search::RecomputeChoice> all = search::recompute_choices(launch.job.shape);
  const auto found = std::find_if(all.begin(), all.end(), [&](const search::RecomputeChoice& c) {
    return c.recompute == launch.job.recompute;
  });
  return (found != all.end() ? found->name : "a mixture") +
         (launch.job.software.offload_activations ? "+offload" : "");
}

void put_figures(const search::Explanation& x, PlanAnswer& a) {
  const search::Job& job = x.launch.job;
  const model::Shape& shape = job.shape;
  a.found = true;
  a.model = shape.name.empty() ? "model" : shape.name;
  a.device = job.device.name;
  a.devices = job.mesh.ranks();
  a.global_batch = job.global_batch;
  a.sequence = static_cast<int64_t>(job.sequence);
  a.microbatch = job.microbatch;
  a.precision = cost::name_of(job.precision);
  a.layout = search::layout_line(job);
  a.schedule = x.launch.schedule;
  a.stages = x.launch.layout;
  a.keeping = keeping_of(x.launch);
  a.parameters = model::total_parameters(shape);
  a.active_parameters = model::active_parameters(shape);
  a.flops_per_token = model::training_flops_per_token(shape, job.sequence, job.with_mtp);
  const double step_s = x.plan.exact.step_s, tokens = job.global_batch * job.sequence;
  a.step_s = {x.step_s(), step_s * x.scale.low, step_s * x.scale.high};
  a.tokens_per_s = {tokens / a.step_s.value, tokens / a.step_s.high, tokens / a.step_s.low};
  a.interval_from = "80 % of unseen jobs; from " + x.scale.from;
  a.model_flops_utilization = search::model_flops_utilization(job, x.step_s());
  a.bound_by = x.binding;
  a.bound_why = x.binding_why;
  a.memory_bytes = x.memory_bytes;
  a.peak_bytes = x.peak_bytes();
  a.fits = x.fits;
  const std::vector<double>& peaks = x.plan.exact.rank_peak_bytes;
  for (size_t r = 0; r < peaks.size(); ++r)
    a.ranks.push_back({static_cast<int>(r), a.devices / std::max<int64_t>(1, std::ssize(peaks)), peaks[r],
                       peaks[r] <= x.memory_bytes});
  for (const search::MemoryPart& part : x.memory) a.memory.push_back({part.name, part.bytes});
  if (!x.plan.untimed.empty()) a.notes.push_back("by closed forms, no schedule was run: " + x.plan.untimed);
}

}  // namespace heddle::advisor
