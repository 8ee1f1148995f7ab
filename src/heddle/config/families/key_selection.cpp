// DeepSeek-V3.2 and GLM-5: DeepSeek-V3 with an indexer that selects the keys of each query.
//
// Sources: the config.json files released with DeepSeek-V3.2-Exp, GLM-5 and GLM-5.2; DeepseekV32Config and
// GlmMoeDsaConfig of Transformers 5, gone through key by key; arXiv 2512.02556, 2602.15763 and 2603.12201.
#include "heddle/config/families/key_selection.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

// A word a layer.
template <class Word>
Written layer_words(const ModelConfig& c, const Word& word) {
  Written words = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) words.push_back(word(l));
  return words;
}

void read_layer_types_key_selection(const JsonKeys& keys, ModelConfig& c) {
  const Json* types = keys.find("layer_types");
  if (types == nullptr) return;
  const bool all =
      types->is_array() && std::ssize(*types) == c.num_hidden_layers &&
      std::all_of(types->begin(), types->end(), [](const Json& t) { return t == "indexed_attention"; });
  if (!all) {
    config_error("{}: 'layer_types' is {}: only 'indexed_attention' for each of {} layers is built", keys.place(),
                 formats::shown(*types), c.num_hidden_layers);
  }
}

// True if the list says of each layer what first_k_dense_replace says.
bool says_dense_layers_key_selection(const Json& types, const Json& root) {
  const Json dense = root.value("first_k_dense_replace", Json(3)), layers = root.value("num_hidden_layers", Json());
  if (!types.is_array() || types.size() != layers || !dense.is_number_integer()) return false;
  for (size_t l = 0; l < types.size(); ++l) {
    if (types[l] != (static_cast<int64_t>(l) < dense.get<int64_t>() ? "dense" : "sparse")) return false;
  }
  return true;
}

const char* indexer_type(const ModelConfig& c, int64_t layer) { return c.has_indexer(layer) ? "full" : "shared"; }

// The words of the layers alone say as much as index_topk_freq and index_skip_topk_offset, which may be absent.
// Words in another order become a letter a layer.
void read_indexer_types(const JsonKeys& keys, ModelConfig& c) {
  const Json* types = keys.find("indexer_types");
  if (types == nullptr) return;
  const auto has = [&](size_t l) { return (*types)[l] == "full"; };
  if (types->is_array() && keys.find("index_topk_freq") == nullptr && !types->empty()) {
    size_t own = 0, next = 0;
    while (own < types->size() && has(own)) ++own;
    for (next = own; next < types->size() && !has(next);) ++next;
    if (own < types->size()) {
      c.index_skip_topk_offset = static_cast<int64_t>(own);
      c.index_topk_freq = static_cast<int64_t>(next - own) + 1;
    } else {
      c.index_topk_freq = 1;
    }
  }
  const bool words =
      types->is_array() && std::ssize(*types) == c.num_hidden_layers && !types->empty() && (*types)[0] == "full" &&
      std::all_of(types->begin(), types->end(), [](const Json& t) { return t == "full" || t == "shared"; });
  if (!words) {
    config_error(
        "{}: 'indexer_types' is {}: a word for each of {} layers is expected, 'full' or 'shared', the first 'full'",
        keys.place(), formats::shown(*types), c.num_hidden_layers);
  }
  bool same = c.index_topk_freq > 0;
  for (int64_t l = 0; same && l < c.num_hidden_layers; ++l)
    same = (*types)[static_cast<size_t>(l)] == indexer_type(c, l);
  if (same) return;
  c.index_topk_freq = 1;
  c.index_skip_topk_offset = ModelConfig().index_skip_topk_offset;
  for (const Json& type : *types)
    c.index_pattern += static_cast<char>(type == "full" ? model::Selection::own : model::Selection::shared);
}

ModelConfig v32() {
  ModelConfig c = deepseek_v3().presets.at(0).model;
  c.index_topk = 2048;
  c.index_n_heads = 64;
  c.index_head_dim = 128;
  return c;
}

ModelConfig glm5() {
  ModelConfig c = v32();
  c.vocab_size = 154880;
  c.hidden_size = 6144;
  c.num_hidden_layers = 78;
  c.intermediate_size = 12288;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 202752;
  c.num_attention_heads = 64;
  c.q_lora_rank = 2048;
  c.qk_nope_head_dim = 192;
  c.v_head_dim = 256;
  c.rope_theta = 1e6;
  c.rope_scaling.reset();
  c.n_group = c.topk_group = 1;
  c.index_n_heads = 32;
  c.indexer_rope_interleave = true;
  c.sequence_aux_loss_alpha = 0;
  return c;
}

}  // namespace

PublishedKey indexer_types_key() {
  return {.name = "indexer_types", .read = read_indexer_types, .write = [](const ModelConfig& c) {
            return layer_words(c, [&](int64_t l) { return indexer_type(c, l); });
          }};
}

bool says_indexers(const ModelConfig& c) {
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    if (!c.selects_in(l)) return false;
  return true;
}

Family selecting_family() {
  Family f = deepseek_v3();
  f.base.index_topk = 2048;
  drop_keys(f, {"rope_interleave"});
  replace_keys(f, {key("first_k_dense_replace", "first_k_dense_replace", 3)});
  f.keys.push_back(
      {.name = "layer_types", .read = read_layer_types_key_selection, .write = [](const ModelConfig& c) {
         return layer_words(c, [](int64_t) { return "indexed_attention"; });
       }});
  f.keys.push_back(key("index_head_dim", "index_head_dim", 128));
  f.keys.push_back(key("index_topk", "index_topk", 2048));
  std::erase_if(f.only,
                [](const Only& each) { return each.name == "mlp_layer_types" || each.name == "index_topk"; });
  f.only.push_back(
      {"mlp_layer_types", says_dense_layers_key_selection, "it must say what first_k_dense_replace says"});
  f.only.push_back(is("rope_interleave", true, "the family rotates neighbours"));
  f.only.push_back(is("moe_router_dtype", "float32", "the router's scores are in float32"));
  return f;
}

Family deepseek_v32() {
  Family f = selecting_family();
  f.architecture = "DeepseekV32ForCausalLM";
  f.model_type = "deepseek_v32";
  f.keys.push_back(key("index_n_heads", "index_n_heads", 64));
  f.only.push_back(is("indexer_rope_interleave", false, "the family's indexer rotates halves"));
  f.presets = {{"deepseek-v3.2", v32()}};
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && c.selects() && c.q_lora_rank > 0 && c.rope_interleave && !c.indexer_rope_interleave &&
           c.index_topk_freq == 1;
  };
  return f;
}

// Layers after the first ones may take the choice of a layer before them (GLM-5.2).
Family glm_moe_dsa() {
  Family f = selecting_family();
  f.architecture = "GlmMoeDsaForCausalLM";
  f.model_type = "glm_moe_dsa";
  f.base.indexer_rope_interleave = true;
  f.said = {"indexer_rope_interleave"};
  replace_keys(f, {key("rms_norm_eps", "rms_norm_eps", 1e-5), key("n_group", "n_group", 1),
                   key("topk_group", "topk_group", 1)});
  f.keys.push_back(key("index_n_heads", "index_n_heads", 32));
  f.keys.push_back(fixed("indexer_rope_interleave", true));
  f.keys.push_back(key("index_topk_freq", "index_topk_freq", 1));
  f.keys.push_back(key("index_skip_topk_offset", "index_skip_topk_offset", 2));
  f.keys.push_back(indexer_types_key());
  std::erase_if(f.only, [](const Only& each) { return each.name == "head_dim"; });
  f.only.push_back({"head_dim",
                    [](const Json& value, const Json& root) {
                      return value == root.value("qk_rope_head_dim", Json()) ||
                             value == root.value("qk_nope_head_dim", Json());
                    },
                    "it must equal qk_rope_head_dim or qk_nope_head_dim"});
  f.only.push_back(is("indexer_rope_interleave", true, "the family's indexer rotates neighbours"));
  f.only.push_back(never("index_topk_pattern", "indexer_types says which layers have an indexer"));
  // It speaks of further tokens that one prediction layer guesses in turn while generating.
  f.read_besides.push_back("index_share_for_mtp_iteration");
  ModelConfig shared = glm5();
  shared.max_position_embeddings = 1048576;
  shared.rope_theta = 8e6;
  shared.index_topk_freq = 4;
  shared.index_skip_topk_offset = 3;
  f.presets = {{"glm-5", glm5()}, {"glm-5.2", shared}};
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && c.selects() && c.q_lora_rank > 0 && c.rope_interleave && c.indexer_rope_interleave &&
           says_indexers(c);
  };
  return f;
}

}  // namespace heddle::config
