#include "heddle/model/shapes/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace heddle::model {

namespace {

double d(int64_t n) { return static_cast<double>(n); }

// Mean number of keys a query sees.
double keys_seen(double sequence, int64_t window) {
  const double w = d(window);
  if (window <= 0 || w >= sequence) return sequence / 2;
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

// Returns the mean of `of` over the attention blocks, with and without a window.
template <class Of>
double mean_over_blocks(const Shape& s, Of of) {
  if (s.sliding_window == 0 && s.shared_key_value_layers == 0) return of(heads_of_block(s, 0));
  double sum = 0;
  for (int64_t layer = 0; layer < s.num_hidden_layers; ++layer) sum += of(heads_of_block(s, layer));
  return sum / d(std::max<int64_t>(1, s.num_hidden_layers));
}

double mlp_width(const Shape& s) {
  if (s.sharing_intermediate_size == 0) return d(s.intermediate_size);
  double sum = 0;
  for (int64_t layer = 0; layer < s.num_hidden_layers; ++layer) sum += d(s.mlp_width_of(layer));
  return sum / d(std::max<int64_t>(1, s.num_hidden_layers));
}

// A layer's maps from the stream to its own embedding and back.
double layer_embedding_matrices(const Shape& s) { return 2 * d(s.hidden_size) * d(s.layer_embedding_size); }

// Numbers of the gate of a head's output.
double gate_width(const Shape& s) {
  if (s.is_latent() || s.attention_gate == AttentionGate::none) return 0;
  return s.attention_gate == AttentionGate::head ? 1 : d(s.value_width());
}

// Columns that a block's heads project from the stream and back to it.
double projected_width(const Shape& s, const BlockHeads& b) {
  return b.heads * (b.width + b.value_width + gate_width(s)) +
         b.kv_heads * (b.keys * b.width + b.values * b.value_width);
}

double block_norms(const Shape& s) { return norm_parameters(s) * (s.norm_places == NormPlaces::both ? 2 : 1); }

// The maps of streams to weights: a block's, with base and scales; and the head's.
double stream_matrix(const Shape& s) {
  const double n = d(s.hyper_connections);
  return n * (2 + n) * d(s.residual_width());
}
double block_streams(const Shape& s) {
  const double n = d(s.hyper_connections);
  return s.has_streams() ? stream_matrix(s) + n * (2 + n) + 3 : 0;
}
double head_streams(const Shape& s) {
  const double n = d(s.hyper_connections);
  return s.has_streams() ? n * d(s.residual_width()) + n + 1 : 0;
}

// A block's norms, and the weights of its streams.
double around_block(const Shape& s) { return block_norms(s) + block_streams(s); }

constexpr double kScanChunk = 64, kMambaChunk = 128;  // positions of a chunk of a recurrence

// Projections of a recurrent layer: queries, keys, values, gate, output. The gated delta rule has two numbers a
// head too, Mamba-2 one. Kimi Delta Attention has one, a decay a channel of a key, and maps of decay and gate with
// a middle of a head.
double recurrent_matrices(const Shape& s) {
  const double h = d(s.hidden_size), keys = d(s.linear_keys_width()), values = d(s.linear_values_width());
  const double heads = d(s.linear_num_value_heads), most = h * (2 * keys + values) + values * h;
  switch (s.recurrence) {
    case Recurrence::kimi_delta:
      return most + h * heads + (h + keys) * d(s.linear_key_head_dim) + (h + values) * d(s.linear_value_head_dim);
    case Recurrence::gated_delta: return most + h * (values + 2 * heads);
    case Recurrence::mamba2: return most + h * (values + heads);
    case Recurrence::lightning:
    case Recurrence::none: break;
  }
  return most + h * values;
}

double recurrent_parameters(const Shape& s) {
  const double n = around_block(s) + recurrent_matrices(s), keys = d(s.linear_keys_width());
  const double values = d(s.linear_values_width()), heads = d(s.linear_num_value_heads);
  if (s.recurrence == Recurrence::lightning) return n + values;
  if (s.recurrence == Recurrence::mamba2)
    return n + (d(s.linear_conv_kernel_dim) + 1) * (2 * keys + values) + 3 * heads + values;
  const double decays = s.recurrence == Recurrence::kimi_delta ? keys : heads;
  return n + d(s.linear_conv_kernel_dim) * (2 * keys + values) + heads + decays + d(s.linear_value_head_dim);
}

// Forward FLOPs of a token in a recurrence. Within a chunk: keys with keys by the delta rule, queries with keys,
// and what they make times values. Between chunks: a state of each head is made, corrected and read. Heads of a
// group of Mamba-2 share scores, and its chunks are as long as its own kernels have them.
double scan_flops(const Shape& s) {
  const double heads = d(s.linear_num_value_heads), dk = d(s.linear_key_head_dim), dv = d(s.linear_value_head_dim);
  if (s.recurrence == Recurrence::mamba2)
    return kMambaChunk * (d(s.linear_keys_width()) + heads * dv) + 4 * heads * dv * dk;
  const bool corrects = s.recurrence != Recurrence::lightning;
  return heads * ((corrects ? 2 : 1) * kScanChunk * (dk + dv) + (corrects ? 6 : 4) * dk * dv);
}

// An indexer's queries from the latent, its keys and its weights of heads.
double indexer_matrices(const Shape& s) {
  const double from = d(s.q_lora_rank > 0 ? s.q_lora_rank : s.hidden_size);
  return from * d(s.index_n_heads * s.index_head_dim) + d(s.hidden_size) * d(s.index_head_dim + s.index_n_heads);
}

double indexer_parameters(const Shape& s) { return indexer_matrices(s) + 2 * d(s.index_head_dim); }

// How large a part of the layers is of a kind of compressed attention.
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
  return keys_seen(sequence, s.sliding_window) +
         part_of_layers(s, Compression::sparse) * entries(s.sparse_rate, s.index_topk) +
         part_of_layers(s, Compression::heavy) * entries(s.heavy_rate, 0);
}

double attention_parameters(const Shape& s) {
  const double h = d(s.hidden_size), a = d(s.num_attention_heads);
  double n = around_block(s);
  if (s.is_compressed()) return n + compressed_parameters(s);
  if (s.is_latent()) {
    const double rq = d(s.q_lora_rank), rkv = d(s.kv_lora_rank), rope = d(s.qk_rope_head_dim);
    n += rq > 0 ? h * rq + rq + rq * d(s.q_width()) : h * d(s.q_width());
    n += h * (rkv + rope) + rkv + rkv * a * d(s.qk_nope_head_dim + s.v_head_dim) + d(s.v_width()) * h;
    return n + s.indexed() * indexer_parameters(s);
  }
  n += mean_over_blocks(s, [&](const BlockHeads& b) {
    const double keys = b.keys * b.kv_heads * b.width;
    double m = h * projected_width(s, b) + (b.sinks ? b.heads : 0);
    if (s.has_qkv_bias()) m += b.heads * b.width + keys + b.values * b.kv_heads * b.value_width;
    if (s.qk_norm) m += s.qk_norm_all_heads ? b.heads * b.width + keys : (1 + b.keys) * b.width;
    return m;
  });
  if (s.has_output_bias()) n += h;
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
    s.attention_sinks = none.attention_sinks;
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
  int64_t layers = 0;
  for (int64_t layer = 0; layer < num_hidden_layers; ++layer) layers += has_indexer(layer) ? 1 : 0;
  return d(layers) / d(std::max<int64_t>(1, num_hidden_layers));
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
  sparse_mixer = shortcut_experts = expert_norms = expert_scales = false;
  zero_expert_num = num_hash_layers = 0;
  routed_scaling_factor = 1;
}

int64_t Shape::count_of(Block block) const {
  return std::count(hybrid_override_pattern.begin(), hybrid_override_pattern.end(), static_cast<char>(block));
}

int64_t Shape::attention_blocks() const { return is_hybrid() ? count_of(Block::attention) : num_hidden_layers; }
int64_t Shape::dense_blocks() const {
  if (is_hybrid()) return count_of(Block::mlp);
  if (shortcut_experts) return num_hidden_layers;
  return has_experts() ? std::min(first_k_dense_replace, num_hidden_layers) : num_hidden_layers;
}
int64_t Shape::moe_blocks() const {
  if (shortcut_experts) return num_hidden_layers / 2;
  return is_hybrid() ? count_of(Block::experts) : has_experts() ? num_hidden_layers - dense_blocks() : 0;
}
int64_t Shape::q_width() const {
  if (is_latent()) return num_attention_heads * qk_head_dim();
  return std::lround(mean_over_blocks(*this, [](const BlockHeads& b) { return b.heads * b.width; }));
}
int64_t Shape::v_width() const {
  if (is_latent()) return num_attention_heads * v_head_dim;
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
}  // namespace

Parameters parameters_of(const Shape& s) {
  Parameters p;
  const double h = d(s.hidden_size), norm = norm_parameters(s);
  const double recurrent = s.recurrent();
  p.attention =
      (1 - recurrent) * attention_parameters(s) + recurrent * recurrent_parameters(s) + s.foreign.layer_numbers;
  p.dense = around_block(s) + ffn_parameters(h, mlp_width(s), s.has_gated_mlp(), s.mlp_bias);
  if (s.n_routed_experts > 0) {
    const double width = s.moe_latent_size > 0 ? d(s.moe_latent_size) : h;
    p.moe_routed = d(s.n_routed_experts) *
                   ffn_parameters(width, d(s.moe_intermediate_size), s.has_gated_mlp(), s.experts_bias);
    const double choices = d(s.choices());
    p.moe = (s.shortcut_experts ? 0 : around_block(s)) + p.moe_routed + h * choices + choice_biases(s) +
            (s.router_bias ? choices : 0) + (s.shared_expert_gate ? h : 0);
    if (s.moe_latent_size > 0) p.moe += 2 * h * width;
    if (s.expert_scales) p.moe += choices;
    if (s.expert_norms) p.moe += h + (s.shared_width() > 0 ? 3 : 2) * norm;
    if (s.shared_width() > 0) p.moe += ffn_parameters(h, d(s.shared_width()), s.has_gated_mlp(), s.experts_bias);
  }
  if (s.mamba_blocks() > 0) p.mamba = recurrent_parameters(s);
  p.embedding = d(s.vocab_size) * h + d(s.learned_positions()) * h + (s.foreign.embedding_norm ? norm : 0);
  if (const double each = d(s.layer_embedding_size * s.num_hidden_layers); each > 0)
    p.embedding += (d(s.vocab_size) + h) * each + d(s.layer_embedding_size);
  p.head = head_streams(s) + norm + (s.tie_word_embeddings ? 0 : d(s.vocab_size) * h) +
           (s.head_bias ? d(s.vocab_size) : 0) + s.foreign.end_numbers;
  p.mtp_extra = 2 * h * h + 3 * norm;
  return p;
}

double total_parameters(const Shape& s, bool with_mtp) {
  const Parameters p = parameters_of(s);
  double n = p.embedding + p.head + p.attention * d(s.attention_blocks()) + p.dense * d(s.dense_blocks()) +
             p.moe * d(s.moe_blocks()) + p.mamba * d(s.mamba_blocks());
  if (with_mtp) {
    const double own_indexer = s.selects() ? (1 - s.indexed()) * indexer_parameters(s) : 0;  // beside the mean's
    n += d(s.num_nextn_predict_layers) *
         (p.mtp_extra + attention_parameters(s) + own_indexer + (s.n_routed_experts > 0 ? p.moe : p.dense));
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
  const double h = d(s.hidden_size), a = d(s.num_attention_heads), qk_dim = d(s.qk_head_dim()),
               v_dim = d(s.v_head_dim);
  if (s.is_latent()) {
    const double rq = d(s.q_lora_rank), rkv = d(s.kv_lora_rank);
    const double q = rq > 0 ? h * rq + rq * d(s.q_width()) : h * d(s.q_width());
    f.attention_linear = 2 * (q + h * (rkv + d(s.qk_rope_head_dim)) +
                              rkv * a * d(s.qk_nope_head_dim + s.v_head_dim) + d(s.v_width()) * h);
  } else if (s.is_compressed()) {
    f.attention_linear = 2 * compressed_matrices(s);
  } else {
    f.attention_linear = 2 * h * mean_over_blocks(s, [&](const BlockHeads& b) { return projected_width(s, b); }) +
                         2 * layer_embedding_matrices(s);
  }
  double keys = keys_seen(sequence, 0);
  if (const double part = s.windowed(); part > 0)
    keys = (1 - part) * keys + part * keys_seen(sequence, s.sliding_window);
  if (s.is_compressed()) {
    f.attention_linear += 2 * s.indexed() * entry_indexer_matrices(s);
    f.attention_index =
        2 * s.indexed() * keys_seen(sequence, 0) / d(s.sparse_rate) * d(s.index_n_heads * s.index_head_dim);
  } else if (s.selects()) {
    f.attention_index = 2 * s.indexed() * keys * d(s.index_n_heads * s.index_head_dim);
    f.attention_linear += 2 * s.indexed() * indexer_matrices(s);
    if (s.index_stage != IndexStage::dense) keys = keys_seen(sequence, s.index_topk);
  }
  const bool cuts = s.sliding_window > 0 && d(s.sliding_window) < sequence;
  if (s.is_latent()) {
    f.attention_core = 2 * keys * a * (qk_dim + v_dim);
    if (cuts) f.attention_window = 2 * s.windowed() * keys_seen(sequence, s.sliding_window) * a * (qk_dim + v_dim);
  } else if (s.is_compressed()) {
    f.attention_core = 4 * compressed_keys(s, sequence) * a * d(s.head_dim);
  } else {
    const auto core = [&](bool windows_alone) {
      return 2 * mean_over_blocks(s, [&](const BlockHeads& b) {
               if (windows_alone && b.window == 0) return 0.0;
               return keys_seen(sequence, b.window) * b.heads * (b.width + b.value_width);
             });
    };
    f.attention_core = core(false);
    if (cuts) f.attention_window = core(true);
  }
  if (const double recurrent = s.recurrent(); recurrent > 0) {
    f.recurrence = recurrent * scan_flops(s);
    f.attention_linear = (1 - recurrent) * f.attention_linear + recurrent * 2 * recurrent_matrices(s);
    f.attention_core *= 1 - recurrent;
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
  if (s.has_streams()) {
    const double map = 2 * stream_matrix(s);
    f.attention_linear += map;
    f.dense += map;
    if (s.n_routed_experts > 0) f.moe_router += map;
    if (s.mamba_blocks() > 0) f.mamba_linear += map;
    f.head += 2 * d(s.hyper_connections) * d(s.residual_width());
  }
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
    blocks += d(s.num_nextn_predict_layers) * (attention + (s.n_routed_experts > 0 ? f.moe() : f.dense));
    ends += d(s.num_nextn_predict_layers) * (4 * d(s.hidden_size) * d(s.hidden_size) + f.head);
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
