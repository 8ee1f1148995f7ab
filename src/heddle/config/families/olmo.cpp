// OLMo 2 and 3, dense, whose norms are of the outputs of attention and MLP; FlexOlmo, the same with experts in
// every layer; and OLMoE, with experts and norms of inputs. All norm queries and keys over all heads. All layers of
// OLMo 3 but every fourth have a window, and positions that nothing stretches.
//
// Sources: Olmo2Config, Olmo3Config, FlexOlmoConfig and OlmoeConfig of Transformers 5, gone through key by key;
// arXiv 2501.00656, 2507.07024 and 2409.02060; the config.json files released with OLMo-2-1124-7B, OLMo-2-0325-32B
// and OLMoE-1B-7B-0924.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::NormPlaces;

ModelConfig base_olmo(NormPlaces places) {
  ModelConfig c = grouped_base();
  c.qk_norm = c.qk_norm_all_heads = true;
  c.norm_places = places;
  return c;
}

// As wide as the hidden states; Transformers has no other heads in these.
Family common_olmo(const char* architecture, const char* model_type, NormPlaces places) {
  Family f = grouped_family(architecture, model_type, 1e-5, base_olmo(places));
  f.keys.push_back(own_attention_bias_key());
  return f;
}

ModelConfig olmo2_sized(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads) {
  ModelConfig c = sized(base_olmo(NormPlaces::after), {100352, hidden, layers, mlp, heads, kv_heads, 4096});
  make_dense(c);
  c.rms_norm_eps = 1e-6;
  c.rope_theta = 5e5;
  return c;
}

ModelConfig olmoe_1b_7b() {
  ModelConfig c = sized(base_olmo(NormPlaces::before), {50304, 2048, 16, 1024, 16, 16, 4096});
  c.rms_norm_eps = 1e-5;
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 8;
  c.norm_topk_prob = false;
  only_experts(c);
  return c;
}

// A choice of experts by a softmax, each as wide as a dense MLP would be.
void add_experts(Family& f, int64_t experts, int64_t chosen) {
  f.keys.push_back(key("num_experts", "n_routed_experts", experts));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", chosen));
  f.keys.push_back(key("norm_topk_prob", "norm_topk_prob", false));
  f.said = {"moe_intermediate_size", "first_k_dense_replace"};
  f.only = {never("clip_qkv", "clipped queries, keys and values are not built")};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = name_num_experts;
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
}

constexpr double kTheta = 5e5;

void derive_3(ModelConfig& c) {
  make_dense(c);
  if (c.sliding_window == 0) c.window_rope_theta = 0;
}

ModelConfig olmo3_sized(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads) {
  ModelConfig c = olmo2_sized(hidden, layers, mlp, heads, kv_heads);
  c.vocab_size = 100278;
  c.max_position_embeddings = 65536;
  c.rope_scaling = model::RopeScaling{
      .factor = 8, .original_max_position_embeddings = 8192, .attention_factor = 1.2079441541679836};
  c.sliding_window = 4096;
  c.full_attention_interval = 4;
  c.window_rope_theta = kTheta;
  return c;
}

// Files of Transformers 5 have rotary keys by kind of layer; older ones stretch full attention alone.
PublishedKey rotation_by_layer_olmo() {
  return {.name = "rope_parameters", .ours = "rope_theta", .read = read_rope, .write = [](const ModelConfig& c) {
            nlohmann::ordered_json full = rope_scaling_json(c);
            if (full.is_null()) full = {{"rope_type", "default"}};
            full["rope_theta"] = c.rope_theta;
            nlohmann::ordered_json layers{{"full_attention", full}};
            if (c.window_rope_theta > 0)
              layers["sliding_attention"] = {{"rope_type", "default"}, {"rope_theta", c.window_rope_theta}};
            return layers;
          }};
}

bool has_norms_of(const ModelConfig& c, NormPlaces places) {
  return !c.is_latent() && c.qk_norm && c.qk_norm_all_heads && c.norm_places == places;
}

}  // namespace

Family olmo2() {
  Family f = common_olmo("Olmo2ForCausalLM", "olmo2", NormPlaces::after);
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) { return has_norms_of(c, NormPlaces::after) && !c.has_experts(); };
  f.presets = {{"olmo-2-1b", olmo2_sized(2048, 16, 8192, 16, 16)},
               {"olmo-2-7b", olmo2_sized(4096, 32, 11008, 32, 32)},
               {"olmo-2-13b", olmo2_sized(5120, 40, 13824, 40, 40)},
               {"olmo-2-32b", olmo2_sized(5120, 64, 27648, 40, 8)}};
  return f;
}

Family olmo3() {
  Family f = common_olmo("Olmo3ForCausalLM", "olmo3", NormPlaces::after);
  f.base.rope_theta = kTheta;
  std::erase_if(f.keys, [](const PublishedKey& each) { return each.name.starts_with("rope_"); });
  f.keys.push_back(rotation_by_layer_olmo());
  f.keys.push_back(
      {.name = "rope_local_base_freq",  // where `rewrite` puts it
       .ours = "window_rope_theta",
       .read = [](const JsonKeys& keys,
                  ModelConfig& c) { c.window_rope_theta = keys.number("rope_local_base_freq", kTheta); },
       .write = [](const ModelConfig&) { return nlohmann::ordered_json(); }});
  add_keys(f, window_of_all_but_every_nth(4096, "", 4));
  f.read_besides = {"rope_theta", "rope_scaling"};
  f.rewrite = [](Json& root, const std::string& place) {
    flatten_rotation_by_layer(root, place, "rope_local_base_freq");
  };
  f.derive = derive_3;
  f.holds = [](const ModelConfig& c) {
    return has_norms_of(c, NormPlaces::after) && !c.has_experts() && c.sliding_window > 0 &&
           c.window_rope_theta > 0;
  };
  f.presets = {{"olmo-3-7b", olmo3_sized(4096, 32, 11008, 32, 32)},
               {"olmo-3-32b", olmo3_sized(5120, 64, 27648, 40, 8)}};
  return f;
}

Family flex_olmo() {
  Family f = common_olmo("FlexOlmoForCausalLM", "flex_olmo", NormPlaces::after);
  f.base.rope_theta = kTheta;
  replace_keys(f, {key("rms_norm_eps", "rms_norm_eps", 1e-6)});
  add_experts(f, 7, 5);
  f.holds = [](const ModelConfig& c) {
    return follows(c, only_experts) && has_norms_of(c, NormPlaces::after) && !c.sigmoid_scores &&
           c.n_shared_experts == 0;
  };
  return f;
}

Family olmoe() {
  Family f = common_olmo("OlmoeForCausalLM", "olmoe", NormPlaces::before);
  add_experts(f, 64, 8);
  f.holds = [](const ModelConfig& c) {
    return follows(c, only_experts) && has_norms_of(c, NormPlaces::before) && !c.sigmoid_scores &&
           c.n_shared_experts == 0;
  };
  f.presets = {{"olmoe-1b-7b", olmoe_1b_7b()}};
  return f;
}

}  // namespace heddle::config
