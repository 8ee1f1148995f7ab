#include "heddle/model/shapes/saved_bytes.h"

namespace heddle::model {

namespace {
double d(int64_t n) { return static_cast<double>(n); }
}  // namespace

SavedBytes saved_bytes(const Shape& s, const Saving& v, double sequence) {
  const Recompute& r = v.recompute;
  const double h = d(s.hidden), a = d(s.heads), g = d(s.kv_heads), e = d(s.head_dim), t = v.tp;
  const double rows = v.sequence_parallel ? t : 1;   // what norms and residuals are divided by
  const double linear_in = v.narrow_inputs ? 1 : 2;  // bytes an element of a linear's kept input
  const double norm = (2 * h + (r.norms ? 0 : linear_in * h) + (v.dropout ? h : 0)) / rows;
  SavedBytes b;

  double qkv = 2 * e * (a + 2 * g), latents = 0;
  if (s.is_mla()) {
    const double rq = d(s.mla.q_rank), rkv = d(s.mla.kv_rank), dr = d(s.mla.rope_dim);
    latents = 4 * rq + 2 * (rkv + dr) + 2 * rkv;
    qkv = 2 * a * (2 * d(s.mla.nope_dim + s.mla.rope_dim) + d(s.mla.v_dim));
    if (r.latent_up) qkv = 0;
  }
  const double scores = v.fused_attention ? 4 * a : r.scores ? 0 : 5 * a * sequence;
  b.attention = norm + latents + (qkv + linear_in * d(s.v_width()) + scores) / t;

  const double f = d(s.ffn);
  b.dense = norm + (r.dense ? 0 : (s.gated ? 4 : 2) * f + (r.activations ? 0 : linear_in * f)) / t;

  if (s.moe.count > 0) {
    const double k = d(s.moe.chosen), fe = d(s.moe.ffn), fs = d(s.moe.shared_ffn);
    const double width = s.moe.latent > 0 ? d(s.moe.latent) : h;
    const double up = (s.moe.gated ? 4 : 2) * (v.narrow_gates && v.narrow_inputs ? 0.5 : 1);
    // A rank keeps the rows it received: those of its own tokens on average, gathered over its expert tensor ranks.
    const double received = s.moe.fullest(v.imbalance) * v.etp / rows;
    b.moe = norm + 9 * d(s.moe.count) / rows;
    if (!r.experts) {
      b.moe +=
          received * (linear_in * k * width + (up * k * fe + (r.activations ? 0 : linear_in * k * fe)) / v.etp +
                      (v.gates_before_down ? 0 : 2 * k * width));
      b.moe += (up * fs + (r.activations ? 0 : linear_in * fs)) / t;
      if (fs > 0 && t > 1) b.moe += 2 * h;
      if (s.moe.latent > 0) b.moe += 4 * width / rows;
    }
  }

  if (s.mamba.heads > 0) {
    const double inner = d(s.mamba.heads * s.mamba.head_dim), bc = 2 * d(s.mamba.groups * s.mamba.state);
    // z, x, B, C, dt before and after the convolution, the states of each chunk, the gated output.
    b.mamba = norm + (2 * (3 * inner + 2 * bc + d(s.mamba.heads)) +
                      4 * inner * d(s.mamba.state) / d(s.mamba.chunk) + linear_in * inner) /
                         t;
  }

  if (r.full) {
    // One input a layer; in a hybrid every block is a layer.
    const double kept = 2 * h / rows, q = r.every;
    b.attention = q * kept + (1 - q) * b.attention;
    b.dense = q * (s.is_hybrid() ? kept : 0) + (1 - q) * b.dense;
    b.moe = q * (s.is_hybrid() ? kept : 0) + (1 - q) * b.moe;
    b.mamba = q * kept + (1 - q) * b.mamba;
  }
  return b;
}

double head_bytes(const Shape& s, double tp, bool fused_loss) { return (fused_loss ? 2 : 6) * d(s.vocab) / tp; }

double static_bytes_per_parameter(double weight_bytes, double gradient_bytes, double state_bytes, double shards) {
  return weight_bytes + gradient_bytes + state_bytes / shards;
}

}  // namespace heddle::model
