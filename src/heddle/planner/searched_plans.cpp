#include "heddle/planner/searched_plans.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/plan/costs/state_cost.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/search.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

// As many for each number of stages, for the pipeline is the part of a plan that is predicted least well.
constexpr int kPlans = 36, kShortList = 200;
// A plan that the search takes for a little too large may fit: the simulation has the last word.
constexpr double kRoom = 1.25;

/// How the machine's cores and links are shared by the ranks.
struct Shares {
  int ranks = 1, threads = 1;
  double speed = 1;  // a thread's while all ranks compute
  cost::Link over = cost::Link::threads;
};

Shares shares_of(const config::RunConfig& config, const cost::MachineProfile& profile, const JobPlaces& places) {
  Shares s;
  s.ranks = static_cast<int>(config.ranks());
  s.threads = config.device.threads > 0 ? static_cast<int>(config.device.threads)
              : places.threads > 0      ? places.threads
                                        : std::max(1, profile.cores / s.ranks);
  const int together = places.sharing_memory > 0 ? places.sharing_memory : s.ranks;
  s.speed = together > 1 ? profile.speed(static_cast<double>(together) * s.threads) : 1;
  s.over = places.over;
  return s;
}

// A rank's part of the machine as the search describes an accelerator. Layers are priced by the profile itself;
// this is for what lies beside them.
cost::Accelerator described(const cost::MachineProfile& profile, const Shares& s, Dtype dtype) {
  cost::Accelerator a;
  a.name = "this machine";
  const double part = static_cast<double>(s.threads) * s.speed / std::max(1, profile.cores);
  const double products = profile.flops_per_s(dtype) > 0 ? profile.flops_per_s(dtype) : profile.bf16_flops_per_s;
  a.bf16_flops = std::max(1.0, products * part);
  a.memory_bytes = 1e18;  // the query has the limit
  a.memory_bytes_per_s = std::max(1.0, profile.copy_bytes_per_s / s.ranks);
  a.units = std::max(1, s.threads);
  a.host_us = profile.enqueue_us;
  a.host_bytes_per_s = a.memory_bytes_per_s;
  const double link = cost::link_bytes_per_us(profile, s.over, s.ranks) * 1e6;
  a.inner.ranks = s.ranks;
  a.inner.bytes_per_s = link > 0 ? link : a.memory_bytes_per_s / 2;  // read and written
  a.inner.latency_us = cost::message_us(profile, s.over, s.ranks, 1) + profile.launch_us;
  a.outer = a.inner;
  a.outer.ranks = 0;
  return a;
}

search::LoweredBlocks::OpSeconds seconds_on(const cost::MachineProfile& profile, const Shares& s,
                                            double resident_bytes) {
  return [&profile, s, resident_bytes](const search::Job& job, const search::Behaviour&, const ir::Listing& listing,
                                       const ir::Op& op, const ir::RowCounts& rows) {
    double us = profile.launch_us;
    if (op.def->stream == ir::StreamKind::comm) {
      const int size = search::group_of(op.group, job.mesh).size;
      const double bytes = op.def->cost(listing, op, rows).message_bytes;
      const double message = cost::message_us(profile, s.over, std::max(2, size), bytes);
      us += message > 0 ? message : 2 * bytes / profile.copy_bytes_per_s * 1e6;
    } else {
      us += cost::measured_us(profile, listing, op, rows, false, s.threads, resident_bytes) / s.speed;
    }
    return us * profile.scalar * 1e-6;
  };
}

// The axis of a key, with what is configured.
search::Restriction kept(const config::RunConfig& config, const std::set<std::string>& fixed) {
  search::Restriction only;
  const plan::Degrees mesh = config.degrees();
  const auto keep = [&](const char* key, std::vector<int>& axis, int64_t value) {
    if (fixed.contains(key)) axis = {static_cast<int>(value)};
  };
  keep("mesh.tp", only.tp, mesh.tp);
  keep("mesh.cp", only.cp, mesh.cp);
  keep("mesh.pp", only.pp, mesh.pp);
  keep("mesh.ep", only.ep, mesh.ep);
  keep("mesh.etp", only.etp, mesh.etp);
  if (config.plan.mesh.dp > 0) keep("mesh.dp", only.dp, mesh.dp);
  keep("train.microbatch", only.microbatch, config.train.microbatch);
  if (config.plan.parallel.chunks > 0) keep("parallel.chunks", only.vpp, config.plan.parallel.chunks);
  if (fixed.contains("parallel.schedule"))
    if (const search::Pipeline p = schedule::find_pipeline(config.plan.parallel.schedule)) only.schedule = {p};
  if (fixed.contains("parallel.layout")) only.uneven = {0};
  if (fixed.contains("memory.recompute")) only.recompute = {"none"};
  only.offload = {0};  // by words of its own
  only.by_stage = {0};
  return only;
}

// The settings of a launch that a planner sets; the rest is the configuration's.
std::vector<std::string> own_settings_of(const search::Ranked& plan, bool sharding) {
  static const std::set<std::string> own{
      "mesh.tp",          "mesh.cp",           "mesh.pp",         "mesh.ep",         "mesh.etp",
      "train.microbatch", "parallel.schedule", "parallel.chunks", "parallel.layout", "memory.recompute"};
  std::vector<std::string> settings{"mesh.dp=0"};
  if (sharding) {
    settings.push_back(fmt::format("parallel.shard={}", word_of(plan.job.sharding.shard)));
    settings.push_back(fmt::format("parallel.shard_ranks={}", plan.job.sharding.ranks));
  }
  for (std::string& setting : settings_of(search::launch_of(plan)))
    if (own.contains(setting.substr(0, setting.find('=')))) settings.push_back(std::move(setting));
  return settings;
}

}  // namespace

std::vector<std::vector<std::string>> searched_plans(const config::RunConfig& config,
                                                     const std::set<std::string>& fixed,
                                                     const cost::MachineProfile& profile, const JobPlaces& places) {
  const plan::Plan plan = train::plan_of(config);
  const Shares shares = shares_of(config, profile, places);
  search::Query query;
  search::Space& space = query.space;
  search::Job& job = space.job;
  job.shape = model::shape_of(config.model, config.name);
  if (job.shape.n_routed_experts > 0) {
    job.exchange.capacity_factor = plan.parallel.exchange.capacity_factor;
    job.exchange.replicas = plan.parallel.exchange.replicas;
  }
  job.device = described(profile, shares, plan.dtype);
  job.global_batch = static_cast<int>(config.train.global_batch);
  job.sequence = static_cast<double>(config.train.sequence_length);
  space.devices = shares.ranks;
  space.routing.spread = 0;  // as the simulation has it
  space.fewest_tokens = 16;  // a processor's tiles are small
  space.restriction = kept(config, fixed);
  space.restriction.replicas = {search::replicas_word(plan.parallel.exchange.replicas)};
  job.sharding = {plan.parallel.shard, plan.parallel.shard_ranks};
  job.context = plan.parallel.context;
  job.context_inner = plan.parallel.context_inner;
  // No estimate knows shards of some parts and layers alone.
  space.restriction.shardings = !fixed.contains("parallel.shard") && !fixed.contains("parallel.shard_ranks") &&
                                plan.parallel.sharded == plan::Parallel().sharded;
  const double resident_bytes = 16 * model::total_parameters(job.shape) / shares.ranks;
  const search::LoweredBlocks blocks(config.model, plan, seconds_on(profile, shares, resident_bytes));
  job.software.lowered = &blocks;
  job.software.state_bytes = plan::state_bytes_per_parameter(plan.update);
  const int ranks = shares.ranks;
  const auto limit = static_cast<double>(train::memory_limit_of(
      config, {.memory = places.sharing_memory > 0 ? places.sharing_memory : ranks, .cores = ranks}));
  std::vector<int> stages = search::divisors(ranks);
  if (!space.restriction.pp.empty()) stages = space.restriction.pp;
  query.top = std::max(1, kPlans / static_cast<int>(stages.size()));
  query.short_list = kShortList;
  std::vector<search::Ranked> found;
  // If nothing fits, the fastest are a beginning: what they recompute and send away is varied.
  for (const double memory_bytes : {kRoom * limit, std::numeric_limits<double>::max()}) {
    query.memory_bytes = memory_bytes;
    for (const int pp : stages) {
      space.restriction.pp = {pp};
      try {
        search::Answer answer = search::search(query);
        std::move(answer.top.begin(), answer.top.end(), std::back_inserter(found));
      } catch (const ConfigError&) {  // the fixed keys leave nothing to search
      }
    }
    if (!found.empty()) break;
  }
  std::stable_sort(found.begin(), found.end(), [](const search::Ranked& a, const search::Ranked& b) {
    return a.exact.step_s < b.exact.step_s;
  });
  std::vector<std::vector<std::string>> all;
  for (const search::Ranked& plan : found) all.push_back(own_settings_of(plan, space.restriction.shardings));
  return all;
}

}  // namespace heddle::planner
