#include "heddle/search/plans/search_task.h"

#include <algorithm>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/search/plans/context.h"
#include "heddle/search/plans/replicas.h"

namespace heddle::search {

namespace {

constexpr double kUsable = 0.92;
// The estimate's memory is the fullest rank's by closed form; exact peaks may be a little lower.
constexpr double kMemorySlack = 1.05;
// Heddle's layers are lowered for all plans where that makes at most so many texts. Else closed forms choose the
// short list, with more room for what they know less of, and its plans alone are priced by lowering.
constexpr size_t kMostTexts = 2000;
constexpr double kUnloweredSlack = 1.25;

// Copies are Heddle's alone, and only where routing is uneven is there anything to choose.
std::vector<int> replicas_to_try(const Space& space) {
  const Job& job = space.job;
  std::vector<int> all;
  for (const std::string& word : space.restriction.replicas) all.push_back(replicas_of(word).value());
  const bool heddle = job.software.lowered != nullptr;
  if (!heddle && std::any_of(all.begin(), all.end(), [](int n) { return n != 0; }))
    config_error("search: replicas of hot experts are a choice of Heddle's alone: --heddle or --emit heddle");
  if (!all.empty()) return all;
  const bool several = heddle && job.shape.moe_blocks() > 0 && job.exchange.capacity_factor == 0;
  if (several && job.exchange.replicas == 0) return {0, model::Dispatcher::kReplicasByCost};
  return {job.exchange.replicas};
}

// Bytes of a parameter.
double left_on_device(const PricedResidency& r, const Job& job) {
  return (r.weights.empty() ? 2 : 0) + (r.gradients.empty() ? job.software.gradient_bytes : 0) - r.away_bytes;
}

}  // namespace

bool before(const Candidate& a, const Candidate& b) {
  return std::tuple(a.best.step_s, a.family, a.serial) < std::tuple(b.best.step_s, b.family, b.serial);
}

bool Task::lowers_all() const { return families.size() * recompute.size() <= kMostTexts; }

double Task::most_bytes() const {
  return memory_bytes * (lowered() != nullptr && !lowers_all() ? kUnloweredSlack : kMemorySlack);
}

double Task::most_exact_bytes() const { return memory_bytes * kMemorySlack; }

void Task::set_routing(Job& job, double quantile) const {
  const Routing& routing = query.space.routing;
  const int64_t experts = job.shape.moe_blocks() > 0 ? job.shape.n_routed_experts : 0;
  job.imbalance = routing.fullest(quantile, experts, job.mesh.ep);
  job.memory_imbalance = routing.fullest(0.99, experts, job.mesh.ep);
}

Task task_of(const Query& query) {
  const Space& space = query.space;
  if (space.devices < 1 || space.devices > 1 << 20)
    config_error("search: {} devices, accepted 1 to {}", space.devices, 1 << 20);
  if (space.job.global_batch < 1 || space.job.global_batch > 1 << 24)
    config_error("search: a global batch of {}, accepted 1 to {}", space.job.global_batch, 1 << 24);
  if (!(space.job.sequence >= 1 && space.job.sequence <= 1e8))
    config_error("search: a sequence of {}, accepted 1 to 100000000", space.job.sequence);
  if (space.job.device.name.empty()) config_error("search: no device");
  if (const std::string wrong = model::check_shape(space.job.shape); !wrong.empty())
    config_error("search: the model's {}", wrong);
  if (query.top < 1 || query.short_list < query.top)
    config_error("search: top {} of {} timed exactly, accepted from 1 on", query.top, query.short_list);
  Task task{query,
            families(space),
            recompute_choices(space.job.shape),
            {},
            {space.job.residency},
            {space.job.sharding},
            {},
            model::parameters_of(space.job.shape)};
  const Restriction& only = space.restriction;
  task.replicas = replicas_to_try(space);
  if (!only.recompute.empty())
    std::erase_if(task.recompute, [&](const RecomputeChoice& c) {
      return std::find(only.recompute.begin(), only.recompute.end(), c.name) == only.recompute.end();
    });
  if (only.residencies && space.job.software.lowered != nullptr) {
    task.residencies = worth_trying(space.job.software.lowered->residencies(space.job), only.residency);
    if (task.residencies.empty()) config_error("search: the restriction leaves no place for weights and states");
    for (size_t h = 0; h < task.residencies.size(); ++h)
      if (left_on_device(task.residencies[h], space.job) <
          left_on_device(task.residencies[task.lightest], space.job))
        task.lightest = h;
  } else if (!only.residency.unrestricted()) {
    config_error("search: where weights and states lie is a choice of Heddle's alone: --heddle or --emit heddle");
  }
  if (only.shardings && space.job.software.lowered != nullptr) {
    task.shardings = shardings_to_try(space.job, space.devices, only.sharding);
  } else if (!only.sharding.unrestricted()) {
    config_error("search: parallel.shard is a choice of Heddle's alone: --heddle or --emit heddle");
  }
  if (task.recompute.empty())
    config_error("search: no recompute of {} suits {}", fmt::join(only.recompute, ", "), space.job.shape.name);
  for (const bool offload : {false, true})
    if (only.offload.empty() ||
        std::find(only.offload.begin(), only.offload.end(), offload ? 1 : 0) != only.offload.end())
      task.offload.push_back(offload);
  task.memory_bytes = query.memory_bytes > 0 ? query.memory_bytes : usable_bytes(space.job.device);
  return task;
}

std::string misfit_text(const Task& task, const Candidate& plan) {
  const Family& f = task.families[plan.family];
  const std::string home = text_of(task.residencies[plan.best.residency]),
                    sharding = text_of(task.shardings[plan.best.sharding]);
  return fmt::format(
      "{} with tp {} cp {} pp {} ep {} etp {}, microbatch {}, recomputing {}{}{}, needs {:.1f} GiB of {:.1f}",
      plan.pipeline->name(), f.tp, f.cp, plan.pp, f.ep, f.etp, f.microbatch,
      task.recompute[static_cast<size_t>(plan.best.recompute)].name, home.empty() ? "" : ", " + home,
      sharding.empty() ? "" : ", " + sharding, plan.best.peak_bytes / (1 << 30), task.memory_bytes / (1 << 30));
}

Job job_of(const Task& task, const Candidate& plan) {
  Job j = task.query.space.job;
  const Family& f = task.families[plan.family];
  plan::Degrees& l = j.mesh;
  l.tp = f.tp, l.cp = f.cp, l.dp = plan.dp, l.pp = plan.pp, l.ep = f.ep, l.etp = f.etp;
  j.chunks = plan.chunks;
  j.microbatch = f.microbatch;
  j.exchange.replicas = plan.best.replicas;
  j.pipeline = plan.pipeline;
  j.software.overlap_exchange = plan.pipeline->pairs();
  j.software.even_stages = task.query.space.restriction.even();
  task.set_routing(j, 0.5);
  choose_context(j, task.query.space.job, task.query.behaviour, task.query.space.restriction.context);
  return j;
}

double usable_bytes(const cost::Accelerator& device) { return kUsable * device.memory_bytes; }

}  // namespace heddle::search
