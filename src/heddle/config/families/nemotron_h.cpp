// Nemotron-H (NVIDIA, arXiv 2504.03624) and Nemotron 3 (arXiv 2512.20848): layers of one block each, Mamba-2,
// attention without positions, an MLP or experts. The activation is a squared ReLU without a gate; the router is
// DeepSeek-V3's. Experts of Nemotron 3 Super work at a latent width, and one layer of attention and experts
// predicts a further token.
//
// Files say a layer's block by a letter, "hybrid_override_pattern", or by a word, "layers_block_type". The
// projection of a Mamba-2 layer is one tensor, rows of z, x, B, C and the time steps; so is its convolution, of x,
// B and C. The two blocks of a further token lie under "mtp.layers.0" and "mtp.layers.1".
//
// Sources: NemotronHConfig and modeling_nemotron_h.py of Transformers 5, gone through key by key; nemotron_h_mtp.py
// of vLLM; the config.json files released with NVIDIA-Nemotron-Nano-9B-v2 and NVIDIA-Nemotron-3-Nano-30B-A3B.
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/config/families/mamba_keys.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::Block;
using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr const char* kPattern = "hybrid_override_pattern";

char letter_of(const Json& word) {
  constexpr std::pair<const char*, Block> kWords[] = {{"mamba", Block::recurrence},
                                                      {"linear_attention", Block::recurrence},
                                                      {"attention", Block::attention},
                                                      {"full_attention", Block::attention},
                                                      {"mlp", Block::mlp},
                                                      {"moe", Block::experts}};
  for (const auto& [known, block] : kWords)
    if (word == known) return static_cast<char>(block);
  return 0;
}

// Puts a list of words into letters under `letters`. A file without either says nothing of it.
void spell(Json& root, const std::string& place, const char* words, const char* letters) {
  const Json list = root.value(words, Json());
  if (list.is_null()) return;
  std::string pattern;
  for (const Json& word : list.is_array() ? list : Json::array({Json()})) pattern += letter_of(word);
  if (pattern.find('\0') != std::string::npos) {
    config_error("{}: '{}' is {}: a list of 'mamba', 'attention', 'mlp' and 'moe' is expected", place, words,
                 formats::shown(list));
  }
  Json& said = root[letters];
  if (!said.is_null() && said != pattern)
    config_error("{}: '{}' says something else than '{}'", place, words, letters);
  said = pattern;
}

void rewrite_nemotron_h(Json& root, const std::string& place) {
  join_names(root, place,
             {{"norm_eps", "layer_norm_epsilon"},
              {"rms_norm_eps", "layer_norm_epsilon"},
              {"attention_head_dim", "head_dim"},
              {"num_local_experts", "n_routed_experts"},
              {"mamba_n_groups", "n_groups"},
              {"mamba_num_groups", "n_groups"},
              {"mamba_state_dim", "ssm_state_size"},
              {"mamba_d_conv", "conv_kernel"},
              {"mamba_dt_limit", "time_step_limit"}});
  join_names(root, place, {{"layer_types", "layers_block_type"}});
  spell(root, place, "layers_block_type", kPattern);
  spell(root, place, "mtp_layers_block_type", "mtp_hybrid_override_pattern");
  const Json pattern = root.value(kPattern, Json());
  if (!pattern.is_string() || pattern.get<std::string>().empty())
    config_error("{}: '{}' is {}: a letter for each layer is expected", place, kPattern, formats::shown(pattern));
  if (Json& layers = root["num_hidden_layers"]; layers.is_null()) layers = pattern.get<std::string>().size();
}

void read_latent(const JsonKeys& keys, ModelConfig& c) { c.moe_latent_size = keys.whole("moe_latent_size", 0); }
Written write_latent(const ModelConfig& c) {
  return c.moe_latent_size > 0 ? Written(c.moe_latent_size) : Written(nullptr);
}

// One MLP, of its own width; a model without shared experts has a word for that under "heddle".
void read_shared(const JsonKeys& keys, ModelConfig& c) {
  c.shared_intermediate_size = keys.whole("moe_shared_expert_intermediate_size", 7688);
}
Written write_shared(const ModelConfig& c) {
  return Written(c.shared_width() > 0 ? c.shared_width() : c.moe_intermediate_size);
}

// The blocks of a further token: they are attention, then what the layers have. Others stand in the object
// "heddle".
std::string further_blocks(ModelConfig c) {
  c.nextn_blocks.clear();
  return c.blocks_of(c.num_hidden_layers);
}

bool says_further_blocks(const Json& pattern, const Json& root) {
  const Json layers = root.value(kPattern, Json());
  const bool experts = layers.is_string() && layers.get<std::string>().find('E') != std::string::npos;
  const Json further = root.value("num_nextn_predict_layers", Json());
  return further.is_null() || further == 0 || pattern == (experts ? "*E" : "*-");
}

void derive_nemotron_h(ModelConfig& c) {
  c.first_k_dense_replace = 0;
  c.n_shared_experts = 1;
  if (c.has(Block::recurrence)) return;
  c.recurrence = Recurrence::none;
  model::reset_foreign_keys(c);
}

// The folder has the layer of the further token where its weights do.
void count_predictions_nemotron_h(ModelConfig& c, const std::string& path, std::vector<std::string>* warnings) {
  if (c.num_nextn_predict_layers == 0 || weights_beside_have(path, "mtp.layers.0.eh_proj.weight").value_or(true))
    return;
  c.num_nextn_predict_layers = 0;
  if (warnings != nullptr)
    warnings->push_back(fmt::format("{}: the weights beside it have no layer that predicts a further token", path));
}

std::string spelt_nemotron_h(std::string name) {
  if (name.starts_with("mtp.")) {
    const std::string first = "mtp.layers.0.", second = "mtp.layers.1.";
    return respelt(std::move(name), {{first + "post_attention_layernorm.", second + "norm."},
                                     {first + "mlp.", second + "mixer."},
                                     {first + "shared_head.norm.", second + "final_layernorm."},
                                     {".input_layernorm.", ".norm."},
                                     {".self_attn.", ".mixer."}});
  }
  return respelt(std::move(name), {{"model.embed_tokens.", "backbone.embeddings."},
                                   {"model.norm.", "backbone.norm_f."},
                                   {"model.layers.", "backbone.layers."},
                                   {".input_layernorm.", ".norm."},
                                   {".post_attention_layernorm.", ".norm."},
                                   {".self_attn.", ".mixer."},
                                   {".linear_attn.", ".mixer."},
                                   {".mlp.", ".mixer."}});
}

std::string also_spelt_nemotron_h(std::string name) {
  return respelt(spelt_nemotron_h(std::move(name)), {{"backbone.", "model."}});
}

ModelConfig base_nemotron_h() {
  ModelConfig c = grouped_base();
  c.activation = model::Activation::relu2;
  c.positions = model::Positions::none;
  c.sigmoid_scores = c.topk_bias = true;
  c.n_shared_experts = 1;
  c.shared_intermediate_size = 7688;
  c.recurrence = Recurrence::mamba2;
  c.hybrid_override_pattern = "MMMM";
  c.linear_num_key_heads = 8;
  c.linear_num_value_heads = c.linear_key_head_dim = 128;
  c.linear_value_head_dim = 64;
  return c;
}

ModelConfig sized_nemotron_h(std::string_view pattern, int64_t hidden, int64_t width, int64_t heads,
                             int64_t kv_heads, int64_t mamba_heads, int64_t mamba_width, int64_t positions) {
  ModelConfig c = base_nemotron_h();
  c.hybrid_override_pattern = pattern;
  c.num_hidden_layers = std::ssize(pattern);
  c.vocab_size = 131072;
  c.hidden_size = hidden;
  c.intermediate_size = width;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = 128;
  c.linear_num_value_heads = mamba_heads;
  c.linear_value_head_dim = mamba_width;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = positions;
  give_experts(c, {.experts = 8, .chosen = 2, .width = 7688});
  derive_nemotron_h(c);
  return c;
}

void set_experts(ModelConfig& c, int64_t count, int64_t chosen, int64_t shared_width, double factor) {
  c.n_routed_experts = count;
  c.num_experts_per_tok = chosen;
  c.moe_intermediate_size = c.intermediate_size;
  c.shared_intermediate_size = shared_width;
  c.routed_scaling_factor = factor;
}

ModelConfig nano_9b_v2() {
  return sized_nemotron_h("M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", 4480, 15680, 40, 8, 128, 80,
                          131072);
}

ModelConfig nano_30b() {
  ModelConfig c =
      sized_nemotron_h("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 2688, 1856, 32, 2, 64, 64, 262144);
  set_experts(c, 128, 6, 3712, 2.5);
  return c;
}

ModelConfig super_120b() {
  ModelConfig c =
      sized_nemotron_h("MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
                       4096, 2688, 32, 2, 128, 64, 262144);
  set_experts(c, 512, 22, 5376, 5);
  c.moe_latent_size = 1024;
  c.num_nextn_predict_layers = 1;
  return c;
}

}  // namespace

Family nemotron_h() {
  Family f;
  f.architecture = "NemotronHForCausalLM";
  f.model_type = "nemotron_h";
  f.base = base_nemotron_h();
  f.keys = {
      key("vocab_size", "vocab_size", 131072),
      key("hidden_size", "hidden_size", 4096),
      key("num_hidden_layers"),
      key(kPattern),
      key("intermediate_size", "intermediate_size", 21504),
      fixed("mlp_hidden_act", "relu2"),
      key("layer_norm_epsilon", "rms_norm_eps", 1e-5),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("max_position_embeddings", "max_position_embeddings", 4096),
      fixed("attention_dropout", 0.0),
      key("num_attention_heads", "num_attention_heads", 32),
      kv_heads_key(8),
      key("head_dim", "head_dim", 128),
      rope_theta_key(),
      rope_scaling_key(),
      key("ssm_state_size", "linear_key_head_dim", 128),
      key("mamba_num_heads", "linear_num_value_heads", 128),
      key("mamba_head_dim", "linear_value_head_dim", 64),
      key("n_groups", "linear_num_key_heads", 8),
      key("conv_kernel", "linear_conv_kernel_dim", 4),
      fixed("mamba_hidden_act", "silu"),
      fixed("use_conv_bias", true),
      fixed("use_bias", false),
      fixed("mamba_proj_bias", false),
      fixed("chunk_size", 128),
      time_step_limit_key(),
      key("n_routed_experts", "n_routed_experts", 8),
      key("num_experts_per_tok", "num_experts_per_tok", 2),
      fixed("n_shared_experts", 1),
      key("moe_intermediate_size", "moe_intermediate_size", 7688),
      {.name = "moe_shared_expert_intermediate_size", .read = read_shared, .write = write_shared},
      {.name = "moe_latent_size", .ours = "moe_latent_size", .read = read_latent, .write = write_latent},
      key("n_group", "n_group", 1),
      key("topk_group", "topk_group", 1),
      key("norm_topk_prob", "norm_topk_prob", true),
      key("routed_scaling_factor", "routed_scaling_factor", 1.0),
      key("num_nextn_predict_layers", "num_nextn_predict_layers", 0),
      {.name = "mtp_hybrid_override_pattern",
       .write = [](const ModelConfig& c) { return Written(further_blocks(c)); }},
  };
  f.said = {"linear_step_most"};
  f.only = {is("mlp_hidden_act", "relu2", "only 'relu2' is built"),
            is("mamba_hidden_act", "silu", "only 'silu' is built"),
            is("use_conv_bias", true, "the convolution has a bias"),
            off("use_bias", "biases in the projections of Mamba-2 are not built"),
            off("mamba_proj_bias", "biases in the projections of Mamba-2 are not built"),
            off("residual_in_fp32", "a residual stream in fp32 beside other types is not built"),
            is("n_shared_experts", 1, "the shared experts are one MLP of moe_shared_expert_intermediate_size"),
            off("sliding_window", "attention in windows is not built"),
            {"mtp_hybrid_override_pattern", says_further_blocks,
             "a further token has a layer of attention and one of experts"}};
  f.read_besides = {"norm_eps",
                    "rms_norm_eps",
                    "attention_head_dim",
                    "num_local_experts",
                    "mamba_n_groups",
                    "mamba_num_groups",
                    "mamba_state_dim",
                    "mamba_d_conv",
                    "mamba_dt_limit",
                    "layer_types",
                    "layers_block_type",
                    "mtp_layers_block_type",
                    "expand",
                    "time_step_min",
                    "time_step_max",
                    "time_step_floor",
                    "num_logits_to_keep",
                    "use_mamba_kernels",
                    "mamba_ssm_cache_dtype",
                    "rescale_prenorm_residual",
                    "partial_rotary_factor",
                    "moe_shared_expert_overlap"};
  f.rewrite = rewrite_nemotron_h;
  f.derive = derive_nemotron_h;
  f.complete = count_predictions_nemotron_h;
  f.holds = [](const ModelConfig& c) { return c.is_hybrid() && !c.is_latent(); };
  f.spelt = spelt_nemotron_h;
  f.also_spelt = also_spelt_nemotron_h;
  f.presets = {{"nemotron-nano-9b-v2", nano_9b_v2()},
               {"nemotron-3-nano-30b-a3b", nano_30b()},
               {"nemotron-3-super-120b-a12b", super_120b()}};
  return f;
}

}  // namespace heddle::config
