// Numbers are those of each model's released config.json or, where there is none, of the paper or launch script
// named beside it.
#include "heddle/model/shapes/shape_presets.h"

#include <cctype>
#include <utility>

namespace heddle::model {

namespace {

Shape llama(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn,
            int64_t vocab) {
  Shape s;
  s.name = name;
  s.hidden = hidden;
  s.layers = layers;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = hidden / heads;
  s.ffn = ffn;
  s.vocab = vocab;
  return s;
}

Shape with_head_dim(Shape s, int64_t head_dim) {
  s.head_dim = head_dim;
  return s;
}

Shape qwen3(Shape s) {
  s.head_dim = 128;
  s.qk_norm = true;
  return s;
}

Shape with_experts(Shape s, int64_t count, int64_t chosen, int64_t ffn, int64_t shared_ffn = 0, int64_t dense = 0) {
  s.moe.count = count;
  s.moe.chosen = chosen;
  s.moe.ffn = ffn;
  s.moe.shared_ffn = shared_ffn;
  s.dense_layers = dense;
  return s;
}

// GPT-2 and GPT-3 as Megatron-LM trains them: biases everywhere, LayerNorm, tied embedding, learned positions.
Shape gpt(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t vocab, int64_t positions) {
  Shape s = llama(name, hidden, layers, heads, heads, 4 * hidden, vocab);
  s.gated = false;
  s.tied = s.qkv_bias = s.out_bias = s.ffn_bias = s.norm_bias = true;
  s.positions = positions;
  return s;
}

Shape bloom(const char* name, int64_t hidden, int64_t layers, int64_t heads) {
  Shape s = gpt(name, hidden, layers, heads, 250880, 0);
  s.embedding_norm = s.alibi = true;
  return s;
}

// MosaicML's MPT: no biases, ALiBi.
Shape mpt(const char* name, int64_t hidden, int64_t layers, int64_t heads) {
  Shape s = llama(name, hidden, layers, heads, heads, 4 * hidden, 50432);
  s.gated = false;
  s.tied = s.alibi = true;
  return s;
}

// NVIDIA's Nemotron: squared ReLU, LayerNorm with a bias, no other biases.
Shape nemotron(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn) {
  Shape s = llama(name, hidden, layers, heads, kv_heads, ffn, 256000);
  s.gated = false;
  s.norm_bias = true;
  return s;
}

Shape latent(Shape s, int64_t q_rank) {
  s.mla = {q_rank, 512, 128, 64, 128};
  s.kv_heads = s.heads;
  s.head_dim = 192;
  return s;
}

Shape deepseek_v3(const char* name, int64_t mtp) {
  Shape s = latent(llama(name, 7168, 61, 128, 128, 18432, 129280), 1536);
  s = with_experts(std::move(s), 256, 8, 2048, 2048, 3);
  s.mtp = mtp;
  s.moe.router_bias = true;
  s.moe.most_nodes = 4;
  s.moe.groups = 8;
  s.moe.gate_scale = 2.5;
  return s;
}

// Gates are softmax scores as they are, not normed over the chosen.
Shape deepseek_v2(Shape s, double gate_scale) {
  s.moe.normed_gates = false;
  s.moe.gate_scale = gate_scale;
  return s;
}

Shape kimi_k2() {
  Shape s = latent(llama("Kimi-K2", 7168, 61, 64, 64, 18432, 163840), 1536);
  s = with_experts(std::move(s), 384, 8, 2048, 2048, 1);
  s.moe.router_bias = true;
  s.moe.gate_scale = 2.827;
  return s;
}

Shape moonlight() {
  Shape s = latent(llama("Moonlight-16B-A3B", 2048, 27, 16, 16, 11264, 163840), 0);
  s = with_experts(std::move(s), 64, 6, 1408, 2 * 1408, 1);
  s.moe.router_bias = true;
  s.moe.gate_scale = 2.446;
  return s;
}

Shape gpt_oss(const char* name, int64_t layers, int64_t experts) {
  Shape s = llama(name, 2880, layers, 64, 8, 2880, 201088);
  s.head_dim = 64;
  s.qkv_bias = s.out_bias = s.sinks = true;
  s.window = 128;
  s = with_experts(std::move(s), experts, 4, 2880);
  s.moe.bias = s.moe.router_bias = true;
  return s;
}

// Nemotron 3 (arXiv 2512.20848): Mamba-2, experts of two matrices, a little attention.
Shape nemotron3(const char* name, int64_t hidden, int64_t mamba_heads, int64_t mamba, int64_t moe,
                int64_t attention) {
  Shape s = llama(name, hidden, mamba + moe + attention, 32, 2, 0, 131072);
  s.head_dim = 128;
  s.gated = s.moe.gated = false;
  s.moe.router_bias = true;
  s.mamba = {mamba_heads, 64, 128, 8, 4, 128};
  s.hybrid_mamba = mamba;
  s.hybrid_moe = moe;
  s.hybrid_attention = attention;
  return s;
}

Shape nemotron3_super() {
  Shape s = with_experts(nemotron3("Nemotron-3-Super", 4096, 128, 40, 40, 8), 512, 22, 2688, 5376);
  s.moe.latent = 1024;
  s.mtp = 1;
  return s;
}

std::vector<Shape> make_presets() {
  return {
      llama("Llama-2-7B", 4096, 32, 32, 32, 11008, 32000),
      llama("Llama-2-13B", 5120, 40, 40, 40, 13824, 32000),
      llama("Llama-2-70B", 8192, 80, 64, 8, 28672, 32000),
      llama("Llama-3-8B", 4096, 32, 32, 8, 14336, 128256),
      llama("Llama-3-70B", 8192, 80, 64, 8, 28672, 128256),
      llama("Llama-3.1-405B", 16384, 126, 128, 8, 53248, 128256),
      qwen3(llama("Qwen3-8B", 4096, 36, 32, 8, 12288, 151936)),
      qwen3(llama("Qwen3-14B", 5120, 40, 40, 8, 17408, 151936)),
      qwen3(llama("Qwen3-32B", 5120, 64, 64, 8, 25600, 151936)),
      qwen3(with_experts(llama("Qwen3-30B-A3B", 2048, 48, 32, 4, 6144, 151936), 128, 8, 768)),
      qwen3(with_experts(llama("Qwen3-235B-A22B", 4096, 94, 64, 4, 12288, 151936), 128, 8, 1536)),
      with_experts(llama("Mixtral-8x7B", 4096, 32, 32, 8, 14336, 32000), 8, 2, 14336),
      with_experts(llama("Mixtral-8x22B", 6144, 56, 48, 8, 16384, 32768), 8, 2, 16384),
      deepseek_v3("DeepSeek-V3", 1),
      deepseek_v2(with_experts(latent(llama("DeepSeek-V2", 5120, 60, 128, 128, 12288, 102400), 1536), 160, 6, 1536,
                               2 * 1536, 1),
                  16),
      deepseek_v2(with_experts(latent(llama("DeepSeek-V2-Lite", 2048, 27, 16, 16, 10944, 102400), 0), 64, 6, 1408,
                               2 * 1408, 1),
                  1),
      kimi_k2(),
      moonlight(),
      gpt_oss("GPT-OSS-120B", 36, 128),
      gpt_oss("GPT-OSS-20B", 24, 32),
      bloom("BLOOM-176B", 14336, 70, 112),
      mpt("MPT-1B", 2048, 24, 16),
      mpt("MPT-3B", 2560, 32, 20),
      mpt("MPT-7B", 4096, 32, 32),
      mpt("MPT-13B", 5120, 40, 40),
      mpt("MPT-30B", 7168, 48, 56),
      mpt("MPT-70B", 8192, 80, 64),
      gpt("GPT-2", 768, 12, 12, 50257, 1024),
      gpt("GPT-2-Medium", 1024, 24, 16, 50257, 1024),
      gpt("GPT-2-Large", 1280, 36, 20, 50257, 1024),
      gpt("GPT-2-XL", 1600, 48, 25, 50257, 1024),
      gpt("GPT-3-5B", 4096, 24, 32, 51200, 2048),            // NeMo Megatron launcher, gpt3/5b
      gpt("GPT-3-20B", 6144, 44, 48, 51200, 2048),           // gpt3/20b
      gpt("GPT-3-175B", 12288, 96, 96, 51200, 2048),         // arXiv 2005.14165
      nemotron("Nemotron-4-15B", 6144, 32, 48, 8, 24576),    // arXiv 2402.16819
      nemotron("Nemotron-4-22B", 6144, 40, 48, 48, 24576),   // NeMo recipe nemotron4_22b
      nemotron("Nemotron-3-8B", 4096, 32, 32, 32, 16384),    // NeMo recipe nemotron3_8b
      nemotron("Nemotron-4-340B", 18432, 96, 96, 8, 73728),  // arXiv 2406.11704
      with_experts(nemotron3("Nemotron-3-Nano", 2688, 64, 23, 23, 6), 128, 6, 1856, 3712),
      nemotron3_super(),
      with_head_dim(llama("Mistral-7B", 4096, 32, 32, 8, 14336, 32000), 128),
  };
}

std::string squeezed(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) out += static_cast<char>(std::tolower(c));
  return out;
}

// What other sources call them, squeezed.
const std::vector<std::pair<const char*, const char*>>& aliases() {
  static const std::vector<std::pair<const char*, const char*>> all = {
      {"llama318b", "llama38b"},
      {"llama3170b", "llama370b"},
      {"llama3405b", "llama31405b"},
      {"qwen330b", "qwen330ba3b"},
      {"qwen3235b", "qwen3235ba22b"},

      {"nemotron22b", "nemotron422b"},
      {"nemotron340b", "nemotron4340b"},
      {"nemotron15b", "nemotron415b"},
      {"nemotron8b", "nemotron38b"},
      {"moonlight16b", "moonlight16ba3b"},
      {"kimik2instruct", "kimik2"},
      {"bloom", "bloom176b"},

      {"gpt3", "gpt3175b"},
      {"deepseekv3671b", "deepseekv3"},
      {"deepseekr1", "deepseekv3"},
      {"moonlight", "moonlight16ba3b"},
      {"kimik21t", "kimik2"},
      {"gptoss", "gptoss120b"},
      {"llama3370b", "llama370b"},
      {"deepseekv2236b", "deepseekv2"},
      {"deepseekv216b", "deepseekv2lite"},

  };
  return all;
}

}  // namespace

const std::vector<Shape>& shape_presets() {
  static const std::vector<Shape> all = make_presets();
  return all;
}

const Shape* find_shape(std::string_view name) {
  std::string wanted = squeezed(name.substr(0, 200));
  for (const char* owner : {"metallama", "nvidia", "deepseekai", "mistralai", "openai", "bigscience", "mosaicml"})
    if (wanted.starts_with(owner) && wanted.size() > std::string_view(owner).size() + 3)
      wanted = wanted.substr(std::string_view(owner).size());
  for (const auto& [from, to] : aliases())
    if (wanted == from) {
      wanted = to;
      break;
    }
  for (const Shape& s : shape_presets())
    if (squeezed(s.name) == wanted) return &s;
  return nullptr;
}

}  // namespace heddle::model
