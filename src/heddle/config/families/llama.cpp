// LLaMA 2 and 3, dense: grouped attention whose queries and keys are turned as they are. And Qwen2, which adds
// biases to them and to values.
//
// Sources: LlamaConfig and Qwen2Config of Transformers 5, gone through key by key; arXiv 2307.09288, table 1, and
// 2407.21783, table 3; the config.json files released with Llama-3.2 and Qwen2.5.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::ModelConfig;

ModelConfig sized_llama(const GroupedSizes& sizes, double epsilon, double theta) {
  ModelConfig c = sized(grouped_base(), sizes);
  make_dense(c);
  c.rms_norm_eps = epsilon;
  c.rope_theta = theta;
  return c;
}

ModelConfig llama2(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads) {
  return sized_llama({32000, hidden, layers, mlp, heads, kv_heads, 4096}, 1e-5, 1e4);
}
ModelConfig llama3(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads) {
  return sized_llama({128256, hidden, layers, mlp, heads, 8, 8192}, 1e-5, 5e5);
}
// The configuration of LLaMA 3.1 or 3.2.
ModelConfig stretched(ModelConfig c, double factor, bool tied) {
  c.max_position_embeddings = 131072;
  c.rope_scaling = model::RopeScaling{
      .factor = factor, .original_max_position_embeddings = 8192, .type = model::RopeType::llama3};
  c.tie_word_embeddings = tied;
  return c;
}
ModelConfig qwen(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads,
                 bool tied) {
  ModelConfig c = sized_llama({vocabulary, hidden, layers, mlp, heads, kv_heads, 32768}, 1e-6, 1e6);
  c.attention_bias = AttentionBias::qkv;
  c.tie_word_embeddings = tied;
  return c;
}

bool is_plain_llama(const ModelConfig& c) { return !c.is_latent() && !c.has_experts() && !c.qk_norm; }

}  // namespace

Family llama() {
  Family f = grouped_family("LlamaForCausalLM", "llama", 1e-6);
  f.keys.push_back(attention_bias_key(AttentionBias::all));
  f.keys.push_back(key("mlp_bias", "mlp_bias", false));
  f.holds = [](const ModelConfig& c) { return is_plain_llama(c) && c.attention_bias != AttentionBias::qkv; };
  f.derive = make_dense;
  f.presets = {{"llama-2-7b", llama2(4096, 32, 11008, 32, 32)},
               {"llama-2-13b", llama2(5120, 40, 13824, 40, 40)},
               {"llama-2-70b", llama2(8192, 80, 28672, 64, 8)},
               {"llama-3-8b", llama3(4096, 32, 14336, 32)},
               {"llama-3-70b", llama3(8192, 80, 28672, 64)},
               {"llama-3.1-405b", stretched(llama3(16384, 126, 53248, 128), 8, false)},
               {"llama-3.2-1b", stretched(llama3(2048, 16, 8192, 32), 32, true)},
               {"llama-3.2-3b", stretched(llama3(3072, 28, 8192, 24), 32, true)}};
  return f;
}

Family qwen2() {
  Family f = grouped_family("Qwen2ForCausalLM", "qwen2", 1e-6);
  f.base.attention_bias = AttentionBias::qkv;
  add_keys(f, window_of_last_layers());
  f.said = {"attention_bias"};
  f.holds = [](const ModelConfig& c) { return is_plain_llama(c) && c.attention_bias == AttentionBias::qkv; };
  f.derive = make_dense;
  f.presets = {{"qwen2.5-0.5b", qwen(151936, 896, 24, 4864, 14, 2, true)},
               {"qwen2.5-1.5b", qwen(151936, 1536, 28, 8960, 12, 2, true)},
               {"qwen2.5-7b", qwen(152064, 3584, 28, 18944, 28, 4, false)},
               {"qwen2.5-72b", qwen(152064, 8192, 80, 29568, 64, 8, false)}};
  return f;
}

}  // namespace heddle::config
