#include "heddle/schedule/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "heddle/ir/gradient.h"
#include "heddle/ir/uses.h"
#include "heddle/ir/verify.h"
#include "heddle/model/decoder.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/exact_sums.h"
#include "heddle/passes/offload.h"
#include "heddle/passes/pack_weights.h"
#include "heddle/passes/recompute.h"
#include "heddle/passes/reuse_lists.h"
#include "heddle/plan/durations.h"
#include "heddle/plan/plan.h"
#include "heddle/plan/switches.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"

namespace heddle::plan {

namespace {

// Sizes that a mesh cuts must divide.
void check_sizes(const model::ModelConfig& config, const Plan& plan) {
  const Degrees& mesh = plan.mesh;
  const auto divides = [](const char* what, int64_t size, const char* by, int64_t degree) {
    if (size % degree != 0) config_error("{} ({}) is not a multiple of {} ({})", what, size, by, degree);
  };
  divides("model.num_attention_heads", config.num_attention_heads, "mesh.tp", mesh.tp);
  const int64_t keys = config.is_latent() ? config.num_attention_heads : config.num_key_value_heads;
  if (!config.is_latent()) divides("model.num_key_value_heads", keys, "mesh.tp", mesh.tp);
  divides("model.vocab_size", config.vocab_size, "mesh.tp", mesh.tp);
  divides("model.intermediate_size", config.intermediate_size, "mesh.tp", mesh.tp);
  divides("model.n_shared_experts × moe_intermediate_size", config.n_shared_experts * config.moe_intermediate_size,
          "mesh.tp", mesh.tp);
  divides("model.n_routed_experts", config.n_routed_experts, "mesh.ep", mesh.ep);
  divides("model.moe_intermediate_size", config.moe_intermediate_size, "mesh.etp", mesh.etp);
  if (plan.parallel.context == model::Context::ulysses) {
    divides("model.num_attention_heads", config.num_attention_heads,
            "mesh.tp × mesh.cp, as parallel.context 'ulysses' needs", int64_t{mesh.tp} * mesh.cp);
    divides("model.num_key_value_heads", keys, "mesh.tp × mesh.cp, as parallel.context 'ulysses' needs",
            int64_t{mesh.tp} * mesh.cp);
  }
  divides("the sequence length", plan.sequence_length, mesh.cp > 1 ? "2 × mesh.cp × mesh.tp" : "mesh.tp",
          (mesh.cp > 1 ? 2 * mesh.cp : 1) * mesh.tp);
}

// All that can be told without a schedule.
void check_model(const model::ModelConfig& config, const Plan& plan) {
  model::validate(config);
  if (plan.sequence_length > config.max_position_embeddings) {
    config_error("sequence length {} exceeds model.max_position_embeddings ({})", plan.sequence_length,
                 config.max_position_embeddings);
  }
  (void)Mesh(plan.mesh);  // refuses degrees that don't go together
  check_sizes(config, plan);
}

// What of the model each pipeline rank holds, and where its hidden states come from and go to.
std::vector<model::StageSpec> stage_specs(const model::ModelConfig& config, const Plan& plan, const Mesh& mesh,
                                          const schedule::Placement& placement, ir::Purpose purpose) {
  const std::vector<model::Piece> pieces = layout_of(plan.parallel.layout, config, placement.stages);
  std::vector<int> filled;  // stages with something to do
  for (int s = 0; s < placement.stages; ++s) {
    if (!pieces[static_cast<size_t>(s)].is_empty()) filled.push_back(s);
  }
  std::vector<model::StageSpec> specs;
  for (int r = 0; r < placement.ranks; ++r) {
    model::StageSpec& spec = specs.emplace_back();
    for (const int stage : placement.stages_of(r)) {
      const int route = placement.route_of(stage), first = route * placement.stages, s = stage - first;
      model::StageSpec::Chunk& chunk = spec.chunks.emplace_back();
      chunk.piece = pieces[static_cast<size_t>(s)];
      chunk.microbatches = {route, placement.routes};
      const auto at = std::lower_bound(filled.begin(), filled.end(), s);
      const auto rank_of = [&](int of) { return placement.rank_of[static_cast<size_t>(first + of)]; };
      if (at != filled.begin()) chunk.from = {rank_of(*std::prev(at)) - r, first + *std::prev(at)};
      const auto next = std::upper_bound(filled.begin(), filled.end(), s);
      if (next != filled.end()) chunk.to = {rank_of(*next) - r, stage};
    }
    spec.stage = r;
    spec.sequences = purpose == ir::Purpose::predict ? 1 : plan.sequences;
    spec.purpose = purpose;
    spec.sequence_length = plan.sequence_length;
    spec.context = plan.parallel.context;
    spec.dtype = plan.dtype;
    spec.mesh = mesh.at(0);
    spec.exchange = plan.parallel.exchange;
  }
  return specs;
}

// Of the first stage of the pipeline, or of the first copy, that a rank runs and that uses the parameter.
int first_stage_of(const model::Parameter& p, const ir::Uses& uses, const std::vector<int>& own) {
  const ir::Op* first = uses.first_reader(p.value);
  return own[first == nullptr ? 0 : static_cast<size_t>(first->chunk)];
}

// What is to be known of parameters that several pipeline ranks hold.
struct Shared {
  std::set<std::string> unlike;              // names of those that not all of them use alike
  std::map<std::string, std::string> order;  // of those with three uses or more: see the op reduce_gradients
};

// The copies of which pipeline ranks one rank would meet, as it adds up the uses of a parameter: last written
// first. Uses are told apart by their layer, and within one by what they do: embeddings come before heads.
std::string order_of_uses(const std::string& name, const std::vector<model::StageText>& texts,
                          const std::vector<std::pair<int, int>>& holders) {
  std::vector<std::tuple<int, bool, int>> uses;  // layer, head, copy
  for (size_t copy = 0; copy < holders.size(); ++copy) {
    const ir::Stage& stage = texts[static_cast<size_t>(holders[copy].second)].stage;
    const ir::ValueId weight = stage.find(name);
    for (const ir::Op& op : stage.ops) {
      if (std::find(op.in.begin(), op.in.end(), weight) == op.in.end()) continue;
      uses.emplace_back(op.layer, op.part == "head", static_cast<int>(copy));
    }
  }
  if (uses.size() <= 2) return "";  // two have one sum
  std::sort(uses.rbegin(), uses.rend());
  std::string order;
  for (const auto& [layer, head, copy] : uses) order += fmt::format("{}{}", order.empty() ? "" : ",", copy);
  return order;
}

// Parameters that several pipeline ranks hold (tied embeddings, those of multi-token prediction, second copies of
// stages) have copies on the ranks of all of them, the one with the earliest stage first.
Shared join_copies(std::vector<model::StageText>& texts, const schedule::Placement& placement) {
  std::map<std::string, std::vector<std::pair<int, int>>> holders;   // name -> (stage, pipeline rank)
  std::map<std::string, std::set<std::set<std::string_view>>> uses;  // name -> op kinds, of each holder
  for (size_t r = 0; r < texts.size(); ++r) {
    const std::vector<int> own = placement.stages_of(static_cast<int>(r));
    const ir::Uses of_text(texts[r].stage);
    for (const model::Parameter& p : texts[r].parameters) {
      holders[p.name].emplace_back(first_stage_of(p, of_text, own), static_cast<int>(r));
      std::set<std::string_view> kinds;
      for (const int op : of_text.readers(p.value)) kinds.insert(of_text.op(op).kind());
      uses[p.name].insert(kinds);
    }
  }
  for (model::StageText& text : texts) {
    for (model::Parameter& p : text.parameters) {
      std::vector<std::pair<int, int>>& of = holders.at(p.name);
      if (of.size() == 1 || p.start == model::Parameter::Start::rope_table) continue;
      std::sort(of.begin(), of.end());
      for (size_t i = 0; i < of.size(); ++i) p.copies += fmt::format("{}{}", i == 0 ? '@' : '+', of[i].second);
    }
  }
  Shared shared;
  for (const auto& [name, kinds] : uses) {
    if (kinds.size() > 1) shared.unlike.insert(name);
  }
  for (const auto& [name, of] : holders) {
    if (of.size() == 1) continue;
    if (const std::string order = order_of_uses(name, texts, of); !order.empty()) shared.order[name] = order;
  }
  return shared;
}

// Whether a pipeline rank runs input and weight gradients of a microbatch apart.
bool defers_weight_gradients(const std::vector<schedule::Action>& order) {
  return std::any_of(order.begin(), order.end(), [](const schedule::Action& action) {
    return action.first.kind == schedule::Kind::W || (action.with && action.with->kind == schedule::Kind::W);
  });
}

// Of each of a pipeline rank's stages: whether some action always stands between a microbatch's F and its I.
std::vector<bool> stands_apart(const std::vector<schedule::Action>& order, const std::vector<int>& own) {
  std::vector<bool> apart(own.size(), true);
  const auto chunk = [&](const schedule::Compute& c) {
    return static_cast<size_t>(std::find(own.begin(), own.end(), c.stage) - own.begin());
  };
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    for (const schedule::Compute& made : order[i].computes()) {
      for (const schedule::Compute& next : order[i + 1].computes()) {
        if (made.kind == schedule::Kind::F && next.stage == made.stage && next.microbatch == made.microbatch) {
          apart[chunk(made)] = false;
        }
      }
    }
  }
  return apart;
}

// The order in which the uses of a shared parameter are added up is written where they are.
void set_order(ir::Stage& stage, const std::map<std::string, std::string>& order) {
  const std::string_view prefix = "shard.grad.";
  for (ir::Op& op : stage.ops) {
    if (op.kind() != "reduce_gradients" || op.out.size() != 1) continue;
    const auto at = order.find(stage.value(op.out[0]).name.substr(prefix.size()));
    if (at != order.end()) op.attributes.set("order", at->second);
  }
}

std::vector<ir::Op> add_passes(model::StageText& text, const model::ModelConfig& config, const Plan& plan, const Mesh& mesh,
                int stage, bool deferred, const std::vector<bool>& apart, const passes::Durations& durations,
                const Shared& shared) {
  ir::differentiate(text.stage, ops::find("add"), {}, {});
  if (plan.fusions.contains("norm")) passes::fuse_norm_gradient(text.stage);
  if (plan.parallel.reuse_lists) passes::reuse_lists(text.stage);
  passes::recompute(text.stage, plan.memory.recompute, deferred);
  if (plan.fusions.contains("loss")) passes::fuse_loss(text.stage);
  if (plan.device.pack_weights && plan.packed_bytes) {
    passes::pack_weights(text.stage, [&](const ir::Value& weight) {
      return shared.unlike.contains(weight.name) ? 0 : plan.packed_bytes(weight);
    });
  }
  if (plan.exact_sums) passes::exact_sums(text.stage);
  passes::offload(text.stage, plan.memory.offload, deferred, apart, durations);
  passes::UpdateOptions options{plan.update};
  options.exact_sums = plan.exact_sums;
  int rank = 0;
  while (mesh.at(rank).at(ir::Axis::pp) != stage) ++rank;
  options.group_ranks["world"] = mesh.ranks();
  for (const model::Parameter& p : text.parameters) {
    options.group_ranks[p.copies] = static_cast<int>(mesh.group(p.copies, rank).size());
  }
  options.move_biases = config.bias_update_rate != 0.0;
  options.fuse_copy = plan.fusions.contains("adamw");
  std::vector<ir::Op> restores = passes::update(text, options);
  if (!plan.exact_sums) set_order(text.stage, shared.order);
  return restores;
}

// What the stages of the pipeline last, from the ops that they run.
schedule::Times stage_times(const ir::StepProgram& program, const schedule::Placement& placement,
                            const passes::Durations& duration_us) {
  schedule::Times times;
  times.stages.resize(static_cast<size_t>(placement.stages), {0, 0, 0, 0});
  for (int r = 0; r < placement.ranks; ++r) {
    const ir::Stage& stage = program.stages[static_cast<size_t>(r)];
    const std::vector<int> own = placement.stages_of(r);
    for (const ir::Op& op : stage.ops) {
      if (ir::once_a_step(op.phase)) continue;
      const int s = own[static_cast<size_t>(op.chunk)];
      if (s >= placement.stages) continue;  // a second copy
      schedule::StageTimes& of = times.stages[static_cast<size_t>(s)];
      const double us = duration_us(stage, op);
      if (op.attributes.has("step")) {
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

// The weights of a stage for another purpose are those of the training stage, in its layout.
void share_weights(ir::Stage& stage, const ir::Stage& owner, int owner_index) {
  for (ir::Value& value : stage.values) {
    if (value.role != ir::Role::weight) continue;
    const ir::Value& owned = owner.value(owner.find(value.name));
    value.layout = owned.layout;
    value.packed_bytes = owned.packed_bytes;
    value.shared_with_stage = owner_index;
  }
}

// What kernels read is made anew of the masters in one block of each pipeline rank.
void add_restore(ir::StepProgram& program, const std::vector<std::vector<ir::Op>>& restores) {
  constexpr auto purpose = static_cast<size_t>(ir::Purpose::restore);
  program.first_stage[purpose] = static_cast<int>(program.stages.size());
  for (int r = 0; r < std::ssize(restores); ++r) {
    const auto at = static_cast<size_t>(r);
    program.stages.push_back(passes::restore_stage(restores[at], program.stages[at], r));
    program.actions[purpose].push_back({{static_cast<int>(program.blocks.size()), {-1}}});
    program.blocks.push_back(
        ir::make_block(program, static_cast<int>(program.stages.size()) - 1, ir::BlockKind::end));
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
    made = schedule::make_schedule(plan.parallel.schedule, options);
  }
  schedule::validate(made);
  return made;
}

void check(const model::ModelConfig& config, const Plan& plan) {
  check_model(config, plan);
  layout_of(plan.parallel.layout, config, schedule_of(plan).placement.stages);
}

Lowered lower(const model::ModelConfig& config, const Plan& plan) {
  check_model(config, plan);
  const Mesh mesh(plan.mesh);
  Lowered lowered;
  ir::StepProgram& program = lowered.program;
  program.microbatches = plan.microbatches;
  const schedule::Schedule training = schedule_of(plan);
  lowered.placement = training.placement;
  const passes::Durations durations =
      plan.durations ? plan.durations : nominal_durations(plan.parallel.exchange, plan.rates);
  std::vector<std::vector<ir::Op>> restores;  // by pipeline rank
  for (const ir::Purpose purpose : {ir::Purpose::train, ir::Purpose::evaluate, ir::Purpose::predict}) {
    if ((purpose == ir::Purpose::evaluate && !plan.evaluates) ||
        (purpose == ir::Purpose::predict && !plan.predicts)) {
      continue;
    }
    const bool trains = purpose == ir::Purpose::train;
    const schedule::Schedule order = trains ? training : schedule::forward_only(training.placement);
    schedule::Lowering lowering;
    lowering.first_stage = static_cast<int>(program.stages.size());
    program.first_stage[static_cast<size_t>(purpose)] = lowering.first_stage;
    if (plan.parallel.weave != Weave::off && trains) {
      lowering.weave = [&](const ir::StepProgram& p, const std::vector<ir::Block>& blocks, bool in_order) {
        if (plan.parallel.weave == Weave::pairs) return passes::weave(p, blocks, durations, in_order);
        std::vector<ir::Block> alone;
        for (const ir::Block& block : blocks) alone.push_back(passes::weave(p, {block}, durations));
        return ir::joined(alone);
      };
    }
    std::vector<model::StageText> texts;
    for (const model::StageSpec& spec : stage_specs(config, plan, mesh, order.placement, purpose)) {
      texts.push_back(decoder_stage(config, spec));
      passes::fuse(texts.back().stage, plan.fusions);
    }
    Shared shared;
    if (trains) shared = join_copies(texts, order.placement);
    for (int r = 0; r < plan.mesh.pp; ++r) {
      model::StageText& text = texts[static_cast<size_t>(r)];
      if (trains) {
        const std::vector<schedule::Action>& actions = order.order[static_cast<size_t>(r)];
        restores.push_back(add_passes(text, config, plan, mesh, r, defers_weight_gradients(actions),
                                      stands_apart(actions, order.placement.stages_of(r)), durations, shared));
        lowered.parameters.push_back(std::move(text.parameters));
      } else {
        if (plan.parallel.reuse_lists) passes::reuse_lists(text.stage);
        text.stage.name += fmt::format(", {}", name_of(purpose));
        share_weights(text.stage, program.stages[static_cast<size_t>(r)], r);
      }
      program.stages.push_back(std::move(text.stage));
    }
    schedule::Timing timing;
    if (trains && plan.parallel.weave == Weave::pairs && plan.mesh.pp > 1) {
      timing = schedule::timing_of(order, stage_times(program, order.placement, durations));
      lowering.at_once = [&](int rank, size_t action) {
        const std::vector<schedule::Interval>& of = timing.of[static_cast<size_t>(rank)];
        return of[action].start <= of[action - 1].end;
      };
    }
    schedule::lower(program, program.actions[static_cast<size_t>(purpose)], order, lowering);
  }
  add_restore(program, restores);
  program.class_of_rank.clear();
  for (int r = 0; r < plan.ranks(); ++r) program.class_of_rank.push_back(mesh.at(r).at(ir::Axis::pp));
  ir::verify(program);
  return lowered;
}

}  // namespace heddle::plan
