// LongCat-Flash: latent attention with scaled latents. A layer of its files is a pair of layers here, each with
// attention and an MLP. The experts beside the first MLP add behind the second; some are without computation. A
// layer of a further token has an MLP, and repeats the embedding.
//
// Sources: Meituan, arXiv 2509.01322; the config.json released with LongCat-Flash-Chat; LongcatFlashConfig and the
// model of Transformers 5, gone through key by key; longcat_flash_mtp.py of vLLM, for names of the further layer.
#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/family.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

void rename_longcat(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_local_experts", "n_routed_experts"},
              {"num_experts_per_tok", "moe_topk"},
              {"intermediate_size", "ffn_hidden_size"},
              {"moe_intermediate_size", "expert_ffn_hidden_size"}});
  const Json attentions = root.value("num_hidden_layers", Json());
  if (attentions.is_null()) return;
  const Json pairs = root.value("num_layers", Json());
  if (attentions.is_number_integer() && attentions.get<double>() < 1e6 && attentions.get<int64_t>() % 2 == 0 &&
      (pairs.is_null() || pairs == attentions.get<int64_t>() / 2)) {
    root["num_layers"] = attentions.get<int64_t>() / 2;
    return;
  }
  config_error("{}: 'num_hidden_layers' is {} and 'num_layers' {}: a layer holds two layers of attention", place,
               formats::shown(attentions), formats::shown(pairs));
}

PublishedKey pairs_key() {
  return {.name = "num_layers",
          .ours = "num_hidden_layers",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                const auto pairs = keys.whole("num_layers");
                c.num_hidden_layers = pairs < 0 || pairs > (1 << 20) ? pairs : 2 * pairs;
              },
          .write = [](const ModelConfig& c) { return nlohmann::ordered_json(c.num_hidden_layers / 2); }};
}

// Both factors are one switch here.
Only scaled_only(const char* name) {
  return {name, [](const Json& v, const Json&) { return v == true; }, "scaled latents are built"};
}

Only equal_to_key(const char* name, const char* other, const char* reason) {
  return {name, [other](const Json& v, const Json& root) { return v == root.value(other, v); }, reason};
}

ModelConfig longcat_base() {
  ModelConfig c;
  c.scaled_latents = c.shortcut_experts = true;
  c.sigmoid_scores = c.norm_topk_prob = false;
  c.n_shared_experts = 0;
  c.first_k_dense_replace = 0;
  c.rope_theta = 1e7;
  return c;
}

bool holds_longcat(const ModelConfig& c) {
  return c.is_latent() && c.shortcut_experts && c.scaled_latents && c.q_lora_rank > 0 && !c.selects() &&
         !c.recurs() && !c.sigmoid_scores && !c.softplus_scores && !c.norm_topk_prob && !c.router_bias &&
         c.n_shared_experts == 0 && c.rope_interleave && c.topk_bias && c.num_nextn_predict_layers <= 1 &&
         c.nextn_blocks.empty();
}

constexpr const char *kFurther = "mtp.layers.0.", *kReleasedFurther = "model.mtp.layers.0.",
                     *kFurtherEmbedding = "model.mtp.embed_tokens.weight";

std::string spelt_longcat(std::string name) {
  if (name.starts_with(kFurther)) {
    return respelt("model." + std::move(name), {{"layers.0.shared_head.norm.", "norm."},
                                                {".enorm.", ".enorm.m."},
                                                {".hnorm.", ".hnorm.m."},
                                                {".mlp.", ".transformer_layer.mlp."}});
  }
  return respelt(std::move(name), {{".mlp.gate.weight", ".mlp.router.classifier.weight"},
                                   {".mlp.gate.e_score_correction_bias", ".mlp.router.e_score_correction_bias"}});
}

// No key of the released file counts the layer: a folder has it where its weights do.
void count_further_longcat(ModelConfig& c, const std::string& path, std::vector<std::string>*) {
  if (const auto has = weights_beside_have(path, kReleasedFurther)) c.num_nextn_predict_layers = *has ? 1 : 0;
}

FurtherTensors further_longcat(const ModelConfig& c) {
  FurtherTensors further;
  if (c.num_nextn_predict_layers > 0) further.copies.push_back({kFurtherEmbedding, kEmbedding});
  return further;
}

std::string_view repeats_longcat(std::string_view name, std::string_view) {
  return name == kFurtherEmbedding ? kEmbedding : "";
}

// Transformers writes halves of experts for those without computation too, and passes over a layer of a further
// token.
bool passed_over_longcat(std::string_view name, const HasTensor& has) {
  if (name.starts_with("model.mtp.")) return true;
  const std::optional<ExpertName> of = expert_name(name);
  if (!of || (of->tensor != "gate_proj.weight" && of->tensor != "up_proj.weight")) return false;
  const std::string router = fmt::format("{}mlp.router.classifier.weight", of->layer);
  return has(router) && !has(fmt::format("{}mlp.experts.{}.down_proj.weight", of->layer, of->expert));
}

// The config.json released with LongCat-Flash-Chat.
ModelConfig longcat_flash_560b() {
  ModelConfig c = longcat_base();
  c.vocab_size = 131072;
  c.hidden_size = 6144;
  c.num_hidden_layers = 2 * 28;
  c.intermediate_size = 12288;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 131072;
  c.num_attention_heads = 64;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.n_routed_experts = 512;
  c.zero_expert_num = 256;
  c.num_experts_per_tok = 12;
  c.moe_intermediate_size = 2048;
  c.routed_scaling_factor = 6;
  c.bias_balance = model::BiasBalance::share;
  c.num_nextn_predict_layers = 1;
  return c;
}

}  // namespace

Family longcat_flash() {
  Family f;
  f.architecture = "LongcatFlashForCausalLM";
  f.model_type = "longcat_flash";
  f.base = longcat_base();
  f.keys = {
      key("vocab_size"),
      key("hidden_size"),
      pairs_key(),
      key("ffn_hidden_size", "intermediate_size"),
      fixed("hidden_act", "silu"),
      key("rms_norm_eps", "rms_norm_eps", 1e-5),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("max_position_embeddings"),
      fixed("attention_bias", false),
      fixed("attention_dropout", 0.0),
      key("num_attention_heads"),
      key("q_lora_rank"),
      key("kv_lora_rank"),
      key("qk_nope_head_dim"),
      key("qk_rope_head_dim"),
      // Transformers takes it for the width that turns.
      {.name = "head_dim",
       .write = [](const ModelConfig& c) { return nlohmann::ordered_json(c.qk_rope_head_dim); }},
      key("v_head_dim"),
      rope_theta_key(),
      rope_scaling_key(),
      key("n_routed_experts"),
      key("zero_expert_num", "zero_expert_num", 256, 0),
      key("moe_topk", "num_experts_per_tok", 12),
      key("expert_ffn_hidden_size", "moe_intermediate_size"),
      key("routed_scaling_factor", "routed_scaling_factor", 6.0),
      key("num_nextn_predict_layers", "num_nextn_predict_layers", 0),
  };
  f.said = {"scaled_latents", "shortcut_experts", "first_k_dense_replace",
            "sigmoid_scores", "norm_topk_prob",   "n_shared_experts"};
  f.only = {
      scaled_only("mla_scale_q_lora"),
      scaled_only("mla_scale_kv_lora"),
      is("zero_expert_type", "identity", "experts without computation give rows back as they are"),
      is("attention_method", "MLA", "latent attention is built"),
      off("router_bias", "Transformers has it and computes without it"),
      off("norm_topk_prob", "gates are not divided by their sum"),
      equal_to_key("num_key_value_heads", "num_attention_heads", "latent attention has as many as heads"),
      equal_to_key("head_dim", "qk_rope_head_dim",
                   "it stands for the rotated part of a head and must equal qk_rope_head_dim"),
      {"qk_head_dim",
       [](const Json& v, const Json& root) {
         const Json nope = root.value("qk_nope_head_dim", Json()), rope = root.value("qk_rope_head_dim", Json());
         return !nope.is_number() || !rope.is_number() || v == nope.get<double>() + rope.get<double>();
       },
       "it must be the sum of qk_nope_head_dim and qk_rope_head_dim"},
  };
  f.read_besides = {"num_local_experts",     "num_experts_per_tok", "intermediate_size",
                    "moe_intermediate_size", "num_hidden_layers",   "output_router_logits"};
  f.rewrite = rename_longcat;
  f.adopt = adopt_router_loss;
  f.complete = count_further_longcat;
  f.further = further_longcat;
  f.repeats = repeats_longcat;
  f.holds = holds_longcat;
  f.spelt = spelt_longcat;
  f.passed_over = passed_over_longcat;
  f.presets = {{"longcat-flash", longcat_flash_560b()}};
  return f;
}

}  // namespace heddle::config
