#include "heddle/model/model_config.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/count_text.h"
#include "heddle/base/error.h"
#include "heddle/model/keys.h"
#include "heddle/model/ngrams.h"
#include "heddle/model/rope_table.h"
#include "heddle/model/validate_layers.h"
#include "heddle/model/validate_selection.h"

namespace heddle::model {

std::optional<std::vector<double>> factors_of(std::string_view text) {
  std::vector<double> factors;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    const std::optional<double> factor = number_of(word);
    if (!factor) return std::nullopt;
    factors.push_back(*factor);
    if (comma == text.size()) return factors;
    text.remove_prefix(comma + 1);
  }
}

std::string text_of_factors(const std::vector<double>& factors) {
  return fmt::format("{}", fmt::join(factors, ", "));
}

double RopeScaling::rotary_scale(int64_t sequence) const {
  if (type == RopeType::linear || type == RopeType::llama3) return 1;
  if (type == RopeType::longrope) {
    const double mscale_of_length = is_long(sequence) ? long_mscale : short_mscale;
    if (mscale_of_length != 0) return mscale_of_length;
    if (attention_factor == 0)
      return std::sqrt(1 + std::log(std::max(factor, 1.0)) / std::log(original_max_position_embeddings));
  }
  if (attention_factor != 0) return attention_factor;
  if (mscale == 0 || mscale_all_dim == 0) return yarn_mscale(factor, 1);
  return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
}

double ModelConfig::softmax_scale_of(int64_t width) const {
  if (!is_latent() && attention_scale > 0) return attention_scale;
  double scale = 1.0 / std::sqrt(static_cast<double>(width));
  if (is_latent() && rope_scaling && rope_scaling->mscale_all_dim != 0) {
    const double m = yarn_mscale(rope_scaling->factor, rope_scaling->mscale_all_dim);
    scale *= m * m;
  }
  return scale;
}

namespace {

void validate_bounds(const ModelConfig& c) {
  for (const Key& key : keys()) {
    if (!has_key(c, key) || (key.of == Key::Of::experts && !c.has_experts()) || (key.given && !key.given(c)))
      continue;
    const KeyValue value = key.get(c);
    if (key.kind == Key::Kind::integer) {
      const int64_t size = std::get<int64_t>(value);
      const auto least = static_cast<int64_t>(key.least), most = static_cast<int64_t>(key.most);
      if (size < least) {
        config_error("model.{} is {}, must be {}", key.name, size,
                     least == 0 ? "0 or more" : fmt::format("at least {}", least));
      }
      if (size > most) config_error("model.{} is {}, must be at most {}", key.name, size, most);
    } else if (key.kind == Key::Kind::number) {
      const double number = std::get<double>(value);
      if (!(number >= key.least && number <= key.most)) {
        config_error("model.{} is {}, must be from {:.3g} to {:.3g}", key.name, number, key.least, key.most);
      }
    }
  }
}

// Their table is of the tokens that are read, and nothing is stretched.
void validate_learned_positions(const ModelConfig& c) {
  const auto refused = [](const std::string& what, const char* remedy) {
    config_error("model.positions is \"learned\", and {}; {} goes with it", what, remedy);
  };
  if (c.is_latent())
    refused("a part of the heads of model.attention = \"latent\" has rotary positions",
            "model.attention = \"grouped\"");
  if (c.num_nextn_predict_layers > 0) {
    refused(fmt::format("model.num_nextn_predict_layers is {}, whose layers have rotary positions",
                        c.num_nextn_predict_layers),
            "model.num_nextn_predict_layers = 0");
  }
  if (c.rope_scaling) refused("model.rope_scaling stretches rotary positions", "no model.rope_scaling");
}

// The elements of a head that are turned, in pairs.
void validate_rotary_width(const ModelConfig& c) {
  if (!c.is_grouped() && c.rotary_width() < 2)
    config_error("model.qk_rope_head_dim is {}, must be at least 2 where positions are rotary", c.rotary_width());
  if (c.rotary_width() % 2 != 0) {
    config_error("model.{} is {}, must be even: positions turn pairs of elements",
                 !c.is_grouped()                  ? "qk_rope_head_dim"
                 : c.partial_rotary_factor == 1.0 ? "head_dim"
                                                  : "head_dim × model.partial_rotary_factor",
                 c.rotary_width());
  }
  if (c.rotary_width() < 2) {
    config_error("model.partial_rotary_factor is {}, of model.head_dim = {} it must leave two elements or more",
                 c.partial_rotary_factor, c.head_dim);
  }
  if (c.turning_pairs() < 1) {
    config_error("model.turning_pairs_factor is {}, of {} pairs of a head it must leave one or more",
                 c.turning_pairs_factor, c.rotary_width() / 2);
  }
}

// A factor for each pair that turns, of short and of long sequences.
void validate_longrope(const ModelConfig& c) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  const RopeScaling& scaling = *c.rope_scaling;
  for (const auto& [name, text] :
       {std::pair{"short_factor", &scaling.short_factor}, {"long_factor", &scaling.long_factor}}) {
    const std::optional<std::vector<double>> factors = factors_of(*text);
    if (!factors || std::ssize(*factors) != c.rotary_width() / 2) {
      config_error(
          "model.rope_scaling.{} has {}, must be {} numbers with commas between: one for each pair that turns",
          name, factors ? fmt::format("{} numbers", factors->size()) : "no numbers", c.rotary_width() / 2);
    }
    for (const double factor : *factors) {
      if (!(factor >= kLeast && factor <= kMost))
        config_error("model.rope_scaling.{} has {}, must be from {:.3g} to {:.3g}", name, factor, kLeast, kMost);
    }
  }
  if (c.sparse_mixer != (scaling.short_mscale != 0))
    config_error(
        "model.rope_scaling.short_mscale and long_mscale are {}: they are of model.sparse_mixer, whose "
        "layers (Phi-3.5-MoE) need them; model.rope_scaling.attention_factor is of others",
        scaling.short_mscale);
  if ((scaling.short_mscale == 0) != (scaling.long_mscale == 0))
    config_error("model.rope_scaling.short_mscale and model.rope_scaling.long_mscale go together, and one is 0");
  if (scaling.short_mscale != 0 && scaling.attention_factor != 0)
    config_error(
        "model.rope_scaling.short_mscale takes the place of model.rope_scaling.attention_factor, which is {}",
        scaling.attention_factor);
  if (scaling.original_max_position_embeddings < 2)
    config_error("model.rope_scaling.original_max_position_embeddings is {}, by longrope it must be at least 2",
                 scaling.original_max_position_embeddings);
}

// Keys of Mamba-2 alone, and of layers that have it beside attention.
void validate_mamba(const ModelConfig& c) {
  const bool mamba = c.recurrence == Recurrence::mamba2;
  const auto needs = [](bool has, const char* key, const char* other) {
    if (has) config_error("model.{} needs {}", key, other);
  };
  constexpr const char* kMamba = "model.recurrence = \"mamba2\"";
  needs(!mamba && c.linear_norm != RecurrentNorm::gated, "linear_norm", kMamba);
  needs(!mamba && c.linear_in_multiplier != 1, "linear_in_multiplier", kMamba);
  needs(!mamba && !c.linear_part_multipliers.empty(), "linear_part_multipliers", kMamba);
  if (!c.linear_part_multipliers.empty()) {
    constexpr double kLeast = 1e-6, kMost = 1e6;
    const auto factors = factors_of(c.linear_part_multipliers);
    if (!factors || factors->size() != 5)
      config_error(
          "model.linear_part_multipliers has {}, must be 5 numbers with commas between: of the gate, x, B, "
          "C and time steps",
          factors ? fmt::format("{} numbers", factors->size()) : "no numbers");
    for (const double factor : *factors) {
      if (!(factor >= kLeast && factor <= kMost))
        config_error("model.linear_part_multipliers has {}, must be from {:.3g} to {:.3g}", factor, kLeast, kMost);
    }
  }
  if (!c.recurrence_beside_attention) return;
  const char* const beside = "recurrence_beside_attention";
  needs(!mamba, beside, kMamba);
  needs(c.is_hybrid(), beside, "no model.hybrid_override_pattern");
  needs(!c.layer_pattern.empty(), beside, "no model.layer_pattern: each layer has both");
  needs(c.full_attention_interval > 0, beside, "model.full_attention_interval = 0: each layer has both");
  needs(c.norm_places == NormPlaces::mixed, beside, "another model.norm_places than \"mixed\"");
  needs(c.linear_attn_alpha_factor != 1, beside,
        "model.linear_attn_alpha_factor = 1: the factor of their sum is model.full_attn_alpha_factor");
  needs(c.gated_norm_rank > 0, beside, "model.gated_norm_rank = 0");
  needs(c.selects(), beside, "model.index_topk = 0");
}

void validate_recurrence(const ModelConfig& c) {
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.recurrence needs {}", other);
  };
  needs(c.sliding_window > 0 && !c.has_kind(LayerKind::window),
        "model.sliding_window = 0, or letters W of a model.layer_pattern: a layer has the one or the other");
  needs(c.max_window_layers > 0, "model.max_window_layers = 0");
  needs(c.full_attention_interval == 1, "a model.full_attention_interval other than 1: no layer would have it");
  // Keys are shared by values of another width.
  const bool in_pairs = c.recurrence == Recurrence::gated_delta || c.recurrence == Recurrence::mamba2;
  if (c.linear_projections_apart && c.recurrence != Recurrence::gated_delta)
    config_error("model.linear_projections_apart needs model.recurrence = \"gated_delta\"");
  for (const auto& [has, key] :
       {std::pair{c.linear_decay_least < 0, "linear_decay_least"}, {c.linear_full_gates, "linear_full_gates"}}) {
    if (has && c.recurrence != Recurrence::kimi_delta)
      config_error("model.{} needs model.recurrence = \"kimi_delta\"", key);
  }
  if (c.linear_tensors_apart && !c.linear_projections_apart)
    config_error("model.linear_tensors_apart needs model.linear_projections_apart = true");
  if (c.linear_double_beta && c.recurrence != Recurrence::gated_delta)
    config_error("model.linear_double_beta needs model.recurrence = \"gated_delta\"");
  if (c.linear_bias && c.recurrence != Recurrence::mamba2 && c.recurrence != Recurrence::short_convolution)
    config_error("model.linear_bias needs model.recurrence = \"mamba2\" or \"short_convolution\"");
  needs(in_pairs && c.num_nextn_predict_layers > 1, "model.num_nextn_predict_layers of 1 at most");
  const std::string name = fmt::format("model.recurrence = \"{}\"", word_of(c.recurrence));
  const auto refused = [&](bool has, const char* other) {
    if (has) config_error("{} needs {}", name, other);
  };
  const bool kimi = c.recurrence == Recurrence::kimi_delta;
  refused(kimi != c.is_latent(), kimi ? "model.attention = \"latent\"" : "model.attention = \"grouped\"");
  const bool steps = c.recurrence == Recurrence::mamba2;
  refused(!steps && c.linear_step_least != 0, "model.linear_step_least = 0");
  refused(!steps && c.linear_step_most != 0, "model.linear_step_most = 0");
  if (c.linear_step_most > 0 && c.linear_step_most < c.linear_step_least) {
    config_error("model.linear_step_most is {}, less than model.linear_step_least ({})", c.linear_step_most,
                 c.linear_step_least);
  }
  refused(c.recurrence == Recurrence::lightning && c.linear_norm_eps != 0, "model.linear_norm_eps = 0");
  validate_mamba(c);
  if (!c.has_states()) return;
  if (!in_pairs && c.linear_num_value_heads != c.linear_num_key_heads) {
    config_error(
        "{} has a key head a value head: model.linear_num_value_heads is {}, and model.linear_num_key_heads {}",
        name, c.linear_num_value_heads, c.linear_num_key_heads);
  }
  if (!in_pairs && c.linear_value_head_dim != c.linear_key_head_dim) {
    config_error(
        "{} has values as wide as keys: model.linear_value_head_dim is {}, and model.linear_key_head_dim {}", name,
        c.linear_value_head_dim, c.linear_key_head_dim);
  }
  if (c.linear_num_value_heads % c.linear_num_key_heads != 0) {
    config_error("model.linear_num_value_heads ({}) is not a multiple of model.linear_num_key_heads ({})",
                 c.linear_num_value_heads, c.linear_num_key_heads);
  }
}

// A letter a layer, of the blocks that the model has.
void validate_pattern(const ModelConfig& c) {
  const std::string& pattern = c.hybrid_override_pattern;
  constexpr std::string_view kLetters = "M*-E";
  if (const size_t at = pattern.find_first_not_of(kLetters); at != pattern.npos) {
    config_error("model.hybrid_override_pattern has '{}' as layer {}, accepted: M, *, - or E",
                 static_cast<unsigned char>(pattern[at]) < 0x80 ? pattern.substr(at, 1) : "?", at);
  }
  if (std::ssize(pattern) != c.num_hidden_layers) {
    config_error(
        "model.hybrid_override_pattern has {} letters, and model.num_hidden_layers is {}: a letter a layer",
        pattern.size(), c.num_hidden_layers);
  }
  const auto refused = [](bool wrong, const char* remedy) {
    if (wrong) config_error("model.hybrid_override_pattern needs {}", remedy);
  };
  refused(c.has(Block::recurrence) && !c.recurs(), "a model.recurrence for its letters M");
  refused(!c.has(Block::recurrence) && c.recurs(), "model.recurrence = \"none\" or a letter M");
  refused(c.full_attention_interval > 0,
          "model.full_attention_interval = 0: it says itself which layers have attention");
  refused(c.full_attention_last, "model.full_attention_last = false");
  refused(c.max_window_layers > 0, "model.max_window_layers = 0");
}

// A letter a layer, of attention, window and recurrence.
void validate_kinds(const ModelConfig& c) {
  const std::string& pattern = c.layer_pattern;
  constexpr std::string_view kLetters = "*WM";
  if (const size_t at = pattern.find_first_not_of(kLetters); at != pattern.npos) {
    config_error("model.layer_pattern has '{}' as layer {}, accepted: *, W or M",
                 static_cast<unsigned char>(pattern[at]) < 0x80 ? pattern.substr(at, 1) : "?", at);
  }
  if (std::ssize(pattern) != c.num_hidden_layers) {
    config_error("model.layer_pattern has {} letters, and model.num_hidden_layers is {}: a letter a layer",
                 pattern.size(), c.num_hidden_layers);
  }
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.layer_pattern needs {}", other);
  };
  const bool windows = c.has_kind(LayerKind::window), recurs = c.has_kind(LayerKind::recurrence);
  needs(!windows && !recurs, "a letter W or M: without it every layer has full attention");
  needs(windows && c.sliding_window == 0, "a model.sliding_window for its letters W");
  needs(!windows && c.sliding_window > 0, "model.sliding_window = 0 or a letter W");
  needs(windows && c.num_nextn_predict_layers > 0 && c.nextn_blocks.empty(),
        "a model.nextn_blocks, which says whether layers that predict further tokens have a window");
  needs(recurs && !c.recurs(), "a model.recurrence for its letters M");
  needs(!recurs && c.recurs(), "model.recurrence = \"none\" or a letter M");
  needs(c.is_hybrid(), "no model.hybrid_override_pattern");
  needs(c.is_compressed(), "another model.attention than \"compressed\"");
  needs(c.max_window_layers > 0 || c.full_attention_interval > 0 || c.full_attention_offset > 0,
        "model.max_window_layers, model.full_attention_interval and model.full_attention_offset of 0");
  needs(c.full_attention_last, "model.full_attention_last = false");
}

// Layers of each kind that attend to keys of others need one that makes some.
void validate_shared_keys(const ModelConfig& c) {
  const auto needs = [&](bool has, const std::string& other) {
    if (has) config_error("model.shared_key_value_layers is {}, and needs {}", c.shared_key_value_layers, other);
  };
  needs(c.is_latent(), "model.attention = \"grouped\"");
  needs(c.is_hybrid(), "no model.hybrid_override_pattern");
  needs(c.recurs(), "model.recurrence = \"none\"");
  needs(c.shared_key_value_layers >= c.num_hidden_layers,
        fmt::format("more model.num_hidden_layers ({})", c.num_hidden_layers));
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    needs(c.key_value_layer(l) < 0, fmt::format("a layer with {} before those that share, for layer {}",
                                                c.has_window(l) ? "a window" : "full attention", l));
  }
}

// A letter a layer, a window, and heads in equal groups.
void validate_compression(const ModelConfig& c) {
  const auto needs = [](bool has, const char* what, const std::string& other) {
    if (has) config_error("model.attention = \"compressed\"{} needs {}", what, other);
  };
  constexpr std::string_view kLetters = "WSH";
  const size_t at = c.compression_pattern.find_first_not_of(kLetters);
  if (at != std::string::npos) {
    config_error(
        "model.compression_pattern has '{}' for layer {}; accepted: W a window, S entries that an indexer "
        "chooses, H all entries",
        c.compression_pattern[at], at);
  }
  if (std::ssize(c.compression_pattern) != c.num_hidden_layers) {
    config_error("model.compression_pattern has {} letters for {} layers, one each goes with them",
                 c.compression_pattern.size(), c.num_hidden_layers);
  }
  const bool sparse = c.has_compression(Compression::sparse);
  needs(c.sliding_window == 0, "", "a model.sliding_window");
  needs(c.q_lora_rank == 0, "", "a model.q_lora_rank: queries come from a latent");
  needs(c.max_window_layers > 0 || c.full_attention_interval > 0 || c.full_attention_offset > 0, "",
        "model.max_window_layers, model.full_attention_interval and model.full_attention_offset of 0: "
        "model.compression_pattern says which layers have a window alone");
  needs(c.recurs(), "", "model.recurrence = \"none\"");
  needs(c.is_hybrid(), "", "no model.hybrid_override_pattern");
  needs(c.shortcut_experts, "", "model.shortcut_experts = false");
  needs(c.attention_dropout > 0, "", "model.attention_dropout = 0");
  needs(c.positions != Positions::rotary, "", "model.positions = \"rotary\"");
  needs(c.zero_centered_norms, "", "model.zero_centered_norms = false");
  needs(sparse && !c.selects(), " with a letter S", "a model.index_topk");
  needs(!sparse && c.selects(), " with model.index_topk", "a letter S in model.compression_pattern");
  if (c.qk_rope_head_dim > c.head_dim) {
    config_error("model.qk_rope_head_dim is {}, more than model.head_dim ({})", c.qk_rope_head_dim, c.head_dim);
  }
  if (c.num_attention_heads % c.o_groups != 0) {
    config_error("model.num_attention_heads ({}) is not a multiple of model.o_groups ({})", c.num_attention_heads,
                 c.o_groups);
  }
}

// Layers with a window may have latents of other widths.
void validate_window_latents(const ModelConfig& c) {
  const auto needs = [](bool has, const char* key, const char* other) {
    if (has) config_error("model.{} needs {}", key, other);
  };
  for (const auto& [width, key] : {std::pair{c.window_q_lora_rank, "window_q_lora_rank"},
                                   {c.window_kv_lora_rank, "window_kv_lora_rank"},
                                   {c.window_qk_nope_head_dim, "window_qk_nope_head_dim"},
                                   {c.window_qk_rope_head_dim, "window_qk_rope_head_dim"},
                                   {c.window_v_head_dim, "window_v_head_dim"}})
    needs(width > 0 && c.sliding_window == 0, key, "a model.sliding_window");
  needs(c.rotary_key_norm && c.qk_rope_head_dim == 0, "rotary_key_norm", "a model.qk_rope_head_dim");
  needs(c.window_qk_rope_head_dim > 0 && c.qk_rope_head_dim == 0, "window_qk_rope_head_dim",
        "a model.qk_rope_head_dim");
  needs(c.window_q_lora_rank > 0 && c.q_lora_rank == 0, "window_q_lora_rank", "a model.q_lora_rank");
  needs(c.window_qk_rope_head_dim > 0 && c.turns() && !c.has_window_rotation(), "window_qk_rope_head_dim",
        "a model.window_rope_theta: a rotary table is of one width");
  if (c.has_window_rotation()) validate_rotary_width(c.with_rotation_of_windows());
}

// Parts of attention that need others.
void validate_parts(const ModelConfig& c) {
  const auto needs = [](bool has, const char* key, const char* other) {
    if (has) config_error("model.{} needs {}", key, other);
  };
  needs(c.norm_places == NormPlaces::mixed && !c.recurs(), "norm_places = \"mixed\"", "a model.recurrence");
  needs(c.qk_norm_all_heads && !c.qk_norm, "qk_norm_all_heads", "model.qk_norm = true");
  needs(c.qk_norm_after_rotation && !c.qk_norm, "qk_norm_after_rotation", "model.qk_norm = true");
  needs(c.sinks_in_windows && !c.attention_sinks, "sinks_in_windows", "model.attention_sinks = true");
  needs(c.window_attention_heads > 0 && c.sliding_window == 0, "window_attention_heads", "a model.sliding_window");
  needs(c.window_key_value_heads > 0 && c.sliding_window == 0, "window_key_value_heads", "a model.sliding_window");
  needs(c.window_head_dim > 0 && c.sliding_window == 0, "window_head_dim", "a model.sliding_window");
  needs(c.window_head_dim > 0 && c.turns() && !c.has_window_rotation(), "window_head_dim",
        "a model.window_rope_theta: a rotary table is of one width");
  needs(c.rotary_key_norm && c.is_latent() && c.qk_rope_head_dim == 0, "rotary_key_norm",
        "a model.qk_rope_head_dim above 0");
  needs(c.attention_gate_softplus && c.attention_gate == AttentionGate::none, "attention_gate_softplus",
        "a model.attention_gate");
  needs(c.attention_gate == AttentionGate::element_apart && !c.is_grouped(), "attention_gate = \"element_apart\"",
        "model.attention = \"grouped\"");
  needs(c.keys_are_values && c.value_head_dim > 0, "keys_are_values",
        "model.value_head_dim = 0: values are as wide as keys");
  needs(c.turning_pairs_factor < 1 && !c.turns(), "turning_pairs_factor", "model.positions = \"rotary\"");
  needs(c.sharing_intermediate_size > 0 && c.shared_key_value_layers == 0, "sharing_intermediate_size",
        "a model.shared_key_value_layers");
  if (c.shared_key_value_layers > 0) validate_shared_keys(c);
  needs(c.layer_embedding_size > 0 && c.is_hybrid(), "layer_embedding_size", "no model.hybrid_override_pattern");
  needs(c.expert_norms && c.has_experts() && c.n_shared_experts == 0, "expert_norms",
        "model.n_shared_experts of 1 or more: they read the layer's norm");
  needs(c.expert_norms && c.has_experts() && c.experts_bias, "expert_norms", "model.experts_bias = false");
  needs(c.window_rope_theta > 0 && c.sliding_window == 0, "window_rope_theta", "a model.sliding_window");
  needs(c.window_rope_theta > 0 && !c.turns(), "window_rope_theta", "model.positions = \"rotary\"");
  needs(c.window_rotary_factor > 0 && !c.has_window_rotation(), "window_rotary_factor", "model.window_rope_theta");
  needs(c.zero_centered_norms && c.norm != Norm::rms, "zero_centered_norms", "model.norm = \"rms\"");
  needs(c.shared_expert_gate && c.has_experts() && c.n_shared_experts == 0, "shared_expert_gate",
        "model.n_shared_experts of 1 or more");
  needs(c.swiglu_limit > 0 && c.activation != Activation::swiglu, "swiglu_limit", "model.activation = \"swiglu\"");
  needs(c.mlp_gate_multiplier != 1 && !c.has_gated_mlp(), "mlp_gate_multiplier", "a model.activation with a gate");
  needs(c.mlp_gate_multiplier != 1 && c.swiglu_limit > 0, "mlp_gate_multiplier", "model.swiglu_limit = 0");
  for (const auto& [limit, key] : {std::pair{c.experts_limit, "experts_limit"},
                                   {c.mlp_limit, "mlp_limit"},
                                   {c.mlp_limit_last, "mlp_limit_last"}}) {
    needs(limit > 0 && c.activation != Activation::swiglu, key, "model.activation = \"swiglu\"");
    needs(limit > 0 && c.swiglu_limit > 0, key, "model.swiglu_limit = 0, another form of limits");
  }
  needs(c.limited_gates && c.experts_limit == 0 && c.mlp_limit == 0, "limited_gates",
        "a model.experts_limit or model.mlp_limit");
  needs(c.mlp_limit_last > 0 && c.mlp_limit == 0, "mlp_limit_last", "a model.mlp_limit");
  needs(c.mlp_limit_last > 0 && c.mlp_limit_last_layer <= c.mlp_limit_layer, "mlp_limit_last",
        "a model.mlp_limit_last_layer above model.mlp_limit_layer");
  needs(c.mlp_limit_last == 0 && c.mlp_limit_last_layer > 0, "mlp_limit_last_layer", "a model.mlp_limit_last");
  const int64_t layers = c.num_hidden_layers + c.num_nextn_predict_layers;
  needs(c.experts_limit > 0 && c.experts_limit_layer >= layers, "experts_limit",
        "a layer from model.experts_limit_layer on");
  needs(c.mlp_limit > 0 && c.mlp_limit_layer >= layers, "mlp_limit", "a layer from model.mlp_limit_layer on");
  needs(c.mlp_limit_last > 0 && c.mlp_limit_last_layer >= layers, "mlp_limit_last",
        "a layer from model.mlp_limit_last_layer on");
  needs(c.experts_limit == 0 && c.experts_limit_layer > 0, "experts_limit_layer", "a model.experts_limit");
  needs(c.mlp_limit == 0 && c.mlp_limit_layer > 0, "mlp_limit_layer", "a model.mlp_limit");
  needs(c.full_attention_offset > 0 && c.sliding_window == 0, "full_attention_offset", "a model.sliding_window");
  needs(c.full_attention_offset > 0 && c.max_window_layers > 0, "full_attention_offset",
        "model.max_window_layers = 0");
  needs(c.full_attention_offset > 0 && c.full_attention_offset >= c.full_attention_interval,
        "full_attention_offset", "a larger model.full_attention_interval");
  needs(c.index_stage != IndexStage::sparse && !c.selects() && !c.is_compressed(), "index_stage",
        "a model.index_topk");
  needs(!c.selects() && c.index_blocks != IndexBlocks::none, "index_blocks", "a model.index_topk");
  needs(!c.selects() && !c.index_pattern.empty(), "index_pattern", "a model.index_topk");
  needs(c.is_compressed() && (c.index_blocks != IndexBlocks::none || !c.index_pattern.empty()), "attention",
        "model.index_blocks = \"none\" and no model.index_pattern where it is \"compressed\"");
  needs(c.raw_latent_of_queries && c.attention_gate != AttentionGate::element, "raw_latent_of_queries",
        "model.attention_gate = \"element\": the same projection makes gates");
  needs(c.raw_latent_of_queries && c.q_lora_rank == 0, "raw_latent_of_queries", "a model.q_lora_rank");
  needs(c.experts_sum_norm && c.has_experts() && c.norm_places != NormPlaces::before, "experts_sum_norm",
        "model.norm_places = \"before\"");
  needs(c.gated_norm_rank > 0 && c.norm_places != NormPlaces::before, "gated_norm_rank",
        "model.norm_places = \"before\"");
  needs(c.gated_norm_rank > 0 && c.parallel_blocks, "gated_norm_rank", "model.parallel_blocks = false");
  needs(c.gated_norm_rank > 0 && c.expert_norms, "gated_norm_rank", "model.expert_norms = false");
  needs((c.gated_norm_rank > 0 || c.experts_sum_norm) && c.shortcut_experts, "shortcut_experts",
        "model.gated_norm_rank = 0 and model.experts_sum_norm = false");
  if (c.is_latent()) validate_window_latents(c);
  needs(c.selects() && c.attention_dropout > 0, "index_topk", "model.attention_dropout = 0");
  needs(c.no_rope_layer_interval > 0 && !c.turns(), "no_rope_layer_interval", "model.positions = \"rotary\"");
  needs(c.rope_scaling && c.positions == Positions::none, "rope_scaling", "model.positions = \"rotary\"");
  if (c.selects() && !c.is_compressed()) validate_selection(c);
  if (c.selects() && c.is_compressed() && c.index_head_dim < c.qk_rope_head_dim) {
    config_error("model.index_head_dim is {}, must be at least model.qk_rope_head_dim ({})", c.index_head_dim,
                 c.qk_rope_head_dim);
  }
  if (c.recurs()) validate_recurrence(c);
  if (!c.is_grouped()) return;
  const int64_t heads = c.window_attention_heads > 0 ? c.window_attention_heads : c.num_attention_heads;
  const int64_t kv_heads = c.window_key_value_heads > 0 ? c.window_key_value_heads : c.num_key_value_heads;
  if (c.sliding_window > 0 && heads % kv_heads != 0) {
    config_error(
        "in layers with a window {} heads of queries are not a multiple of {} heads of keys; "
        "model.window_attention_heads and model.window_key_value_heads say how many there are",
        heads, kv_heads);
  }
  if (c.has_window_rotation()) validate_rotary_width(c.with_rotation_of_windows());
}

void validate_attention(const ModelConfig& c) {
  if (c.turns()) {
    validate_rotary_width(c);
  } else if (c.learns_positions()) {
    validate_learned_positions(c);
  }
  if (c.is_grouped() && c.num_attention_heads % c.num_key_value_heads != 0) {
    config_error("model.num_attention_heads ({}) is not a multiple of model.num_key_value_heads ({})",
                 c.num_attention_heads, c.num_key_value_heads);
  }
  if (c.is_compressed()) validate_compression(c);
  validate_parts(c);
  if (c.sliding_window == 0 && !c.recurs() && (c.max_window_layers > 0 || c.full_attention_interval > 0)) {
    config_error(
        "model.{} is {}, but model.sliding_window is 0 and model.recurrence \"none\": every layer sees all",
        c.max_window_layers > 0 ? "max_window_layers" : "full_attention_interval",
        c.max_window_layers > 0 ? c.max_window_layers : c.full_attention_interval);
  }
  if (c.full_attention_last && c.recurrence != Recurrence::kimi_delta && c.recurrence != Recurrence::lightning)
    config_error("model.full_attention_last needs model.recurrence = \"kimi_delta\" or \"lightning\"");
  if (c.rope_scaling && c.rope_scaling->type == RopeType::llama3 &&
      c.rope_scaling->high_freq_factor < c.rope_scaling->low_freq_factor) {
    config_error(
        "model.rope_scaling.high_freq_factor is {}, must be at least model.rope_scaling.low_freq_factor ({})",
        c.rope_scaling->high_freq_factor, c.rope_scaling->low_freq_factor);
  }
  if (c.rope_scaling && c.rope_scaling->type == RopeType::longrope) validate_longrope(c);
  if (c.rope_scaling && c.rope_theta == 1) {
    config_error("model.rope_theta is 1, must be more where model.rope_scaling stretches it");
  }
}

// Experts without computation are chosen beside the others.
void validate_zero_experts(const ModelConfig& c) {
  const auto needs = [&](bool has, const char* other) {
    if (has) config_error("model.zero_expert_num is {}, and needs {}", c.zero_expert_num, other);
  };
  needs(c.n_group > 1, "model.n_group = 1");
  needs(c.experts_bias, "model.experts_bias = false");
  needs(c.moe_latent_size > 0, "model.moe_latent_size = 0: its rows are as wide as the stream");
  needs(c.expert_norms, "model.expert_norms = false");
}

// The experts of a pair of layers add to one stream, unscaled by what only one of the two has.
void validate_pairs(const ModelConfig& c) {
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.shortcut_experts needs {}", other);
  };
  needs(c.num_hidden_layers % 2 != 0, "an even model.num_hidden_layers: layers are pairs");
  needs(c.is_hybrid(), "no model.hybrid_override_pattern");
  needs(c.recurs(), "model.recurrence = \"none\"");
  needs(c.first_k_dense_replace > 0, "model.first_k_dense_replace = 0");
  needs(c.expert_norms, "model.expert_norms = false");
  needs(c.norm_places != NormPlaces::before, "model.norm_places = \"before\"");
  needs(c.residual_dropout > 0, "model.residual_dropout = 0");
  needs(c.mlp_alpha_factor != 1 || c.mlp_beta_factor != 1 || c.residual_multiplier != 1,
        "model.mlp_alpha_factor, model.mlp_beta_factor and model.residual_multiplier of 1");
}

// It gates by logits, two experts one after the other.
void validate_sparse_mixer(const ModelConfig& c) {
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.sparse_mixer needs {}", other);
  };
  needs(c.num_experts_per_tok != 2, "model.num_experts_per_tok = 2");
  needs(c.choices() < 2, "model.n_routed_experts of 2 or more");
  needs(c.n_group > 1, "model.n_group = 1");
  needs(c.sigmoid_scores || c.softplus_scores,
        "model.sigmoid_scores = false and model.softplus_scores = false: its gates are a softmax");
  needs(c.topk_bias, "model.topk_bias = false");
  needs(c.norm_topk_prob, "model.norm_topk_prob = false");
  needs(c.routed_scaling_factor != 1, "model.routed_scaling_factor = 1");
}

// Layers that predict further tokens see others than those whose ids they would choose by.
void validate_hash_layers(const ModelConfig& c) {
  if (c.num_hash_layers > c.num_hidden_layers)
    config_error("model.num_hash_layers is {}, more than model.num_hidden_layers ({})", c.num_hash_layers,
                 c.num_hidden_layers);
  int64_t layers = 0;
  for (int64_t l = 0; l < c.num_hash_layers; ++l) layers += c.chooses_by_id(l);
  if (layers == 0)
    config_error(
        "model.num_hash_layers is {}, and none of these layers has experts; more layers, or fewer of "
        "model.first_k_dense_replace ({}), go with it",
        c.num_hash_layers, c.first_k_dense_replace);
  if (c.sparse_mixer)
    config_error(
        "model.num_hash_layers is {}, and needs model.sparse_mixer = false: its gates follow its own choice",
        c.num_hash_layers);
}

// Blocks write to streams and are not added to a row that is scaled, goes on normed, or is added to beside them.
void validate_streams(const ModelConfig& c) {
  const auto needs = [&](bool has, const char* other) {
    if (has) config_error("model.hyper_connections is {}, and needs {}", c.hyper_connections, other);
  };
  needs(c.num_nextn_predict_layers > 0 && c.norm != Norm::rms,
        "model.norm = \"rms\" beside model.num_nextn_predict_layers: the norm of a stream has no bias");
  needs(c.norm_places == NormPlaces::stream, "another model.norm_places than \"stream\"");
  needs(c.full_attn_alpha_factor != 1 || c.linear_attn_alpha_factor != 1 || c.mlp_alpha_factor != 1,
        "model.full_attn_alpha_factor, model.linear_attn_alpha_factor and model.mlp_alpha_factor of 1");
  needs(c.shortcut_experts, "model.shortcut_experts = false");
  needs(c.layer_embedding_size > 0, "model.layer_embedding_size = 0");
  const auto only = [](bool has, const char* key, const char* kind) {
    if (has) config_error("model.{} needs model.hyper_connections_kind = \"{}\"", key, kind);
  };
  const ModelConfig plain;
  only(c.hyper_connections_kind != HyperConnection::constrained &&
           c.hyper_connections_iterations != plain.hyper_connections_iterations,
       "hyper_connections_iterations", "constrained");
  only(c.hyper_connections_kind != HyperConnection::independent &&
           c.hyper_connections_magnitude != plain.hyper_connections_magnitude,
       "hyper_connections_magnitude", "independent");
  only(!c.has_gated_streams() && c.hyper_connections_rank != plain.hyper_connections_rank, "hyper_connections_rank",
       "gated");
  const auto of_gated = [](bool has, const char* other) {
    if (has) config_error("model.hyper_connections_kind is \"gated\", and needs {}", other);
  };
  if (!c.has_gated_streams()) return;
  of_gated(c.hyper_connections_mean, "a head without model.hyper_connections_mean");
  of_gated(c.hyper_connections < 2, "model.hyper_connections of 2 or more");
  of_gated(c.norm != Norm::rms, "model.norm = \"rms\": streams are normed as they are read");
  of_gated(c.norm_places != NormPlaces::before, "model.norm_places = \"before\"");
  of_gated(c.expert_norms, "model.expert_norms = false");
  of_gated(c.experts_sum_norm, "model.experts_sum_norm = false");
  of_gated(c.gated_norm_rank > 0, "model.gated_norm_rank = 0");
  of_gated(c.parallel_blocks, "model.parallel_blocks = false");
}

void validate_experts(const ModelConfig& c) {
  if (c.zero_expert_num > 0) validate_zero_experts(c);
  if (c.num_hash_layers > 0) validate_hash_layers(c);
  if (c.shortcut_experts) validate_pairs(c);
  if (c.sparse_mixer) validate_sparse_mixer(c);
  if (c.num_experts_per_tok > c.choices()) {
    config_error("model.num_experts_per_tok is {}, more than model.n_routed_experts ({})", c.num_experts_per_tok,
                 c.choices());
  }
  const auto needs = [](bool has, const char* key, const char* other) {
    if (has) config_error("model.{} needs {}", key, other);
  };
  needs(c.bias_on_logits && !c.topk_bias, "bias_on_logits", "model.topk_bias = true");
  needs(c.bias_on_logits && c.n_group > 1, "bias_on_logits", "model.n_group = 1");
  needs(c.bias_on_logits && c.bias_balance == BiasBalance::quantile, "bias_on_logits",
        "a model.bias_balance other than \"quantile\", which counts margins of scores");
  if (c.moe_latent_size > 0 && c.experts_bias) {
    config_error("model.moe_latent_size is {}, and experts at a latent width have no model.experts_bias",
                 c.moe_latent_size);
  }
  if (c.n_routed_experts % c.n_group != 0) {
    config_error("model.n_routed_experts ({}) is not a multiple of model.n_group ({})", c.n_routed_experts,
                 c.n_group);
  }
  if (c.topk_group > c.n_group) {
    config_error("model.topk_group is {}, more than model.n_group ({})", c.topk_group, c.n_group);
  }
  if (c.softplus_scores && c.sigmoid_scores)
    config_error("model.softplus_scores needs model.sigmoid_scores = false: scores are the one or the other");
  if (c.softplus_scores && c.bias_balance == BiasBalance::quantile)
    config_error(
        "model.bias_balance is \"quantile\", whose bins hold margins up to 2, and model.softplus_scores is on, "
        "whose scores have no bound; model.bias_balance = \"sign\" goes with it");
  const int64_t reachable = c.topk_group * (c.choices() / c.n_group);
  if (c.num_experts_per_tok > reachable) {
    config_error("model.num_experts_per_tok is {}, more than the {} experts of model.topk_group = {} groups",
                 c.num_experts_per_tok, reachable, c.topk_group);
  }
  if (c.bias_balance == BiasBalance::quantile && (c.n_group > 1 || c.num_experts_per_tok == c.choices())) {
    config_error(
        "model.bias_balance is \"quantile\", which weighs each token's chosen experts against all others, and "
        "model.n_group is {}, model.num_experts_per_tok {} of {} experts; one group and fewer experts a token go "
        "with "
        "it",
        c.n_group, c.num_experts_per_tok, c.choices());
  }
}

}  // namespace

void validate(const ModelConfig& c) {
  if (c.is_hybrid()) validate_pattern(c);
  if (!c.layer_pattern.empty()) validate_kinds(c);
  validate_bounds(c);
  validate_attention(c);
  validate_layers(c);
  if (c.has_streams()) validate_streams(c);
  if (c.has_ngrams()) validate_ngrams(c);
  if (c.has_experts()) validate_experts(c);
}

}  // namespace heddle::model
