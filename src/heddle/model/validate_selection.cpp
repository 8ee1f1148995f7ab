#include "heddle/model/validate_selection.h"

#include <string_view>

#include "heddle/base/error.h"

namespace heddle::model {

namespace {

// A letter a layer: an indexer, the choice of the one before, or all keys.
void validate_index_pattern(const ModelConfig& c) {
  const std::string& pattern = c.index_pattern;
  constexpr std::string_view kLetters = "IS*";
  if (const size_t at = pattern.find_first_not_of(kLetters); at != pattern.npos) {
    config_error("model.index_pattern has '{}' as layer {}, accepted: I, S or *",
                 static_cast<unsigned char>(pattern[at]) < 0x80 ? pattern.substr(at, 1) : "?", at);
  }
  if (std::ssize(pattern) != c.num_hidden_layers) {
    config_error("model.index_pattern has {} letters, and model.num_hidden_layers is {}: a letter a layer",
                 pattern.size(), c.num_hidden_layers);
  }
  if (c.index_topk_freq != 1)
    config_error("model.index_pattern needs model.index_topk_freq = 1: it says which layers have indexers");
  if (c.is_hybrid()) config_error("model.index_pattern needs no model.hybrid_override_pattern");
  bool chosen = false;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const bool all = pattern[static_cast<size_t>(l)] == static_cast<char>(Selection::all);
    if (!all && c.is_recurrent(l))
      config_error("model.index_pattern has '{}' as layer {}, which is recurrent: * goes with it",
                   pattern[static_cast<size_t>(l)], l);
    if (c.selection_of(l) == Selection::shared && !chosen)
      config_error("model.index_pattern has S as layer {}, and no layer before it has an indexer", l);
    chosen = chosen || c.has_indexer(l);
  }
  if (!chosen) config_error("model.index_pattern has no letter I: no layer has an indexer");
}

void validate_blocks(const ModelConfig& c) {
  const bool greatest = c.index_blocks == IndexBlocks::greatest, gated = c.index_blocks == IndexBlocks::gated;
  const auto needs = [&](bool has, const char* other) {
    if (has) config_error("model.index_blocks = \"{}\" needs {}", word_of(c.index_blocks), other);
  };
  needs(gated != c.is_latent(), gated ? "model.attention = \"latent\"" : "model.attention = \"grouped\"");
  needs(gated && c.positions != Positions::none, "model.positions = \"none\": its indexer turns nothing");
  needs(!greatest && c.index_local_blocks > 0, "model.index_local_blocks = 0");
  needs(c.no_rope_layer_interval > 0 || !c.rotation_pattern.empty(),
        "model.no_rope_layer_interval = 0 and no model.rotation_pattern");
  needs(c.attention_logit_cap > 0, "model.attention_logit_cap = 0");
  needs(c.shared_key_value_layers > 0, "model.shared_key_value_layers = 0");
  if (c.index_topk % c.index_block_size != 0) {
    config_error("model.index_topk is {}, no multiple of model.index_block_size ({})", c.index_topk,
                 c.index_block_size);
  }
  if (!greatest) return;
  if (c.index_n_heads != c.num_key_value_heads) {
    config_error("model.index_n_heads is {}, and model.num_key_value_heads {}: each head chooses for one key head",
                 c.index_n_heads, c.num_key_value_heads);
  }
  if (c.index_local_blocks > c.index_topk / c.index_block_size) {
    config_error("model.index_local_blocks is {}, more than model.index_topk ÷ model.index_block_size ({})",
                 c.index_local_blocks, c.index_topk / c.index_block_size);
  }
}

}  // namespace

void validate_selection(const ModelConfig& c) {
  const auto needs = [](bool has, const char* other) {
    if (has) config_error("model.index_topk needs {}", other);
  };
  const bool blocks = c.selects_blocks();
  bool chooses = false;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) chooses = chooses || c.has_indexer(l);
  const bool windows = c.sliding_window > 0 && (c.is_grouped() || !chooses);
  needs(windows, "model.sliding_window = 0: it selects among all keys");
  needs(c.is_grouped() && !blocks, "a model.index_blocks: grouped attention selects blocks of keys");
  needs(c.recurs() && !blocks, "model.recurrence = \"none\", or a model.index_blocks");
  needs(!c.turns() && c.index_blocks != IndexBlocks::gated, "model.positions = \"rotary\": indexers turn by it");
  if (blocks) validate_blocks(c);
  if (!c.index_pattern.empty()) validate_index_pattern(c);
  if (c.turns() && c.index_head_dim < c.rotary_width()) {
    config_error("model.index_head_dim is {}, must be at least {} ({})", c.index_head_dim,
                 c.is_latent() ? "model.qk_rope_head_dim" : "what model.partial_rotary_factor leaves of a head",
                 c.rotary_width());
  }
}

}  // namespace heddle::model
