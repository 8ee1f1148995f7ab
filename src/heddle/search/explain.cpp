#include "heddle/search/explain.h"

#include <algorithm>
#include <functional>

#include "heddle/base/error.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

struct Resource {
  const char* what;
  const char* binds;  // its name where it binds
  std::function<void(Job&, double)> scale;
};

const std::vector<Resource>& resources() {
  static const std::vector<Resource> all{
      {"matrix rate", "matrix products",
       [](Job& j, double f) { j.device.bf16_flops *= f, j.device.fp8_flops *= f, j.device.fp4_flops *= f; }},
      {"memory bandwidth", "the device memory's bandwidth",
       [](Job& j, double f) { j.device.memory_bytes_per_s *= f; }},
      {"links inside the fast domain", "links inside the fast domain",
       [](Job& j, double f) { j.device.inner.bytes_per_s *= f; }},
      {"network between domains", "the network between domains",
       [](Job& j, double f) { j.device.outer.bytes_per_s *= f; }},
      {"host's launch rate", "launches", [](Job& j, double f) { j.device.host_us /= f; }},
  };
  return all;
}

}  // namespace

std::string layout_line(const Job& j) {
  const plan::Degrees& l = j.mesh;
  std::string text = fmt::format("tp {} cp {} dp {} pp {}", l.tp, l.cp, l.dp, l.pp);
  if (j.chunks > 1) text += fmt::format(" vpp {}", j.chunks);
  if (j.shape.n_routed_experts > 0) text += fmt::format(" ep {} etp {}", l.ep, l.etp);
  text += fmt::format(" microbatch {}", j.microbatch);
  if (has_runs(j.context)) text += fmt::format(" context {} in runs of {}", word_of(j.context), j.context_inner);
  if (replica_slots(j) > 0 && l.ep > 1) text += fmt::format(" copies {}", replicas_word(j.exchange.replicas));
  for (const std::string& more : {text_of(j.sharding), text_of(j.residency)})
    if (!more.empty()) text += ", " + more;
  return text;
}

Explanation explain(const Launch& launch, const ExplainRequest& request) {
  Explanation x;
  x.launch = launch;
  const Job& job = launch.job;
  PlanTimer timer(request.behaviour);
  x.plan = timer.timed(launch);
  const Exact& step = x.plan.exact;
  x.memory_bytes = request.memory_bytes > 0 ? request.memory_bytes : job.device.memory_bytes;
  x.fits = fits(step, job, x.memory_bytes);
  if (request.scale) x.scale = request.scale(launch);
  x.parts = parts_of(step.time);

  const auto time_of = [&](const std::function<void(Job&)>& change) {
    Job other = job;
    change(other);
    return timer.elsewhere(x.plan, other).step_s / step.step_s;
  };
  const Resource* binding = nullptr;
  double weight = 0, faster = 1;
  for (const Resource& r : resources()) {
    Sensitivity s{r.what, time_of([&](Job& j) { r.scale(j, 0.8); }), time_of([&](Job& j) { r.scale(j, 1.2); })};
    if (s.weight() > weight) binding = &r, weight = s.weight(), faster = s.more;
    x.sensitivities.push_back(std::move(s));
  }
  if (job.shape.n_routed_experts > 0 && job.exchange.capacity_factor == 0) {
    Sensitivity s{fmt::format("imbalance of experts ({:.2f} of the mean)", job.imbalance),
                  time_of([](Job& j) { j.imbalance = std::max(1.0, 0.8 * j.imbalance); }),
                  time_of([](Job& j) { j.imbalance *= 1.2; })};
    x.sensitivities.push_back(std::move(s));
  }
  const double bubble = step.time.bubble / step.step_s;
  x.binding = binding != nullptr ? binding->binds : "nothing";
  x.binding_why = fmt::format("with a fifth more of it the step would be {:.1f} % shorter", 100 * (1 - faster));
  // The bubble is made of what the others work at: it binds where it is more than the rest of theirs.
  if (bubble > weight * (1 - bubble)) {
    x.binding = "the pipeline's bubble";
    x.binding_why = fmt::format("{:.0f} % of the step, {:.0f} microbatches on {} ranks", 100 * bubble,
                                microbatches(job), job.mesh.pp);
  }

  x.memory = memory_parts(x.plan, timer.behaviour());
  x.remedies = remedies_of(launch, step, x.memory_bytes, timer);
  x.neighbours = neighbours_of(x.plan, x.memory_bytes, timer, request.routing);
  // Memory binds where more of it would let a faster plan in.
  const Neighbour* barred = nullptr;
  for (const Neighbour& n : x.neighbours)
    if (n.reason.empty() && !n.fits && n.ratio < 1 && (barred == nullptr || n.ratio < barred->ratio)) barred = &n;
  if (!x.fits) {
    x.binding = "memory";
    x.binding_why = fmt::format("{:.1f} GiB of {:.1f}; {} take most", step.peak_bytes / kGiB, x.memory_bytes / kGiB,
                                x.memory.front().name);
  } else if (barred != nullptr && barred->ratio < 0.99) {
    x.binding_why +=
        fmt::format("; memory too: {} would take {:.1f} % less time and lacks {:.1f} GiB", barred->change,
                    100 * (1 - barred->ratio), (barred->exact.peak_bytes - x.memory_bytes) / kGiB);
  }
  return x;
}

}  // namespace heddle::search
