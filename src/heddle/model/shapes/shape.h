// A model as search and prediction see it: the engine's configuration, a name, and what Heddle has no key for. What
// follows from its sizes in closed form: parameters, FLOPs of a token.
//
// A model is counted in blocks, each with its norm: attention, dense feed-forward, mixture of experts, Mamba-2. The
// usual transformer has `num_hidden_layers` attention blocks and as many feed-forward blocks; a hybrid has one
// block a layer, by its pattern.
//
// FLOPs follow the vendors' convention for "model FLOPs": 2 a multiply-add, backward twice the forward, causal
// attention at half of the square, head and multi-token prediction counted, embedding look-ups, norms and
// recomputation not.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/model/model_config.h"

namespace heddle::model {

/// Parts of published models that no key of ModelConfig states. Heddle predicts such models and does not train
/// them.
struct Foreign {
  bool alibi = false;           // positions as a bias on the scores
  bool embedding_norm = false;  // a norm after the embedding
  double layer_numbers = 0;     // parameters of a layer beside what the keys say; below 0: it lacks some
  double end_numbers = 0;       // likewise of embedding, head and their norms
  /// True if the count of parameters has a part whose use is not known.
  bool has_numbers() const { return layer_numbers != 0 || end_numbers != 0; }
  bool operator==(const Foreign&) const = default;
};

struct Shape : ModelConfig {
  std::string name;
  Foreign foreign;

  /// A model of no size, with grouped attention and without experts.
  Shape();

  bool has_experts() const { return n_routed_experts > 0; }
  bool has_norm_bias() const { return norm == Norm::layer && norm_bias; }
  bool has_qkv_bias() const { return attention_bias != AttentionBias::none; }
  bool has_output_bias() const { return attention_bias == AttentionBias::all; }
  /// Positions of the learned table; 0: there is none.
  int64_t learned_positions() const { return learns_positions() ? max_position_embeddings : 0; }
  /// Groups of experts that a token may reach, which stand for nodes; 0: any.
  int64_t reachable_groups() const { return n_group > 1 ? topk_group : 0; }
  /// Experts with computation among those that a token chooses, on average.
  double computing_experts() const {
    return static_cast<double>(num_experts_per_tok * n_routed_experts) / static_cast<double>(choices());
  }
  /// Part of the layers whose attention has a window.
  double windowed() const;
  /// Part of the layers with attention that have an indexer.
  double indexed() const;
  /// The share of the layers with attention that attends to chosen keys.
  double selecting() const;
  /// Part of the layers that have a recurrence instead of attention; 0 of a hybrid.
  double recurrent() const;
  /// The share of the layers that have attention, in a model whose layers have two blocks or more.
  double attending() const { return recurrence_beside_attention ? 1 : 1 - recurrent(); }

  /// Sets the width of all shared experts. The width of one expert must be set before.
  void set_shared_width(int64_t width);
  /// Gives queries, keys and values latents (DeepSeek-V2, arXiv 2405.04434). q_rank 0: queries have none.
  void set_latent(int64_t q_rank, int64_t kv_rank, int64_t nope_dim, int64_t rope_dim, int64_t v_dim);
  /// Takes the experts away.
  void drop_experts();

  int64_t attention_blocks() const;
  int64_t dense_blocks() const;
  int64_t moe_blocks() const;
  int64_t mamba_blocks() const { return count_of(Block::recurrence); }
  int64_t q_width() const;  // of all heads' queries, a mean over the blocks
  int64_t v_width() const;  // of all heads' outputs, likewise
  bool operator==(const Shape&) const = default;

 private:
  int64_t count_of(Block block) const;  // in the pattern
  int64_t layers_with_experts() const;  // by model.mlp_pattern
};

/// A model that Heddle trains. Keys that it does not use are those of Shape().
Shape shape_of(const ModelConfig& config, std::string name);

/// Parameters of one block with its norm, and of the ends of the model.
struct Parameters {
  double attention = 0;  // a mean over the blocks
  double dense = 0, moe = 0, mamba = 0;
  double moe_routed = 0;  // the part of `moe` that expert parallelism spreads
  double embedding = 0;   // with position embeddings and its norm
  double head = 0;        // 0 when tied; the final norm is counted here
  double mtp_extra = 0;   // of one depth beside its block: projection and norms
};
Parameters parameters_of(const Shape& shape);
/// All of them, with or without multi-token prediction. A tied matrix counts once.
double total_parameters(const Shape& shape, bool with_mtp = false);
/// The parameters that a token passes through.
double active_parameters(const Shape& shape);

/// Forward FLOPs of a token in one block of each kind.
struct ForwardFlops {
  double attention_linear = 0;  // projections, a mean over the blocks
  double attention_core = 0;    // causal: half of the square; what windows and an indexer leave of it
  double attention_window = 0;  // the part of it that windows limit
  double attention_index = 0;   // scores of an indexer
  double recurrence = 0;        // instead of attention
  double dense = 0;
  double moe_routed = 0, moe_shared = 0, moe_router = 0;
  double mamba_linear = 0, mamba_scan = 0;
  double head = 0;
  double moe() const { return moe_routed + moe_shared + moe_router; }
  double attention() const { return attention_linear + attention_core + attention_index + recurrence; }
};
ForwardFlops forward_flops(const Shape& shape, double sequence);
/// Training FLOPs of a token, by the convention above. `recompute_blocks` adds one more forward of every block, and
/// `full_attention` counts the whole square: together they are "hardware FLOPs" as Megatron-LM's 2021 paper counts.
double training_flops_per_token(const Shape& shape, double sequence, bool with_mtp = true,
                                bool recompute_blocks = false, bool full_attention = false);

/// "" when the numbers describe a model, else the first thing that is wrong.
std::string check_shape(const Shape& shape);

}  // namespace heddle::model
