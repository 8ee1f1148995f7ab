#include <algorithm>

#include "heddle/ir/gradient.h"
#include "heddle/ir/verify.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/pack_weights.h"
#include "heddle/plan/plan.h"
#include "heddle/schedule/one_forward_one_backward.h"

namespace heddle::plan {

namespace {

model::StageText stage_text(const model::ModelConfig& config, const Plan& plan, int stage) {
  const int64_t each = config.num_hidden_layers / plan.pipeline_ranks;
  const int64_t more = config.num_hidden_layers % plan.pipeline_ranks;  // the first stages take one more
  model::StageSpec spec;
  spec.stage = stage;
  spec.first_layer = stage * each + std::min<int64_t>(stage, more);
  spec.layers = each + (stage < more ? 1 : 0);
  spec.first = stage == 0;
  spec.last = stage == plan.pipeline_ranks - 1;
  spec.sequences = plan.sequences;
  spec.sequence_length = plan.sequence_length;
  spec.dtype = plan.dtype;
  spec.expert_ranks = plan.expert_ranks;
  model::StageText text = deepseek_v3_stage(config, spec);
  passes::fuse(text.stage, plan.fusions);
  if (plan.train) {
    ir::differentiate(text.stage, ops::find("add"), {}, {});
    if (plan.fusions.contains("loss")) passes::fuse_loss(text.stage);
  }
  if (plan.packed_bytes) passes::pack_weights(text.stage, plan.packed_bytes);
  if (plan.train) {
    passes::UpdateOptions options = plan.update;
    options.bias_update_rate = config.bias_update_rate;
    options.fuse_copy = plan.fusions.contains("adamw");
    passes::update(text, options);
  }
  return text;
}

}  // namespace

Lowered lower(const model::ModelConfig& config, const Plan& plan) {
  model::validate(config);
  if (plan.sequence_length > config.max_position_embeddings) {
    config_error("sequence length {} exceeds model.max_position_embeddings ({})", plan.sequence_length,
                 config.max_position_embeddings);
  }
  if (config.n_routed_experts % plan.expert_ranks != 0) {
    config_error("model.n_routed_experts ({}) is not a multiple of the expert ranks ({})", config.n_routed_experts,
                 plan.expert_ranks);
  }
  if (plan.pipeline_ranks > 1 && (config.tie_word_embeddings || config.num_nextn_predict_layers > 0)) {
    config_error("tied embeddings and multi-token prediction need one pipeline stage, {} asked for",
                 plan.pipeline_ranks);
  }
  Lowered lowered;
  ir::StepProgram& program = lowered.program;
  program.microbatches = plan.microbatches;
  std::vector<std::vector<schedule::Compute>> orders;
  for (int s = 0; s < plan.pipeline_ranks; ++s) {
    model::StageText text = stage_text(config, plan, s);
    program.stages.push_back(std::move(text.stage));
    lowered.parameters.push_back(std::move(text.parameters));
    std::vector<schedule::Compute> order;
    for (const schedule::Compute& c : schedule::one_forward_one_backward(s, plan.pipeline_ranks, plan.microbatches)) {
      if (plan.train || c.kind == ir::BlockKind::F) order.push_back(c);
    }
    orders.push_back(std::move(order));
  }
  schedule::lower(program, orders);
  program.class_of_rank.clear();
  for (int r = 0; r < plan.ranks(); ++r) program.class_of_rank.push_back(plan.stage_of(r));
  ir::verify(program);
  return lowered;
}

}  // namespace heddle::plan
