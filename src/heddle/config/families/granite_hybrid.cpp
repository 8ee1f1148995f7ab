// Granite 4: most layers have Mamba-2 in place of attention, and attention turns nothing in most models. Behind
// either stands an MLP, alone or beside experts. The four factors are those of Granite 3.
//
// In its folders the matrices of a layer's experts are one tensor, rows of gate ahead of those of up. So are gate
// and up of the MLP.
//
// Sources: GraniteMoeHybridConfig and modeling_granitemoehybrid.py of Transformers 5, gone through key by key; the
// tables of sizes in the model cards of Granite-4.0-H-Micro, -Tiny and -Small.
#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/config/families/mamba_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Positions;
using model::Recurrence;
using Written = nlohmann::ordered_json;

// Older files call the kinds of layers otherwise, and the list too. Without one every layer has Mamba-2.
void rewrite_granite_4(Json& root, const std::string& place) {
  name_num_local_experts(root, place);
  join_names(root, place, {{"layers_block_type", "layer_types"}});
  Json& types = root["layer_types"];
  const Json layers = root.value("num_hidden_layers", Json());
  constexpr int64_t kMostLayers = 4096;
  if (types.is_null() && layers.is_number_integer() && layers >= 0 && layers <= kMostLayers)
    types = Json(layers.get<size_t>(), "linear_attention");
  if (!types.is_array()) return;
  for (Json& type : types) {
    if (type == "mamba") type = "linear_attention";
    if (type == "attention") type = "full_attention";
  }
}

bool is_dense_granite_4(const ModelConfig& c) { return c.first_k_dense_replace >= c.num_hidden_layers; }

void read_experts_granite_4(const JsonKeys& keys, ModelConfig& c) {
  const int64_t experts = keys.whole("num_local_experts", 8);
  c.first_k_dense_replace = experts == 0 ? c.num_hidden_layers : 0;
  if (experts != 0) c.n_routed_experts = experts;
}

// Files of dense models have 0.
void read_chosen_granite_4(const JsonKeys& keys, ModelConfig& c) {
  if (!is_dense_granite_4(c)) c.num_experts_per_tok = keys.whole("num_experts_per_tok", 2);
}

// The MLP beside the experts, or of a dense model.
void read_shared_granite_4(const JsonKeys& keys, ModelConfig& c) {
  const int64_t width = keys.whole("shared_intermediate_size", 1024);
  (is_dense_granite_4(c) ? c.intermediate_size : c.shared_intermediate_size) = width;
}

void read_positions_granite_4(const JsonKeys& keys, ModelConfig& c) {
  const std::string word = keys.word("position_embedding_type", "nope");
  if (word != "rope" && word != "nope") {
    config_error("{}: 'position_embedding_type' is {}, accepted: 'rope', 'nope' or null", keys.place(),
                 formats::shown(*keys.find("position_embedding_type")));
  }
  c.positions = word == "rope" ? Positions::rotary : Positions::none;
}

void read_layers_granite_4(const JsonKeys& keys, ModelConfig& c) {
  set_layer_kinds(keys, attention_by_words(keys, c.num_hidden_layers), Recurrence::mamba2, c);
}

void derive_granite_4(ModelConfig& c) {
  const bool dense = is_dense_granite_4(c);
  c.first_k_dense_replace = dense ? c.num_hidden_layers : 0;
  c.n_shared_experts = dense ? 0 : 1;
  if (dense) c.shared_intermediate_size = 0;
  if (!dense) c.moe_intermediate_size = c.intermediate_size;
  if (!c.turns()) c.rope_scaling.reset();
  if (!c.recurs()) model::reset_foreign_keys(c);
}

// A model is Granite 3 where every layer has attention that turns.
bool holds_granite_4(const ModelConfig& c) {
  if (c.recurs() && (c.recurrence != Recurrence::mamba2 || c.linear_values_width() % c.hidden_size != 0))
    return false;
  const bool has_shared = c.n_shared_experts == 1 && c.shared_intermediate_size > 0;
  const ModelConfig usual;  // a file of a dense model says nothing of experts
  if (!c.has_experts() && (c.n_routed_experts != usual.n_routed_experts || !c.norm_topk_prob ||
                           c.num_experts_per_tok != usual.num_experts_per_tok ||
                           c.moe_intermediate_size != usual.moe_intermediate_size))
    return false;
  return (c.recurs() || c.positions == Positions::none) && !c.is_hybrid() && c.is_grouped() && !c.qk_norm &&
         c.attention_scale > 0 && c.sliding_window == 0 && !c.attention_sinks && follows(c, derive_granite_4) &&
         (!c.has_experts() || (has_shared && !c.sigmoid_scores && c.norm_topk_prob));
}

std::string spelt_granite_4(std::string name) {
  return respelt(std::move(name), {{".linear_attn.", ".mamba."},
                                   {".mlp.gate.weight", ".block_sparse_moe.router.layer.weight"},
                                   {".mlp.shared_experts.down_proj.", ".shared_mlp.output_linear."},
                                   {".mlp.down_proj.", ".shared_mlp.output_linear."}});
}

// Gate and up are halves of one matrix, of an expert among those of all experts.
std::optional<ReleasedPlace> stacked_granite_4(const std::string& name, const std::vector<int64_t>& shape,
                                               int64_t experts, const JoinedRows&) {
  if (experts > 0) {
    std::optional<ReleasedPlace> place = stacked_expert(name, shape, experts, "block_sparse_moe.");
    if (place) {
      place->name =
          respelt(place->name, {{"gate_up_proj", "input_linear.weight"}, {"down_proj", "output_linear.weight"}});
    }
    return place;
  }
  for (const std::string_view part : {".mlp.shared_experts.", ".mlp."}) {
    const size_t at = name.find(part);
    if (at == std::string::npos || shape.size() != 2) continue;
    const std::string rest = name.substr(at + part.size());
    if (rest != "gate_proj.weight" && rest != "up_proj.weight") return std::nullopt;
    return ReleasedPlace{.name = name.substr(0, at) + ".shared_mlp.input_linear.weight",
                         .shape = {2 * shape[0], shape[1]},
                         .first = rest == "up_proj.weight" ? shape[0] * shape[1] : 0,
                         .row_step = shape[1],
                         .is_whole = false};
  }
  return std::nullopt;
}

ModelConfig base_granite_4() {
  ModelConfig c = grouped_base();
  c.positions = Positions::none;
  c.recurrence = Recurrence::mamba2;
  c.n_shared_experts = 1;
  return c;
}

// Four of forty layers have attention.
ModelConfig sized_granite_4(int64_t hidden, int64_t mlp, int64_t heads, int64_t kv_heads, double attention,
                            double logits) {
  ModelConfig c = sized(base_granite_4(), {100352, hidden, 40, mlp, heads, kv_heads, 131072});
  constexpr int64_t kFirst = 5, kEvery = 10, kMambaHead = 64, kState = 128;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) c.layer_pattern += l % kEvery == kFirst ? '*' : 'M';
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.tie_word_embeddings = true;
  c.embedding_multiplier = 12;
  c.attention_scale = attention;
  c.logits_divisor = logits;
  c.residual_multiplier = 0.22;
  c.linear_num_key_heads = 1;
  c.linear_num_value_heads = 2 * hidden / kMambaHead;
  c.linear_value_head_dim = kMambaHead;
  c.linear_key_head_dim = kState;
  derive_granite_4(c);
  return c;
}

ModelConfig mixture_granite_4(ModelConfig c, int64_t experts, int64_t chosen, int64_t shared) {
  c.first_k_dense_replace = 0;
  c.n_routed_experts = experts;
  c.num_experts_per_tok = chosen;
  c.shared_intermediate_size = shared;
  derive_granite_4(c);
  return c;
}

}  // namespace

Family granite_moe_hybrid() {
  Family f = grouped_family("GraniteMoeHybridForCausalLM", "granitemoehybrid", 1e-6, base_granite_4());
  f.keys.push_back(own_attention_bias_key());
  add_keys(
      f, {
             key("embedding_multiplier", "embedding_multiplier", 1.0),
             key("logits_scaling", "logits_divisor", 1.0),
             key("residual_multiplier", "residual_multiplier", 1.0),
             key("attention_multiplier", "attention_scale", 1.0),
             {.name = "position_embedding_type",
              .ours = "positions",
              .read = read_positions_granite_4,
              .write = [](const ModelConfig& c) { return c.turns() ? Written("rope") : Written(); }},
             {.name = "num_local_experts",
              .ours = "n_routed_experts",
              .read = read_experts_granite_4,
              .write = [](const ModelConfig& c) { return Written(c.has_experts() ? c.n_routed_experts : 0); }},
             {.name = "num_experts_per_tok", .ours = "num_experts_per_tok", .read = read_chosen_granite_4},
             {.name = "shared_intermediate_size",
              .ours = "shared_intermediate_size",
              .read = read_shared_granite_4,
              .write =
                  [](const ModelConfig& c) {
                    return Written(c.has_experts() ? c.shared_intermediate_size : c.intermediate_size);
                  }},
             {.name = "layer_types", .ours = "recurrence", .read = read_layers_granite_4, .write = words_of_layers},
         });
  add_keys(f, layer_kind_keys());
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "norm_topk_prob", "n_shared_experts"};
  f.only = {above_zero("attention_multiplier"), above_zero("shared_intermediate_size")};
  f.read_besides = {"num_experts",       "output_router_logits",   "router_aux_loss_coef",
                    "layers_block_type", "normalization_function", "init_method"};
  add_mamba_keys(f);
  f.rewrite = rewrite_granite_4;
  f.adopt = adopt_router_loss;
  f.derive = derive_granite_4;
  f.holds = holds_granite_4;
  f.spelt = spelt_granite_4;
  f.stacked = stacked_granite_4;
  f.presets = {
      {"granite-4.0-h-tiny", mixture_granite_4(sized_granite_4(1536, 512, 12, 4, 0.0078125, 6), 64, 6, 1024)},
      {"granite-4.0-h-small", mixture_granite_4(sized_granite_4(4096, 768, 32, 8, 0.0078125, 16), 72, 10, 1536)},
      {"granite-4.0-h-micro", sized_granite_4(2048, 8192, 32, 8, 0.015625, 8)}};
  return f;
}

}  // namespace heddle::config
