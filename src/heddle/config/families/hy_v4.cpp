// Hy4: DeepSeek-V3.2's latent attention to chosen keys, with a sink a head and a gate an element, between
// independent hyper-connections. Routed experts cut their gates.
//
// Sources: HYV4Config, HYV4VLTextConfig and their models of Transformers 5.24, gone through key by key, and its
// table of released names. Sizes of presets are the defaults of these two, which its documentation names
// tencent/Hy4-preview and tencent/Hy4.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/key_selection.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

// The norm of an indexer's keys has the epsilon of the norms around layers.
void derive_hy_v4(ModelConfig& c) { c.indexer_norm_eps = c.rms_norm_eps; }

void adopt_hy_v4(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  const Json layers = root.value("num_nextn_predict_layers", Json());
  if (!layers.is_null() && layers != 0 && warnings != nullptr) {
    warnings->push_back(
        fmt::format("{}: layers that predict further tokens are not built for this family: taken as 0", place));
  }
}

void read_limit_hy_v4(const JsonKeys& keys, ModelConfig& c) {
  c.experts_limit = keys.number("swiglu_limit", 10);
  if (!(c.experts_limit > 0)) {
    config_error("{}: 'swiglu_limit' is {}, accepted: a number above 0", keys.place(), c.experts_limit);
  }
}

void read_streams_hy_v4(const JsonKeys& keys, ModelConfig& c) {
  c.hyper_connections = keys.whole("hc_mult", 4);
  if (c.hyper_connections < 1) {
    config_error("{}: 'hc_mult' is {}, accepted: 1 or more", keys.place(), c.hyper_connections);
  }
}

template <class T>
Written above_zero_hy_v4(T value) {
  return value > 0 ? Written(value) : Written(Written::value_t::discarded);
}

// The released names, and, where the table of Transformers leaves one open, what it writes.
std::string spelt_hy_v4(std::string name) {
  return respelt(std::move(name), {{".self_attn.gate_proj.", ".self_attn.linear_gate."},
                                   {".self_attn.sinks", ".self_attn.learnable_sink_param"},
                                   {".attn_hc.", ".hc_pre.hc_attn_layer.hc_"},
                                   {".ffn_hc.", ".hc_pre.hc_mlp_layer.hc_"},
                                   {".hc_head.hc_", ".hc_pre.hc_head.hc_head_"}});
}

// Transformers gives gates of MLPs the name of attention's gate when it writes.
std::string written_hy_v4(std::string name) {
  name = spelt_hy_v4(std::move(name));
  return name.find(".mlp.experts.") == std::string::npos
             ? respelt(std::move(name), {{".mlp.gate_proj.", ".mlp.linear_gate."},
                                         {".shared_experts.gate_proj.", ".shared_experts.linear_gate."}})
             : name;
}

// Names with the prefix of hyper-connections in the other place that the table allows.
std::string spelt_hy_v4_vl(std::string name) {
  return respelt(spelt_hy_v4(std::move(name)), {{".hc_pre.hc_attn_layer.hc_", ".hc_attn_layer.hc_pre.hc_"},
                                                {".hc_pre.hc_mlp_layer.hc_", ".hc_mlp_layer.hc_pre.hc_"},
                                                {".hc_pre.hc_head.hc_head_", ".hc_head.hc_pre.hc_head_"}});
}

std::optional<ReleasedPlace> stacked_hy_v4(const std::string& name, const std::vector<int64_t>& shape,
                                           int64_t experts, const JoinedRows&) {
  return stacked_expert(name, shape, experts, "mlp.experts.");
}

ModelConfig hy4_preview() {
  ModelConfig c;
  c.vocab_size = 120832;
  c.hidden_size = 2816;
  c.num_hidden_layers = 34;
  c.intermediate_size = 6912;
  c.rms_norm_eps = 1e-5;
  c.initializer_range = 0.006;
  c.max_position_embeddings = 262144;
  c.num_attention_heads = 32;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 192;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 256;
  c.rope_interleave = false;
  c.index_topk = 2048;
  c.index_n_heads = 16;
  c.index_head_dim = 128;
  c.index_topk_freq = 4;
  c.indexer_rope_last = true;
  c.attention_gate = model::AttentionGate::element;
  c.attention_sinks = true;
  c.hyper_connections = 4;
  c.hyper_connections_kind = model::HyperConnection::independent;
  c.experts_limit = 10;
  c.limited_gates = true;
  c.n_routed_experts = 256;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 768;
  c.routed_scaling_factor = 2.827;
  c.bias_update_rate = 0.001;
  derive_hy_v4(c);
  return c;
}

ModelConfig hy4() {
  ModelConfig c = hy4_preview();
  c.hidden_size = 6144;
  c.num_hidden_layers = 78;
  c.intermediate_size = 18432;
  c.num_attention_heads = 64;
  c.q_lora_rank = 2048;
  c.index_n_heads = 32;
  c.moe_intermediate_size = 2048;
  return c;
}

// The family whose absent keys are those of a model.
Family hy_v4_like(const ModelConfig& usual) {
  Family f = selecting_family();
  f.base = usual;
  f.said = {"rope_interleave", "indexer_rope_interleave", "indexer_rope_last",     "indexer_norm_eps",
            "attention_gate",  "attention_sinks",         "hyper_connections_kind"};
  drop_keys(f,
            {"first_k_dense_replace", "moe_layer_freq", "scoring_func", "topk_method", "num_nextn_predict_layers"});
  replace_keys(f, {key("vocab_size", "vocab_size", usual.vocab_size),
                   key("hidden_size", "hidden_size", usual.hidden_size),
                   key("num_hidden_layers", "num_hidden_layers", usual.num_hidden_layers),
                   key("intermediate_size", "intermediate_size", usual.intermediate_size),
                   key("rms_norm_eps", "rms_norm_eps", 1e-5),
                   key("initializer_range", "initializer_range", 0.006),
                   key("max_position_embeddings", "max_position_embeddings", usual.max_position_embeddings),
                   key("num_attention_heads", "num_attention_heads", usual.num_attention_heads),
                   key("q_lora_rank", "q_lora_rank", usual.q_lora_rank),
                   key("kv_lora_rank", "kv_lora_rank", usual.kv_lora_rank),
                   key("qk_nope_head_dim", "qk_nope_head_dim", usual.qk_nope_head_dim),
                   key("qk_rope_head_dim", "qk_rope_head_dim", usual.qk_rope_head_dim),
                   key("v_head_dim", "v_head_dim", usual.v_head_dim),
                   key("n_routed_experts", "n_routed_experts", usual.n_routed_experts),
                   key("num_experts_per_tok", "num_experts_per_tok", usual.num_experts_per_tok),
                   key("n_shared_experts", "n_shared_experts", 1),
                   key("moe_intermediate_size", "moe_intermediate_size", usual.moe_intermediate_size),
                   key("n_group", "n_group", 1),
                   key("topk_group", "topk_group", 1),
                   key("routed_scaling_factor", "routed_scaling_factor", 2.827)});
  add_keys(f, {mlp_layer_types_key(1),
               key("index_n_heads", "index_n_heads", usual.index_n_heads),
               key("index_topk_freq", "index_topk_freq", 4),
               key("index_skip_topk_offset", "index_skip_topk_offset", 2),
               indexer_types_key(),
               {.name = "hc_mult",
                .ours = "hyper_connections",
                .read = read_streams_hy_v4,
                .write = [](const ModelConfig& c) { return above_zero_hy_v4(c.hyper_connections); }},
               key("hc_magnitude", "hyper_connections_magnitude", 2.0),
               key("hc_eps", "hyper_connections_eps", 1e-6),
               {.name = "swiglu_limit",
                .ours = "experts_limit",
                .read = read_limit_hy_v4,
                .write = [](const ModelConfig& c) { return above_zero_hy_v4(c.experts_limit); }}});
  // The configuration sets the first three itself, whatever the file says.
  const std::vector<std::string> read = {"num_key_value_heads", "head_dim",        "qk_head_dim",
                                         "scoring_func",        "mlp_layer_types", "first_k_dense_replace",
                                         "rope_interleave"};
  std::erase_if(f.only,
                [&](const Only& each) { return std::find(read.begin(), read.end(), each.name) != read.end(); });
  f.only.push_back(is("rope_interleave", false, "the family rotates halves"));
  f.only.push_back(is("indexer_rope_interleave", false, "the family's indexer rotates halves"));
  f.only.push_back(is("scoring_func", "sigmoid", "the family has 'sigmoid'"));
  f.read_besides.insert(f.read_besides.end(), {"head_dim", "qk_head_dim", "learnable_sink_init",
                                               "num_nextn_predict_layers", "first_k_dense_replace"});
  f.adopt = adopt_hy_v4;
  f.derive = derive_hy_v4;
  f.spelt = spelt_hy_v4;
  f.also_spelt = written_hy_v4;
  f.stacked = stacked_hy_v4;
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("model.mtp_layers."); };
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && c.selects() && c.q_lora_rank > 0 && !c.rope_interleave && !c.indexer_rope_interleave &&
           c.indexer_rope_last && c.attention_gate == model::AttentionGate::element && c.attention_sinks &&
           c.hyper_connections > 0 && c.hyper_connections_kind == model::HyperConnection::independent &&
           c.experts_limit > 0 && !c.is_hybrid() && says_indexers(c) && follows(c, derive_hy_v4);
  };
  return f;
}

}  // namespace

Family hy_v4() {
  Family f = hy_v4_like(hy4_preview());
  f.architecture = "HYV4ForCausalLM";
  f.model_type = "hy_v4";
  f.presets = {{"hy4-preview", hy4_preview()}, {"hy4", hy4()}};
  return f;
}

// Folders that hold a model of pictures too. The text model is a larger one, and is written as the family without
// pictures.
Family hy_v4_beside_pictures() {
  Family f = beside_pictures(hy_v4_like(hy4()), "HYV4VLForConditionalGeneration", "hy_v4_vl");
  f.spelt = spelt_hy_v4_vl;
  f.also_spelt = [](std::string name) { return spelt_beside_pictures(std::move(name)); };
  f.passed_over = [](std::string_view name, const HasTensor&) {
    return name.starts_with("vit.") || name.starts_with("model.vision_tower.");
  };
  return f;
}

}  // namespace heddle::config
