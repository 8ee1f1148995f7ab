#include "heddle/model/shapes/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "heddle/model/ngrams.h"

namespace heddle::model {

namespace {

double d(int64_t n) { return static_cast<double>(n); }

// Mean number of keys a query sees.
double keys_seen(double sequence, int64_t window, bool chunks = false) {
  const double w = d(window);
  if (window <= 0 || w >= sequence) return sequence / 2;
  if (chunks) {
    const double rest = sequence - std::floor(sequence / w) * w;
    return ((sequence - rest) * w + rest * rest) / (2 * sequence);
  }
  return w - w * w / (2 * sequence);
}

double norm_parameters(const Shape& s) { return d(s.hidden_size) * (s.has_norm_bias() ? 2 : 1); }

// The heads of a block of grouped attention.
struct BlockHeads {
  double heads = 0, kv_heads = 0, width = 0, value_width = 0;
  bool sinks = false;
  double keys = 1, values = 1;  // 0: it projects none
  int64_t window = 0;
};

BlockHeads heads_of_block(const Shape& s, int64_t layer) {
  const bool makes = s.makes_keys(layer);
  return {.heads = d(s.heads_of(layer)),
          .kv_heads = d(s.kv_heads_of(layer)),
          .width = d(s.head_dim_of(layer)),
          .value_width = d(s.value_width_of(layer)),
          .sinks = s.has_sinks(layer),
          .keys = makes ? 1.0 : 0.0,
          .values = makes && !s.shares_keys(layer) ? 1.0 : 0.0,
          .window = s.window_of(layer)};
}

// Returns the mean of `of` over the numbers of the layers with attention.
template <class Of>
double mean_over_attention(const Shape& s, Of of) {
  double sum = 0;
  int64_t layers = 0;
  for (int64_t layer = 0; layer < s.num_hidden_layers; ++layer) {
    if (s.recurs() && !s.has(layer, Block::attention)) continue;
    sum += of(layer);
    ++layers;
  }
  return sum / d(std::max<int64_t>(1, layers));
}

// Returns the mean of `of` over the attention blocks, with and without a window.
template <class Of>
double mean_over_blocks(const Shape& s, Of of) {
  if (s.sliding_window == 0 && s.shared_key_value_layers == 0) return of(heads_of_block(s, 0));
  return mean_over_attention(s, [&](int64_t layer) { return of(heads_of_block(s, layer)); });
}

// The heads of a block of latent attention, whose widths layers with a window may have of their own.
struct LatentHeads {
  ModelConfig::LatentWidths width;
  double heads = 0;
  int64_t window = 0;
  bool chooses = false;  // keys
};

// Returns the mean of `of` over the blocks of latent attention.
template <class Of>
double mean_over_latents(const Shape& s, Of of) {
  const auto block = [&](int64_t layer) {
    return of(LatentHeads{s.latent_widths(layer), d(s.heads_of(layer)), s.window_of(layer), s.selects_in(layer)});
  };
  if (s.sliding_window == 0 && !s.selects()) return block(0);
  return mean_over_attention(s, block);
}

// All maps of a block of latent attention but an indexer's.
double latent_matrices(const Shape& s, const LatentHeads& b) {
  const double h = d(s.hidden_size), rq = d(b.width.q_rank);
  const bool joint = s.raw_latent_of_queries;  // gates come with the queries
  const bool by_element = s.attention_gate != AttentionGate::none && s.attention_gate != AttentionGate::head;
  const double gate = by_element ? d(b.width.value) : d(s.gate_width());
  const double q = b.heads * (d(b.width.head()) + (joint ? gate : 0));
  return (rq > 0 ? h * rq + (joint ? 2 : 1) * rq * q : h * q) + h * d(b.width.kv_rank + b.width.rope) +
         b.heads *
             (d(b.width.kv_rank * (b.width.nope + b.width.value)) + h * (d(b.width.value) + (joint ? 0 : gate)));
}

double mlp_width(const Shape& s) {
  if (s.sharing_intermediate_size == 0) return d(s.intermediate_size);
  double sum = 0;
  for (int64_t layer = 0; layer < s.num_hidden_layers; ++layer) sum += d(s.mlp_width_of(layer));
  return sum / d(std::max<int64_t>(1, s.num_hidden_layers));
}

// A layer's maps from the stream to its own embedding and back.
double layer_embedding_matrices(const Shape& s) { return 2 * d(s.hidden_size) * d(s.layer_embedding_size); }

// Columns that a block's heads project from the stream and back to it.
double projected_width(const Shape& s, const BlockHeads& b) {
  return b.heads * (b.width + b.value_width + d(s.gate_width())) +
         b.kv_heads * (b.keys * b.width + b.values * b.value_width);
}

double block_norms(const Shape& s) {
  if (s.has_gated_streams()) return 0;  // streams are normed
  return norm_parameters(s) * (s.norm_places == NormPlaces::both ? 2 : 1);
}

// The maps of streams to weights: a block's, with base and scales; and the head's.
double stream_matrix(const Shape& s) {
  const int64_t ranks = s.has_gated_streams() ? 2 * s.hyper_connections_rank : 0;
  return d(s.stream_weights() + ranks) * d(s.residual_width());
}
double block_streams(const Shape& s) {
  if (s.has_gated_streams()) return stream_matrix(s) + d(s.residual_width());
  return s.has_streams() ? stream_matrix(s) + d(s.stream_weights() + s.stream_scales()) : 0;
}
double head_streams(const Shape& s) {
  if (s.has_gated_streams()) return d(2 * s.hyper_connections_rank + 1) * d(s.residual_width());
  if (s.hyper_connections_mean) return 0;
  const double n = d(s.hyper_connections);
  return s.has_streams() ? n * d(s.residual_width()) + n + 1 : 0;
}

// The maps of a layer that adds embeddings of n-grams to its streams, to a key each and to one value; and all that
// such layers have, with their tables.
double ngram_matrices(const Shape& s) { return d(s.ngram_width()) * d(s.residual_width() + s.hidden_size); }
double ngram_parameters(const Shape& s) {
  if (!s.has_ngrams()) return 0;
  const int64_t layers = std::ssize(ngram_layers_of(s));
  double n = d(layers) * (ngram_matrices(s) + d(3 + s.ngram_conv_kernel_dim) * d(s.residual_width()));
  for (int64_t i = 0; i < layers; ++i) n += d(ngram_rows(s, i)) * d(s.ngram_width()) / d(ngram_sizes(s, i).each());
  return n;
}

// A block's norms, and the weights of its streams.
double around_block(const Shape& s) { return block_norms(s) + block_streams(s); }

// MLP and experts share the norm of attention where they stand beside it.
double around_mlp(const Shape& s) { return s.parallel_blocks ? block_streams(s) : around_block(s); }

constexpr double kScanChunk = 64, kMambaChunk = 128;  // positions of a chunk of a recurrence

// Projections of a recurrent layer: queries, keys, values, gate, output. The gated delta rule has two numbers a
// head too, Mamba-2 one. Kimi Delta Attention has one, a decay a channel of a key, and maps of decay and gate with
// a middle of a head, or one map each. A short convolution has three as wide as the stream, and one back.
double recurrent_matrices(const Shape& s) {
  if (s.recurrence == Recurrence::short_convolution) return 4 * d(s.hidden_size) * d(s.hidden_size);
  const double h = d(s.hidden_size), keys = d(s.linear_keys_width()), values = d(s.linear_values_width());
  const double heads = d(s.linear_num_value_heads), most = h * (2 * keys + values) + values * h;
  switch (s.recurrence) {
    case Recurrence::kimi_delta:
      if (s.linear_full_gates) return most + h * (heads + keys + values);
      return most + h * heads + (h + keys) * d(s.linear_key_head_dim) + (h + values) * d(s.linear_value_head_dim);
    case Recurrence::gated_delta: return most + h * (values + 2 * heads);
    case Recurrence::mamba2: return most + h * (values + heads);
    case Recurrence::lightning:
    case Recurrence::short_convolution:
    case Recurrence::none: break;
  }
  return most + h * values;
}

// Biases of these maps, and that of a short convolution. Mamba-2 has the latter whatever linear_bias says.
double recurrent_biases(const Shape& s) {
  const double h = d(s.hidden_size), keys = d(s.linear_keys_width()), values = d(s.linear_values_width());
  if (!s.linear_bias) return 0;
  if (s.recurrence == Recurrence::short_convolution) return 5 * h;
  return 2 * values + 2 * keys + d(s.linear_num_value_heads) + h;
}

double recurrent_parameters(const Shape& s) {
  const double n = around_block(s) + recurrent_matrices(s) + recurrent_biases(s), keys = d(s.linear_keys_width());
  const double values = d(s.linear_values_width()), heads = d(s.linear_num_value_heads);
  if (s.recurrence == Recurrence::lightning) return n + values;
  if (s.recurrence == Recurrence::short_convolution) return n + d(s.linear_conv_kernel_dim) * d(s.hidden_size);
  if (s.recurrence == Recurrence::mamba2)
    return n + (d(s.linear_conv_kernel_dim) + 1) * (2 * keys + values) + 3 * heads +
           (s.linear_norm == RecurrentNorm::none ? 0 : values);
  const double decays = s.recurrence == Recurrence::kimi_delta ? keys : heads;
  return n + d(s.linear_conv_kernel_dim) * (2 * keys + values) + heads + decays + d(s.linear_value_head_dim);
}

// Forward FLOPs of a token in a recurrence. Within a chunk: keys with keys by the delta rule, queries with keys,
// and what they make times values. Between chunks: a state of each head is made, corrected and read. Heads of a
// group of Mamba-2 share scores, and its chunks are as long as its own kernels have them. A short convolution, like
// those ahead of the others, is not counted.
double scan_flops(const Shape& s) {
  const double heads = d(s.linear_num_value_heads), dk = d(s.linear_key_head_dim), dv = d(s.linear_value_head_dim);
  if (s.recurrence == Recurrence::short_convolution) return 0;
  if (s.recurrence == Recurrence::mamba2)
    return kMambaChunk * (d(s.linear_keys_width()) + heads * dv) + 4 * heads * dv * dk;
  const bool corrects = s.recurrence != Recurrence::lightning;
  return heads * ((corrects ? 2 : 1) * kScanChunk * (dk + dv) + (corrects ? 6 : 4) * dk * dv);
}

// An indexer's queries from the latent, its keys and its weights of heads, and the gates of keys. Those of grouped
// attention have queries and keys alone.
double indexer_matrices(const Shape& s) {
  const double from = d(s.q_lora_rank > 0 ? s.q_lora_rank : s.hidden_size);
  const int64_t weights = s.is_grouped() ? 0 : s.index_n_heads;
  const int64_t gates = s.index_blocks == IndexBlocks::gated ? s.index_head_dim : 0;
  return from * d(s.index_n_heads * s.index_head_dim) + d(s.hidden_size) * d(s.index_head_dim + weights + gates);
}

double indexer_parameters(const Shape& s) {
  const int64_t places = s.index_blocks == IndexBlocks::gated ? s.index_block_size : 0;
  return indexer_matrices(s) + d((2 + places) * s.index_head_dim);
}

// The share of the layers with attention that is of a kind.
template <class Is>
double part_of_attention(const Shape& s, Is is) {
  int64_t layers = 0, all = 0;
  for (int64_t layer = 0; layer < s.num_hidden_layers; ++layer) {
    if (!s.has(layer, Block::attention)) continue;
    ++all;
    layers += is(layer) ? 1 : 0;
  }
  return d(layers) / d(std::max<int64_t>(1, all));
}

// Keys that an indexer scores, of so many positions: means stand for a block each.
double indexed_keys(const Shape& s, double keys) {
  const bool means = s.index_blocks == IndexBlocks::mean || s.index_blocks == IndexBlocks::gated;
  return means ? keys / d(s.index_block_size) : keys;
}

// The share of the layers that is of a kind of compressed attention.
double part_of_layers(const Shape& s, Compression kind) {
  return d(std::count(s.compression_pattern.begin(), s.compression_pattern.end(), static_cast<char>(kind))) /
         d(std::max<int64_t>(1, s.num_hidden_layers));
}
// Two maps make entries of that width: one makes rows, one gates. Each series has its own.
double entry_matrices(const Shape& s, double series, int64_t width) {
  return 2 * d(s.hidden_size) * series * d(width);
}
double entry_parameters(const Shape& s, double series, int64_t tokens, int64_t width) {
  return entry_matrices(s, series, width) + series * d(tokens * width) + d(width);
}
// A mean over the layers. The matrices of indexers are not counted here.
double compressed_matrices(const Shape& s) {
  const double h = d(s.hidden_size), heads = d(s.num_attention_heads * s.head_dim),
               made = d(s.o_groups * s.o_lora_rank);
  return h * d(s.q_lora_rank) + d(s.q_lora_rank) * heads + h * d(s.head_dim) + heads * d(s.o_lora_rank) + made * h +
         part_of_layers(s, Compression::sparse) * entry_matrices(s, 2, s.head_dim) +
         part_of_layers(s, Compression::heavy) * entry_matrices(s, 1, s.head_dim);
}
// An indexer of entries has matrices for them, for its queries and for the weights of its heads.
double entry_indexer_matrices(const Shape& s) {
  return entry_matrices(s, 2, s.index_head_dim) + d(s.q_lora_rank * s.index_n_heads * s.index_head_dim) +
         d(s.hidden_size * s.index_n_heads);
}
double compressed_parameters(const Shape& s) {
  const double sparse = part_of_layers(s, Compression::sparse), heavy = part_of_layers(s, Compression::heavy);
  const auto beside = [&](double series, int64_t tokens, int64_t width) {
    return entry_parameters(s, series, tokens, width) - entry_matrices(s, series, width);
  };
  double n = compressed_matrices(s) + d(s.q_lora_rank) + d(s.head_dim);
  if (s.attention_sinks) n += d(s.num_attention_heads);
  n += sparse * beside(2, s.sparse_rate, s.head_dim) + heavy * beside(1, s.heavy_rate, s.head_dim);
  return n + s.indexed() * (entry_indexer_matrices(s) + beside(2, s.sparse_rate, s.index_head_dim));
}
// A query sees so many keys, a mean over positions and layers.
double compressed_keys(const Shape& s, double sequence) {
  const auto entries = [&](int64_t rate, int64_t most) { return keys_seen(sequence, most * rate) / d(rate); };
  const int64_t chosen = s.index_stage == IndexStage::dense ? 0 : s.index_topk;  // 0: all
  return keys_seen(sequence, s.sliding_window) +
         part_of_layers(s, Compression::sparse) * entries(s.sparse_rate, chosen) +
         part_of_layers(s, Compression::heavy) * entries(s.heavy_rate, 0);
}

// The narrow MLP of a gated norm.
double gated_norm_matrices(const Shape& s) { return 2 * d(s.hidden_size) * d(s.gated_norm_rank); }

double attention_parameters(const Shape& s) {
  const double h = d(s.hidden_size);
  double n = around_block(s);
  if (s.is_compressed()) return n + compressed_parameters(s);
  if (s.is_latent()) {
    n += mean_over_latents(s, [&](const LatentHeads& b) {
      const double norms = d(b.width.q_rank + b.width.kv_rank + (s.rotary_key_norm ? b.width.rope : 0));
      return latent_matrices(s, b) + norms + (s.attention_sinks ? b.heads : 0);
    });
    return n + s.indexed() * indexer_parameters(s) + gated_norm_matrices(s);
  }
  n += mean_over_blocks(s, [&](const BlockHeads& b) {
    const double keys = b.keys * b.kv_heads * b.width;
    double m = h * projected_width(s, b) + (b.sinks ? b.heads : 0);
    if (s.has_qkv_bias()) m += b.heads * b.width + keys + b.values * b.kv_heads * b.value_width;
    if (s.qk_norm) m += s.qk_norm_all_heads ? b.heads * b.width + keys : (1 + b.keys) * b.width;
    return m;
  });
  if (s.has_output_bias()) n += h;
  n += gated_norm_matrices(s);
  if (s.selects()) n += s.indexed() * indexer_parameters(s);
  if (s.layer_embedding_size > 0) n += layer_embedding_matrices(s) + norm_parameters(s);
  return n;
}

double ffn_parameters(double h, double f, bool gated, bool bias) {
  return (gated ? 3 : 2) * h * f + (bias ? (gated ? 2 : 1) * f + h : 0);
}

}  // namespace

Shape::Shape() {
  vocab_size = hidden_size = num_hidden_layers = intermediate_size = first_k_dense_replace = 0;
  attention = Attention::grouped;
  num_attention_heads = num_key_value_heads = head_dim = 0;
  kv_lora_rank = qk_nope_head_dim = qk_rope_head_dim = v_head_dim = 0;
  qk_norm = rope_interleave = false;
  drop_experts();
}

Shape shape_of(const ModelConfig& config, std::string name) {
  const Shape none;
  Shape s;
  static_cast<ModelConfig&>(s) = config;
  s.name = std::move(name);
  if (config.is_latent()) {
    s.num_key_value_heads = s.num_attention_heads;
    s.head_dim = s.qk_head_dim();
    s.qk_norm = none.qk_norm;
    s.attention_bias = none.attention_bias;
  } else if (config.is_compressed()) {
    s.num_key_value_heads = 1;
    s.kv_lora_rank = none.kv_lora_rank, s.qk_nope_head_dim = none.qk_nope_head_dim;
    s.v_head_dim = none.v_head_dim;
    s.qk_norm = none.qk_norm;
    s.attention_bias = none.attention_bias;
  } else {
    s.q_lora_rank = none.q_lora_rank, s.kv_lora_rank = none.kv_lora_rank;
    s.qk_nope_head_dim = none.qk_nope_head_dim, s.qk_rope_head_dim = none.qk_rope_head_dim;
    s.v_head_dim = none.v_head_dim;
  }
  if (config.has_experts()) {
    s.first_k_dense_replace = std::min(s.first_k_dense_replace, s.num_hidden_layers);
  } else {
    s.drop_experts();
  }
  return s;
}

double Shape::windowed() const {
  if (sliding_window == 0) return 0;
  int64_t layers = 0;
  for (int64_t layer = 0; layer < num_hidden_layers; ++layer) layers += has_window(layer) ? 1 : 0;
  return d(layers) / d(std::max<int64_t>(1, num_hidden_layers));
}

double Shape::indexed() const {
  return part_of_attention(*this, [&](int64_t layer) { return has_indexer(layer); });
}

double Shape::selecting() const {
  if (!selects() || is_compressed() || index_stage == IndexStage::dense) return 0;
  return part_of_attention(*this, [&](int64_t layer) { return selects_in(layer); });
}

double Shape::recurrent() const {
  if (!recurs() || is_hybrid()) return 0;
  int64_t layers = 0;
  for (int64_t layer = 0; layer < num_hidden_layers; ++layer) layers += is_recurrent(layer) ? 1 : 0;
  return d(layers) / d(std::max<int64_t>(1, num_hidden_layers));
}

void Shape::set_shared_width(int64_t width) {
  const bool whole = moe_intermediate_size > 0 && width % moe_intermediate_size == 0;
  n_shared_experts = width == 0 ? 0 : whole ? width / moe_intermediate_size : 1;
  shared_intermediate_size = whole ? 0 : width;
}

void Shape::set_latent(int64_t q_rank, int64_t kv_rank, int64_t nope_dim, int64_t rope_dim, int64_t v_dim) {
  attention = Attention::latent;
  rope_interleave = true;
  q_lora_rank = q_rank, kv_lora_rank = kv_rank;
  qk_nope_head_dim = nope_dim, qk_rope_head_dim = rope_dim, v_head_dim = v_dim;
}

void Shape::drop_experts() {
  n_routed_experts = num_experts_per_tok = n_shared_experts = moe_intermediate_size = first_k_dense_replace = 0;
  shared_intermediate_size = moe_latent_size = 0;
  n_group = topk_group = 1;
  norm_topk_prob = true;
  sigmoid_scores = softplus_scores = topk_bias = router_bias = experts_bias = shared_expert_gate = false;
  sparse_mixer = shortcut_experts = expert_norms = experts_sum_norm = expert_scales = false;
  gates_on_inputs = shared_expert_average = false;
  mlp_pattern.clear();
  zero_expert_num = num_hash_layers = 0;
  routed_scaling_factor = 1;
}

int64_t Shape::count_of(Block block) const {
  return std::count(hybrid_override_pattern.begin(), hybrid_override_pattern.end(), static_cast<char>(block));
}

int64_t Shape::attention_blocks() const { return is_hybrid() ? count_of(Block::attention) : num_hidden_layers; }
int64_t Shape::layers_with_experts() const { return std::count(mlp_pattern.begin(), mlp_pattern.end(), 'E'); }
int64_t Shape::dense_blocks() const {
  if (is_hybrid()) return count_of(Block::mlp);
  if (shortcut_experts) return num_hidden_layers;
  if (has_experts() && !mlp_pattern.empty()) return num_hidden_layers - layers_with_experts();
  return has_experts() ? std::min(first_k_dense_replace, num_hidden_layers) : num_hidden_layers;
}
int64_t Shape::moe_blocks() const {
  if (shortcut_experts) return num_hidden_layers / 2;
  return is_hybrid() ? count_of(Block::experts) : has_experts() ? num_hidden_layers - dense_blocks() : 0;
}
int64_t Shape::q_width() const {
  if (is_latent()) {
    return std::lround(mean_over_latents(*this, [](const LatentHeads& b) { return b.heads * d(b.width.head()); }));
  }
  return std::lround(mean_over_blocks(*this, [](const BlockHeads& b) { return b.heads * b.width; }));
}
int64_t Shape::v_width() const {
  if (is_latent()) {
    return std::lround(mean_over_latents(*this, [](const LatentHeads& b) { return b.heads * d(b.width.value); }));
  }
  return std::lround(mean_over_blocks(*this, [](const BlockHeads& b) { return b.heads * b.value_width; }));
}

namespace {
// Biases of the choice, a mean over blocks of experts: those that choose by token id have none.
double choice_biases(const Shape& s) {
  if (!s.topk_bias) return 0;
  int64_t by_id = 0;
  for (int64_t layer = 0; layer < s.num_hash_layers; ++layer) by_id += s.chooses_by_id(layer);
  return d(s.choices()) * (1 - d(by_id) / d(std::max<int64_t>(1, s.moe_blocks())));
}

bool experts_further(const Shape& s) { return s.n_routed_experts > 0 && s.is_moe(s.num_hidden_layers); }

// A model of one layer, which is what each layer that predicts a further token is.
Shape further_layer(const Shape& s) {
  const int64_t layer = s.num_hidden_layers;
  const auto letter = [](auto kind) { return std::string(1, static_cast<char>(kind)); };
  Shape one = s;
  one.num_hidden_layers = 1;
  one.num_nextn_predict_layers = 0;
  one.foreign = {};
  one.max_window_layers = one.full_attention_interval = one.full_attention_offset = 0;
  one.shared_key_value_layers = one.sharing_intermediate_size = one.layer_embedding_size = one.num_hash_layers = 0;
  one.full_attention_last = one.shortcut_experts = false;
  one.recurrence_beside_attention = s.mixes_twice(layer);
  one.hybrid_override_pattern.clear();
  one.ngram_layers.clear();
  one.layer_pattern = letter(s.is_recurrent(layer) ? LayerKind::recurrence
                             : s.has_window(layer) ? LayerKind::window
                                                   : LayerKind::attention);
  one.mlp_pattern = letter(experts_further(s) ? Block::experts : Block::mlp);
  if (s.is_compressed()) one.compression_pattern = letter(Compression::window);
  if (s.selects()) one.index_pattern = letter(s.selection_of(layer));
  return one;
}

}  // namespace

Parameters parameters_of(const Shape& s) {
  Parameters p;
  const double h = d(s.hidden_size), norm = norm_parameters(s);
  const double recurrent = s.recurrent(), attending = s.attending();
  p.attention = attending * attention_parameters(s) + recurrent * recurrent_parameters(s) + s.foreign.layer_numbers;
  if (s.recurrence_beside_attention) p.attention -= around_block(s);  // both read one norm
  p.dense = around_mlp(s) + ffn_parameters(h, mlp_width(s), s.has_gated_mlp(), s.mlp_bias);
  if (s.n_routed_experts > 0) {
    const double width = s.moe_latent_size > 0 ? d(s.moe_latent_size) : h;
    p.moe_routed = d(s.n_routed_experts) *
                   ffn_parameters(width, d(s.moe_intermediate_size), s.has_gated_mlp(), s.experts_bias);
    const double choices = d(s.choices());
    p.moe = (s.shortcut_experts ? 0 : around_mlp(s)) + p.moe_routed + h * choices + choice_biases(s) +
            (s.router_bias ? choices : 0) + (s.shared_expert_gate ? h : 0);
    if (s.moe_latent_size > 0) p.moe += 2 * h * width;
    if (s.expert_scales) p.moe += choices;
    if (s.experts_sum_norm) p.moe += norm;
    p.moe += gated_norm_matrices(s);
    if (s.expert_norms) p.moe += h + (s.shared_width() > 0 ? 3 : 2) * norm;
    if (s.shared_width() > 0) p.moe += ffn_parameters(h, d(s.shared_width()), s.has_gated_mlp(), s.experts_bias);
  }
  if (s.mamba_blocks() > 0) p.mamba = recurrent_parameters(s);
  p.embedding = d(s.vocab_size) * h + d(s.learned_positions()) * h + (s.foreign.embedding_norm ? norm : 0);
  if (const double each = d(s.layer_embedding_size * s.num_hidden_layers); each > 0)
    p.embedding += (d(s.vocab_size) + h) * each + d(s.layer_embedding_size);
  p.embedding += ngram_parameters(s);
  p.head = head_streams(s) + (s.has_gated_streams() ? 0 : norm) +
           (s.tie_word_embeddings ? 0 : d(s.vocab_size) * h) + (s.head_bias ? d(s.vocab_size) : 0) +
           s.foreign.end_numbers;
  p.mtp_extra = 2 * h * h + 2 * norm + (s.has_gated_streams() ? 0 : norm) + head_streams(s);
  return p;
}

double total_parameters(const Shape& s, bool with_mtp) {
  const Parameters p = parameters_of(s);
  double n = p.embedding + p.head + p.attention * d(s.attention_blocks()) + p.dense * d(s.dense_blocks()) +
             p.moe * d(s.moe_blocks()) + p.mamba * d(s.mamba_blocks());
  if (with_mtp && s.num_nextn_predict_layers > 0) {
    const Parameters of = parameters_of(further_layer(s));
    n += d(s.num_nextn_predict_layers) * (p.mtp_extra + of.attention + (experts_further(s) ? of.moe : of.dense));
  }
  return n;
}

double active_parameters(const Shape& s) {
  if (s.n_routed_experts == 0) return total_parameters(s);
  const Parameters p = parameters_of(s);
  const double idle = p.moe_routed * (1 - s.computing_experts() / d(s.n_routed_experts));
  return total_parameters(s) - idle * d(s.moe_blocks());
}

ForwardFlops forward_flops(const Shape& s, double sequence) {
  ForwardFlops f;
  const double h = d(s.hidden_size), a = d(s.num_attention_heads);
  if (s.is_latent()) {
    f.attention_linear = 2 * mean_over_latents(s, [&](const LatentHeads& b) { return latent_matrices(s, b); });
  } else if (s.is_compressed()) {
    f.attention_linear = 2 * compressed_matrices(s);
  } else {
    f.attention_linear = 2 * h * mean_over_blocks(s, [&](const BlockHeads& b) { return projected_width(s, b); }) +
                         2 * layer_embedding_matrices(s);
  }
  double keys = keys_seen(sequence, 0);
  if (const double part = s.windowed(); part > 0)
    keys = (1 - part) * keys + part * keys_seen(sequence, s.sliding_window, s.window_chunks);
  if (s.is_compressed()) {
    f.attention_linear += 2 * s.indexed() * entry_indexer_matrices(s);
    f.attention_index =
        2 * s.indexed() * keys_seen(sequence, 0) / d(s.sparse_rate) * d(s.index_n_heads * s.index_head_dim);
  } else if (s.selects()) {
    f.attention_index =
        2 * s.indexed() * indexed_keys(s, keys_seen(sequence, 0)) * d(s.index_n_heads * s.index_head_dim);
    f.attention_linear += 2 * s.indexed() * indexer_matrices(s);
  }
  // Queries of so large a part see chosen keys alone.
  const double fewer = s.selecting() * (keys_seen(sequence, 0) - keys_seen(sequence, s.index_topk));
  keys -= fewer;
  const bool cuts = s.sliding_window > 0 && d(s.sliding_window) < sequence;
  if (s.is_latent()) {
    const bool chooses = s.index_stage != IndexStage::dense;
    const auto core = [&](bool windows_alone) {
      return 2 * mean_over_latents(s, [&](const LatentHeads& b) {
               if (windows_alone && b.window == 0) return 0.0;
               const int64_t most = b.chooses && chooses ? s.index_topk : b.window;
               return keys_seen(sequence, most) * b.heads * d(b.width.head() + b.width.value);
             });
    };
    f.attention_core = core(false);
    if (cuts) f.attention_window = core(true);
  } else if (s.is_compressed()) {
    f.attention_core = 4 * compressed_keys(s, sequence) * a * d(s.head_dim);
  } else {
    const auto core = [&](bool windows_alone) {
      return 2 * mean_over_blocks(s, [&](const BlockHeads& b) {
               if (windows_alone && b.window == 0) return 0.0;
               return (keys_seen(sequence, b.window, s.window_chunks) - fewer) * b.heads *
                      (b.width + b.value_width);
             });
    };
    f.attention_core = core(false);
    if (cuts) f.attention_window = core(true);
  }
  if (const double recurrent = s.recurrent(); recurrent > 0) {
    f.recurrence = recurrent * scan_flops(s);
    f.attention_linear = s.attending() * f.attention_linear + recurrent * 2 * recurrent_matrices(s);
    f.attention_core *= s.attending();
    f.attention_index *= s.attending();
  }
  f.dense = (s.has_gated_mlp() ? 6 : 4) * h * mlp_width(s);
  if (s.n_routed_experts > 0) {
    const double width = s.moe_latent_size > 0 ? d(s.moe_latent_size) : h, matrices = s.has_gated_mlp() ? 6 : 4;
    f.moe_routed = matrices * width * s.computing_experts() * d(s.moe_intermediate_size) +
                   (s.moe_latent_size > 0 ? 4 * h * width : 0);
    f.moe_shared = matrices * h * d(s.shared_width());
    f.moe_router = 2 * h * d(s.choices());
  }
  if (s.mamba_blocks() > 0) {
    f.mamba_linear = 2 * recurrent_matrices(s);
    f.mamba_scan = scan_flops(s);
  }
  f.head = 2 * h * d(s.vocab_size);
  f.attention_linear += 2 * s.attending() * gated_norm_matrices(s);
  if (s.n_routed_experts > 0) f.moe_router += 2 * gated_norm_matrices(s);
  if (s.has_streams()) {
    const double map = 2 * stream_matrix(s);
    f.attention_linear += map;
    f.dense += map;
    if (s.n_routed_experts > 0) f.moe_router += map;
    if (s.mamba_blocks() > 0) f.mamba_linear += map;
    const double read = s.has_gated_streams() ? d(2 * s.hyper_connections_rank) : d(s.hyper_connections);
    if (!s.hyper_connections_mean) f.head += 2 * read * d(s.residual_width());
  }
  if (s.has_ngrams())
    f.attention_linear += 2 * ngram_matrices(s) * d(std::ssize(ngram_layers_of(s))) / d(s.num_hidden_layers);
  return f;
}

double training_flops_per_token(const Shape& s, double sequence, bool with_mtp, bool recompute_blocks,
                                bool full_attention) {
  const ForwardFlops f = forward_flops(s, sequence);
  const double attention = f.attention() + (full_attention ? f.attention_core : 0);
  double blocks = attention * d(s.attention_blocks()) + f.dense * d(s.dense_blocks()) +
                  f.moe() * d(s.moe_blocks()) + (f.mamba_linear + f.mamba_scan) * d(s.mamba_blocks());
  double ends = f.head;
  if (with_mtp && s.num_nextn_predict_layers > 0) {
    const ForwardFlops of = forward_flops(further_layer(s), sequence);
    blocks += d(s.num_nextn_predict_layers) * (of.attention() + (full_attention ? of.attention_core : 0) +
                                               (experts_further(s) ? of.moe() : of.dense));
    const double maps = d(1 + std::max<int64_t>(1, s.hyper_connections));  // of the embedding, and of each stream
    ends += d(s.num_nextn_predict_layers) * (2 * maps * d(s.hidden_size) * d(s.hidden_size) + f.head);
  }
  return (recompute_blocks ? 4 : 3) * blocks + 3 * ends;
}

std::string check_shape(const Shape& s) {
  const auto positive = [](int64_t n) { return n > 0 && n <= (int64_t{1} << 24); };
  if (!positive(s.hidden_size)) return "hidden";
  if (s.num_hidden_layers <= 0 || s.num_hidden_layers > 4096) return "layers";
  if (!positive(s.num_attention_heads) || s.num_attention_heads > 65536) return "heads";
  if (!s.is_latent() && (!positive(s.num_key_value_heads) || s.num_key_value_heads > s.num_attention_heads))
    return "kv_heads";
  if (!s.is_latent() && !positive(s.head_dim)) return "head_dim";
  if (s.dense_blocks() > 0 && !positive(s.intermediate_size)) return "ffn";
  if (!positive(s.vocab_size)) return "vocab";
  if (s.n_routed_experts < 0 || s.n_routed_experts > 65536) return "experts";
  if (s.n_routed_experts > 0 && (s.num_experts_per_tok <= 0 || s.num_experts_per_tok > s.choices())) return "topk";
  if (s.n_routed_experts > 0 && !positive(s.moe_intermediate_size)) return "moe_ffn";
  return "";
}

}  // namespace heddle::model
