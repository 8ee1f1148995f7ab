#include "heddle/planner/simulated_plans.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <set>
#include <span>

#include "heddle/base/error.h"
#include "heddle/base/parallel.h"
#include "heddle/cost/op_seconds.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/planner/fitting_plans.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/runtime/step_prediction.h"
#include "heddle/search/plans/context.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

// The job on a single rank, which any model can be cut to.
search::Launch on_one_rank(search::Job job) {
  job.mesh = {};
  job.chunks = 1;
  job.microbatch = job.global_batch = 1;
  job.pipeline = nullptr;
  return search::launch_of(job);
}

plan::Plan trained_plan(const config::RunConfig& config) {
  plan::Plan plan = train::plan_of(config);
  plan.evaluates = plan.predicts = false;
  plan.packed_bytes = nullptr;  // the described device reads rows
  return plan;
}

// The accelerator as a machine that was measured: each op of the program as long as its description says. Messages
// have two sizes, between which and beyond they are linear.
cost::MachineProfile profile_of(const search::Job& job, const search::Behaviour& b, const plan::Lowered& lowered) {
  const cost::Accelerator& device = job.device;
  cost::MachineProfile p;
  p.machine = device.name;
  p.bf16_flops_per_s = p.f32_flops_per_s = p.f64_flops_per_s = device.flops(job.precision);
  p.copy_bytes_per_s = device.memory_bytes_per_s;
  p.enqueue_us = device.host_us * b.host_scale * job.software.launch_factor * (1 - job.software.captured);
  std::set<cost::OpShape> known;  // layers are alike
  for (const ir::Listing& listing : lowered.program.listings) {
    const ir::FixedRows rows(plan::balanced_rows(listing));
    for (const ir::Op& op : listing.ops) {
      if (op.def->stream != ir::StreamKind::compute) continue;
      cost::OpShape shape = cost::shape_of(listing, op, rows);
      if (!known.insert(shape).second) continue;
      const double us = 1e6 * cost::op_s(device, job.precision, listing, op, rows);
      p.ops.add({std::move(shape), 1, 0, std::max(1e-3, us)});
    }
  }
  const auto link = [&](cost::Link over, double bytes_per_s, double latency_us) {
    for (const double bytes : {1e3, 1e9})
      p.links.push_back({over, 2, bytes, latency_us + 1e6 * bytes / bytes_per_s});
  };
  link(cost::Link::node, device.inner.bytes_per_s * b.net.inner, device.inner.latency_us);
  // A node's link: all of its devices' cards together.
  link(cost::Link::nodes, device.outer.bytes_per_s * b.net.outer * std::max(1, device.inner.ranks),
       device.outer.latency_us);
  return p;
}

// Nothing becomes of a plan that Heddle can't run, or of more ops or streams than the simulator holds.
void simulate_plan(search::Ranked& plan, const search::Behaviour& behaviour) {
  const search::Launch launch = search::launch_of(plan);
  if (!search::impossible(launch).empty() || !refusals_of_training(launch).empty()) return;
  try {
    plan.simulated_step_s = simulated_step_s(launch, behaviour);
  } catch (const Error&) {
  }
}

// Simulates those that are not yet, two at a time: a large program takes gigabytes.
void simulate_plans(std::span<search::Ranked> plans, const search::Behaviour& behaviour) {
  std::atomic<size_t> next{0};
  on_threads(2, [&](int) {
    for (size_t i = next++; i < plans.size(); i = next++)
      if (plans[i].simulated_step_s == 0) simulate_plan(plans[i], behaviour);
  });
}

// Plans without a simulated step come after those that have one.
bool is_shorter(const search::Ranked& a, const search::Ranked& b) {
  const auto key = [](const search::Ranked& r) {
    return r.simulated_step_s > 0 ? r.simulated_step_s : std::numeric_limits<double>::infinity();
  };
  return key(a) < key(b);
}

}  // namespace

double simulated_step_s(const search::Launch& launch, const search::Behaviour& behaviour,
                        const runtime::Uncertainty& uncertainty) {
  const search::Job& job = launch.job;
  config::RunConfig config = config_of(launch);
  // A device that no backend runs on has memory of its own, too.
  if (backend_on(job.device).empty()) config.device.backend = "cuda";
  plan::Plan plan = trained_plan(config);
  // Woven as on that device. A machine's profile would say what its kernels reach; here it is a part of the rated.
  constexpr double kReached = 0.7;
  plan.rates.flops_per_us = kReached * 1e-6 * job.device.flops(job.precision);
  plan.rates.bytes_per_us = kReached * 1e-6 * job.device.memory_bytes_per_s;
  plan.rates.host_bytes_per_us = kReached * 1e-6 * job.device.host_bytes_per_s;
  const plan::Lowered lowered = plan::lower(config.model, plan);
  const cost::MachineProfile profile = profile_of(job, behaviour, lowered);
  runtime::PredictionInput input;
  input.backend = config.device.backend;
  const int inside = std::max(1, job.device.inner.ranks), ranks = plan.ranks();
  input.over = ranks > inside ? cost::Link::nodes : cost::Link::node;
  input.machine_of.resize(static_cast<size_t>(ranks));  // none shares its device
  std::iota(input.machine_of.begin(), input.machine_of.end(), 0);
  for (int r = 0; r < ranks; ++r) input.node_of.push_back(r / inside);
  input.cards = inside;
  input.uncertainty = uncertainty;
  return runtime::predict_step(config.model, plan, lowered, profile, input).step_us * 1e-6;
}

std::vector<std::string> refusals_of_model(const search::Job& job) {
  return refusals_of_training(on_one_rank(job));
}

std::unique_ptr<search::LoweredBlocks> lowered_blocks(const search::Job& job) {
  const search::Launch launch = on_one_rank(job);
  if (!refusals_of_training(launch).empty()) return nullptr;
  const config::RunConfig config = config_of(launch);
  return std::make_unique<search::LoweredBlocks>(config.model, trained_plan(config));
}

void simulate_best(search::Answer& answer, const search::Behaviour& behaviour, int most) {
  const std::span<search::Ranked> plans(answer.top.data(),
                                        std::min<size_t>(static_cast<size_t>(most), answer.top.size()));
  simulate_plans(plans, behaviour);
  std::stable_sort(plans.begin(), plans.end(), is_shorter);
}

bool simulate_ways(search::Answer& answer, const search::Query& query, const Fits& fits) {
  search::Ranked& best = answer.top.front();
  std::vector<search::Ranked> ways{best};
  for (const search::Job& job : search::with_each_context(best.job, query.space.restriction.context)) {
    if (job.context != best.job.context) ways.push_back(search::timed_anew(best, job, query.behaviour));
  }
  if (ways.size() > 1) simulate_plans(ways, query.behaviour);
  std::stable_sort(ways.begin(), ways.end(), is_shorter);
  for (search::Ranked& way : ways) {
    const bool is_first = way.job.context == best.job.context, fit = fits(way, answer.memory_bytes);
    if (!fit && !is_first) continue;
    best = std::move(way);
    return fit;
  }
  return false;
}

search::Answer heddle_plans(const search::Query& query,
                            const std::function<search::Answer(const search::Query&)>& search,
                            const std::function<void()>& simulating) {
  return fitting_plans(query, search, [&](search::Answer& found, int plans) {
    if (simulating) simulating();
    simulate_best(found, query.behaviour, plans);
    return simulate_ways(found, query, count_program);
  });
}

}  // namespace heddle::planner
