#include "heddle/plan/switches.h"

#include "heddle/passes/offload.h"
#include "heddle/schedule/generators/generators.h"

namespace heddle::plan {

namespace {

std::vector<std::string> recompute_names() {
  std::vector<std::string> names;
  for (const passes::GroupWord& word : passes::group_words()) names.push_back(word.name);
  return names;
}

std::vector<std::string> offload_names() {
  std::vector<std::string> names = recompute_names();
  names.push_back(passes::kLayerInput);
  return names;
}

std::string page(std::string_view name) { return "docs/features/" + std::string(name) + ".md"; }

std::vector<Switch> make_switches() {
  using enum MathsClass;
  const std::vector<std::string> on_off{"true", "false"};
  return {
      {"fusions.norm", on_off, reassociates,
       "Adds the residual and normalises in one op; the residual's gradient joins inside the norm's.",
       "none in memory; one pass less over the hidden state each way", page("fusion_norm")},
      {"fusions.swiglu", on_off, reassociates,
       "Computes silu(gate) * up in one op straight from the joint projection.",
       "saves three activations of the MLP's width; the backward computes silu again", page("fusion_swiglu")},
      {"fusions.rope", on_off, reassociates,
       "Rotates queries and the shared key and assembles all keys and values in one op.",
       "none; saves copies of queries and of the rotary key", page("fusion_rope")},
      {"fusions.router", on_off, reassociates, "Scores, top-k choice and gate weights in one op.",
       "none; fewer small ops", page("fusion_router")},
      {"fusions.combine", on_off, reassociates,
       "Adds the shared expert's output while the routed rows are summed, so that the sum is rounded once.",
       "none; saves one activation of hidden size", page("fusion_combine")},
      {"fusions.loss", on_off, reassociates,
       "Output head, cross-entropy and both their gradients in one sweep over blocks of rows.",
       "never holds tokens x vocabulary; the head's weight gradient runs together with the input gradient",
       page("fusion_loss")},
      {"fusions.adamw", on_off, bitwise,
       "The optimizer writes the rounded copy of the weight that the kernels read.",
       "none; one pass less over the weights", page("fusion_adamw")},
      {"device.pack_weights", on_off, bitwise,
       "Keeps weights in the matrix products' own blocking, made once a step from the fp32 masters.",
       "a second blocking of each weight, for the input gradient; repacking at the end of each step",
       page("pack_weights")},
      {"device.graphs", on_off, bitwise,
       "On cuda, puts runs of launches that repeat on a stream as one CUDA graph.",
       "memory of the device for the graphs; what waits for a launch waits for its run", page("cuda_graphs")},
      {"device.dtype",
       {"auto", "bf16", "f32", "f64"},
       changes_maths,
       "Element type of weights and activations; sums, norms, router and optimizer are fp32 (fp64 with f64). auto "
       "is "
       "the faster one here: bf16 where matrix products multiply bf16 numbers (a GPU, AMX, AVX-512 bf16), else "
       "f32.",
       "bf16 halves activations and kernel weights but keeps fp32 masters beside them; f64 runs on the reference "
       "backend only",
       page("dtype")},
      {"device.deterministic",
       {"true"},
       bitwise,
       "Every sum has one fixed order, so that a run repeats bit for bit. Always on: there is no unordered mode.",
       "none",
       page("deterministic")},
      {"mesh.ranks",
       {},
       reassociates,
       "How many ranks work on the run, as threads of one process or under MPI.",
       "none by itself: what the ranks do is said by the degrees, and by mesh.dp where they leave it open",
       page("mesh")},
      {"mesh.dp",
       {},
       reassociates,
       "Copies of the model, each on its share of the batch; gradients are summed, the optimizer is sharded over "
       "them.",
       "a step sends each gradient and each weight once around; moments and masters shrink with the copies",
       page("data_parallel")},
      {"mesh.tp",
       {},
       reassociates,
       "Cuts heads, widths and vocabulary among ranks, and the tokens between the blocks (sequence parallel).",
       "gathers and scatters activations four times a layer each way; weights and activations shrink",
       page("tensor_parallel")},
      {"parallel.schedule", schedule::generator_names(), bitwise,
       "In what order the ranks of the pipeline run forwards and backwards, and how many stages each has.",
       "bubble against memory: heddle schedule prints both; dual_pipe holds every weight twice and reassociates",
       page("schedules")},
      {"parallel.chunks",
       {},
       bitwise,
       "Pipeline stages a rank, where the schedule leaves it open.",
       "a shorter bubble; more messages between ranks",
       page("schedules")},
      {"parallel.group",
       {},
       bitwise,
       "Microbatches that an interleaved schedule takes through a stage before it turns to the next.",
       "larger groups hold more activations",
       page("schedules")},
      {"parallel.layout",
       {"even", "balanced"},
       bitwise,
       "Which layers each pipeline stage holds; any cut, empty stages too, as letters.",
       "none by itself: the costliest stage sets the pace",
       page("stage_layout")},
      {"parallel.weave",
       {"off", "layers", "pairs"},
       bitwise,
       "Rearranges a block, or the forward and backward that a schedule fuses, so that their communication runs "
       "beside "
       "computation.",
       "weight gradients run up to two layers later, which keeps their activations for as long",
       page("weave")},
      {"parallel.context",
       {"gather", "ulysses", "ring"},
       reassociates,
       "How attention meets the keys of a sequence that is cut among ranks.",
       "gather and ring send the latent and make keys and values of the whole sequence on every rank; ulysses "
       "sends "
       "queries, keys, values and outputs by heads and repeats nothing",
       page("context_parallel")},
      {"parallel.exchange",
       {"plain", "rank", "node", "merge", "auto"},
       bitwise,
       "How rows reach experts on other ranks: one by one, once a rank, once a node, all to every node, or as "
       "counts "
       "and links tell, for each layer and microbatch.",
       "node and merge hold the rows that pass through a rank, and take a second hop; all but plain send sums in "
       "the "
       "wide type",
       page("moe_exchange")},
      {"parallel.reuse_lists", on_off, bitwise,
       "Combining and both backward exchanges of a MoE layer use the row counts that the first one copied to the "
       "host.",
       "none; off, the host waits four times a layer and microbatch instead of once", page("reuse_lists")},
      {"memory.recompute", recompute_names(), bitwise,
       "The backward makes these values again from what is kept, instead of keeping them since the forward.",
       "the ops run twice; gathers and exchanges send twice", page("recompute")},
      {"memory.offload", offload_names(), bitwise,
       "These values wait for the backward on the host; what could not be back in time stays.",
       "two copies of each beside the computation, and the host's memory", page("offload")},
      {"train.clip_norm",
       {},
       changes_maths,
       "Scales the gradient of all parameters down so that its norm is at most this; 0 switches it off.",
       "one reading of the gradients; the norm is measured in any case",
       page("clip_norm")},
      {"model.sequence_aux_loss_alpha",
       {},
       changes_maths,
       "Weight of the balance loss within each sequence; 0 switches it off.",
       "one small op a MoE layer each way",
       page("sequence_aux_loss")},
      {"train.exact_sums", on_off, reassociates,
       "Makes sums of weight gradients exact: every degree of data, expert and pipeline parallelism gives the same "
       "bits.",
       "8 bytes a parameter and one more sweep over the gradients a microbatch; twice the bytes of their reduction",
       page("exact_sums")},
      {"model.z_loss_weight",
       {},
       changes_maths,
       "Weight of the penalty on large router logits; 0 switches it off.",
       "one small op a MoE layer each way",
       page("z_loss")},
      {"model.bias_update_rate",
       {},
       changes_maths,
       "How far a step moves each expert's selection bias against its load; 0 holds the biases still. Left out, "
       "biases "
       "may travel as far in a run of any length.",
       "one small op a MoE layer at the end of the step",
       page("bias_balance")},
      {"model.num_nextn_predict_layers",
       {},
       changes_maths,
       "Layers that predict further tokens than the next while training; 0 switches it off.",
       "each depth costs a layer and another output head",
       page("multi_token_prediction")},
  };
}

}  // namespace

std::string_view name_of(MathsClass maths) {
  switch (maths) {
    case MathsClass::bitwise: return "bitwise";
    case MathsClass::reassociates: return "reassociates";
    case MathsClass::changes_maths: return "changes_maths";
  }
  return "?";
}

std::string_view promise_of(MathsClass maths) {
  switch (maths) {
    case MathsClass::bitwise: return "loss and gradients keep the same bits";
    case MathsClass::reassociates: return "the same sums, rounded at other places";
    case MathsClass::changes_maths: return "trains another function or in other numbers";
  }
  return "?";
}

const std::vector<Switch>& switches() {
  static const std::vector<Switch> all = make_switches();
  return all;
}

const Switch* find_switch(std::string_view key) {
  for (const Switch& s : switches()) {
    if (s.key == key) return &s;
  }
  return nullptr;
}

}  // namespace heddle::plan
