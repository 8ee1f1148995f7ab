#include "heddle/model/validate_layers.h"

#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::model {

namespace {

void validate_letters(const ModelConfig& c, const char* key, std::string_view pattern, std::string_view letters) {
  if (const size_t at = pattern.find_first_not_of(letters); at != std::string_view::npos) {
    config_error("model.{} has '{}' as layer {}, accepted: {} or {}", key,
                 static_cast<unsigned char>(pattern[at]) < 0x80 ? pattern.substr(at, 1) : "?", at, letters[0],
                 letters[1]);
  }
  if (std::ssize(pattern) != c.num_hidden_layers) {
    config_error("model.{} has {} letters, and model.num_hidden_layers is {}: a letter a layer", key,
                 pattern.size(), c.num_hidden_layers);
  }
}

// Two letters of each layer that predicts a further token. Without such layers they say nothing.
void validate_nextn_blocks(const ModelConfig& c) {
  const std::string& letters = c.nextn_blocks;
  if (letters.size() != 2 || std::string_view("*WM").find(letters[0]) == std::string_view::npos ||
      std::string_view("-E").find(letters[1]) == std::string_view::npos) {
    config_error("model.nextn_blocks is \"{}\", accepted: *, W or M, and behind it - or E", escaped(letters, 20));
  }
  if (c.num_nextn_predict_layers == 0) return;
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.nextn_blocks needs {}", other);
  };
  const LayerKind kind = c.kind_of(c.num_hidden_layers);
  needs(kind == LayerKind::window && c.sliding_window == 0, "a model.sliding_window for its letter W");
  needs(kind == LayerKind::recurrence && !c.recurs(), "a model.recurrence for its letter M");
  needs(c.is_compressed() && kind != LayerKind::window,
        "a letter W where model.attention is \"compressed\": such layers have no entries");
}

// One norm stands ahead of both blocks, and what they make is added unscaled by what only one has.
void validate_parallel_blocks(const ModelConfig& c) {
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.parallel_blocks needs {}", other);
  };
  needs(c.norm_places != NormPlaces::before, "model.norm_places = \"before\"");
  needs(c.is_hybrid(), "no model.hybrid_override_pattern");
  needs(c.shortcut_experts, "model.shortcut_experts = false");
  needs(c.has_streams(), "model.hyper_connections = 0");
  needs(c.expert_norms, "model.expert_norms = false");
  needs(c.mlp_alpha_factor != 1 || c.full_attn_alpha_factor != 1 || c.linear_attn_alpha_factor != 1,
        "model.full_attn_alpha_factor, model.linear_attn_alpha_factor and model.mlp_alpha_factor of 1");
}

// The row of a token is multiplied before it is sent to its expert, so there is one expert.
void validate_gates_on_inputs(const ModelConfig& c) {
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.gates_on_inputs needs {}", other);
  };
  needs(c.num_experts_per_tok != 1, "model.num_experts_per_tok = 1");
  needs(c.norm_topk_prob, "model.norm_topk_prob = false: the only gate would be 1");
  needs(c.experts_bias, "model.experts_bias = false");
  needs(c.zero_expert_num > 0, "model.zero_expert_num = 0");
  needs(c.expert_norms, "model.expert_norms = false");
}

}  // namespace

void validate_layers(const ModelConfig& c) {
  const auto needs = [](bool has, const char* key, const char* other) {
    if (has) config_error("model.{} needs {}", key, other);
  };
  if (!c.nextn_blocks.empty()) validate_nextn_blocks(c);
  if (!c.mlp_pattern.empty()) {
    validate_letters(c, "mlp_pattern", c.mlp_pattern, "E-");
    needs(c.is_hybrid(), "mlp_pattern", "no model.hybrid_override_pattern");
    needs(c.shortcut_experts, "mlp_pattern", "model.shortcut_experts = false");
  }
  if (!c.rotation_pattern.empty()) {
    validate_letters(c, "rotation_pattern", c.rotation_pattern, "R-");
    needs(!c.turns(), "rotation_pattern", "model.positions = \"rotary\"");
    needs(c.no_rope_layer_interval > 0, "rotation_pattern", "model.no_rope_layer_interval = 0");
  }
  needs(!c.norm_bias && c.norm != Norm::layer, "norm_bias = false", "model.norm = \"layer\"");
  needs(c.qk_unit_norm && c.qk_norm, "qk_unit_norm", "model.qk_norm = false");
  needs(c.qk_unit_norm && !c.turns(), "qk_unit_norm", "model.positions = \"rotary\"");
  needs(c.window_chunks && c.sliding_window == 0, "window_chunks", "a model.sliding_window: tokens of a chunk");
  needs(c.window_chunks && c.is_compressed(), "window_chunks", "another model.attention than \"compressed\"");
  if (c.parallel_blocks) validate_parallel_blocks(c);
  if (!c.has_experts()) return;
  if (c.gates_on_inputs) validate_gates_on_inputs(c);
  needs(c.shared_expert_average && c.n_shared_experts == 0, "shared_expert_average",
        "model.n_shared_experts of 1 or more");
}

}  // namespace heddle::model
