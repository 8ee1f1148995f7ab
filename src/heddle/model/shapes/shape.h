// The dimensions of a transformer as plain numbers, and what follows from them in closed form: parameters, FLOPs of
// a token. Wider than ModelConfig: it describes models that Heddle predicts, not only those that it trains.
//
// A model is counted in blocks, each with its norm: attention, dense feed-forward, mixture of experts, Mamba-2. The
// usual transformer has `layers` attention blocks and as many feed-forward blocks; a hybrid says its counts.
//
// FLOPs follow the vendors' convention for "model FLOPs": 2 a multiply-add, backward twice the forward, causal
// attention at half of the square, head and multi-token prediction counted, embedding look-ups, norms and
// recomputation not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "heddle/model/dispatcher.h"

namespace heddle::model {

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434); kv_rank 0: ordinary attention.
struct LatentAttention {
  int64_t q_rank = 0;  // 0: queries are projected directly
  int64_t kv_rank = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

/// Experts of a mixture block; count 0: the model has none.
struct Experts {
  int64_t count = 0;
  int64_t chosen = 0;      // of a token
  int64_t ffn = 0;         // width of one expert
  int64_t shared_ffn = 0;  // width of all shared experts together
  bool gated = true;       // SwiGLU: three matrices; otherwise two
  bool bias = false;       // of the experts' linears
  bool router_bias = false;
  int64_t most_nodes = 0;    // routing sends a token to experts of at most so many nodes; 0: of any
  int64_t groups = 0;        // of experts, of which a token reaches `most_nodes`; 0: routing knows no groups
  double gate_scale = 1;     // factor on the gates; it takes no time, and is told to other trainers
  bool normed_gates = true;  // the gates of the chosen experts sum to one before that
  bool shared_gate = false;  // a scalar gate on the shared experts
  int64_t latent = 0;        // routed experts work at this width instead of hidden, between two projections
  double capacity = 0;       // places of an expert over its even share of rows (moe.capacity_factor); 0: any number
  int replicas = 0;  // slots of a rank for copies of hot experts (moe.replicas), Dispatcher::kReplicasByCost
  int copies() const { return capacity > 0 ? 0 : Dispatcher{.replicas = replicas}.copies(); }
  /// Rows of the fullest rank over the mean, where by routing alone they are `imbalance`. With a capacity every
  /// rank computes all places, filled or not: no more of an expert than there are tokens.
  double fullest(double imbalance) const {
    return capacity > 0 ? std::min(capacity, static_cast<double>(count) / static_cast<double>(chosen)) : imbalance;
  }
  bool operator==(const Experts&) const = default;
};

/// Mamba-2 mixer (arXiv 2405.21060); heads 0: the model has none.
struct Mamba {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t state = 0;
  int64_t groups = 0;
  int64_t conv = 4;
  int64_t chunk = 128;  // positions of a chunk of the scan
  bool operator==(const Mamba&) const = default;
};

struct Shape {
  std::string name;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;  // of dense blocks
  int64_t vocab = 0;
  int64_t dense_layers = 0;  // leading layers with a dense feed-forward block where the others have experts
  int64_t mtp = 0;           // depths of multi-token prediction

  bool gated = true;  // SwiGLU
  bool tied = false;  // embedding and head are one matrix
  bool qkv_bias = false;
  bool out_bias = false;  // of the attention's output projection
  bool ffn_bias = false;
  bool norm_bias = false;  // LayerNorm with a bias
  bool qk_norm = false;
  bool sinks = false;  // a learned logit per head
  bool embedding_norm = false;
  int64_t positions = 0;  // learned position embeddings
  bool alibi = false;     // positions as a bias on the scores
  int64_t window = 0;     // sliding window of every second attention block; 0: none

  LatentAttention mla;
  Experts moe;
  Mamba mamba;
  // Hybrids only: how many of `layers` blocks are of each kind. All 0: the usual transformer.
  int64_t hybrid_attention = 0, hybrid_moe = 0, hybrid_mamba = 0, hybrid_dense = 0;

  bool is_mla() const { return mla.kv_rank > 0; }
  bool is_hybrid() const { return hybrid_attention + hybrid_moe + hybrid_mamba + hybrid_dense > 0; }
  int64_t attention_blocks() const;
  int64_t dense_blocks() const;
  int64_t moe_blocks() const;
  int64_t mamba_blocks() const { return hybrid_mamba; }
  int64_t q_width() const;  // of all heads' queries
  int64_t v_width() const;  // of all heads' outputs
  bool operator==(const Shape&) const = default;
};

/// Parameters of one block with its norm, and of the ends of the model.
struct Parameters {
  double attention = 0, dense = 0, moe = 0, mamba = 0;
  double moe_routed = 0;  // the part of `moe` that expert parallelism spreads
  double embedding = 0;   // with position embeddings and its norm
  double head = 0;        // 0 when tied; the final norm is counted here
  double mtp_extra = 0;   // of one depth beside its block: projection and norms
};
Parameters parameters_of(const Shape& shape);
/// All of them, with or without multi-token prediction. A tied matrix counts once.
double total_parameters(const Shape& shape, bool with_mtp = false);
/// Those that a token passes through.
double active_parameters(const Shape& shape);

/// Forward FLOPs of a token in one block of each kind.
struct ForwardFlops {
  double attention_linear = 0;  // projections
  double attention_core = 0;    // causal: half of the square
  double dense = 0;
  double moe_routed = 0, moe_shared = 0, moe_router = 0;
  double mamba_linear = 0, mamba_scan = 0;
  double head = 0;
  double moe() const { return moe_routed + moe_shared + moe_router; }
  double attention() const { return attention_linear + attention_core; }
};
ForwardFlops forward_flops(const Shape& shape, double sequence);
/// Training FLOPs of a token, by the convention above. `recompute_blocks` adds one more forward of every block, and
/// `full_attention` counts the whole square: together they are "hardware FLOPs" as Megatron-LM's 2021 paper counts.
double training_flops_per_token(const Shape& shape, double sequence, bool with_mtp = true,
                                bool recompute_blocks = false, bool full_attention = false);

/// "" when the numbers describe a model, else the first thing that is wrong.
std::string check_shape(const Shape& shape);

}  // namespace heddle::model
