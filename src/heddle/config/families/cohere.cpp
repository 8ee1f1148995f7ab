// Cohere's models: attention and MLP of a layer stand side by side behind one LayerNorm without a bias, and rotary
// positions turn neighbours. Command R turns queries and keys in every layer. Command R7B and Command A have
// windows in all layers but every fourth, and turn in these alone. Command A+ has experts, whose mean with shared
// ones is taken, behind dense layers, which may turn without a window.
//
// Sources: the configurations and models of Cohere, Cohere2 and Cohere2Moe of Transformers 5, gone through key by
// key; the config.json files released with c4ai-command-r-v01, c4ai-command-r7b-12-2024 and c4ai-command-a-03-2025.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/turning_layers.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Norm;
using Written = nlohmann::ordered_json;

constexpr int64_t kEveryCohere = 4;

ModelConfig base_cohere() {
  ModelConfig c = grouped_base();
  c.norm = Norm::layer;
  c.norm_bias = false;
  c.parallel_blocks = c.rope_interleave = c.tie_word_embeddings = true;
  return c;
}

Family common_cohere(const char* architecture, const char* model_type) {
  Family f = grouped_family(architecture, model_type, 1e-5, base_cohere());
  drop_keys(f, {"rms_norm_eps"});
  replace_keys(f, {key("tie_word_embeddings", "tie_word_embeddings", true)});
  f.keys.push_back(key("layer_norm_eps", "rms_norm_eps", 1e-5));
  f.keys.push_back(logits_factor_key("logit_scale", 0.0625));
  f.keys.push_back(own_attention_bias_key());
  f.said = {"norm", "norm_bias", "parallel_blocks"};
  return f;
}

// Heads share the hidden width, whatever the file says.
Only shared_head_width() {
  return {"head_dim",
          [](const Json& v, const Json& root) {
            const Json heads = root.value("num_attention_heads", Json()),
                       hidden = root.value("hidden_size", Json());
            return v.is_number_integer() && heads.is_number_integer() && hidden.is_number_integer() && heads > 0 &&
                   v.get<int64_t>() == hidden.get<int64_t>() / heads.get<int64_t>();
          },
          "'hidden_size' ÷ 'num_attention_heads' is expected, which Transformers takes whatever stands here"};
}

// Layers with a window turn, and dense ones too if `dense_turn`. It is said in one form.
void turn_in_windows(ModelConfig& c, bool dense_turn) {
  std::vector<bool> turns;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    turns.push_back(c.has_window(l) || (dense_turn && !c.is_moe(l)));
  c.no_rope_layer_interval = 0;
  c.rotation_pattern.clear();
  if (std::find(turns.begin(), turns.end(), true) == turns.end()) {
    c.positions = model::Positions::none;
    c.rope_scaling.reset();
    return;
  }
  c.positions = model::Positions::rotary;
  set_turning_layers(c, turns);
}

void derive_cohere2(ModelConfig& c) {
  make_dense(c);
  turn_in_windows(c, false);
}

// Transformers makes no mask of a window without a length.
void refuse_no_window(Json& root, const std::string& place) {
  if (root.contains("sliding_window") && root["sliding_window"].is_null())
    config_error("{}: 'sliding_window' is null, a number of tokens is expected", place);
}

bool is_cohere(const ModelConfig& c) {
  return c.is_grouped() && c.parallel_blocks && !c.qk_norm && !c.recurs() && c.rope_interleave &&
         !c.learns_positions() && c.activation == model::Activation::swiglu;
}
bool is_dense_cohere(const ModelConfig& c) {
  return is_cohere(c) && c.norm == Norm::layer && !c.norm_bias && !c.has_experts() &&
         c.head_dim * c.num_attention_heads == c.hidden_size;
}

void add_windows_cohere(Family& f, const char* interval) {
  add_keys(f, window_of_all_but_every_nth(4096, interval, kEveryCohere));
  f.only.push_back(above_zero("sliding_window"));
  f.said.insert(f.said.end(), {"positions", "rotation_pattern", "no_rope_layer_interval"});
}

ModelConfig sized_cohere(const GroupedSizes& sizes, double theta, double logits) {
  ModelConfig c = sized(base_cohere(), sizes);
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.logits_divisor = logits;
  c.rope_theta = theta;
  return c;
}
ModelConfig command(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t positions) {
  ModelConfig c = sized_cohere({256000, hidden, layers, mlp, heads, 8, positions}, 5e4, 4);
  c.sliding_window = 4096;
  c.full_attention_interval = kEveryCohere;
  turn_in_windows(c, false);
  return c;
}

// Keys of released files that Transformers passes over.
void take_released_words(Family& f) {
  f.only.push_back(is("use_parallel_block", true, "attention and MLP stand side by side"));
  f.only.push_back(is("use_gated_activation", true, "MLPs have a gate"));
  f.only.push_back(is("rotary_pct", 1, "whole heads are turned"));
  f.only.push_back(is("position_embedding_type", "rope_gptj", "neighbours are turned"));
  f.only.push_back(is("order_of_interleaved_layers", "local_attn_first", "windows come first"));
  f.only.push_back(is("layer_switch", kEveryCohere, "'layer_types' or 'sliding_window_pattern' says it otherwise"));
  f.read_besides.insert(f.read_besides.end(), {"use_embedding_sharing", "use_parallel_embedding",
                                               "model_max_length", "cache_implementation"});
}

// Words of layers that a file leaves out follow from how many of the first are dense and from two patterns.
void word_layers_cohere2_moe(Json& root, const std::string& place) {
  refuse_no_window(root, place);
  name_num_experts(root, place);
  const JsonKeys keys(root, place, "");
  const int64_t layers = keys.whole("num_hidden_layers"), dense = keys.whole("first_k_dense_replace", 0);
  if (layers < 0 || layers > 4096 || dense < 0) return;  // refused where it is read
  const int64_t every = keys.whole("sliding_window_pattern", kEveryCohere),
                dense_every = keys.whole("prefix_dense_sliding_window_pattern", 1);
  if (every < 1 || dense_every < 1) {
    config_error(
        "{}: 'sliding_window_pattern' is {} and 'prefix_dense_sliding_window_pattern' {}, both are 1 or more",
        place, every, dense_every);
  }
  Json words = Json::array(), kinds = Json::array();
  for (int64_t l = 0; l < layers; ++l) {
    const bool window = (l < dense ? (l + 1) % dense_every : (l - dense + 1) % every) != 0;
    words.push_back(window ? "sliding_attention" : "full_attention");
    kinds.push_back(l < dense ? "dense" : "sparse");
  }
  if (root.value("layer_types", Json()).is_null()) root["layer_types"] = words;
  if (root.value("mlp_layer_types", Json()).is_null()) root["mlp_layer_types"] = kinds;
  root.erase("first_k_dense_replace");
}

// True if a dense layer turns without a window, which one number says of all.
bool dense_layers_turn(const ModelConfig& c) {
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    if (!c.is_moe(l) && !c.has_window(l) && c.turns_in(l)) return true;
  return false;
}
bool has_unturned_dense_layers(const ModelConfig& c) {
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    if (!c.is_moe(l) && !c.has_window(l) && !c.turns_in(l)) return true;
  return false;
}

// It stands behind the kinds of layers.
PublishedKey dense_windows_cohere2_moe() {
  return {
      .name = "prefix_dense_sliding_window_pattern",
      .read = [](const JsonKeys& keys,
                 ModelConfig& c) { turn_in_windows(c, keys.whole("prefix_dense_sliding_window_pattern", 1) == 1); },
      .write = [](const ModelConfig& c) { return Written(has_unturned_dense_layers(c) ? kEveryCohere : 1); }};
}

// A root-mean-square norm where its epsilon is given.
std::vector<PublishedKey> norms_cohere2_moe() {
  return {{.name = "layer_norm_eps",
           .ours = "rms_norm_eps",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 const bool rms = keys.find("rms_norm_eps") != nullptr;
                 c.rms_norm_eps = rms ? keys.number("rms_norm_eps") : keys.number("layer_norm_eps", 1e-5);
                 c.norm = rms ? Norm::rms : Norm::layer;
                 c.norm_bias = rms;
               },
           .write = [](const ModelConfig& c) { return Written(c.rms_norm_eps); }},
          read_elsewhere("rms_norm_eps", [](const ModelConfig& c) {
            return c.norm == Norm::rms ? Written(c.rms_norm_eps) : Written();
          })};
}

std::vector<PublishedKey> experts_cohere2_moe() {
  return {{.name = "intermediate_size", .ours = "moe_intermediate_size"},
          {.name = "prefix_dense_intermediate_size",
           .ours = "intermediate_size",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 c.intermediate_size = keys.whole("prefix_dense_intermediate_size", c.moe_intermediate_size);
               }},
          key("num_experts", "n_routed_experts", 8),
          key("num_experts_per_tok", "num_experts_per_tok", 2),
          key("num_shared_experts", "n_shared_experts", 0),
          {.name = "shared_expert_combination_strategy",
           .ours = "shared_expert_average",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 c.shared_expert_average =
                     keys.word("shared_expert_combination_strategy", "average") == "average" &&
                     c.n_shared_experts > 0;
               },
           .write = [](const ModelConfig& c) { return Written(c.shared_expert_average ? "average" : "sum"); }},
          {.name = "expert_selection_fn",
           .ours = "sigmoid_scores",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 c.sigmoid_scores = keys.word("expert_selection_fn", "softmax") == "sigmoid";
                 c.norm_topk_prob = !c.sigmoid_scores || keys.boolean("norm_topk_prob", true);
               },
           .write = [](const ModelConfig& c) { return Written(c.sigmoid_scores ? "sigmoid" : "softmax"); }},
          read_elsewhere(
              "norm_topk_prob", [](const ModelConfig& c) { return Written(c.norm_topk_prob); }, "norm_topk_prob")};
}

Only one_of(const char* name, const char* first, const char* second) {
  return {name, [=](const Json& v, const Json&) { return v == first || v == second; },
          fmt::format("'{}' or '{}' is expected", first, second)};
}

bool holds_cohere2_moe(const ModelConfig& c) {
  if (!is_cohere(c) || !c.has_experts() || c.topk_bias || c.softplus_scores || c.sparse_mixer || c.n_group > 1 ||
      c.shared_intermediate_size > 0 || c.routed_scaling_factor != 1 || (!c.sigmoid_scores && !c.norm_topk_prob) ||
      c.norm_bias != (c.norm == Norm::rms) || (c.norm != Norm::rms && c.norm != Norm::layer)) {
    return false;
  }
  ModelConfig same = c;
  turn_in_windows(same, dense_layers_turn(c));
  return same == c && c.sliding_window > 0;
}

}  // namespace

Family cohere() {
  Family f = common_cohere("CohereForCausalLM", "cohere");
  f.base.rope_theta = 5e5;
  f.only = {off("use_qk_norm", "a LayerNorm of queries and keys is not built"), shared_head_width()};
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) { return is_dense_cohere(c) && c.sliding_window == 0 && c.turns(); };
  f.presets = {{"command-r", sized_cohere({256000, 8192, 40, 22528, 64, 64, 8192}, 8e6, 16)}};
  return f;
}

Family cohere2() {
  Family f = common_cohere("Cohere2ForCausalLM", "cohere2");
  f.only = {shared_head_width()};
  add_windows_cohere(f, "sliding_window_pattern");
  take_released_words(f);
  f.rewrite = refuse_no_window;
  f.derive = derive_cohere2;
  f.holds = [](const ModelConfig& c) {
    return is_dense_cohere(c) && c.sliding_window > 0 && follows(c, derive_cohere2);
  };
  f.presets = {{"command-r7b", command(4096, 32, 14336, 32, 132096)},
               {"command-a", command(12288, 64, 36864, 96, 131072)}};
  return f;
}

Family cohere2_moe() {
  Family f = common_cohere("Cohere2MoeForCausalLM", "cohere2_moe");
  f.base.sliding_window = 4096;
  f.base.full_attention_interval = kEveryCohere;
  drop_keys(f, {"intermediate_size", "layer_norm_eps", "head_dim"});
  add_keys(f, norms_cohere2_moe());
  f.keys.push_back(key("head_dim", "head_dim", 128));
  add_keys(f, experts_cohere2_moe());
  add_windows_cohere(f, "");
  f.keys.push_back(mlp_layer_types_key(0));
  f.keys.push_back(dense_windows_cohere2_moe());
  f.said.insert(f.said.end(), {"mlp_pattern", "shared_intermediate_size"});
  f.only.push_back(one_of("expert_selection_fn", "softmax", "sigmoid"));
  f.only.push_back(one_of("shared_expert_combination_strategy", "average", "sum"));
  f.read_besides = {"num_local_experts", "sliding_window_pattern", "first_k_dense_replace", "router_aux_loss_coef",
                    "cache_implementation"};
  f.rewrite = word_layers_cohere2_moe;
  f.adopt = adopt_router_loss;
  f.holds = holds_cohere2_moe;
  return f;
}

}  // namespace heddle::config
