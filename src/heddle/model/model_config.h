// The configuration of a model: sizes and constants, plus the constants of its training losses. Names are those of
// the Hugging Face config.json of the DeepSeek-V3 family. Where that has none, they are those of Qwen3, LLaMA or
// GLM-4.5. model/keys.h has the meaning of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/words.h"

namespace heddle::model {

/// The way in which rotary frequencies are stretched for longer contexts.
enum class RopeType : uint8_t {
  yarn,      // Peng et al., arXiv 2309.00071
  linear,    // all by one factor
  llama3,    // LLaMA 3.1 (arXiv 2407.21783): long waves by the factor, short ones not at all
  longrope,  // Ding et al., arXiv 2402.13753: each frequency by a factor of its own, others for long sequences
};
constexpr auto words_of(RopeType) {
  return std::to_array<Word<RopeType>>({{RopeType::yarn, "yarn"},
                                        {RopeType::linear, "linear"},
                                        {RopeType::llama3, "llama3"},
                                        {RopeType::longrope, "longrope"}});
}

/// The linear maps of attention that add a bias.
enum class AttentionBias : uint8_t {
  none,
  qkv,  // those of queries, keys and values
  all,  // these and that of the output
};
constexpr auto words_of(AttentionBias) {
  return std::to_array<Word<AttentionBias>>(
      {{AttentionBias::none, "none"}, {AttentionBias::qkv, "qkv"}, {AttentionBias::all, "all"}});
}

/// The kind of the norms around layers, and of that before the head.
enum class Norm : uint8_t {
  rms,
  layer,  // with a mean that is taken off and a bias (Ba et al., arXiv 1607.06450)
};
constexpr auto words_of(Norm) { return std::to_array<Word<Norm>>({{Norm::rms, "rms"}, {Norm::layer, "layer"}}); }

/// The places of the norms of a layer's two blocks.
enum class NormPlaces : uint8_t {
  before,  // of the block's input (Xiong et al., arXiv 2002.04745)
  after,   // of its output, ahead of the addition (OLMo 2, arXiv 2501.00656)
  both,    // Gemma 2 (arXiv 2408.00118)
  stream,  // of the residual stream, which goes on from its normed rows (MiniMax-01, arXiv 2501.08313)
  mixed,   // before in recurrent layers, after in the others (OLMo Hybrid)
};
constexpr auto words_of(NormPlaces) {
  return std::to_array<Word<NormPlaces>>({{NormPlaces::before, "before"},
                                          {NormPlaces::after, "after"},
                                          {NormPlaces::both, "both"},
                                          {NormPlaces::stream, "stream"},
                                          {NormPlaces::mixed, "mixed"}});
}

/// The gate of attention's output, a sigmoid of a linear map of the layer's normed rows (arXiv 2505.06708), or a
/// softplus of it (attention_gate_softplus).
enum class AttentionGate : uint8_t {
  none,
  head,           // one number a head (Step-3.5)
  element,        // one number an element; in grouped attention made by the projection of queries (Qwen3-Next)
  element_apart,  // the same by a map of its own (AFMoE)
};
constexpr auto words_of(AttentionGate) {
  return std::to_array<Word<AttentionGate>>({{AttentionGate::none, "none"},
                                             {AttentionGate::head, "head"},
                                             {AttentionGate::element, "element"},
                                             {AttentionGate::element_apart, "element_apart"}});
}

/// It says what weighs the streams of hyper-connections (ops/hyper_connection.cpp).
enum class HyperConnection : uint8_t {
  constrained,  // streams are mixed by a doubly stochastic matrix (Xie et al., arXiv 2512.24880; DeepSeek-V4)
  independent,  // no stream goes into another (Hy4)
  gated,        // a block reads each element by a weight of its own (Qwen4)
};
constexpr auto words_of(HyperConnection) {
  return std::to_array<Word<HyperConnection>>({{HyperConnection::constrained, "constrained"},
                                               {HyperConnection::independent, "independent"},
                                               {HyperConnection::gated, "gated"}});
}

/// The recurrence along the sequence that some layers have instead of attention (ops/recurrence.cpp).
enum class Recurrence : uint8_t {
  none,
  gated_delta,        // the gated delta rule (Yang et al., arXiv 2412.06464) as Qwen3-Next has it
  kimi_delta,         // Kimi Delta Attention (arXiv 2510.26692), whose decay is a number a channel of a key
  lightning,          // linear attention with a constant decay a head (arXiv 2401.04658) as MiniMax-01 has it
  mamba2,             // Mamba-2's state-space model (arXiv 2405.21060) as Nemotron-H has it
  short_convolution,  // a gated convolution of few rows, and no state beside them (LFM2)
};
constexpr auto words_of(Recurrence) {
  return std::to_array<Word<Recurrence>>({{Recurrence::none, "none"},
                                          {Recurrence::gated_delta, "gated_delta"},
                                          {Recurrence::kimi_delta, "kimi_delta"},
                                          {Recurrence::lightning, "lightning"},
                                          {Recurrence::mamba2, "mamba2"},
                                          {Recurrence::short_convolution, "short_convolution"}});
}

/// It says what is normed between Mamba-2's recurrence and the map of its output, group by group.
enum class RecurrentNorm : uint8_t {
  gated,    // the output times its gate (Dao and Gu, arXiv 2405.21060)
  ungated,  // the output, ahead of its gate
  none,     // nothing (Falcon-H1)
};
constexpr auto words_of(RecurrentNorm) {
  return std::to_array<Word<RecurrentNorm>>(
      {{RecurrentNorm::gated, "gated"}, {RecurrentNorm::ungated, "ungated"}, {RecurrentNorm::none, "none"}});
}

/// It says what trains the indexers of a model that selects keys.
enum class IndexStage : uint8_t {
  sparse,  // towards attention to the keys that it chose, beside all other weights
  dense,   // towards attention to all keys, of which none are chosen yet, while all other weights stay
  off,     // nothing: it chooses, and stays as it is
};
constexpr auto words_of(IndexStage) {
  return std::to_array<Word<IndexStage>>(
      {{IndexStage::sparse, "sparse"}, {IndexStage::dense, "dense"}, {IndexStage::off, "off"}});
}

/// It says what a block of keys is chosen by, where keys are chosen in blocks (ops/selection.cpp).
enum class IndexBlocks : uint8_t {
  none,      // keys are chosen one by one
  greatest,  // the greatest score of its keys; each key head has a choice of its own (MiniMax-M3)
  mean,      // the score of the mean of its keys; a query always sees those behind the last whole block (Qwen4-Exp)
  gated,     // likewise of a weighted mean of its keys, whose weights are learned (GLM-5.3)
};
constexpr auto words_of(IndexBlocks) {
  return std::to_array<Word<IndexBlocks>>({{IndexBlocks::none, "none"},
                                           {IndexBlocks::greatest, "greatest"},
                                           {IndexBlocks::mean, "mean"},
                                           {IndexBlocks::gated, "gated"}});
}

/// Whence a model knows where a token stands.
enum class Positions : uint8_t {
  rotary,   // queries and keys are turned
  learned,  // a row of a table is added to its embedding
  none,     // from the order of what attention and recurrences see alone
};
constexpr auto words_of(Positions) {
  return std::to_array<Word<Positions>>(
      {{Positions::rotary, "rotary"}, {Positions::learned, "learned"}, {Positions::none, "none"}});
}

/// A block of a layer, which adds to the residual stream and has a norm of its own. Its value is its letter in
/// model.hybrid_override_pattern.
enum class Block : char { attention = '*', recurrence = 'M', mlp = '-', experts = 'E' };

/// The kind of what stands in a layer ahead of its MLP or experts. Its value is its letter in model.layer_pattern.
enum class LayerKind : char { attention = '*', window = 'W', recurrence = 'M' };

/// The keys that a layer's queries attend to, in a model that selects keys. Its value is its letter in
/// model.index_pattern.
enum class Selection : char {
  own = 'I',     // those that an indexer of the layer chooses
  shared = 'S',  // those that the last layer with an indexer has chosen
  all = '*',     // all that they see
};

/// A kind of layer of compressed attention. Queries see their window, and in two kinds entries of tokens before it.
/// The value is the kind's letter in model.compression_pattern.
enum class Compression : char {
  window = 'W',  // the window alone
  sparse = 'S',  // entries of few tokens each, chosen by an indexer
  heavy = 'H',   // all entries, each of many tokens
};

/// The activation of MLPs and experts: with a gate, or of one product.
enum class Activation : uint8_t {
  swiglu,
  gelu,        // by the error function
  gelu_tanh,   // by its approximation with a hyperbolic tangent
  relu2,       // the square of what is above 0 (So et al., arXiv 2109.08668)
  geglu,       // gelu of the gate, times up (Shazeer, arXiv 2002.05202)
  geglu_tanh,  // the same by the approximation
};
constexpr auto words_of(Activation) {
  return std::to_array<Word<Activation>>({{Activation::swiglu, "swiglu"},
                                          {Activation::gelu, "gelu"},
                                          {Activation::gelu_tanh, "gelu_tanh"},
                                          {Activation::relu2, "relu2"},
                                          {Activation::geglu, "geglu"},
                                          {Activation::geglu_tanh, "geglu_tanh"}});
}

/// Each key means what it means to Transformers (modeling_rope_utils.py).
struct RopeScaling {
  double factor = 1;
  double original_max_position_embeddings = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 0;            // 0: not given
  double mscale_all_dim = 0;    // 0: not given
  double attention_factor = 0;  // 0: follows from the mscales
  bool truncate = true;         // the ramp's ends are whole pairs
  RopeType type = RopeType::yarn;
  // Factors of llama3: waves of more than original ÷ low_freq_factor positions are long, of less than original ÷
  // high_freq_factor short.
  double low_freq_factor = 1, high_freq_factor = 4;
  // Lists of longrope, numbers with commas between (factors_of). A pair's frequency is divided by its number, in
  // sequences up to the original length by that of short_factor.
  std::string short_factor, long_factor;
  double short_mscale = 0, long_mscale = 0;  // 0: attention_factor

  /// True if sequences of that length have the long factors of longrope.
  bool is_long(int64_t sequence) const { return static_cast<double>(sequence) > original_max_position_embeddings; }
  /// The factor of cosines and sines; linear and llama3 multiply by 1. Of YaRN it is attention_factor, else
  /// m(mscale)/m(mscale_all_dim) where both are given, else m(1); m(x) = 0.1·x·ln(factor) + 1. Of longrope it is
  /// the mscale of the sequence's length, else attention_factor, else √(1 + ln(factor)/ln(original length)).
  double rotary_scale(int64_t sequence) const;
  bool operator==(const RopeScaling&) const = default;
};

/// The numbers of RopeScaling::short_factor or long_factor; nullopt where the text is no list of numbers.
std::optional<std::vector<double>> factors_of(std::string_view text);
std::string text_of_factors(const std::vector<double>& factors);

/// The epsilon of the norms of attention's latents, whatever rms_norm_eps is: so most released models were trained.
inline constexpr double kLatentNormEpsilon = 1e-6;

/// The rule by which the balancing biases move at the end of a step.
enum class BiasBalance : uint8_t {
  sign,      // by the rate, against the sign of the load's difference from the mean
  falling,   // likewise, by a rate that is high until the warm-up ends and falls from there
  quantile,  // to where the scores of the step would have had every expert chosen as often
  share,     // by the rate times what the expert's share of the choices lacks; not those without computation
};
constexpr auto words_of(BiasBalance) {
  return std::to_array<Word<BiasBalance>>({{BiasBalance::sign, "sign"},
                                           {BiasBalance::falling, "falling"},
                                           {BiasBalance::quantile, "quantile"},
                                           {BiasBalance::share, "share"}});
}

struct ModelConfig {
  int64_t vocab_size = 8192;
  int64_t hidden_size = 256;
  int64_t num_hidden_layers = 4;
  int64_t intermediate_size = 768;  // of dense layers
  int64_t first_k_dense_replace = 1;
  std::string mlp_pattern;  // in place of that a letter a layer: E it has experts, - an MLP
  /// A letter a layer, each of one block (Block); empty: a layer has attention or a recurrence, then an MLP or
  /// experts.
  std::string hybrid_override_pattern;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 4096;
  Norm norm = Norm::rms;
  bool norm_bias = true;         // of Norm::layer
  bool parallel_blocks = false;  // both blocks of a layer read its one norm and add to the stream (Cohere)
  NormPlaces norm_places = NormPlaces::before;
  int64_t gated_norm_rank = 0;       // norms ahead of attention and of experts are gated by an MLP so wide (A.X-K2)
  bool zero_centered_norms = false;  // a root-mean-square norm multiplies by 1 + its weight
  Positions positions = Positions::rotary;
  Activation activation = Activation::swiglu;

  enum class Attention : uint8_t { latent, grouped, compressed } attention = Attention::latent;
  int64_t num_attention_heads = 4;

  // Multi-head latent attention
  int64_t q_lora_rank = 0;  // 0: queries are projected directly
  int64_t kv_lora_rank = 64;
  int64_t qk_nope_head_dim = 32;
  int64_t qk_rope_head_dim = 16;  // 0: no key is shared by all heads, and nothing turns
  int64_t v_head_dim = 32;
  double latent_norm_eps = kLatentNormEpsilon;
  bool rotary_key_norm = false;        // the rotary key that heads share is normed ahead of its rotation (dots3)
  bool raw_latent_of_queries = false;  // queries read their latent as it is, too, behind the normed one (A.X-K2)
  bool scaled_latents = false;  // a normed latent is multiplied by √(hidden_size ÷ its width) (LongCat-Flash)

  // Selection of keys (DeepSeek-V3.2, arXiv 2512.02556): an indexer scores all earlier keys,
  // and a query attends to the best of them
  int64_t index_topk = 0;  // so many; 0: to all, and there is no indexer
  int64_t index_n_heads = 4;
  int64_t index_head_dim = 32;
  bool indexer_rope_interleave = false;
  bool indexer_rope_last = false;      // an indexer turns the last elements of a head, not the first
  double indexer_norm_eps = 1e-6;      // of the norm of an indexer's keys
  int64_t index_topk_freq = 1;         // of so many layers one has an indexer, and those after it take its choice
  int64_t index_skip_topk_offset = 2;  // so many first layers each have one
  std::string index_pattern;           // a letter a layer (Selection) in place of these two; empty: they say it
  IndexBlocks index_blocks = IndexBlocks::none;
  int64_t index_block_size = 16;  // keys of a block, counted from the sequence's start
  int64_t index_local_blocks =
      0;  // of the blocks up to a query's own the last so many are always chosen (greatest)

  // Compressed attention (DeepSeek-V4): heads share one key, which is the value too. Queries see a window, and in
  // some layers entries that each stand for many tokens
  std::string compression_pattern;  // a letter a layer (Compression)
  int64_t sparse_rate = 4;          // tokens of an entry in layers S, whose queries see index_topk entries
  int64_t heavy_rate = 128;         // tokens of an entry in layers H, whose queries see all entries
  int64_t o_groups = 1;             // groups of heads; each has a map of its own ahead of the output's map
  int64_t o_lora_rank = 64;         // numbers that such a map makes

  // Grouped attention: heads share keys and values
  int64_t num_key_value_heads = 4;
  int64_t head_dim = 64;
  bool qk_norm = true;             // queries and keys are normed head by head
  bool qk_norm_all_heads = false;  // all heads of a token as one row
  bool qk_norm_after_rotation = false;
  bool value_norm = false;       // values are normed head by head, without a gain (Gemma 4)
  bool keys_are_values = false;  // in layers with full attention, ahead of norms and rotation (Gemma 4)
  AttentionGate attention_gate = AttentionGate::none;
  bool attention_gate_softplus = false;  // ln(1 + e^x) in place of the sigmoid (Laguna)
  int64_t value_head_dim = 0;            // 0: head_dim
  double value_multiplier = 1;           // of values
  double key_multiplier = 1;             // of keys, ahead of norm and rotation
  double attention_in_multiplier = 1;    // of what queries, keys and values are made of (Falcon-H1)
  double attention_scale = 0;            // of scores; 0: 1 ÷ √ of a key's width
  double attention_logit_cap = 0;        // scores s become c·tanh(s ÷ c); 0: they stay
  double partial_rotary_factor = 1;      // of a head, from its first element on, this part has positions
  double turning_pairs_factor = 1;       // of its pairs, the first so many turn, as fast as if all did (Gemma 4)
  int64_t no_rope_layer_interval = 0;    // every so many-th layer turns nothing; 0: each turns
  std::string rotation_pattern;          // in place of that a letter a layer: R it turns, - it does not
  bool qk_unit_norm = false;  // in layers that turn, head by head after rotation, without a gain (Llama 4)
  AttentionBias attention_bias = AttentionBias::none;
  bool mlp_bias = false;           // of dense layers
  double mlp_gate_multiplier = 1;  // of the gates of dense layers, ahead of their function (Falcon-H1)

  // Clamped SwiGLU: (min(g, l) · σ(α · min(g, l))) · (u within ±l, + 1)
  double swiglu_limit = 0;      // l; 0: plain SwiGLU
  double swiglu_alpha = 1.702;  // α

  // Cut SwiGLU: (silu(g) up to l) · (u within ±l), in layers from one on (Step-3.5). l 0: plain SwiGLU
  double experts_limit = 0;  // of routed experts
  int64_t experts_limit_layer = 0;
  double mlp_limit = 0;  // of shared experts and of dense layers
  int64_t mlp_limit_layer = 0;
  double mlp_limit_last = 0;  // in its place, in layers from one on (Ling-3.0-flash); 0: none
  int64_t mlp_limit_last_layer = 0;
  bool limited_gates = false;  // both limits cut the gate, and not silu of it (DeepSeek-V4)

  // The last layers take keys and values of the last layer before them that is of their kind (Gemma 3n, Gemma 4)
  int64_t shared_key_value_layers = 0;    // so many
  int64_t sharing_intermediate_size = 0;  // width of their dense MLP; 0: intermediate_size

  bool attention_sinks = false;   // a learned logit a head, without a value
  bool sinks_in_windows = false;  // in layers with a window alone

  // A recurrence instead of attention, in all layers but those with full attention. Keys and queries of
  // Mamba-2 are its B and C, values its x.
  Recurrence recurrence = Recurrence::none;
  int64_t linear_num_key_heads = 2;  // of queries and keys, each shared by as many heads of values
  int64_t linear_num_value_heads = 4;
  int64_t linear_key_head_dim = 32;
  int64_t linear_value_head_dim = 32;
  int64_t linear_conv_kernel_dim = 4;     // positions that the convolution of queries, keys and values sees
  bool linear_projections_apart = false;  // of the gated delta rule; else two hold all, a key head's rows together
  bool linear_tensors_apart = false;      // and those of queries, keys and values in files too (OLMo Hybrid)
  double linear_step_least = 0;           // bounds of Mamba-2's time steps
  double linear_step_most = 0;            // 0: none
  double linear_decay_least = 0;          // of Kimi Delta Attention: bound of a log decay (Ling 3); 0: none
  bool linear_full_gates = false;         // one map makes its decays, one its gate, in place of two each (Ling 3)
  double linear_norm_eps = 0;             // of the norm of a recurrence's output; 0: rms_norm_eps
  bool linear_double_beta = false;        // of the gated delta rule: a step goes up to 2 (OLMo Hybrid)
  bool linear_bias = false;               // of the linear maps of Mamba-2; and of all maps of a short convolution
  bool linear_sigmoid_gate = false;       // the gated delta rule's output has a sigmoid as gate, not silu (Qwen4)
  RecurrentNorm linear_norm = RecurrentNorm::gated;  // of Mamba-2
  double linear_in_multiplier = 1;                   // of what Mamba-2 reads
  std::string linear_part_multipliers;       // of z, x, B, C and the time step as they are projected; empty: 1 each
  bool recurrence_beside_attention = false;  // each layer has both, side by side, which read one norm (Falcon-H1)

  // Windows of attention: which layers have them
  int64_t sliding_window = 0;           // tokens that a query sees, its own among them; 0: all before it
  int64_t max_window_layers = 0;        // so many layers from the first on have full attention
  int64_t full_attention_interval = 0;  // every so many-th layer has it; 0: no such
  int64_t full_attention_offset = 0;    // counted from this layer, the first being 0, in place of the first
  bool full_attention_last = false;     // the last layer has it too
  bool window_chunks = false;  // windows are chunks: a query sees its own, up to itself, and no other (Llama 4)
  std::string layer_pattern;   // a letter a layer (LayerKind) in place of these; empty: they say it
  // Layers with a window differ from the others in these; 0: they do not
  int64_t window_attention_heads = 0;
  int64_t window_key_value_heads = 0;
  int64_t window_head_dim = 0;
  int64_t window_q_lora_rank = 0;
  int64_t window_kv_lora_rank = 0;
  int64_t window_qk_nope_head_dim = 0;
  int64_t window_qk_rope_head_dim = 0;
  int64_t window_v_head_dim = 0;
  double window_rope_theta = 0;     // and their positions are not stretched, and all pairs turn
  double window_rotary_factor = 0;  // in place of partial_rotary_factor; only with window_rope_theta

  // A query is multiplied by 1 + beta·ln(1 + ⌊(position + first) ÷ length⌋); beta 0: it is not. Positions count
  // from 0 in their document (Llama 4, Ministral 3, Mistral 4)
  double query_scale_beta = 0;
  int64_t query_scale_length = 8192;
  int64_t query_scale_first = 0;
  bool query_scale_unturned = false;  // only in layers without rotary positions

  double rope_theta = 10000;
  bool rope_interleave = true;
  std::optional<RopeScaling> rope_scaling;

  // Factors
  double embedding_multiplier = 1;   // of the embedded tokens
  int64_t layer_embedding_size = 0;  // width of a second embedding of each token a layer; 0: none (Gemma 4)
  double residual_multiplier = 1;    // of what attention and MLP add to the residual stream
  // A block's sum is alpha · residual stream + beta · what the block adds
  double full_attn_alpha_factor = 1, full_attn_beta_factor = 1;
  double linear_attn_alpha_factor = 1, linear_attn_beta_factor = 1;  // of recurrent layers
  double mlp_alpha_factor = 1, mlp_beta_factor = 1;
  // Hyper-connections (Zhu et al., arXiv 2409.19606; constrained: Xie et al., arXiv 2512.24880): the residual is so
  // many streams, side by side in one row. Each block reads a mix of them and writes to a mix of them
  // (ops/hyper_connection.cpp).
  int64_t hyper_connections = 0;  // streams; 0: the residual is one row of hidden_size
  HyperConnection hyper_connections_kind = HyperConnection::constrained;
  double hyper_connections_magnitude = 2;     // the most that a weight of writing is
  int64_t hyper_connections_iterations = 20;  // of Sinkhorn and Knopp
  double hyper_connections_eps = 1e-6;        // added to weights and to the sums that they are divided by
  int64_t hyper_connections_rank = 64;        // of the maps that make the gated kind's weights of reading
  bool hyper_connections_mean = false;        // the head reads the mean of the streams (GLM-5.3)
  bool layer_scalars = false;  // a number a layer, not trained, that its output is multiplied by (Gemma 4)
  double logits_divisor = 1;   // the head's logits are divided by it
  double final_logit_cap = 0;  // logits l become c·tanh(l ÷ c); 0: they stay
  bool head_bias = false;      // of the logits

  // Embeddings of n-grams that some layers add to their streams (Qwen4). The last tokens are hashed to rows of
  // tables (model/ngrams.h).
  std::string ngram_layers;               // their numbers, 1 being the first layer, commas between; empty: none
  int64_t ngram_size = 3;                 // tokens of the longest n-gram; the shortest has two
  int64_t ngram_heads = 8;                // tables of n-grams of one length, each with a hash of its own
  int64_t ngram_embedding_size = 0;       // width of a token's rows of all tables together; 0: hidden_size
  int64_t ngram_vocab_size = 20'000'000;  // tables have as many rows as primes from here on, each another
  int64_t ngram_vocab_multiple = 128;     // the rows of a layer's tables together are filled up to a multiple of it
  int64_t ngram_seed = 1234;              // of the hashes
  int64_t ngram_conv_kernel_dim = 4;      // rows that the convolution behind it sees, ngram_size apart
  int64_t ngram_end_token = 0;            // no n-gram goes on behind it
  int64_t ngram_parts = 1;                // tensors in which released files hold a layer's tables

  // Mixture of experts
  int64_t n_routed_experts = 16;
  int64_t num_experts_per_tok = 4;
  int64_t zero_expert_num = 0;    // experts besides that give a token's row back as it is (LongCat-Flash)
  bool shortcut_experts = false;  // layers are pairs: the first's experts add to the stream behind the second
  int64_t n_shared_experts = 1;
  int64_t moe_intermediate_size = 128;
  int64_t shared_intermediate_size =
      0;                            // of all shared experts together; 0: n_shared_experts × moe_intermediate_size
  int64_t moe_latent_size = 0;      // routed experts work at this width, between two linear maps; 0: at hidden_size
  bool shared_expert_gate = false;  // a sigmoid a token on the shared experts
  bool experts_sum_norm = false;    // what routed and shared experts make together is normed (A.X-K1)
  bool expert_norms = false;        // router, routed and shared experts have norms of their own (Gemma 4)
  bool expert_scales = false;       // a learned factor an expert on its gates (Gemma 4)
  int64_t n_group = 1;
  int64_t topk_group = 1;
  int64_t group_score_top = 2;  // experts of a group by whose scores it is ranked (DeepSeek-V2: 1)
  bool norm_topk_prob = true;
  bool gates_on_inputs = false;        // a gate multiplies what its expert reads, not what it makes (Llama 4)
  bool shared_expert_average = false;  // the mean of routed and shared experts, not their sum (Command A+)
  bool sigmoid_scores = true;          // else softmax
  bool softplus_scores = false;        // √softplus of the logits in their place (DeepSeek-V4)
  bool sparse_mixer = false;  // two experts, each gated by a softmax over those whose logits are close (Phi-MoE)
  double router_jitter_noise = 0.01;  // how close they are, relative to the larger: twice this
  bool topk_bias = true;              // balance by a bias on the choice (aux-loss-free)
  int64_t num_hash_layers = 0;  // those of the first layers that have experts choose by token id (DeepSeek-V4)
  double routed_scaling_factor = 1;
  bool router_bias = false;     // of its logits, trained
  double router_logit_cap = 0;  // the router's logits l become c·tanh(l ÷ c) (Laguna); 0: they stay
  bool bias_on_logits = false;  // the balancing bias is added to logits, not to scores (Kolibri)
  bool experts_bias = false;    // of both linear maps of each routed expert

  // Multi-token prediction
  int64_t num_nextn_predict_layers = 0;
  std::string nextn_blocks;  // both blocks of each such layer, a letter each; "": as model.layer_pattern's default

  // Dropout while training: the part of the elements that is put to zero
  double embedding_dropout = 0;  // of the embedded tokens
  double residual_dropout = 0;   // of what attention and MLP add to the residual stream
  double attention_dropout = 0;  // of attention's probabilities

  // Training losses
  double mtp_loss_weight = 0.3;
  double sequence_aux_loss_alpha = 0;  // 0: off
  double z_loss_weight = 0;            // 0: off
  IndexStage index_stage = IndexStage::sparse;
  double index_loss_weight = 1;  // of each indexer's divergence from its layer's attention
  BiasBalance bias_balance = BiasBalance::sign;
  std::optional<double> bias_update_rate;  // none: by the length of the run (train/bias_rate)

  /// True if the layer predicts a further token, and model.nextn_blocks says what it has.
  bool is_further_by_letters(int64_t layer) const { return layer >= num_hidden_layers && !nextn_blocks.empty(); }
  /// True if attention of the layer has no window, and no recurrence stands in its place.
  bool has_full_attention(int64_t layer) const {
    if (is_further_by_letters(layer)) return kind_of(layer) == LayerKind::attention;
    if (is_compressed()) return compression_of(layer) != Compression::window;
    if (!layer_pattern.empty()) return kind_of(layer) == LayerKind::attention;
    return layer < max_window_layers ||
           (full_attention_interval > 0 && (layer + 1 - full_attention_offset) % full_attention_interval == 0) ||
           (full_attention_last && layer + 1 == num_hidden_layers);
  }
  /// The kind of a layer by letters. Without letters layers that predict further tokens have attention.
  LayerKind kind_of(int64_t layer) const {
    if (is_further_by_letters(layer)) return static_cast<LayerKind>(nextn_blocks[0]);
    return layer < std::ssize(layer_pattern) ? static_cast<LayerKind>(layer_pattern[static_cast<size_t>(layer)])
                                             : LayerKind::attention;
  }
  bool has_kind(LayerKind kind) const { return layer_pattern.find(static_cast<char>(kind)) != std::string::npos; }
  /// The kind of a layer of compressed attention.
  Compression compression_of(int64_t layer) const {
    return layer < std::ssize(compression_pattern)
               ? static_cast<Compression>(compression_pattern[static_cast<size_t>(layer)])
               : Compression::window;
  }
  /// The tokens of an entry of the layer; 0: the layer has no entries.
  int64_t entry_tokens(int64_t layer) const {
    const Compression kind = compression_of(layer);
    return kind == Compression::sparse ? sparse_rate : kind == Compression::heavy ? heavy_rate : 0;
  }
  bool has_compression(Compression kind) const {
    return compression_pattern.find(static_cast<char>(kind)) != std::string::npos;
  }
  /// Tokens that a query of the layer sees; 0: all up to its own, or entries of them in compressed attention.
  int64_t window_of(int64_t layer) const {
    return has_full_attention(layer) || recurs_in(layer) ? 0 : sliding_window;
  }
  /// Tokens of the chunks that the layer's queries see; 0: it has none.
  int64_t chunk_of(int64_t layer) const { return window_chunks ? window_of(layer) : 0; }
  bool recurs() const { return recurrence != Recurrence::none; }
  /// True if the layer has a recurrence, in a model whose layers have two blocks or more.
  bool recurs_in(int64_t layer) const {
    const bool by_letters = !layer_pattern.empty() || is_further_by_letters(layer);
    return recurs() && (by_letters ? kind_of(layer) == LayerKind::recurrence : !has_full_attention(layer));
  }
  /// True if several blocks of a layer read one norm.
  bool has_blocks_beside() const { return parallel_blocks || recurrence_beside_attention; }
  /// True if the layer has attention and a recurrence.
  bool mixes_twice(int64_t layer) const { return has(layer, Block::attention) && has(layer, Block::recurrence); }
  /// True if a recurrent layer has states, and not the last rows of a convolution alone.
  bool has_states() const { return recurs() && recurrence != Recurrence::short_convolution; }
  bool is_hybrid() const { return !hybrid_override_pattern.empty(); }
  /// The letters of a layer's blocks, in order. Layers that predict further tokens have attention, then an MLP or
  /// experts, where model.nextn_blocks does not say otherwise.
  std::string blocks_of(int64_t layer) const {
    const bool predicts = layer >= num_hidden_layers, further = is_further_by_letters(layer);
    if (!predicts && layer < std::ssize(hybrid_override_pattern))
      return hybrid_override_pattern.substr(static_cast<size_t>(layer), 1);
    const bool recurrent = (further || !predicts) && recurs_in(layer);
    if (shortcut_experts && !further) return begins_pair(layer) ? "*-E" : "*-";  // further layers have no experts
    const bool experts = further       ? nextn_blocks[1] == static_cast<char>(Block::experts)
                         : is_hybrid() ? has(Block::experts)
                                       : has_experts_behind(layer);
    std::string blocks(1, static_cast<char>(recurrent ? Block::recurrence : Block::attention));
    if (recurrence_beside_attention && recurrent) blocks = "*M";
    return blocks + static_cast<char>(experts ? Block::experts : Block::mlp);
  }
  /// True if the layer has experts in place of an MLP, in a model whose layers have two blocks.
  bool has_experts_behind(int64_t layer) const {
    if (mlp_pattern.empty()) return layer >= first_k_dense_replace;
    return layer < std::ssize(mlp_pattern) ? mlp_pattern[static_cast<size_t>(layer)] == 'E'
                                           : mlp_pattern.find('E') != std::string::npos;
  }
  /// True if a pattern says which layers have experts: they do not simply follow dense ones.
  bool interleaves() const { return is_hybrid() || !mlp_pattern.empty(); }
  /// True if the layer's experts add to the stream behind the next layer.
  bool begins_pair(int64_t layer) const { return in_pairs(layer) && layer % 2 == 0; }
  /// True if the layer is one of a pair of the model, whose experts run beside both.
  bool in_pairs(int64_t layer) const { return shortcut_experts && layer < num_hidden_layers; }
  /// True if layers that predict further tokens are called "mtp.layers.", else as those of the model behind them.
  bool names_further_layers_apart() const {
    return recurs() || has_streams() || is_compressed() || shortcut_experts || !nextn_blocks.empty();
  }
  /// True if a table of token ids chooses the layer's experts.
  bool chooses_by_id(int64_t layer) const { return layer < num_hash_layers && has(layer, Block::experts); }
  /// All that a router chooses among.
  int64_t choices() const { return n_routed_experts + zero_expert_num; }
  bool has(int64_t layer, Block block) const {
    return blocks_of(layer).find(static_cast<char>(block)) != std::string::npos;
  }
  /// True if the pattern has such a block.
  bool has(Block block) const {
    return hybrid_override_pattern.find(static_cast<char>(block)) != std::string::npos;
  }
  bool is_recurrent(int64_t layer) const { return has(layer, Block::recurrence); }
  NormPlaces norm_places_of(int64_t layer) const {
    if (norm_places != NormPlaces::mixed) return norm_places;
    return is_recurrent(layer) ? NormPlaces::before : NormPlaces::after;
  }
  /// Widths of the queries (and of the keys) and of the values of a recurrent layer, all heads together.
  int64_t linear_keys_width() const { return linear_num_key_heads * linear_key_head_dim; }
  int64_t linear_values_width() const { return linear_num_value_heads * linear_value_head_dim; }
  double linear_norm_epsilon() const { return linear_norm_eps > 0 ? linear_norm_eps : rms_norm_eps; }
  bool has_window(int64_t layer) const { return window_of(layer) > 0; }
  int64_t heads_of(int64_t layer) const {
    return has_window(layer) && window_attention_heads > 0 ? window_attention_heads : num_attention_heads;
  }
  int64_t kv_heads_of(int64_t layer) const {
    if (is_compressed()) return 1;
    return has_window(layer) && window_key_value_heads > 0 ? window_key_value_heads : num_key_value_heads;
  }
  /// Widths of a head's query and key, and of its value, in grouped attention.
  int64_t head_dim_of(int64_t layer) const {
    return has_window(layer) && window_head_dim > 0 ? window_head_dim : head_dim;
  }
  int64_t value_width_of(int64_t layer) const { return value_head_dim > 0 ? value_head_dim : head_dim_of(layer); }
  /// Widths in a layer of latent attention.
  struct LatentWidths {
    int64_t q_rank, kv_rank, nope, rope, value;
    int64_t head() const { return nope + rope; }
  };
  LatentWidths latent_widths(int64_t layer) const {
    const auto of = [&](int64_t all, int64_t windows) { return has_window(layer) && windows > 0 ? windows : all; };
    return {of(q_lora_rank, window_q_lora_rank), of(kv_lora_rank, window_kv_lora_rank),
            of(qk_nope_head_dim, window_qk_nope_head_dim), of(qk_rope_head_dim, window_qk_rope_head_dim),
            of(v_head_dim, window_v_head_dim)};
  }
  /// True if the layer's values are its keys.
  bool shares_keys(int64_t layer) const { return keys_are_values && !has_window(layer); }
  /// The layer whose keys and values a layer attends to: itself, or the last before those that share which is of
  /// its kind; −1 where there is none.
  int64_t key_value_layer(int64_t layer) const {
    const int64_t makers = num_hidden_layers - shared_key_value_layers;
    if (layer < makers || layer >= num_hidden_layers) return layer;
    int64_t from = makers - 1;
    while (from >= 0 && has_window(from) != has_window(layer)) --from;
    return from;
  }
  bool makes_keys(int64_t layer) const { return key_value_layer(layer) == layer; }
  /// Width of a layer's dense MLP.
  int64_t mlp_width_of(int64_t layer) const {
    return sharing_intermediate_size > 0 && !makes_keys(layer) ? sharing_intermediate_size : intermediate_size;
  }
  /// True if layers with windows have rotary positions of their own; then the model whose positions these are.
  bool has_window_rotation() const { return window_rope_theta > 0; }
  ModelConfig with_rotation_of_windows() const {
    ModelConfig c = *this;
    c.rope_theta = window_rope_theta;
    c.rope_scaling.reset();
    c.turning_pairs_factor = 1;
    if (window_head_dim > 0) c.head_dim = window_head_dim;
    if (window_qk_rope_head_dim > 0) c.qk_rope_head_dim = window_qk_rope_head_dim;
    if (window_rotary_factor > 0) c.partial_rotary_factor = window_rotary_factor;
    return c;
  }
  bool has_sinks(int64_t layer) const { return attention_sinks && (!sinks_in_windows || has_window(layer)); }
  bool selects() const { return index_topk > 0; }
  bool trains_indexers_alone() const { return selects() && index_stage == IndexStage::dense; }
  /// True if keys are chosen in blocks.
  bool selects_blocks() const { return selects() && index_blocks != IndexBlocks::none; }
  /// The keys that the layer's queries attend to, in a model that selects keys.
  Selection selection_of(int64_t layer) const {
    if (is_latent() && has_window(layer)) return Selection::all;
    if (layer < std::ssize(index_pattern)) return static_cast<Selection>(index_pattern[static_cast<size_t>(layer)]);
    const int64_t counted = layer - index_skip_topk_offset + 1;
    const bool own = layer >= num_hidden_layers || counted <= 0 || counted % index_topk_freq == 0;
    return own ? Selection::own : Selection::shared;
  }
  /// True if the layer's queries attend to chosen keys alone.
  bool selects_in(int64_t layer) const { return selects() && selection_of(layer) != Selection::all; }
  /// True if the layer has an indexer of its own. Those that predict further tokens do.
  bool has_indexer(int64_t layer) const {
    if (is_compressed()) return selects() && compression_of(layer) == Compression::sparse;
    return selects() && has(layer, Block::attention) && selection_of(layer) == Selection::own;
  }
  /// The limits of SwiGLU in a layer's routed experts, and in its shared or dense MLP; 0: none.
  double experts_limit_of(int64_t layer) const { return layer >= experts_limit_layer ? experts_limit : 0; }
  double mlp_limit_of(int64_t layer) const {
    if (mlp_limit_last > 0 && layer >= mlp_limit_last_layer) return mlp_limit_last;
    return layer >= mlp_limit_layer ? mlp_limit : 0;
  }
  bool is_moe(int64_t layer) const { return has(layer, Block::experts); }
  /// False where MLPs and experts have two matrices.
  bool has_gated_mlp() const { return activation == Activation::swiglu || activation >= Activation::geglu; }
  bool has_experts() const {
    if (num_nextn_predict_layers > 0 && is_moe(num_hidden_layers)) return true;
    if (is_hybrid()) return has(Block::experts);
    if (!mlp_pattern.empty()) return mlp_pattern.find('E') != std::string::npos;
    return shortcut_experts || is_moe(num_hidden_layers - 1);
  }
  bool has_dense_layers() const {
    if (num_nextn_predict_layers > 0 && has(num_hidden_layers, Block::mlp)) return true;
    if (!mlp_pattern.empty()) return mlp_pattern.find('-') != std::string::npos;
    return is_hybrid() ? has(Block::mlp) : has(0, Block::mlp);
  }
  bool attends() const { return !is_hybrid() || has(Block::attention) || num_nextn_predict_layers > 0; }
  bool turns() const { return positions == Positions::rotary; }
  bool turns_in(int64_t layer) const {
    if (layer < std::ssize(rotation_pattern)) return turns() && rotation_pattern[static_cast<size_t>(layer)] == 'R';
    const bool every_nth = no_rope_layer_interval > 0 && layer < num_hidden_layers;
    return turns() && !(every_nth && (layer + 1) % no_rope_layer_interval == 0);
  }
  /// True if a layer that attends multiplies its queries by a factor of their positions.
  bool scales_queries(int64_t layer) const {
    return query_scale_beta != 0 && !(query_scale_unturned && turns_in(layer));
  }
  bool learns_positions() const { return positions == Positions::learned; }
  bool is_latent() const { return attention == Attention::latent; }
  bool is_grouped() const { return attention == Attention::grouped; }
  bool is_compressed() const { return attention == Attention::compressed; }
  bool has_streams() const { return hyper_connections > 0; }
  /// True if streams are read by weights of their elements. Then they are normed as they are read, and layers and
  /// head have no norms of their own.
  bool has_gated_streams() const { return has_streams() && hyper_connections_kind == HyperConnection::gated; }
  bool has_ngrams() const { return !ngram_layers.empty(); }
  /// Width of a token's embedding of n-grams.
  int64_t ngram_width() const { return ngram_embedding_size > 0 ? ngram_embedding_size : hidden_size; }
  bool mixes_streams() const { return has_streams() && hyper_connections_kind == HyperConnection::constrained; }
  /// Numbers of a token by which a block reads and writes streams, and the factors that these have.
  int64_t stream_weights() const {
    if (hyper_connections_kind == HyperConnection::gated) return hyper_connections;  // of writing alone
    return hyper_connections * (mixes_streams() ? 2 + hyper_connections : 2);
  }
  int64_t stream_scales() const { return mixes_streams() ? 3 : 2; }
  /// Width of what goes from block to block, from layer to layer and from stage to stage.
  int64_t residual_width() const { return has_streams() ? hyper_connections * hidden_size : hidden_size; }
  /// Width of the rows that routed experts take and make.
  int64_t expert_rows_width() const { return moe_latent_size > 0 ? moe_latent_size : hidden_size; }
  /// Width of the shared experts, all together.
  int64_t shared_width() const {
    return n_shared_experts == 0          ? 0
           : shared_intermediate_size > 0 ? shared_intermediate_size
                                          : n_shared_experts * moe_intermediate_size;
  }
  /// The width of a head's value in grouped attention.
  int64_t value_width() const { return value_head_dim > 0 ? value_head_dim : head_dim; }
  /// Numbers of the gate of a head's output.
  int64_t gate_width() const {
    if (attention_gate == AttentionGate::none) return 0;
    return attention_gate == AttentionGate::head ? 1 : is_latent() ? v_head_dim : value_width();
  }
  int64_t qk_head_dim() const { return is_latent() ? qk_nope_head_dim + qk_rope_head_dim : head_dim; }
  /// The elements of a head that have positions: its last ones, or, in grouped attention, its first.
  int64_t rotary_width() const {
    return !is_grouped() ? qk_rope_head_dim
                         : static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
  /// The pairs of a head that turn, from its first on; the others of rotary_width() stand still.
  int64_t turning_pairs() const {
    return static_cast<int64_t>(static_cast<double>(rotary_width()) * turning_pairs_factor / 2);
  }
  double softmax_scale() const { return softmax_scale_of(qk_head_dim()); }
  /// The factor on scores of queries and keys of that width.
  double softmax_scale_of(int64_t width) const;
  /// The loss weight of each depth of multi-token prediction; only where there is one.
  double depth_loss_weight() const { return mtp_loss_weight / static_cast<double>(num_nextn_predict_layers); }
  /// The chosen gates are divided by their sum, which is one gate: they are 1 whatever the router says, and it
  /// learns nothing from the loss.
  bool router_is_without_gradient() const {
    return norm_topk_prob && num_experts_per_tok == 1 && (has_experts() || num_nextn_predict_layers > 0);
  }
  bool operator==(const ModelConfig&) const = default;
};

constexpr auto words_of(ModelConfig::Attention) {
  using Attention = ModelConfig::Attention;
  return std::to_array<Word<Attention>>(
      {{Attention::latent, "latent"}, {Attention::grouped, "grouped"}, {Attention::compressed, "compressed"}});
}

/// ConfigError naming the key when a value is out of its bounds (model/keys.h) or a size is impossible (top-k >
/// experts, odd rotary width, …).
void validate(const ModelConfig& config);

}  // namespace heddle::model
