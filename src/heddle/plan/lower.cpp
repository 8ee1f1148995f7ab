#include <algorithm>

#include "heddle/ir/gradient.h"
#include "heddle/ir/verify.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/exact_sums.h"
#include "heddle/passes/pack_weights.h"
#include "heddle/passes/reuse_lists.h"
#include "heddle/plan/plan.h"
#include "heddle/schedule/one_forward_one_backward.h"

namespace heddle::plan {

namespace {

// Sizes that a mesh cuts must divide.
void check_sizes(const model::ModelConfig& config, const Plan& plan) {
  const Degrees& mesh = plan.mesh;
  const auto divides = [](const char* what, int64_t size, const char* by, int64_t degree) {
    if (size % degree != 0) config_error("{} ({}) is not a multiple of {} ({})", what, size, by, degree);
  };
  divides("model.num_attention_heads", config.num_attention_heads, "mesh.tp", mesh.tp);
  divides("model.vocab_size", config.vocab_size, "mesh.tp", mesh.tp);
  divides("model.intermediate_size", config.intermediate_size, "mesh.tp", mesh.tp);
  divides("model.n_shared_experts × moe_intermediate_size", config.n_shared_experts * config.moe_intermediate_size,
          "mesh.tp", mesh.tp);
  divides("model.n_routed_experts", config.n_routed_experts, "mesh.ep", mesh.ep);
  divides("model.moe_intermediate_size", config.moe_intermediate_size, "mesh.etp", mesh.etp);
  const std::vector<std::string> contexts{"gather", "ulysses", "ring"};
  if (std::find(contexts.begin(), contexts.end(), plan.context) == contexts.end()) {
    config_error("parallel.context is '{}', accepted are gather, ulysses and ring{}", plan.context,
                 did_you_mean(plan.context, contexts));
  }
  if (plan.context == "ulysses") {
    divides("model.num_attention_heads", config.num_attention_heads,
            "mesh.tp × mesh.cp, as parallel.context 'ulysses' needs", int64_t{mesh.tp} * mesh.cp);
  }
  divides("the sequence length", plan.sequence_length, mesh.cp > 1 ? "2 × mesh.cp × mesh.tp" : "mesh.tp",
          (mesh.cp > 1 ? 2 * mesh.cp : 1) * mesh.tp);
}

model::StageText stage_text(const model::ModelConfig& config, const Plan& plan, const Mesh& mesh, int stage,
                            ir::Purpose purpose) {
  const int64_t each = config.num_hidden_layers / plan.mesh.pp;
  const int64_t more = config.num_hidden_layers % plan.mesh.pp;  // the first stages take one more
  model::StageSpec spec;
  spec.stage = stage;
  spec.first_layer = stage * each + std::min<int64_t>(stage, more);
  spec.layers = each + (stage < more ? 1 : 0);
  spec.first = stage == 0;
  spec.last = stage == plan.mesh.pp - 1;
  spec.sequences = purpose == ir::Purpose::predict ? 1 : plan.sequences;
  spec.purpose = purpose;
  spec.sequence_length = plan.sequence_length;
  spec.context = plan.context;
  spec.dtype = plan.dtype;
  spec.mesh = mesh.at(0);
  spec.exchange = plan.exchange;
  model::StageText text = deepseek_v3_stage(config, spec);
  passes::fuse(text.stage, plan.fusions);
  if (purpose != ir::Purpose::train) {
    if (plan.reuse_lists) passes::reuse_lists(text.stage);
    return text;
  }
  ir::differentiate(text.stage, ops::find("add"), {}, {});
  if (plan.fusions.contains("norm")) passes::fuse_norm_gradient(text.stage);
  if (plan.reuse_lists) passes::reuse_lists(text.stage);
  if (plan.fusions.contains("loss")) passes::fuse_loss(text.stage);
  if (plan.packed_bytes) passes::pack_weights(text.stage, plan.packed_bytes);
  if (plan.exact_sums) passes::exact_sums(text.stage);
  passes::UpdateOptions options = plan.update;
  options.exact_sums = plan.exact_sums;
  for (const char* group : {"stage", "dense", "edp", "world"}) {
    options.group_ranks[group] = static_cast<int>(mesh.group(group, 0).size());
  }
  options.bias_update_rate = config.bias_update_rate;
  options.fuse_copy = plan.fusions.contains("adamw");
  passes::update(text, options);
  return text;
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

}  // namespace

Lowered lower(const model::ModelConfig& config, const Plan& plan) {
  model::validate(config);
  if (plan.sequence_length > config.max_position_embeddings) {
    config_error("sequence length {} exceeds model.max_position_embeddings ({})", plan.sequence_length,
                 config.max_position_embeddings);
  }
  const Mesh mesh(plan.mesh);
  check_sizes(config, plan);
  if (plan.mesh.pp > 1 && (config.tie_word_embeddings || config.num_nextn_predict_layers > 0)) {
    config_error("tied embeddings and multi-token prediction need one pipeline stage, {} asked for", plan.mesh.pp);
  }
  Lowered lowered;
  ir::StepProgram& program = lowered.program;
  program.microbatches = plan.microbatches;
  for (const ir::Purpose purpose : {ir::Purpose::train, ir::Purpose::evaluate, ir::Purpose::predict}) {
    if ((purpose == ir::Purpose::evaluate && !plan.evaluates) ||
        (purpose == ir::Purpose::predict && !plan.predicts)) {
      continue;
    }
    const int first = static_cast<int>(program.stages.size());
    std::vector<std::vector<schedule::Compute>> orders;
    for (int s = 0; s < plan.mesh.pp; ++s) {
      model::StageText text = stage_text(config, plan, mesh, s, purpose);
      if (purpose == ir::Purpose::train) {
        orders.push_back(schedule::one_forward_one_backward(s, plan.mesh.pp, plan.microbatches));
        lowered.parameters.push_back(std::move(text.parameters));
      } else {
        text.stage.name += purpose == ir::Purpose::evaluate ? ", evaluate" : ", predict";
        share_weights(text.stage, program.stages[static_cast<size_t>(s)], s);
        orders.push_back({{ir::BlockKind::begin, s, -1}, {ir::BlockKind::F, first + s, 0}});
      }
      program.stages.push_back(std::move(text.stage));
    }
    schedule::lower(program, program.actions[static_cast<size_t>(purpose)], orders);
  }
  program.class_of_rank.clear();
  for (int r = 0; r < plan.ranks(); ++r) program.class_of_rank.push_back(mesh.at(r).at(ir::Axis::pp));
  ir::verify(program);
  return lowered;
}

}  // namespace heddle::plan
