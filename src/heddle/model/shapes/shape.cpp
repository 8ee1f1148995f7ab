#include "heddle/model/shapes/shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::model {

namespace {

double d(int64_t n) { return static_cast<double>(n); }

// Mean number of keys a query sees.
double keys_seen(double sequence, int64_t window) {
  const double w = d(window);
  if (window <= 0 || w >= sequence) return sequence / 2;
  return w - w * w / (2 * sequence);
}

double norm_parameters(const Shape& s) { return d(s.hidden) * (s.norm_bias ? 2 : 1); }

double attention_parameters(const Shape& s) {
  const double h = d(s.hidden), a = d(s.heads), g = d(s.kv_heads), e = d(s.head_dim);
  double n = norm_parameters(s);
  if (s.is_mla()) {
    const double rq = d(s.mla.q_rank), rkv = d(s.mla.kv_rank), rope = d(s.mla.rope_dim);
    n += rq > 0 ? h * rq + rq + rq * d(s.q_width()) : h * d(s.q_width());
    n += h * (rkv + rope) + rkv + rkv * a * d(s.mla.nope_dim + s.mla.v_dim) + d(s.v_width()) * h;
    return n;
  }
  n += h * e * (2 * a + 2 * g);
  if (s.qkv_bias) n += e * (a + 2 * g);
  if (s.out_bias) n += h;
  if (s.qk_norm) n += 2 * e;
  if (s.sinks) n += a;
  return n;
}

double ffn_parameters(double h, double f, bool gated, bool bias) {
  return (gated ? 3 : 2) * h * f + (bias ? (gated ? 2 : 1) * f + h : 0);
}

}  // namespace

int64_t Shape::attention_blocks() const { return is_hybrid() ? hybrid_attention : layers; }
int64_t Shape::dense_blocks() const {
  if (is_hybrid()) return hybrid_dense;
  return moe.count > 0 ? std::min(dense_layers, layers) : layers;
}
int64_t Shape::moe_blocks() const { return is_hybrid() ? hybrid_moe : moe.count > 0 ? layers - dense_blocks() : 0; }
int64_t Shape::q_width() const { return heads * (is_mla() ? mla.nope_dim + mla.rope_dim : head_dim); }
int64_t Shape::v_width() const { return heads * (is_mla() ? mla.v_dim : head_dim); }

Parameters parameters_of(const Shape& s) {
  Parameters p;
  const double h = d(s.hidden), norm = norm_parameters(s);
  p.attention = attention_parameters(s);
  p.dense = norm + ffn_parameters(h, d(s.ffn), s.gated, s.ffn_bias);
  if (s.moe.count > 0) {
    const Experts& m = s.moe;
    const double width = m.latent > 0 ? d(m.latent) : h;
    p.moe_routed = d(m.count) * ffn_parameters(width, d(m.ffn), m.gated, m.bias);
    p.moe = norm + p.moe_routed + h * d(m.count) + (m.router_bias ? d(m.count) : 0) + (m.shared_gate ? h : 0);
    if (m.latent > 0) p.moe += 2 * h * width;
    if (m.shared_ffn > 0) p.moe += ffn_parameters(h, d(m.shared_ffn), m.gated, m.bias);
  }
  if (s.mamba.heads > 0) {
    const double inner = d(s.mamba.heads * s.mamba.head_dim), bc = 2 * d(s.mamba.groups * s.mamba.state);
    p.mamba = norm + h * (2 * inner + bc + d(s.mamba.heads)) + (d(s.mamba.conv) + 1) * (inner + bc) +
              3 * d(s.mamba.heads) + inner + inner * h;
  }
  p.embedding = d(s.vocab) * h + d(s.positions) * h + (s.embedding_norm ? norm : 0);
  p.head = norm + (s.tied ? 0 : d(s.vocab) * h);
  p.mtp_extra = 2 * h * h + 3 * norm;
  return p;
}

double total_parameters(const Shape& s, bool with_mtp) {
  const Parameters p = parameters_of(s);
  double n = p.embedding + p.head + p.attention * d(s.attention_blocks()) + p.dense * d(s.dense_blocks()) +
             p.moe * d(s.moe_blocks()) + p.mamba * d(s.mamba_blocks());
  if (with_mtp) n += d(s.mtp) * (p.mtp_extra + p.attention + (s.moe.count > 0 ? p.moe : p.dense));
  return n;
}

double active_parameters(const Shape& s) {
  if (s.moe.count == 0) return total_parameters(s);
  const Parameters p = parameters_of(s);
  const double idle = p.moe_routed * (1 - d(s.moe.chosen) / d(s.moe.count));
  return total_parameters(s) - idle * d(s.moe_blocks());
}

ForwardFlops forward_flops(const Shape& s, double sequence) {
  ForwardFlops f;
  const double h = d(s.hidden), a = d(s.heads), g = d(s.kv_heads), e = d(s.head_dim);
  double qk_dim = e, v_dim = e;
  if (s.is_mla()) {
    const double rq = d(s.mla.q_rank), rkv = d(s.mla.kv_rank);
    const double q = rq > 0 ? h * rq + rq * d(s.q_width()) : h * d(s.q_width());
    f.attention_linear =
        2 * (q + h * (rkv + d(s.mla.rope_dim)) + rkv * a * d(s.mla.nope_dim + s.mla.v_dim) + d(s.v_width()) * h);
    qk_dim = d(s.mla.nope_dim + s.mla.rope_dim);
    v_dim = d(s.mla.v_dim);
  } else {
    f.attention_linear = 4 * h * e * (a + g);
  }
  double keys = keys_seen(sequence, 0);
  if (s.window > 0) keys = (keys + keys_seen(sequence, s.window)) / 2;
  f.attention_core = 2 * keys * a * (qk_dim + v_dim);
  f.dense = (s.gated ? 6 : 4) * h * d(s.ffn);
  if (s.moe.count > 0) {
    const double width = s.moe.latent > 0 ? d(s.moe.latent) : h, matrices = s.moe.gated ? 6 : 4;
    f.moe_routed = matrices * width * d(s.moe.chosen * s.moe.ffn) + (s.moe.latent > 0 ? 4 * h * width : 0);
    f.moe_shared = matrices * h * d(s.moe.shared_ffn);
    f.moe_router = 2 * h * d(s.moe.count);
  }
  if (s.mamba.heads > 0) {
    const double inner = d(s.mamba.heads * s.mamba.head_dim), bc = d(s.mamba.groups * s.mamba.state);
    f.mamba_linear = 2 * h * (2 * inner + 2 * bc + d(s.mamba.heads)) + 2 * inner * h;
    // Inside a chunk: half a square of B·C and of scores times x; between chunks: states made and read.
    f.mamba_scan = 2 * d(s.mamba.chunk) / 2 * (bc + inner) + 4 * inner * d(s.mamba.state);
  }
  f.head = 2 * h * d(s.vocab);
  return f;
}

double training_flops_per_token(const Shape& s, double sequence, bool with_mtp, bool recompute_blocks,
                                bool full_attention) {
  const ForwardFlops f = forward_flops(s, sequence);
  const double core = f.attention_core * (full_attention ? 2 : 1), attention = f.attention_linear + core;
  double blocks = attention * d(s.attention_blocks()) + f.dense * d(s.dense_blocks()) +
                  f.moe() * d(s.moe_blocks()) + (f.mamba_linear + f.mamba_scan) * d(s.mamba_blocks());
  double ends = f.head;
  if (with_mtp && s.mtp > 0) {
    blocks += d(s.mtp) * (attention + (s.moe.count > 0 ? f.moe() : f.dense));
    ends += d(s.mtp) * (4 * d(s.hidden) * d(s.hidden) + f.head);
  }
  return (recompute_blocks ? 4 : 3) * blocks + 3 * ends;
}

std::string check_shape(const Shape& s) {
  const auto positive = [](int64_t n) { return n > 0 && n <= (int64_t{1} << 24); };
  if (!positive(s.hidden)) return "hidden";
  if (s.layers <= 0 || s.layers > 4096) return "layers";
  if (!positive(s.heads) || s.heads > 65536) return "heads";
  if (!s.is_mla() && (!positive(s.kv_heads) || s.kv_heads > s.heads)) return "kv_heads";
  if (!s.is_mla() && !positive(s.head_dim)) return "head_dim";
  if (s.dense_blocks() > 0 && !positive(s.ffn)) return "ffn";
  if (!positive(s.vocab)) return "vocab";
  if (s.moe.count < 0 || s.moe.count > 65536) return "experts";
  if (s.moe.count > 0 && (s.moe.chosen <= 0 || s.moe.chosen > s.moe.count)) return "topk";
  if (s.moe.count > 0 && !positive(s.moe.ffn)) return "moe_ffn";
  return "";
}

}  // namespace heddle::model
