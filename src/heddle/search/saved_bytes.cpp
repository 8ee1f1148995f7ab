#include "heddle/search/saved_bytes.h"

#include <algorithm>

#include "heddle/search/units.h"

namespace heddle::search {

SavedBytes saved_bytes(const model::Shape& s, const Saving& v, double sequence) {
  const Recompute& r = v.recompute;
  const double h = d(s.hidden_size), a = d(s.num_attention_heads), g = d(s.num_key_value_heads), e = d(s.head_dim),
               t = v.tp;
  const double rows = v.sequence_parallel ? t : 1;   // what norms and residuals are divided by
  const double linear_in = v.narrow_inputs ? 1 : 2;  // bytes an element of a linear's kept input
  const double residual = d(s.residual_width());
  double norm = (2 * residual + (r.has(GroupName::norm) ? 0 : linear_in * h) + (v.dropout ? h : 0)) / rows;
  // The block's output, the map of the streams and the weights that it makes; what the norm reads.
  if (s.has_streams()) {
    const double weights = 4 * d(s.stream_weights());
    norm += (2 * h + weights + (r.has(GroupName::norm) ? 0 : 2 * h + weights)) / rows;
    // The normed streams, the weights of their elements, and the middle of the maps to these.
    if (s.has_gated_streams())
      norm += ((r.has(GroupName::norm) ? 2 : 4) * residual + 6 * d(s.hyper_connections_rank)) / rows;
  }
  SavedBytes b;

  double qkv = 2 * e * (a + 2 * g), latents = 0;
  if (s.is_latent()) {
    const double rq = d(s.q_lora_rank), rkv = d(s.kv_lora_rank), dr = d(s.qk_rope_head_dim);
    latents = 4 * rq + 2 * (rkv + dr) + 2 * rkv;
    if (s.raw_latent_of_queries) latents += 4 * rq;  // both latents side by side
    qkv = 2 * a * (2 * d(s.qk_nope_head_dim + s.qk_rope_head_dim) + d(s.v_head_dim));
    if (s.gate_width() > 0) qkv += 2 * a * d(s.gate_width());
    if (r.has(GroupName::mla_up)) qkv = 0;
    if (s.gate_width() > 0) qkv += 2 * d(s.v_width());  // the output before its gate
    if (s.selects() && !s.selects_blocks()) {
      // Queries, key and weights of an indexer, and 4 bytes a key for what is chosen and for what attention gives
      // it.
      const double index = r.has(GroupName::mla_up) ? 0 : 2 * d((s.index_n_heads + 1) * s.index_head_dim);
      const bool dense = s.index_stage == model::IndexStage::dense;
      const double keys = dense ? sequence : std::min(d(s.index_topk), sequence);
      latents += s.indexed() * (index + 4 * d(s.index_n_heads) + 4 * keys) / rows;
      if (!dense) latents += s.indexed() * 4 * keys * (t > 1 ? 1 + 1 / rows : 1);
    }
  }
  const bool lists = s.index_blocks == model::IndexBlocks::greatest;
  if (s.selects_blocks() && s.index_stage != model::IndexStage::dense) {  // numbers of blocks, in 4 bytes
    const double blocks = std::min(d(s.index_topk), sequence) / d(s.index_block_size);
    latents += s.indexed() * 4 * blocks * (lists ? d(s.index_n_heads) / t : t > 1 ? 1 + 1 / rows : 1);
  }
  if (s.selects() && (s.selects_blocks() || s.is_compressed()) && s.index_stage != model::IndexStage::off) {
    // Queries and weights of the indexer, and 4 bytes for what attention gives each key, entry or block.
    const bool dense = s.index_stage == model::IndexStage::dense;
    const double tokens = s.is_compressed() ? d(s.sparse_rate) : lists ? 1 : d(s.index_block_size);
    const double chosen = d(s.index_topk) / (s.is_compressed() ? 1 : tokens), all = sequence / tokens;
    const double shares = (lists ? d(s.index_n_heads) : 1) * (dense ? all : std::min(chosen, all));
    const double index = r.has(GroupName::mla_up) ? 0 : 2 * d(s.index_n_heads * s.index_head_dim);
    latents += s.indexed() * (index + 4 * d(s.index_n_heads) + 4 * shares) / (lists ? t : rows);
  }
  const double scores = v.fused_attention ? 4 * a : r.has(GroupName::attention) ? 0 : 5 * a * sequence;
  // A gated norm keeps what it makes ahead of its gate, the gate, and the middle of the MLP.
  const double gated = s.gated_norm_rank > 0 ? (4 * h + 4 * d(s.gated_norm_rank)) / rows : 0;
  b.attention = norm + gated + latents + (qkv + linear_in * d(s.v_width()) + scores) / t;
  if (const double recurrent = s.recurrent(); recurrent > 0) {
    // Projections before and after the convolution, two numbers a head, the output before and behind its gate. A
    // decay a channel is kept in 4 bytes, with what it is made of; lightning attention has silu for the
    // convolution.
    const double keys = s.has_states() ? d(s.linear_keys_width()) : 0;
    const double values = s.has_states() ? d(s.linear_values_width()) : h;
    double own = norm + (2 * (4 * keys + 4 * values) + 6 * d(s.linear_num_value_heads) + linear_in * values) / t;
    if (s.recurrence == model::Recurrence::kimi_delta)
      own += 6 * keys / t + (s.linear_full_gates ? 0 : 2 * d(s.linear_key_head_dim + s.linear_value_head_dim));
    b.attention = s.attending() * b.attention + recurrent * own;
    if (s.recurrence_beside_attention) b.attention -= norm;  // both read one
  }

  const double f = d(s.intermediate_size);
  b.dense = norm + (r.has(GroupName::mlp)
                        ? 0
                        : (s.has_gated_mlp() ? 4 : 2) * f + (r.has(GroupName::activation) ? 0 : linear_in * f)) /
                       t;

  if (s.n_routed_experts > 0) {
    const double k = s.computing_experts(), fe = d(s.moe_intermediate_size), fs = d(s.shared_width());
    const double width = s.moe_latent_size > 0 ? d(s.moe_latent_size) : h;
    const double up = (s.has_gated_mlp() ? 4 : 2) * (v.narrow_gates && v.narrow_inputs ? 0.5 : 1);
    // A rank keeps the rows it received: those of its own tokens on average, gathered over its expert tensor ranks.
    const double received = v.imbalance * v.etp / rows;
    b.moe = norm + gated + 9 * d(s.choices()) / rows;
    if (s.experts_sum_norm) b.moe += 2 * h / rows;
    if (!r.has(GroupName::moe)) {
      b.moe += received * (linear_in * k * width +
                           (up * k * fe + (r.has(GroupName::activation) ? 0 : linear_in * k * fe)) / v.etp +
                           (v.gates_before_down ? 0 : 2 * k * width));
      b.moe += (up * fs + (r.has(GroupName::activation) ? 0 : linear_in * fs)) / t;
      if (fs > 0 && t > 1) b.moe += 2 * h;
      if (s.moe_latent_size > 0) b.moe += 4 * width / rows;
    }
  }

  if (s.mamba_blocks() > 0) {
    const double inner = d(s.linear_values_width()), bc = 2 * d(s.linear_keys_width());
    // z, x, B, C, dt before and after the convolution, the states of each chunk, the gated output.
    constexpr double kChunk = 128;
    b.mamba = norm + (2 * (3 * inner + 2 * bc + d(s.linear_num_value_heads)) +
                      4 * inner * d(s.linear_key_head_dim) / kChunk + linear_in * inner) /
                         t;
  }

  if (r.has(GroupName::layer)) {
    // One input a layer; in a hybrid every block is a layer.
    const double kept = 2 * residual / rows, q = r.every;
    b.attention = q * kept + (1 - q) * b.attention;
    b.dense = q * (s.is_hybrid() ? kept : 0) + (1 - q) * b.dense;
    b.moe = q * (s.is_hybrid() ? kept : 0) + (1 - q) * b.moe;
    b.mamba = q * kept + (1 - q) * b.mamba;
  }
  return b;
}

double head_bytes(const model::Shape& s, double tp, bool fused_loss) {
  return (fused_loss ? 2 : 6) * d(s.vocab_size) / tp;
}

double static_bytes_per_parameter(double weight_bytes, double gradient_bytes, double state_bytes, double shards) {
  return weight_bytes + gradient_bytes + state_bytes / shards;
}

}  // namespace heddle::search
