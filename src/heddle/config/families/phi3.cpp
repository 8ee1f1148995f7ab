// Phi-3 and Phi-4, dense: LLaMA whose queries, keys and values are one matrix of its files, and gate and up
// another.
//
// Sources: Phi3Config and modeling_phi3.py of Transformers 5, gone through key by key; arXiv 2404.14219 and
// 2412.08905; the config.json files released with Phi-3-mini-4k-instruct, Phi-3-medium-4k-instruct and phi-4.
#include <array>

#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

std::optional<ReleasedPlace> rows_of(const std::string& name, std::string_view part, const char* joint,
                                     const std::vector<int64_t>& shape, int64_t first, int64_t rows) {
  const size_t at = name.find(part);
  if (at == std::string::npos || shape.size() != 2) return std::nullopt;
  ReleasedPlace place{
      .name = name, .shape = {rows, shape[1]}, .first = first * shape[1], .row_step = shape[1], .is_whole = false};
  place.name.replace(at, part.size(), joint);
  return place;
}

std::optional<ReleasedPlace> stacked_phi3(const std::string& name, const std::vector<int64_t>& shape,
                                          int64_t experts, const JoinedRows& joined) {
  if (experts > 0) return std::nullopt;
  for (const std::string_view part : {".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."}) {
    if (auto place = rows_of(name, part, ".self_attn.qkv_proj.", shape, joined.first, joined.rows)) return place;
  }
  const int64_t width = shape.empty() ? 0 : shape[0];
  for (const auto& [part, first] : {std::pair{".mlp.gate_proj.", int64_t{0}}, {".mlp.up_proj.", width}}) {
    if (auto place = rows_of(name, part, ".mlp.gate_up_proj.", shape, first, 2 * width)) return place;
  }
  return std::nullopt;
}

ModelConfig sized_phi3(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t mlp, int64_t heads,
                       int64_t kv_heads) {
  ModelConfig c = grouped_base();
  c.vocab_size = vocabulary;
  c.hidden_size = hidden;
  c.num_hidden_layers = c.first_k_dense_replace = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 4096;
  return c;
}

ModelConfig phi4() {
  ModelConfig c = sized_phi3(100352, 5120, 40, 17920, 40, 10);
  c.rope_theta = 250000;
  c.max_position_embeddings = 16384;
  return c;
}

ModelConfig mini() {
  ModelConfig c = sized_phi3(32064, 3072, 32, 8192, 32, 32);
  c.sliding_window = 2047;
  return c;
}

}  // namespace

Family phi3() {
  Family f;
  f.architecture = "Phi3ForCausalLM";
  f.model_type = "phi3";
  f.base = grouped_base();
  f.keys = grouped_keys(1e-5);
  f.keys.push_back(partial_rotary_key(1.0));
  f.keys.push_back(window_of_all_layers(0));
  f.rewrite = refuse_stretching;
  f.stacked = stacked_phi3;
  f.holds = [](const ModelConfig&) { return false; };  // it is written as LLaMA, or with a window as Mistral
  f.derive = make_dense;
  f.presets = {{"phi-3-mini", mini()}, {"phi-4", phi4()}};
  return f;
}

}  // namespace heddle::config
