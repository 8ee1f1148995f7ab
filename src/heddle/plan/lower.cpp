#include "heddle/schedule/lower.h"

#include <algorithm>

#include "heddle/ir/verify/verify.h"
#include "heddle/model/text/decoder.h"
#include "heddle/passes/update/update.h"
#include "heddle/plan/check.h"
#include "heddle/plan/context_ranks.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/plan/passes.h"
#include "heddle/plan/plan.h"
#include "heddle/plan/switches.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"

namespace heddle::plan {

namespace {

// Sequences of a microbatch.
int64_t sequences_of(const Plan& plan, ir::Purpose purpose) {
  switch (purpose) {
    case ir::Purpose::predict:
    case ir::Purpose::prefill: return 1;
    case ir::Purpose::decode: return plan.cached_sequences;
    default: return plan.sequences;
  }
}

bool wants(const Plan& plan, ir::Purpose purpose) {
  switch (purpose) {
    case ir::Purpose::evaluate: return plan.evaluates;
    case ir::Purpose::predict: return plan.predicts;
    case ir::Purpose::prefill:
    case ir::Purpose::decode: return plan.cached_sequences > 0;
    default: return true;
  }
}

// The schedule of a step of fewer microbatches, on the same stages.
schedule::Schedule smaller_schedule(const Plan& plan, int microbatches, const schedule::Schedule& whole) {
  if (plan.order)
    config_error("train.batch_ramp: schedule '{}' is for {} microbatches", whole.name, whole.microbatches);
  Plan smaller = plan;
  smaller.microbatches = microbatches;
  schedule::Schedule made = schedule_of(smaller);
  if (made.placement.rank_of != whole.placement.rank_of || made.placement.routes != whole.placement.routes) {
    config_error("train.batch_ramp: with {} microbatches {} has other stages than with {}", microbatches,
                 whole.name, whole.microbatches);
  }
  return made;
}

// The part of the model that each pipeline rank holds, and where its hidden states come from and go to.
std::vector<model::RankSpec> rank_specs(const model::ModelConfig& config, const Plan& plan, const Mesh& mesh,
                                        const schedule::Placement& placement, ir::Purpose purpose) {
  const std::vector<model::StageShare> shares = layout_of(plan.parallel.layout, config, placement.stages);
  std::vector<int> filled;  // stages with something to do
  for (int s = 0; s < placement.stages; ++s) {
    if (!shares[s].is_empty()) filled.push_back(s);
  }
  std::vector<model::RankSpec> specs;
  for (int r = 0; r < placement.ranks; ++r) {
    model::RankSpec& spec = specs.emplace_back();
    for (const int stage : placement.stages_of(r)) {
      const int route = placement.route_of(stage), first = route * placement.stages, s = stage - first;
      model::RankSpec::Chunk& chunk = spec.chunks.emplace_back();
      chunk.share = shares[s];
      chunk.microbatches = {route, placement.routes};
      const auto at = std::lower_bound(filled.begin(), filled.end(), s);
      const auto rank_of = [&](int of) { return placement.rank_of[static_cast<size_t>(first + of)]; };
      if (at != filled.begin()) chunk.from = {rank_of(*std::prev(at)) - r, first + *std::prev(at)};
      const auto next = std::upper_bound(filled.begin(), filled.end(), s);
      if (next != filled.end()) chunk.to = {rank_of(*next) - r, stage};
    }
    static_cast<model::StepShape&>(spec) = plan;
    spec.sequences = sequences_of(plan, purpose);
    spec.rank = r;
    spec.purpose = purpose;
    spec.objective = plan.objective;
    spec.context = plan.parallel.context;
    spec.context_inner = context_inner(config, plan.parallel, plan.mesh);
    spec.mesh = mesh.at(0);
    spec.exchange = plan.parallel.exchange;
    spec.flops_per_us = plan.rates.flops_per_us;
    spec.exact_sums = plan.exact_sums;
    spec.qk_clip = plan.update.qk_clip;
  }
  return specs;
}

// The durations of the pipeline's stages, from the ops that they run.
schedule::Times stage_times(const ir::StepProgram& program, const schedule::Placement& placement,
                            const passes::Durations& duration_us) {
  schedule::Times times;
  times.stages.resize(static_cast<size_t>(placement.stages), {0, 0, 0, 0});
  for (int r = 0; r < placement.ranks; ++r) {
    const ir::Listing& listing = program.listings[r];
    const std::vector<int> own = placement.stages_of(r);
    for (const ir::Op& op : listing.ops) {
      if (ir::once_a_step(op.phase)) continue;
      const int s = own[op.chunk];
      if (s >= placement.stages) continue;  // a second copy
      schedule::StageTimes& of = times.stages[s];
      const double us = duration_us(listing, op);
      if (ir::is_message(op.def->moves)) {
        times.hop = std::max(times.hop, us);
      } else if (op.def->stream == ir::StreamKind::comm) {
        if (op.phase == ir::Phase::F) of.all_to_all += us;
      } else {
        (op.phase == ir::Phase::F ? of.forward : op.phase == ir::Phase::I ? of.input_grad : of.weight_grad) += us;
      }
    }
  }
  return times;
}

void check_pass(std::string_view name) {
  const std::vector<std::string> names = pass_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  config_error("no pass is called '{}', accepted: {}{}", name, fmt::join(names, ", "),
               did_you_mean(std::string(name), names));
}

// Adds one block on each pipeline rank that makes what kernels read anew from the masters.
void add_restore(ir::StepProgram& program, const std::vector<std::vector<ir::Op>>& restores) {
  constexpr auto purpose = static_cast<size_t>(ir::Purpose::restore);
  program.first_listing[purpose] = static_cast<int>(program.listings.size());
  for (int r = 0; r < std::ssize(restores); ++r) {
    const auto at = static_cast<size_t>(r);
    program.listings.push_back(passes::restore_listing(restores[at], program.listings[at], r));
    program.actions[purpose].push_back({{static_cast<int>(program.blocks.size()), {-1}}});
    program.blocks.push_back(
        ir::make_block(program, static_cast<int>(program.listings.size()) - 1, ir::BlockKind::end));
  }
}

// Adds one block on each pipeline rank that copies what a training step changes.
void add_snapshot(ir::StepProgram& program, std::vector<ir::Listing> snapshots) {
  constexpr auto purpose = static_cast<size_t>(ir::Purpose::snapshot);
  program.first_listing[purpose] = static_cast<int>(program.listings.size());
  for (ir::Listing& listing : snapshots) {
    program.listings.push_back(std::move(listing));
    program.actions[purpose].push_back({{static_cast<int>(program.blocks.size()), {-1}}});
    program.blocks.push_back(
        ir::make_block(program, static_cast<int>(program.listings.size()) - 1, ir::BlockKind::end));
  }
}

}  // namespace

Plan Plan::on_one_rank() const {
  const Plan usual;
  Plan one = *this;
  one.mesh = usual.mesh;
  one.order.reset();
  one.parallel.schedule = usual.parallel.schedule;
  one.parallel.chunks = usual.parallel.chunks;
  one.parallel.group = usual.parallel.group;
  one.parallel.layout = usual.parallel.layout;
  one.parallel.shard_ranks = usual.parallel.shard_ranks;
  return one;
}

Plan Plan::plain() const {
  const Choices usual;
  Plan plain = on_one_rank();
  for (const Setting<Choices>& s : settings()) {
    if (s.is_switch(MathsClass::bitwise)) s.set(plain, s.get(usual));
  }
  return plain;
}

schedule::Schedule schedule_of(const Plan& plan) {
  schedule::Schedule made;
  if (plan.order) {
    made = *plan.order;
    if (made.placement.ranks != plan.mesh.pp || made.microbatches != plan.microbatches) {
      config_error("schedule '{}' is for {} ranks and {} microbatches; the plan has mesh.pp {} and {} microbatches",
                   made.name, made.placement.ranks, made.microbatches, plan.mesh.pp, plan.microbatches);
    }
  } else {
    schedule::GeneratorOptions options;
    options.ranks = plan.mesh.pp;
    options.microbatches = plan.microbatches;
    options.chunks = plan.parallel.chunks;
    options.group = plan.parallel.group;
    try {
      made = schedule::make_schedule(plan.parallel.schedule, options);
    } catch (const ConfigError& error) {
      const std::string chunks =
          plan.parallel.chunks > 0 ? fmt::format(", parallel.chunks {}", plan.parallel.chunks) : "";
      config_error(
          "parallel.schedule: {} (mesh.pp is {}{}; the microbatches of a step are train.global_batch ÷ "
          "(train.microbatch × mesh.dp) = {} ÷ ({} × {}))",
          error.what(), plan.mesh.pp, chunks, int64_t{plan.microbatches} * plan.sequences * plan.mesh.dp,
          plan.sequences, plan.mesh.dp);
    }
  }
  schedule::validate(made);
  return made;
}

Lowered lower(const model::ModelConfig& config, const Plan& plan, std::string_view until) {
  refuse(refusals_before_schedule(config, plan));
  if (!until.empty()) check_pass(until);
  const Mesh mesh(plan.mesh);
  Lowered lowered;
  ir::StepProgram& program = lowered.program;
  program.microbatches = plan.microbatches;
  program.class_of_rank.clear();
  for (int r = 0; r < plan.ranks(); ++r) program.class_of_rank.push_back(mesh.at(r).at(ir::Axis::pp));
  const schedule::Schedule training = schedule_of(plan);
  lowered.placement = training.placement;
  refuse(refusals_of_placement(plan, training.placement));
  const passes::Durations durations =
      plan.durations ? plan.durations : nominal_durations(plan.parallel.exchange, plan.rates);
  std::vector<std::vector<ir::Op>> restores;  // by pipeline rank
  std::vector<ir::Listing> snapshots;         // likewise
  for (const ir::Purpose purpose : {ir::Purpose::train, ir::Purpose::evaluate, ir::Purpose::predict,
                                    ir::Purpose::prefill, ir::Purpose::decode}) {
    if (!wants(plan, purpose)) continue;
    const schedule::Schedule order =
        purpose == ir::Purpose::train ? training : schedule::forward_only(training.placement);
    Draft draft{config, plan, mesh, order, durations, purpose, {}, {}, {}, {}, program};
    for (const model::RankSpec& spec : rank_specs(config, plan, mesh, order.placement, purpose)) {
      draft.texts.push_back(model::decoder_text(config, spec));
    }
    const bool stops = run_passes(draft, Pass::Level::text, until, lowered.passes);
    schedule::Lowering lowering;
    lowering.first_listing = static_cast<int>(program.listings.size());
    program.first_listing[static_cast<size_t>(purpose)] = lowering.first_listing;
    for (model::RankText& text : draft.texts) {
      if (!draft.trains()) text.listing.name += fmt::format(", {}", name_of(purpose));
      if (draft.trains()) lowered.parameters.push_back(std::move(text.parameters));
      lowered.statistics.push_back(std::move(text.statistics));
      program.listings.push_back(std::move(text.listing));
    }
    if (stops) return lowered;
    draft.texts.clear();
    if (draft.trains()) restores = std::move(draft.restores);
    if (draft.trains()) snapshots = std::move(draft.snapshots);
    const auto lower_actions = [&](const schedule::Schedule& of, ir::StepProgram::ActionLists& actions) {
      schedule::Timing timing;
      if (draft.trains() && plan.parallel.weave == Weave::pairs && plan.mesh.pp > 1) {
        timing = schedule::timing_of(of, stage_times(program, of.placement, durations));
        lowering.at_once = [&](int rank, size_t action) {
          const std::vector<schedule::Interval>& spans = timing.of[rank];
          return spans[action].start <= spans[action - 1].end;
        };
      }
      schedule::lower(program, actions, of, lowering);
    };
    lower_actions(order, program.actions[static_cast<size_t>(purpose)]);
    if (draft.trains()) {
      for (const int microbatches : plan.fewer_microbatches) {
        if (microbatches >= plan.microbatches) continue;  // of a plan that was made smaller itself
        lower_actions(smaller_schedule(plan, microbatches, order), program.fewer[microbatches]);
      }
    }
    if (run_passes(draft, Pass::Level::blocks, until, lowered.passes)) return lowered;
  }
  add_restore(program, restores);
  add_snapshot(program, std::move(snapshots));
  lowered.statistics.resize(program.listings.size());
  ir::verify(program);
  ir::verify_channels(program, [&](const std::string& group, int rank) { return mesh.group(group, rank); });
  return lowered;
}

}  // namespace heddle::plan
