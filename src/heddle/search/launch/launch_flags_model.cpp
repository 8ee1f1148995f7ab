// Flags that say what the model is.
#include <algorithm>
#include <charconv>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/launch/launch_flag_row.h"
#include "heddle/search/launch/shell_words.h"

namespace heddle::search {

namespace {

bool mla(const Launch& l) { return l.job.shape.is_mla(); }

void write_attention(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.is_mla()) {
    w.add("--multi-latent-attention");
    w.add("--qk-layernorm");  // on the latents: every released model has these norms
    return;
  }
  if (s.kv_heads != s.heads) {
    w.add("--group-query-attention");
    w.add("--num-query-groups", {text_of(s.kv_heads)});
  }
  if (s.head_dim * s.heads != s.hidden) w.add("--kv-channels", {text_of(s.head_dim)});
  if (s.qk_norm) w.add("--qk-layernorm");
}
void read_attention(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  s.kv_heads = s.heads;
  if (r.given.has("--multi-latent-attention")) {
    s.mla = {0, 512, 128, 64, 128};  // the flags' defaults
    s.qk_norm = false;               // of heads
    if (!r.given.has("--qk-layernorm"))
      r.notes.emplace_back(
          "latent attention without --qk-layernorm: no released model leaves its latents unnormed");
    return;
  }
  s.qk_norm = r.given.has("--qk-layernorm");
  s.mla = {};
  if (r.given.any({"--group-query-attention", "--num-query-groups"}))
    s.kv_heads = r.given.whole("--num-query-groups", 1, 1);
  s.head_dim = r.given.whole("--kv-channels", std::max<int64_t>(1, s.hidden / s.heads), 1, 1 << 16);
}

// Ranks of latent attention: read only with it, so that stray flags change nothing.
template <Name name, auto Member>
constexpr Row latent_row() {
  return {"model",
          [](const Writing& w) {
            if (mla(w.launch) && member(w.launch, Member) > 0)
              w.add(name.text, {text_of(member(w.launch, Member))});
          },
          [](const Reading& r) {
            if (!r.given.has("--multi-latent-attention")) return;
            auto& into = member(r.launch, Member);
            into = r.given.whole(name.text, into, 0, 1 << 20);
          }};
}

void write_ffn(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.ffn > 0) w.add("--ffn-hidden-size", {text_of(s.ffn)});
  if (s.gated) w.add("--swiglu");
}
void read_ffn(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  s.gated = s.moe.gated = r.given.has("--swiglu");
  s.ffn = r.given.whole("--ffn-hidden-size", 4 * s.hidden, 1);
}

bool linear_bias(const model::Shape& s) { return s.out_bias || s.ffn_bias || (s.moe.count > 0 && s.moe.bias); }
void write_biases(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (!linear_bias(s)) w.add("--disable-bias-linear");
  if (s.qkv_bias && !linear_bias(s)) w.add("--add-qkv-bias");
  w.add("--normalization", {s.norm_bias ? "LayerNorm" : "RMSNorm"});
}
void read_biases(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  const bool bias = !r.given.has("--disable-bias-linear");
  s.out_bias = s.ffn_bias = s.moe.bias = bias;
  s.qkv_bias = r.given.has("--add-qkv-bias") || bias;
  const std::string norm = r.given.text("--normalization");
  if (norm != "" && norm != "LayerNorm" && norm != "RMSNorm")
    r.given.refuse("--normalization", "RMSNorm, LayerNorm");
  s.norm_bias = norm != "RMSNorm";
}

void write_vocabulary(const Writing& w) { w.add("--vocab-size", {text_of(w.launch.job.shape.vocab)}); }
void read_vocabulary(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  s.vocab = r.given.whole("--vocab-size", r.given.whole("--padded-vocab-size", 0), 0, 1 << 28);
  if (s.vocab > 0) return;
  // Most scripts leave it to the tokenizer.
  s.vocab = 128000;
  std::string like = "usual";
  for (const model::Shape& p : model::shape_presets())
    if (p.hidden == s.hidden && p.layers == s.layers && p.heads == s.heads) s.vocab = p.vocab, like = p.name + "'s";
  r.notes.push_back(fmt::format("--vocab-size is not given: taken as {}, {}", s.vocab, like));
}

void write_positions(const Writing& w) {
  const Job& j = w.launch.job;
  const model::Shape& s = j.shape;
  w.add("--seq-length", {text_of(static_cast<int64_t>(j.sequence))});
  w.add("--max-position-embeddings", {text_of(s.positions > 0 ? s.positions : static_cast<int64_t>(j.sequence))});
  w.add("--position-embedding-type", {s.positions > 0 ? "learned_absolute" : s.alibi ? "alibi" : "rope"});
}
void read_positions(const Reading& r) {
  Job& j = r.launch.job;
  j.sequence = static_cast<double>(r.given.needed("--seq-length", 1, int64_t{1} << 30));
  const int64_t positions =
      r.given.whole("--max-position-embeddings", static_cast<int64_t>(j.sequence), 1, int64_t{1} << 30);
  const std::string type = r.given.text("--position-embedding-type");
  const bool rotary = r.given.any({"--use-rotary-position-embeddings", "--no-position-embedding"});
  if (type != "" && type != "rope" && type != "yarn" && type != "none" && type != "learned_absolute" &&
      type != "alibi" && type != "mrope")
    r.given.refuse("--position-embedding-type", "rope, yarn, learned_absolute, alibi, none");
  j.shape.positions = (type.empty() && !rotary) || type == "learned_absolute" ? positions : 0;
  j.shape.alibi = type == "alibi";
}

void write_window(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.window > 0) {
    w.add("--window-size", {fmt::format("{},0", s.window)});
    w.add("--window-attn-skip-freq", {"2"});
  }
  if (s.sinks && !s.is_mla()) w.add("--softmax-type", {"learnable"});
}
void read_window(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  const std::string size = r.given.text("--window-size"), every = r.given.text("--window-attn-skip-freq");
  s.sinks = r.given.text("--softmax-type") == "learnable";
  s.window = 0;
  if (size.empty()) return;
  size_t first = 0;
  while (first < size.size() && (size[first] == '(' || size[first] == ' ')) ++first;
  const auto [end, error] = std::from_chars(size.data() + first, size.data() + size.size(), s.window);
  if (error != std::errc() || s.window < 1 || s.window > (1 << 30) ||
      (end < size.data() + size.size() && *end != ','))
    r.given.refuse("--window-size", "KEYS,0");
  if (every != "2") r.notes.emplace_back("--window-size is taken to hold for every second layer");
}

void write_moe(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.moe.count == 0) return;
  w.add("--num-experts", {text_of(s.moe.count)});
  w.add("--moe-router-topk", {text_of(s.moe.chosen)});
  w.add("--moe-ffn-hidden-size", {text_of(s.moe.ffn)});
  w.add("--moe-grouped-gemm");
  const int64_t dense = s.dense_blocks();
  if (dense > 0) w.add("--moe-layer-freq", {fmt::format("([0]*{}+[1]*{})", dense, s.layers - dense)});
  if (s.moe.shared_ffn > 0) w.add("--moe-shared-expert-intermediate-size", {text_of(s.moe.shared_ffn)});
  if (s.moe.shared_ffn > 0 && s.moe.shared_gate) w.add("--moe-shared-expert-gate");
  if (s.moe.latent > 0) w.add("--moe-latent-size", {text_of(s.moe.latent)});
  if (s.moe.router_bias && !linear_bias(s)) {
    w.add("--moe-router-score-function", {"sigmoid"});
    w.add("--moe-router-enable-expert-bias");
  }
  if (s.moe.most_nodes > 0) {
    w.add("--moe-router-num-groups", {text_of(s.moe.groups)});
    w.add("--moe-router-group-topk", {text_of(s.moe.most_nodes)});
  }
  if (s.moe.gate_scale != 1) w.add("--moe-router-topk-scaling-factor", {fmt::format("{}", s.moe.gate_scale)});
  if (!s.moe.normed_gates) w.add("--moe-router-pre-softmax");
  w.add("--moe-router-dtype", {"fp32"});
  if (s.moe.capacity > 0) {
    w.add("--moe-expert-capacity-factor", {fmt::format("{}", s.moe.capacity)});
    w.add("--moe-pad-expert-input-to-capacity");
  }
}

// Leading dense layers of "([0]*3+[1]*58)", of a period N (every N-th layer has experts) or of a list; -1 when the
// pattern is another.
int64_t leading_dense(const std::string& text, int64_t layers) {
  if (text.empty() || text == "1") return 0;
  std::string flat;
  for (const char c : text)
    if (std::string_view(" ()'\"").find(c) == std::string_view::npos) flat += c;
  std::vector<int> kinds;
  size_t at = 0;
  const auto digits = [&](int64_t& n) {
    const auto [end, error] = std::from_chars(flat.data() + at, flat.data() + flat.size(), n);
    if (error != std::errc()) return false;
    at = static_cast<size_t>(end - flat.data());
    return true;
  };
  while (at < flat.size()) {
    if (flat[at] == '+') ++at;
    if (at >= flat.size() || flat[at] != '[') return -1;
    std::vector<int> unit;
    for (++at; at < flat.size() && flat[at] != ']';) {
      int64_t kind = 0;
      if (flat[at] == ',') ++at;
      if (!digits(kind) || (kind != 0 && kind != 1) || unit.size() > 4096) return -1;
      unit.push_back(static_cast<int>(kind));
    }
    if (at >= flat.size()) return -1;
    ++at;
    int64_t times = 1;
    if (at < flat.size() && flat[at] == '*') {
      ++at;
      if (!digits(times) || times < 0 || times > 4096) return -1;
    }
    for (int64_t i = 0; i < times; ++i) {
      if (kinds.size() + unit.size() > 4096) return -1;
      kinds.insert(kinds.end(), unit.begin(), unit.end());
    }
  }
  if (static_cast<int64_t>(kinds.size()) != layers) return -1;
  const auto first = std::find(kinds.begin(), kinds.end(), 1);
  if (std::find(first, kinds.end(), 0) != kinds.end()) return -1;
  return first - kinds.begin();
}

void read_moe(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  model::Experts& m = s.moe;
  m.count = r.given.whole("--num-experts", 0);
  if (m.count == 0) {
    m = {};
    s.dense_layers = 0;
    return;
  }
  m.chosen = r.given.whole("--moe-router-topk", 2, 1, m.count);
  m.ffn = r.given.whole("--moe-ffn-hidden-size", s.ffn, 1);
  m.shared_ffn = r.given.whole("--moe-shared-expert-intermediate-size", 0);
  if (r.given.has("--n-shared-experts")) m.shared_ffn = m.ffn * r.given.whole("--n-shared-experts", 0, 0, 1024);
  m.shared_gate = r.given.has("--moe-shared-expert-gate");
  m.latent = r.given.whole("--moe-latent-size", 0);
  m.router_bias = r.given.has("--moe-router-enable-expert-bias") || m.bias;
  m.most_nodes = r.given.whole("--moe-router-group-topk", 0);
  m.groups = r.given.whole("--moe-router-num-groups", 0);
  if (m.groups <= m.most_nodes) m.most_nodes = 0;
  if (m.most_nodes == 0) m.groups = 0;
  m.gate_scale = r.given.real("--moe-router-topk-scaling-factor", 1);
  m.normed_gates = !r.given.has("--moe-router-pre-softmax");
  m.capacity = std::max(0.0, r.given.real("--moe-expert-capacity-factor", 0));  // below 0: none
  if (m.capacity > 0 && !r.given.has("--moe-pad-expert-input-to-capacity"))
    r.notes.emplace_back("--moe-expert-capacity-factor: experts are taken as padded to their capacity");
  if (m.capacity > 0 && r.given.text("--moe-token-drop-policy") == "position")
    r.notes.emplace_back("--moe-token-drop-policy position: Heddle drops the lowest gates");
  const int64_t mindspeed = r.given.whole("--first-k-dense-replace", -1, -1);
  std::string pattern = r.given.text("--moe-layer-freq");
  if (mindspeed >= 0) pattern.clear();
  s.dense_layers = mindspeed >= 0 ? mindspeed : pattern == "-1" ? 0 : leading_dense(pattern, s.layers);
  if (s.dense_layers < 0) {
    s.dense_layers = 0;
    r.notes.push_back(
        fmt::format("--moe-layer-freq {}: only leading dense layers are described; taken as none", shown(pattern)));
  }
}

}  // namespace

const std::vector<Row>& model_rows() {
  using S = model::Shape;
  using A = model::LatentAttention;
  static const std::vector<Row> all{
      number_row<"--num-layers", &S::layers, kNeeded>("model"),
      number_row<"--hidden-size", &S::hidden, kNeeded>("model"),
      number_row<"--num-attention-heads", &S::heads, kNeeded>("model"),
      {"model", write_attention, read_attention},
      latent_row<"--q-lora-rank", &A::q_rank>(),
      latent_row<"--kv-lora-rank", &A::kv_rank>(),
      latent_row<"--qk-head-dim", &A::nope_dim>(),
      latent_row<"--qk-pos-emb-head-dim", &A::rope_dim>(),
      latent_row<"--v-head-dim", &A::v_dim>(),
      {"model", write_ffn, read_ffn},
      {"model", write_biases, read_biases},
      {"model", write_vocabulary, read_vocabulary},
      switch_row<"--untie-embeddings-and-output-weights", &S::tied, false>("model"),
      switch_row<"--embed-layernorm", &S::embedding_norm>("model"),
      {"model", write_positions, read_positions},
      {"model", write_window, read_window},
      number_row<"--mtp-num-layers", &S::mtp, 0>("model"),
      {"experts", write_moe, read_moe},
  };
  return all;
}

}  // namespace heddle::search
