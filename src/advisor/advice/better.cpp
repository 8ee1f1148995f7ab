#include "advisor/advice/better.h"

#include <algorithm>

#include "advisor/advice/targets.h"
#include "advisor/script/launch_flags.h"
#include "advisor/script/schedule_words.h"
#include "heddle/base/error.h"
#include "heddle/search/plans/context.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/timed_plan.h"

namespace heddle::advisor {

using search::Exact;
using search::PlanTimer;
using search::recompute_choices;
using search::RecomputeChoice;
using search::Routing;

namespace {

constexpr int kTried = 40;  // plans, until one is found that the target can run

// The spread of routing at which the given ranks' fullest has the given imbalance in the median.
Routing routing_of(const Job& j) {
  Routing routing;
  const int64_t experts = j.shape.moe_blocks() > 0 ? j.shape.n_routed_experts : 0;
  if (j.imbalance <= 1) {
    routing.spread = 0;
  } else if (const double usual = routing.fullest(0.5, experts, j.mesh.ep); usual > 1) {
    routing.spread *= (j.imbalance - 1) / (usual - 1);
  }
  return routing;
}

// Software of Heddle instead of another trainer: its own, but for what a job chooses of both.
Software of_heddle(const Software& given) {
  Software own;
  own.captured = given.captured;
  return own;
}

std::string recompute_text(const Job& j) {
  const std::vector<RecomputeChoice> all = recompute_choices(j.shape);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const RecomputeChoice& c) { return c.recompute == j.recompute; });
  return found != all.end() ? found->name : "a mixture";
}

std::string context_text(const Job& j) {
  const std::string_view way = word_of(j.context);
  if (j.mesh.cp == 1) return "none";
  return has_runs(j.context) ? fmt::format("{} in runs of {}", way, j.context_inner) : std::string(way);
}

// The ways of context ranks that a target can say, the job's own before its equals.
std::vector<std::string> contexts_of(std::string_view target, const Job& job) {
  std::vector<std::string> ways = search::context_words();
  if (target == "megatron") std::erase(ways, word_of(model::Context::double_ring));
  std::stable_partition(ways.begin(), ways.end(), [&](const auto& way) { return way == word_of(job.context); });
  return ways;
}

std::vector<std::string> changes_of(const Job& from, const Job& to) {
  std::vector<std::string> changes;
  const auto number = [&](const char* name, int a, int b) {
    if (a != b) changes.push_back(fmt::format("{} {} → {}", name, a, b));
  };
  const auto word = [&](const char* name, std::string_view a, std::string_view b) {
    if (a != b) changes.push_back(fmt::format("{} {} → {}", name, a, b));
  };
  const plan::Degrees &a = from.mesh, &b = to.mesh;
  number("tp", a.tp, b.tp), number("cp", a.cp, b.cp), number("pp", a.pp, b.pp),
      number("vpp", from.chunks, to.chunks);
  number("dp", a.dp, b.dp), number("ep", a.ep, b.ep), number("etp", a.etp, b.etp);
  if (b.cp > 1) word("context", context_text(from), context_text(to));
  number("microbatch", from.microbatch, to.microbatch);
  if (b.pp > 1 || a.pp > 1) word("schedule", pipeline_of(from)->name(), pipeline_of(to)->name());
  word("replicas of hot experts", replicas_word(from.exchange.replicas), replicas_word(to.exchange.replicas));
  if (from.recompute != to.recompute) word("recompute", recompute_text(from), recompute_text(to));
  const auto turned = [&](const char* name, bool was, bool is) {
    if (was != is) changes.push_back(fmt::format("{}{}", is ? "" : "no ", name));
  };
  turned("offload of activations", from.software.offload_activations, to.software.offload_activations);
  turned("optimizer states sharded over data ranks", from.software.sharded_states, to.software.sharded_states);
  if (from.sharding != to.sharding)
    changes.push_back(to.sharding == search::Sharding{} ? "optimizer states alone sharded" : text_of(to.sharding));
  if (from.residency != to.residency)
    changes.push_back(to.residency == PricedResidency{} ? "state on the device" : text_of(to.residency));
  if (b.ep > 1) {
    turned("rows cross to a node once", once_a_node(from), once_a_node(to));
    turned("overlap of the exchange", from.software.overlap_exchange, to.software.overlap_exchange);
    turned("overlap of the exchange within a microbatch", from.software.layer_overlap != LayerOverlap::none,
           to.software.layer_overlap != LayerOverlap::none);
  }
  return changes;
}

// A plan in the words that the job has: stages that differ as layers that do nothing.
Launch said_as(const Launch& given, Launch plan) { return given.noop.empty() ? plan : padded(std::move(plan)); }

}  // namespace

void restrict_to(std::string_view target, Restriction& space, Job& job) {
  const std::vector<std::string>& known = emit_targets();
  if (std::find(known.begin(), known.end(), target) == known.end())
    config_error("'{}' is no target, accepted: {}", target.substr(0, 40), fmt::join(known, ", "));
  const bool mindspeed = target == "mindspeed";
  // Heddle has all of them.
  if (space.schedule.empty() && target != "heddle") {
    space.schedule = schedules_of(mindspeed ? Dialect::mindspeed : Dialect::megatron);
    std::erase_if(space.schedule, [&](Pipeline p) {  // schedules that want equal stages, on two ranks or more
      return !method_of(p->name()).empty() && job.shape.num_hidden_layers % (2 * p->chunks()) != 0;
    });
  }
  if (mindspeed) job.software.pairs_overlap_gradients = false, job.exchange.topology = ir::Topology::plain;
  if (target == "megatron" && !deepep_sayable(job.device)) job.exchange.topology = ir::Topology::plain;
  if (target == "megatron" && space.recompute.empty() && job.shape.moe_blocks() == 0)  // of experts only
    for (const RecomputeChoice& c : recompute_choices(job.shape))
      if (!c.recompute.has(GroupName::activation)) space.recompute.push_back(c.name);
  if (target == "megatron" && space.offload.empty()) space.offload = {0};  // without pipeline only
  space.offload_beside_pairs = target == "heddle";
  if (mindspeed && space.recompute.empty())  // by count of tokens only
    for (const RecomputeChoice& c : recompute_choices(job.shape))
      if (!c.recompute.has(GroupName::moe)) space.recompute.push_back(c.name);
  // Only Heddle's recompute words name layers.
  if (target != "heddle" && space.by_stage.empty()) space.by_stage = {0};
  space.residencies = space.shardings = target == "heddle";
}

Query query_beside(const Launch& given, std::string_view target, double memory_bytes, const Behaviour& behaviour) {
  const Job& job = given.job;
  Query query;
  query.behaviour = behaviour;
  query.space.job = job;
  query.space.job.memory_imbalance = 0;
  Software& software = query.space.job.software;
  if (target == "heddle") {
    software = of_heddle(software);
    query.space.job.precision = cost::Precision::bf16;  // operands in eight bits (device.fp8) take no less time
  }
  // The home of the state is the trainer's own: another one has other ways.
  const bool mindspeed = target == "mindspeed";
  const plan::StateResidency kept = query.space.job.residency.optimizer;
  if (target == "heddle" || kept != (mindspeed ? plan::StateResidency::swap : plan::StateResidency::host))
    query.space.job.residency = {};
  if (target == "heddle") query.space.job.sharding = {};
  if (!mindspeed && software.layer_overlap == LayerOverlap::all) software.layer_overlap = LayerOverlap::shared;
  // Layers that do nothing make stages equal that are not.
  if (mindspeed && !given.noop.empty()) query.space.restriction.schedule = schedules_of(Dialect::mindspeed);
  if (!software.sharded_weights) software.sharded_states = software.reduce_scatter = true;
  query.space.job.exchange.topology = ir::Topology::node;
  query.space.devices = job.mesh.ranks();
  query.space.restriction.context = contexts_of(target, job);
  query.space.routing = routing_of(job);
  query.memory_bytes = memory_bytes;
  query.top = kTried;
  restrict_to(target, query.space.restriction, query.space.job);
  return query;
}

Better better_of(const Launch& given, double given_step_s, Ranked plan) {
  Launch launch = said_as(given, launch_of(plan));
  std::vector<std::string> changes = changes_of(given.job, launch.job);
  if (launch.layout != given.layout && !launch.layout.empty())
    changes.push_back(fmt::format("stages {}", launch.layout));
  const double ratio = plan.exact.step_s / given_step_s;
  return {std::move(plan), std::move(launch), std::move(changes), ratio};
}

BetterAnswer search_better(const Launch& given, std::string_view target, double memory_bytes,
                           const std::function<bool()>& stop, const Behaviour& behaviour) {
  BetterAnswer found;
  const Exact exact = PlanTimer(behaviour).timed(given).exact;
  found.given_step_s = exact.step_s;
  found.answer = search::search(query_beside(given, target, memory_bytes, behaviour), {}, stop);
  for (Ranked& plan : found.answer.top) {
    const double ratio = plan.exact.step_s / found.given_step_s;
    if (exact.peak_bytes <= memory_bytes && ratio > 1 - kWorthwhile) break;
    if (!refusals_of(said_as(given, launch_of(plan)), target).empty()) continue;
    found.best = better_of(given, found.given_step_s, std::move(plan));
    break;
  }
  return found;
}

}  // namespace heddle::advisor
