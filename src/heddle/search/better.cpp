#include "heddle/search/better.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/search/launch/emit.h"
#include "heddle/search/launch/schedule_words.h"
#include "heddle/search/plans/copies.h"
#include "heddle/search/timed_plan.h"

namespace heddle::search {

namespace {

constexpr double kWorthwhile = 0.002;  // of the step
constexpr int kTried = 40;             // plans, until one is found that the target can run

// The spread of routing at which the given ranks' fullest has the given imbalance in the median.
Routing routing_of(const Job& j) {
  Routing routing;
  const int64_t experts = j.shape.moe_blocks() > 0 ? j.shape.moe.count : 0;
  if (j.imbalance <= 1) {
    routing.spread = 0;
  } else if (const double usual = routing.fullest(0.5, experts, j.layout.ep); usual > 1) {
    routing.spread *= (j.imbalance - 1) / (usual - 1);
  }
  return routing;
}

// What Heddle does in the place of another trainer: its own, but for what a job chooses of both.
Software of_heddle(const Software& given) {
  Software own;
  own.sharded_weights = given.sharded_weights;  // to be refused
  own.captured = given.captured;
  own.context_all_to_all = given.context_all_to_all;
  return own;
}

std::string recompute_text(const Job& j) {
  const std::vector<RecomputeChoice> all = recompute_choices(j.shape);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const RecomputeChoice& c) { return c.recompute == j.recompute; });
  return found != all.end() ? found->name : "a mixture";
}

std::vector<std::string> changes_of(const Job& from, const Job& to) {
  std::vector<std::string> changes;
  const auto number = [&](const char* name, int a, int b) {
    if (a != b) changes.push_back(fmt::format("{} {} → {}", name, a, b));
  };
  const auto word = [&](const char* name, std::string_view a, std::string_view b) {
    if (a != b) changes.push_back(fmt::format("{} {} → {}", name, a, b));
  };
  const Layout &a = from.layout, &b = to.layout;
  number("tp", a.tp, b.tp), number("cp", a.cp, b.cp), number("pp", a.pp, b.pp), number("vpp", a.vpp, b.vpp);
  number("dp", a.dp, b.dp), number("ep", a.ep, b.ep), number("etp", a.etp, b.etp);
  number("microbatch", from.microbatch, to.microbatch);
  if (b.pp > 1 || a.pp > 1) word("schedule", pipeline_of(from)->name(), pipeline_of(to)->name());
  word("copies of hot experts", replicas_word(from.shape.moe.replicas), replicas_word(to.shape.moe.replicas));
  if (from.recompute != to.recompute) word("recompute", recompute_text(from), recompute_text(to));
  const auto turned = [&](const char* name, bool was, bool is) {
    if (was != is) changes.push_back(fmt::format("{}{}", is ? "" : "no ", name));
  };
  turned("offload of activations", from.software.offload_activations, to.software.offload_activations);
  turned("optimizer states sharded over data ranks", from.software.sharded_states, to.software.sharded_states);
  if (from.residency != to.residency)
    changes.push_back(to.residency == Residency{} ? "state on the device" : text_of(to.residency));
  if (b.ep > 1) {
    turned("rows cross to a node once", from.software.once_a_node, to.software.once_a_node);
    turned("overlap of the exchange", from.software.overlap_exchange, to.software.overlap_exchange);
  }
  return changes;
}

}  // namespace

void restrict_to(std::string_view target, Restriction& space, Job& job) {
  const std::vector<std::string>& known = emit_targets();
  if (std::find(known.begin(), known.end(), target) == known.end())
    config_error("'{}' is no target, accepted: {}", target.substr(0, 40), fmt::join(known, ", "));
  const bool mindspeed = target == "mindspeed";
  // Heddle has all of them.
  if (space.schedule.empty() && target != "heddle") {
    space.schedule = schedules_of(mindspeed ? Dialect::mindspeed : Dialect::megatron);
    std::erase_if(space.schedule, [&](Pipeline p) {  // what wants equal stages, on two ranks or more
      return !method_of(p->name()).empty() && job.shape.layers % (2 * p->chunks()) != 0;
    });
  }
  if (mindspeed) job.software.once_a_node = job.software.pairs_overlap_gradients = false;
  if (target == "megatron" && space.recompute.empty() && job.shape.moe_blocks() == 0)  // of experts only
    for (const RecomputeChoice& c : recompute_choices(job.shape))
      if (!c.recompute.activations) space.recompute.push_back(c.name);
  if (target == "megatron" && space.offload.empty()) space.offload = {0};  // without pipeline only
  if (mindspeed && space.recompute.empty())                                // by count of tokens only
    for (const RecomputeChoice& c : recompute_choices(job.shape))
      if (!c.recompute.experts) space.recompute.push_back(c.name);
  // Only Heddle's recompute words name layers.
  if (target != "heddle" && space.by_stage.empty()) space.by_stage = {0};
  space.residencies = target == "heddle";
}

Query query_beside(const Launch& given, std::string_view target, double memory_bytes, const Behaviour& behaviour) {
  const Job& job = given.job;
  Query query;
  query.behaviour = behaviour;
  query.space.job = job;
  query.space.job.memory_imbalance = 0;
  Software& software = query.space.job.software;
  if (target == "heddle") software = of_heddle(software);
  software.dual_pipe = false;
  if (!software.sharded_weights) software.sharded_states = software.reduce_scatter = true;
  software.once_a_node = true;
  query.space.devices = job.layout.devices;
  query.space.routing = routing_of(job);
  query.memory_bytes = memory_bytes;
  query.top = kTried;
  restrict_to(target, query.space.restriction, query.space.job);
  return query;
}

Better better_of(const Launch& given, double given_step_s, Ranked plan) {
  Launch launch = launch_of(plan);
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
  found.answer = search(query_beside(given, target, memory_bytes, behaviour), {}, stop);
  for (Ranked& plan : found.answer.top) {
    const double ratio = plan.exact.step_s / found.given_step_s;
    if (exact.peak_bytes <= memory_bytes && ratio > 1 - kWorthwhile) break;
    if (!refusals_of(launch_of(plan), target).empty()) continue;
    found.best = better_of(given, found.given_step_s, std::move(plan));
    break;
  }
  return found;
}

}  // namespace heddle::search
