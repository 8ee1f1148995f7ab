// Numbers are those of each model's released config.json or, where there is none, of the paper or launch script
// named beside it.
#include "heddle/model/shapes/shape_presets.h"

#include <array>
#include <utility>

#include "heddle/model/shapes/shape_names.h"

namespace heddle::model {

namespace {

Shape llama(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn,
            int64_t vocab) {
  Shape s;
  s.name = name;
  s.hidden_size = hidden;
  s.num_hidden_layers = layers;
  s.num_attention_heads = heads;
  s.num_key_value_heads = kv_heads;
  s.head_dim = hidden / heads;
  s.intermediate_size = ffn;
  s.vocab_size = vocab;
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

Shape with_experts(Shape s, int64_t count, int64_t chosen, int64_t ffn, int64_t shared_width = 0,
                   int64_t dense = 0) {
  s.n_routed_experts = count;
  s.num_experts_per_tok = chosen;
  s.moe_intermediate_size = ffn;
  s.set_shared_width(shared_width);
  s.first_k_dense_replace = dense;
  return s;
}

// GPT-2 and GPT-3 as Megatron-LM trains them: biases everywhere, LayerNorm, tied embedding, learned positions.
Shape gpt(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t vocab, int64_t positions) {
  Shape s = llama(name, hidden, layers, heads, heads, 4 * hidden, vocab);
  s.activation = Activation::gelu;
  s.norm = Norm::layer;
  s.attention_bias = AttentionBias::all;
  s.tie_word_embeddings = s.mlp_bias = true;
  if (positions > 0) s.positions = Positions::learned, s.max_position_embeddings = positions;
  return s;
}

Shape bloom(const char* name, int64_t hidden, int64_t layers, int64_t heads) {
  Shape s = gpt(name, hidden, layers, heads, 250880, 0);
  s.foreign.embedding_norm = s.foreign.alibi = true;
  return s;
}

// MosaicML's MPT: no biases, ALiBi.
Shape mpt(const char* name, int64_t hidden, int64_t layers, int64_t heads) {
  Shape s = llama(name, hidden, layers, heads, heads, 4 * hidden, 50432);
  s.activation = Activation::gelu;
  s.tie_word_embeddings = s.foreign.alibi = true;
  return s;
}

// NVIDIA's Nemotron: squared ReLU, LayerNorm with a bias, no other biases.
Shape nemotron(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn) {
  Shape s = llama(name, hidden, layers, heads, kv_heads, ffn, 256000);
  s.activation = Activation::relu2;
  s.norm = Norm::layer;
  return s;
}

Shape latent(Shape s, int64_t q_rank) {
  s.set_latent(q_rank, 512, 128, 64, 128);
  s.num_key_value_heads = s.num_attention_heads;
  s.head_dim = s.qk_head_dim();
  return s;
}

Shape deepseek_v3(const char* name, int64_t mtp) {
  Shape s = latent(llama(name, 7168, 61, 128, 128, 18432, 129280), 1536);
  s = with_experts(std::move(s), 256, 8, 2048, 2048, 3);
  s.num_nextn_predict_layers = mtp;
  s.sigmoid_scores = s.topk_bias = true;
  s.n_group = 8;
  s.topk_group = 4;
  s.routed_scaling_factor = 2.5;
  return s;
}

// Gates are softmax scores as they are, not normed over the chosen.
Shape deepseek_v2(Shape s, double gate_scale) {
  s.norm_topk_prob = false;
  s.routed_scaling_factor = gate_scale;
  return s;
}

Shape kimi_k2() {
  Shape s = latent(llama("Kimi-K2", 7168, 61, 64, 64, 18432, 163840), 1536);
  s = with_experts(std::move(s), 384, 8, 2048, 2048, 1);
  s.sigmoid_scores = s.topk_bias = true;
  s.routed_scaling_factor = 2.827;
  return s;
}

Shape moonlight() {
  Shape s = latent(llama("Moonlight-16B-A3B", 2048, 27, 16, 16, 11264, 163840), 0);
  s = with_experts(std::move(s), 64, 6, 1408, 2 * 1408, 1);
  s.sigmoid_scores = s.topk_bias = true;
  s.routed_scaling_factor = 2.446;
  return s;
}

Shape gpt_oss(const char* name, int64_t layers, int64_t experts) {
  Shape s = llama(name, 2880, layers, 64, 8, 2880, 201088);
  s.head_dim = 64;
  s.attention_bias = AttentionBias::all;
  s.attention_sinks = true;
  s.sliding_window = 128;
  s.full_attention_interval = 2;
  s = with_experts(std::move(s), experts, 4, 2880);
  s.experts_bias = s.router_bias = true;
  return s;
}

// Nemotron-H (arXiv 2504.03624) and Nemotron 3 (arXiv 2512.20848): layers of one block, most of them with Mamba-2
// and with MLPs or experts of two matrices, a few with attention.
Shape nemotron_h(const char* name, int64_t hidden, int64_t mamba_heads, std::string_view pattern) {
  Shape s = llama(name, hidden, std::ssize(pattern), 32, 2, 0, 131072);
  s.hybrid_override_pattern = pattern;
  s.head_dim = 128;
  s.activation = Activation::relu2;
  s.positions = Positions::none;
  s.sigmoid_scores = s.topk_bias = true;
  s.recurrence = Recurrence::mamba2;
  s.linear_num_key_heads = 8, s.linear_key_head_dim = 128;
  s.linear_num_value_heads = mamba_heads, s.linear_value_head_dim = 64;
  return s;
}

Shape nemotron3_nano() {
  Shape s =
      with_experts(nemotron_h("Nemotron-3-Nano", 2688, 64, "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"),
                   128, 6, 1856, 3712);
  s.routed_scaling_factor = 2.5;
  return s;
}

Shape nemotron3_super() {
  Shape s =
      with_experts(nemotron_h("Nemotron-3-Super", 4096, 128,
                              "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*"
                              "EMEMEMEME"),
                   512, 22, 2688, 5376);
  s.moe_latent_size = 1024;
  s.num_nextn_predict_layers = 1;
  s.routed_scaling_factor = 5;
  return s;
}

Shape nemotron_nano_9b() {
  Shape s =
      nemotron_h("Nemotron-Nano-9B-v2", 4480, 128, "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-");
  s.intermediate_size = 15680;
  s.num_attention_heads = 40, s.num_key_value_heads = 8;
  s.linear_value_head_dim = 80;
  return s;
}

// A bias on queries, keys and values alone, as Qwen and ChatGLM have it.
Shape with_qkv_bias(Shape s) {
  s.attention_bias = AttentionBias::qkv;
  return s;
}

Shape tied(Shape s) {
  s.tie_word_embeddings = true;
  return s;
}

// Scores by a sigmoid, balanced by a bias on the choice.
Shape with_sigmoid_scores(Shape s) {
  s.sigmoid_scores = s.topk_bias = true;
  return s;
}

Shape deepseek_v32() {
  Shape s = deepseek_v3("DeepSeek-V3.2", 1);
  s.index_n_heads = 64, s.index_head_dim = 128, s.index_topk = 2048;
  return s;
}

// arXiv 2505.04519; sizes as in openPangu-Ultra-MoE-718B's configuration (PanguUltraMoEForCausalLM).
Shape pangu_ultra_moe() {
  Shape s = latent(llama("Pangu-Ultra-MoE", 7680, 61, 128, 128, 18432, 153600), 1536);
  s = with_experts(std::move(s), 256, 8, 2048, 2048, 3);
  s.num_nextn_predict_layers = 1;
  s.norm_places = NormPlaces::both;
  s.sigmoid_scores = true;
  s.routed_scaling_factor = 2.5;
  return s;
}

// GLM-5 (arXiv 2602.15763): latent attention of other widths, with an indexer.
Shape glm5(const char* name) {
  Shape s = llama(name, 6144, 78, 64, 64, 12288, 154880);
  s.set_latent(2048, 512, 192, 64, 256);
  s.head_dim = s.qk_head_dim();
  s.index_n_heads = 32, s.index_head_dim = 128, s.index_topk = 2048;
  s.num_nextn_predict_layers = 1;
  return with_sigmoid_scores(with_experts(std::move(s), 256, 8, 2048, 2048, 3));
}

// One indexer serves four layers (arXiv 2603.12201).
Shape glm52() {
  Shape s = glm5("GLM-5.2");
  s.index_topk_freq = 4, s.index_skip_topk_offset = 3;
  return s;
}

// GLM-5.3-Flash: three layers of Kimi Delta Attention to one of latent attention without positions, whose indexer
// chooses blocks of keys; streams of the residual, and cut SwiGLU.
Shape glm53_flash() {
  Shape s = llama("GLM-5.3-Flash", 4096, 45, 64, 64, 12288, 154880);
  s.set_latent(1536, 512, 256, 0, 256);
  s.head_dim = s.qk_head_dim();
  s.positions = Positions::none;
  s.index_n_heads = 32, s.index_head_dim = 128, s.index_topk = 2048;
  s.index_blocks = IndexBlocks::gated, s.index_block_size = 4;
  s.index_stage = IndexStage::off;
  s.recurrence = Recurrence::kimi_delta;
  s.linear_decay_least = -5;
  s.full_attention_interval = 4;
  s.linear_num_key_heads = s.linear_num_value_heads = 64;
  s.linear_key_head_dim = s.linear_value_head_dim = 128;
  s.hyper_connections = 4;
  s.hyper_connections_mean = true;
  s.limited_gates = true;
  s.experts_limit = s.mlp_limit = 10;
  s.routed_scaling_factor = 2.5;
  return with_sigmoid_scores(with_experts(std::move(s), 288, 8, 2048, 2048, 3));
}

Shape glm45(const char* name, int64_t hidden, int64_t layers, int64_t ffn, int64_t experts, int64_t expert_ffn,
            int64_t dense, bool qk_norm) {
  Shape s = with_qkv_bias(with_head_dim(llama(name, hidden, layers, 96, 8, ffn, 151552), 128));
  s.qk_norm = qk_norm;
  s.num_nextn_predict_layers = 1;
  return with_sigmoid_scores(with_experts(std::move(s), experts, 8, expert_ffn, expert_ffn, dense));
}

// Qwen3-Next: three layers of the gated delta rule to one of attention, whose output is gated.
Shape qwen3_next() {
  Shape s = qwen3(with_experts(llama("Qwen3-Next-80B-A3B", 2048, 48, 16, 2, 5120, 151936), 512, 10, 512, 512));
  s.head_dim = 256;
  s.attention_gate = AttentionGate::element;
  s.shared_expert_gate = true;
  s.recurrence = Recurrence::gated_delta;
  s.full_attention_interval = 4;
  s.linear_num_key_heads = 16, s.linear_num_value_heads = 32;
  s.linear_key_head_dim = s.linear_value_head_dim = 128;
  return s;
}

// Kimi-Linear: three layers of Kimi Delta Attention to one of latent attention, which the last one has too.
Shape kimi_linear() {
  Shape s = latent(llama("Kimi-Linear-48B-A3B", 2304, 27, 32, 32, 9216, 163840), 0);
  s.positions = Positions::none;
  s.recurrence = Recurrence::kimi_delta;
  s.full_attention_interval = 4;
  s.full_attention_last = true;
  s.linear_num_key_heads = s.linear_num_value_heads = 32;
  s.linear_key_head_dim = s.linear_value_head_dim = 128;
  s.routed_scaling_factor = 2.446;
  return with_sigmoid_scores(with_experts(std::move(s), 256, 8, 1024, 1024, 1));
}

// Ling 3.0: three or five such layers to one of latent attention with a gate a head; one map makes the decays, one
// the gate.
Shape ling_3(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t ffn, int64_t q_rank,
             int64_t group) {
  Shape s = latent(llama(name, hidden, layers, heads, heads, ffn, 157184), q_rank);
  s.attention_gate = AttentionGate::head;
  s.recurrence = Recurrence::kimi_delta;
  s.linear_full_gates = true;
  s.linear_decay_least = -5;
  s.full_attention_interval = group;
  s.linear_num_key_heads = s.linear_num_value_heads = heads;
  s.linear_key_head_dim = s.linear_value_head_dim = 128;
  s.n_group = 8, s.topk_group = 4;
  s.routed_scaling_factor = 2.5;
  return with_sigmoid_scores(std::move(s));
}
Shape ling_3_flash() {
  Shape s = with_experts(ling_3("Ling-3.0-Flash", 2560, 42, 32, 6144, 0, 6), 512, 8, 768, 768, 2);
  s.experts_limit = 4, s.experts_limit_layer = 35;
  s.mlp_limit = 5, s.mlp_limit_layer = 34;
  s.mlp_limit_last = 7, s.mlp_limit_last_layer = 40;
  return s;
}

// MiniMax-01: seven layers of lightning attention to one of attention.
Shape minimax_01() {
  Shape s = with_head_dim(llama("MiniMax-01", 6144, 80, 64, 8, 9216, 200064), 128);
  s.recurrence = Recurrence::lightning;
  s.norm_places = NormPlaces::stream;
  s.full_attention_interval = 8;
  s.linear_num_key_heads = s.linear_num_value_heads = 64;
  s.linear_key_head_dim = s.linear_value_head_dim = 128;
  s.full_attn_alpha_factor = s.linear_attn_alpha_factor = s.mlp_alpha_factor = 3.5565588200778455;
  return with_experts(std::move(s), 32, 2, 9216, 0);
}

// Windows in all layers but one of `every`, norms before and after each block.
Shape gemma(Shape s, int64_t head_dim, int64_t window, int64_t every) {
  s.head_dim = head_dim;
  s.sliding_window = window;
  s.full_attention_interval = every;
  s.norm_places = NormPlaces::both;
  return tied(std::move(s));
}

Shape minimax_m2() {
  Shape s = with_head_dim(llama("MiniMax-M2", 3072, 62, 48, 8, 1536, 200064), 128);
  s.qk_norm = s.qk_norm_all_heads = true;
  return with_sigmoid_scores(with_experts(std::move(s), 256, 8, 1536));
}

Shape ling(const char* name, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn,
           int64_t dense) {
  Shape s = with_experts(qwen3(llama(name, hidden, layers, heads, kv_heads, ffn, 157184)), 256, 8, hidden / 4,
                         hidden / 4, dense);
  s.partial_rotary_factor = 0.5;
  s.n_group = 8, s.topk_group = 4;
  return with_sigmoid_scores(std::move(s));
}

// Step-3.5-Flash: three layers of four with a window and more heads, a gate a head.
Shape step35() {
  Shape s = with_experts(qwen3(llama("Step-3.5-Flash", 4096, 45, 64, 8, 11264, 128896)), 288, 8, 1280, 1280, 3);
  s.attention_gate = AttentionGate::head;
  s.sliding_window = 512;
  s.full_attention_interval = 4, s.full_attention_offset = 1;
  s.window_attention_heads = 96;
  s.experts_limit = 7, s.experts_limit_layer = 43;
  s.mlp_limit = 16, s.mlp_limit_layer = 44;
  return with_sigmoid_scores(std::move(s));
}

// Llama 4 alternates dense feed-forward blocks and experts; here the dense ones lead.
Shape llama4(const char* name, int64_t experts, int64_t dense) {
  return with_experts(with_head_dim(llama(name, 5120, 48, 40, 8, 16384, 202048), 128), experts, 1, 8192, 8192,
                      dense);
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
      nemotron3_nano(),
      nemotron3_super(),
      nemotron_nano_9b(),
      with_head_dim(llama("Mistral-7B", 4096, 32, 32, 8, 14336, 32000), 128),
      tied(llama("Llama-3.2-1B", 2048, 16, 32, 8, 8192, 128256)),
      tied(llama("Llama-3.2-3B", 3072, 28, 24, 8, 8192, 128256)),
      llama4("Llama-4-Scout", 16, 0),
      llama4("Llama-4-Maverick", 128, 24),
      tied(qwen3(llama("Qwen3-0.6B", 1024, 28, 16, 8, 3072, 151936))),
      tied(qwen3(llama("Qwen3-1.7B", 2048, 28, 16, 8, 6144, 151936))),
      tied(qwen3(llama("Qwen3-4B", 2560, 36, 32, 8, 9728, 151936))),
      qwen3_next(),
      kimi_linear(),
      ling_3_flash(),
      with_experts(ling_3("Ling-3.0-Tiny", 1536, 24, 16, 4608, 256, 4), 128, 8, 512, 512, 1),
      minimax_01(),
      tied(with_qkv_bias(llama("Qwen2.5-0.5B", 896, 24, 14, 2, 4864, 151936))),
      tied(with_qkv_bias(llama("Qwen2.5-1.5B", 1536, 28, 12, 2, 8960, 151936))),
      tied(with_qkv_bias(llama("Qwen2.5-3B", 2048, 36, 16, 2, 11008, 151936))),
      with_qkv_bias(llama("Qwen2.5-7B", 3584, 28, 28, 4, 18944, 152064)),
      with_qkv_bias(llama("Qwen2.5-14B", 5120, 48, 40, 8, 13824, 152064)),
      with_qkv_bias(llama("Qwen2.5-32B", 5120, 64, 40, 8, 27648, 152064)),
      with_qkv_bias(llama("Qwen2.5-72B", 8192, 80, 64, 8, 29568, 152064)),
      deepseek_v32(),
      pangu_ultra_moe(),
      glm5("GLM-5"),
      glm53_flash(),
      glm52(),
      glm45("GLM-4.5", 5120, 92, 12288, 160, 1536, 3, true),
      glm45("GLM-4.5-Air", 4096, 46, 10944, 128, 1408, 1, false),
      minimax_m2(),
      ling("Ling-mini-2.0", 2048, 20, 16, 4, 5120, 1),
      ling("Ling-flash-2.0", 4096, 32, 32, 4, 9216, 1),
      ling("Ling-1T", 8192, 80, 64, 8, 18432, 4),
      step35(),
      gemma(llama("Gemma-2-9B", 3584, 42, 16, 8, 14336, 256000), 256, 4096, 2),
      gemma(llama("Gemma-2-27B", 4608, 46, 32, 16, 36864, 256000), 128, 4096, 2),
      gemma(qwen3(llama("Gemma-3-27B", 5376, 62, 32, 16, 21504, 262208)), 128, 1024, 6),
      llama("Yi-6B", 4096, 32, 32, 4, 11008, 64000),
      llama("Yi-34B", 7168, 60, 56, 8, 20480, 64000),
      llama("Baichuan2-7B", 4096, 32, 32, 32, 11008, 125696),
      with_qkv_bias(llama("ChatGLM3-6B", 4096, 28, 32, 2, 13696, 65024)),
      with_qkv_bias(llama("GLM-4-9B", 4096, 40, 32, 2, 13696, 151552)),
      llama("InternLM2-20B", 6144, 48, 48, 8, 16384, 92544),
      with_experts(llama("Grok-1", 6144, 64, 48, 8, 32768, 131072), 8, 2, 32768),
  };
}

// The names of the presets in other sources, squeezed.
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
      {"nemotron3nano30ba3b", "nemotron3nano"},
      {"nemotron3super120ba12b", "nemotron3super"},
      {"moonlight16b", "moonlight16ba3b"},
      {"kimik2instruct", "kimik2"},
      {"bloom", "bloom176b"},

      {"gpt3", "gpt3175b"},
      {"deepseekv3671b", "deepseekv3"},
      {"openpanguultramoe718b", "panguultramoe"},
      {"panguultramoe718b", "panguultramoe"},
      {"deepseekr1", "deepseekv3"},
      {"deepseekv31", "deepseekv3"},
      {"moonlight", "moonlight16ba3b"},
      {"kimik21t", "kimik2"},
      {"llama3370b", "llama370b"},
      {"deepseekv2236b", "deepseekv2"},
      {"deepseekv216b", "deepseekv2lite"},
      {"llama4scout17b16e", "llama4scout"},
      {"llama4maverick17b128e", "llama4maverick"},
      {"qwen3next", "qwen3next80ba3b"},
      {"qwen3next80b", "qwen3next80ba3b"},
      {"deepseekv32exp", "deepseekv32"},
  };
  return all;
}

const Shape* preset_squeezed(std::string_view wanted) {
  for (const auto& [from, to] : aliases())
    if (wanted == from) {
      wanted = to;
      break;
    }
  for (const Shape& s : shape_presets())
    if (squeezed_name(s.name) == wanted) return &s;
  return nullptr;
}

// The name, squeezed, and what is left of it without an owner and without "meta".
std::vector<std::string> spellings_of(std::string_view name) {
  std::vector<std::string> all = {squeezed_name(name)};
  if (const size_t slash = name.rfind('/'); slash != std::string_view::npos)
    all.push_back(squeezed_name(name.substr(slash + 1)));
  for (const std::string_view front :
       {"metallama", "nvidia", "deepseekai", "mistralai", "openai", "bigscience", "mosaicml", "meta"})
    for (size_t i = 0, count = all.size(); i < count; ++i)
      if (all[i].starts_with(front)) all.push_back(all[i].substr(front.size()));
  return all;
}

// Takes the ending of a tuned or dated release off the name; false where it has none.
bool shorten(std::string& name) {
  static constexpr std::array<std::string_view, 8> kEndings = {"instruct", "base", "chat", "hf",
                                                               "it",       "v01",  "v03",  "2507"};
  for (const std::string_view ending : kEndings)
    if (name.ends_with(ending)) return name.resize(name.size() - ending.size()), true;
  return false;
}

}  // namespace

const std::vector<Shape>& shape_presets() {
  static const std::vector<Shape> all = make_presets();
  return all;
}

const Shape* find_shape(std::string_view name) {
  constexpr size_t kMostBytes = 200;
  for (std::string& wanted : spellings_of(name.substr(0, kMostBytes))) {
    do {
      if (const Shape* found = preset_squeezed(wanted)) return found;
    } while (shorten(wanted));
  }
  return nullptr;
}

}  // namespace heddle::model
