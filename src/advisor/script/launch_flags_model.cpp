// Flags that say what the model is.
#include <algorithm>
#include <charconv>
#include <optional>

#include "advisor/script/launch_flag_row.h"
#include "advisor/script/model_name.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor {

namespace {

bool mla(const Launch& l) { return l.job.shape.is_latent(); }

// --num-layers counts layers that do nothing; the shape doesn't.
void write_layers(const Writing& w) {
  w.add("--num-layers", {text_of(places_of(w.launch))});
  if (!w.launch.noop.empty()) w.add("--noop-layers", {fmt::format("{}", fmt::join(w.launch.noop, ","))});
}
void read_layers(const Reading& r) {
  const int64_t places = r.given.needed("--num-layers", 1, 1 << 16);
  std::vector<int>& noop = r.launch.noop;
  noop.clear();
  const std::string list = r.given.text("--noop-layers");
  for (const char *at = list.data(), *end = at + list.size(); at < end;) {
    int place = -1;
    const auto [next, error] = std::from_chars(at, end, place);
    if (error != std::errc() || place < 0 || place >= places || (next < end && *next != ','))
      r.given.refuse("--noop-layers", fmt::format("numbers from 0 to {}, apart by commas", places - 1));
    noop.push_back(place);
    at = next < end ? next + 1 : next;
  }
  std::sort(noop.begin(), noop.end());
  noop.erase(std::unique(noop.begin(), noop.end()), noop.end());
  r.launch.job.shape.num_hidden_layers = places - static_cast<int64_t>(noop.size());
  if (r.launch.job.shape.num_hidden_layers < 1) r.given.refuse("--noop-layers", "at least one layer that is left");
}

// So many leading places hold the leading dense layers, and the other way round.
int64_t places_of_dense(const Launch& launch, int64_t dense) {
  int64_t place = 0, layers = 0;
  while (layers < dense && place < places_of(launch)) {
    layers += !std::binary_search(launch.noop.begin(), launch.noop.end(), static_cast<int>(place));
    ++place;
  }
  return place;
}

void write_attention(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.is_latent()) {
    w.add("--multi-latent-attention");
    w.add("--qk-layernorm");  // on the latents: every released model has these norms
    return;
  }
  if (s.num_key_value_heads != s.num_attention_heads) {
    w.add("--group-query-attention");
    w.add("--num-query-groups", {text_of(s.num_key_value_heads)});
  }
  if (s.head_dim * s.num_attention_heads != s.hidden_size) w.add("--kv-channels", {text_of(s.head_dim)});
  if (s.qk_norm) w.add("--qk-layernorm");
}
void read_attention(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  s.num_key_value_heads = s.num_attention_heads;
  if (r.given.has("--multi-latent-attention")) {
    s.set_latent(0, 512, 128, 64, 128);                                               // the flags' defaults
    s.qk_norm = false;                                                                // heads'
    r.given.any({"--kv-channels", "--group-query-attention", "--num-query-groups"});  // flags of other attention
    if (!r.given.has("--qk-layernorm"))
      r.notes.emplace_back("latent attention without --qk-layernorm: all released models norm their latents");
    return;
  }
  s.qk_norm = r.given.has("--qk-layernorm");
  const std::string heads = r.given.text("--attention-head-type");  // BigCode's
  if (heads != "" && heads != "multihead" && heads != "multiquery")
    r.given.refuse("--attention-head-type", "multihead, multiquery");
  if (heads == "multiquery") s.num_key_value_heads = 1;
  const int64_t groups = r.given.whole("--num-query-groups", 1, 1);
  if (r.given.has("--group-query-attention")) {
    s.num_key_value_heads = groups;
  } else if (r.given.has("--num-query-groups")) {
    r.notes.emplace_back("--num-query-groups without --group-query-attention: the trainer takes a group a head");
  }
  s.head_dim =
      r.given.whole("--kv-channels", std::max<int64_t>(1, s.hidden_size / s.num_attention_heads), 1, 1 << 16);
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

// GPT-OSS in the flags of Megatron-LM: of the released models it alone has sinks.
bool clamped_gates(const model::Shape& s) { return s.has_gated_mlp() && s.attention_sinks && !s.is_latent(); }
void write_ffn(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.intermediate_size > 0) w.add("--ffn-hidden-size", {text_of(s.intermediate_size)});
  if (clamped_gates(s)) {
    w.add("--quick-geglu");
    w.add("--glu-linear-offset", {"1.0"});
    w.add("--activation-func-clamp-value", {"7.0"});
  } else if (s.has_gated_mlp()) {
    w.add("--swiglu");
  } else if (s.activation == model::Activation::relu2) {
    w.add("--squared-relu");
  }
}
void read_ffn(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  const bool swiglu = r.given.has("--swiglu"),
             gated = r.given.any({"--quick-geglu", "--geglu", "--gelu-tanh"}) || swiglu;
  const bool squared = r.given.has("--squared-relu");
  s.activation = gated ? model::Activation::swiglu : squared ? model::Activation::relu2 : model::Activation::gelu;
  // As the trainer has it: two thirds of four times the width, a multiple of 64.
  const int64_t usual =
      swiglu ? static_cast<int64_t>(4 * static_cast<double>(s.hidden_size) * 2 / 3 / 64) * 64 : 4 * s.hidden_size;
  s.intermediate_size = r.given.whole("--ffn-hidden-size", std::max<int64_t>(1, usual), 1);
}

bool linear_bias(const model::Shape& s) {
  return s.has_output_bias() || s.mlp_bias || (s.n_routed_experts > 0 && s.experts_bias);
}
void write_biases(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (!linear_bias(s)) w.add("--disable-bias-linear");
  if (s.has_qkv_bias() && !linear_bias(s)) w.add("--add-qkv-bias");
  w.add("--normalization", {s.has_norm_bias() ? "LayerNorm" : "RMSNorm"});
}
void read_biases(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  const bool bias = !r.given.has("--disable-bias-linear");
  s.mlp_bias = s.experts_bias = bias;
  const bool qkv = r.given.has("--add-qkv-bias");
  s.attention_bias = bias  ? model::AttentionBias::all
                     : qkv ? model::AttentionBias::qkv
                           : model::AttentionBias::none;
  const std::string norm = r.given.text("--normalization");
  if (norm != "" && norm != "LayerNorm" && norm != "RMSNorm")
    r.given.refuse("--normalization", "RMSNorm, LayerNorm");
  s.norm = norm != "RMSNorm" ? model::Norm::layer : model::Norm::rms;
}

void write_vocabulary(const Writing& w) { w.add("--vocab-size", {text_of(w.launch.job.shape.vocab_size)}); }
void read_vocabulary(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  s.vocab_size = r.given.whole("--padded-vocab-size", r.given.whole("--vocab-size", 0, 0, 1 << 28), 0, 1 << 28);
  if (s.vocab_size > 0) return;
  // Most scripts leave it to the tokenizer: a published model of these sizes has a vocabulary.
  const NamedModel like = name_of_shape(r.launch, evidence_of(r.given));
  s.vocab_size = like.name.empty() ? 128000 : like.vocabulary;
  std::string note = fmt::format("--vocab-size is not given: taken as {}, {}", s.vocab_size,
                                 like.name.empty() ? "usual" : like.name + "'s");
  if (!like.others.empty()) note += fmt::format("; of the same sizes: {}", fmt::join(like.others, ", "));
  r.notes.push_back(std::move(note));
}

void write_positions(const Writing& w) {
  const Job& j = w.launch.job;
  const model::Shape& s = j.shape;
  w.add("--seq-length", {text_of(static_cast<int64_t>(j.sequence))});
  w.add("--max-position-embeddings",
        {text_of(s.learned_positions() > 0 ? s.learned_positions() : static_cast<int64_t>(j.sequence))});
  w.add("--position-embedding-type", {s.learned_positions() > 0 ? "learned_absolute"
                                      : s.foreign.alibi         ? "alibi"
                                                                : "rope"});
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
  if ((type.empty() && !rotary) || type == "learned_absolute")
    j.shape.positions = model::Positions::learned, j.shape.max_position_embeddings = positions;
  j.shape.foreign.alibi = type == "alibi";
}

// Lists of zeros and ones as Python adds and repeats them: "([0]*3+[1]*58)", "([1]+[0]*3)*6".
class Kinds {
 public:
  explicit Kinds(const std::string& text) {
    for (const char c : text)
      if (std::string_view(" '\"").find(c) == std::string_view::npos) text_ += c;
  }
  /// nullopt when it is none of so many.
  std::optional<std::vector<int>> of(int64_t layers) {
    std::vector<int> kinds = sum();
    if (wrong_ || at_ != text_.size() || std::ssize(kinds) != layers) return std::nullopt;
    return kinds;
  }

 private:
  static constexpr size_t kMost = 4096;
  bool takes(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  int64_t number() {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
    wrong_ |= error != std::errc();
    at_ = static_cast<size_t>(end - text_.data());
    return n;
  }
  std::vector<int> sum() {
    std::vector<int> all;
    do {
      const std::vector<int> one = repeated();
      wrong_ |= all.size() + one.size() > kMost;
      if (!wrong_) all.insert(all.end(), one.begin(), one.end());
    } while (!wrong_ && takes('+'));
    return all;
  }
  std::vector<int> repeated() {
    std::vector<int> unit;
    if (takes('(')) {
      wrong_ |= ++depth_ > 16;
      if (!wrong_) unit = sum();
      wrong_ |= !takes(')');
    } else {
      wrong_ |= !takes('[');
      while (!wrong_ && !takes(']')) {
        const int64_t kind = number();
        wrong_ |= (kind != 0 && kind != 1) || unit.size() >= kMost;
        unit.push_back(static_cast<int>(kind));
        takes(',');
      }
    }
    while (!wrong_ && takes('*')) {
      const int64_t times = number();
      wrong_ |=
          times < 0 || times > static_cast<int64_t>(kMost) || unit.size() * static_cast<size_t>(times) > kMost;
      std::vector<int> more;
      for (int64_t i = 0; !wrong_ && i < times; ++i) more.insert(more.end(), unit.begin(), unit.end());
      unit = std::move(more);
    }
    return unit;
  }

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool wrong_ = false;
};

bool digits_of(const std::string& text, int64_t& n) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size();
}

// Every so many-th layer has no window: N, or a list in which 1 is a window; 0: all have one, -1: another pattern.
int64_t full_interval(const std::string& text, int64_t layers) {
  if (text.empty()) return 0;
  int64_t n = 0;
  if (digits_of(text, n)) return n > 0 && n <= 4096 ? n : -1;
  const std::optional<std::vector<int>> kinds = Kinds(text).of(layers);
  if (!kinds) return -1;
  n = std::find(kinds->begin(), kinds->end(), 0) - kinds->begin() + 1;
  if (n > layers) return 0;
  for (int64_t layer = 1; layer <= layers; ++layer)
    if ((*kinds)[static_cast<size_t>(layer) - 1] != (layer % n == 0 ? 0 : 1)) return -1;
  return n;
}

void write_window(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.sliding_window > 0) {
    w.add("--window-size", {fmt::format("{},0", s.sliding_window - 1)});  // beside a query's own key
    if (s.full_attention_interval > 0) w.add("--window-attn-skip-freq", {text_of(s.full_attention_interval)});
  }
  if (s.attention_sinks && !s.is_latent()) w.add("--softmax-type", {"learnable"});
}
void read_window(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  const std::string size = r.given.text("--window-size"), every = r.given.text("--window-attn-skip-freq");
  s.attention_sinks = r.given.text("--softmax-type") == "learnable";
  s.sliding_window = 0;
  if (size.empty()) return;
  size_t first = 0;
  while (first < size.size() && (size[first] == '(' || size[first] == ' ')) ++first;
  const auto [end, error] = std::from_chars(size.data() + first, size.data() + size.size(), s.sliding_window);
  if (error != std::errc() || s.sliding_window < 0 || s.sliding_window > (1 << 30) ||
      (end < size.data() + size.size() && *end != ','))
    r.given.refuse("--window-size", "KEYS,0");
  ++s.sliding_window;  // a query sees its own key beside them
  s.full_attention_interval = full_interval(every, s.num_hidden_layers);
  if (s.full_attention_interval < 0) {
    s.full_attention_interval = 0;
    r.notes.push_back(fmt::format("--window-attn-skip-freq {}: taken as a window in all layers", shown(every)));
  }
}

// Layers with experts: leading ones have none, or an order of their own.
void write_layers_with_experts(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.dense_blocks() == 0) return;
  const int64_t places = places_of(w.launch);
  if (s.mlp_pattern.empty()) {
    const int64_t dense = places_of_dense(w.launch, s.dense_blocks());
    return w.add("--moe-layer-freq", {fmt::format("([0]*{}+[1]*{})", dense, places - dense)});
  }
  std::vector<int> kinds;
  for (int64_t place = 0, layer = 0; place < places; ++place) {
    const bool noop = std::binary_search(w.launch.noop.begin(), w.launch.noop.end(), static_cast<int>(place));
    kinds.push_back(!noop && s.has_experts_behind(layer) ? 1 : 0);
    layer += noop ? 0 : 1;
  }
  w.add("--moe-layer-freq", {fmt::format("[{}]", fmt::join(kinds, ","))});
}
void read_layers_with_experts(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  const int64_t places = places_of(r.launch), first = r.given.whole("--first-k-dense-replace", -1, -1);
  const std::string pattern = r.given.text("--moe-layer-freq");
  s.mlp_pattern.clear();
  s.first_k_dense_replace = 0;
  std::vector<int> kinds(static_cast<size_t>(places), 1);
  if (first >= 0) {  // MindSpeed's
    std::fill_n(kinds.begin(), std::min(first, places), 0);
  } else if (int64_t every = 0; digits_of(pattern, every)) {  // the first of every so many has experts
    for (int64_t place = 0; place < places && every > 1; ++place)
      kinds[static_cast<size_t>(place)] = place % every == 0 ? 1 : 0;
  } else if (!pattern.empty() && pattern != "-1") {
    if (std::optional<std::vector<int>> listed = Kinds(pattern).of(places)) {
      kinds = std::move(*listed);
    } else {
      r.notes.push_back(
          fmt::format("--moe-layer-freq {}: no list of zeros and ones of {} layers; taken as experts in all",
                      shown(pattern), places));
    }
  }
  std::string letters;
  for (int64_t place = 0; place < places; ++place)
    if (!std::binary_search(r.launch.noop.begin(), r.launch.noop.end(), static_cast<int>(place)))
      letters += kinds[static_cast<size_t>(place)] == 1 ? 'E' : '-';
  const size_t dense = std::min(letters.find('E'), letters.size());
  if (letters.find('-', dense) != std::string::npos) {
    s.mlp_pattern = letters;
  } else {
    s.first_k_dense_replace = static_cast<int64_t>(dense);
  }
}

void write_moe(const Writing& w) {
  const model::Shape& s = w.launch.job.shape;
  if (s.n_routed_experts == 0) return;
  w.add("--num-experts", {text_of(s.n_routed_experts)});
  w.add("--moe-router-topk", {text_of(s.num_experts_per_tok)});
  w.add("--moe-ffn-hidden-size", {text_of(s.moe_intermediate_size)});
  w.add("--moe-grouped-gemm");
  write_layers_with_experts(w);
  if (s.shared_width() > 0) w.add("--moe-shared-expert-intermediate-size", {text_of(s.shared_width())});
  if (s.shared_width() > 0 && s.shared_expert_gate) w.add("--moe-shared-expert-gate");
  if (s.moe_latent_size > 0) w.add("--moe-latent-size", {text_of(s.moe_latent_size)});
  if (s.sigmoid_scores) w.add("--moe-router-score-function", {"sigmoid"});
  if (s.topk_bias) w.add("--moe-router-enable-expert-bias");
  if (s.reachable_groups() > 0) {
    w.add("--moe-router-num-groups", {text_of(s.n_group)});
    w.add("--moe-router-group-topk", {text_of(s.reachable_groups())});
  }
  if (s.routed_scaling_factor != 1)
    w.add("--moe-router-topk-scaling-factor", {fmt::format("{}", s.routed_scaling_factor)});
  if (!s.norm_topk_prob) w.add("--moe-router-pre-softmax");
  w.add("--moe-router-dtype", {"fp32"});
  if (w.launch.job.exchange.capacity_factor > 0) {
    w.add("--moe-expert-capacity-factor", {fmt::format("{}", w.launch.job.exchange.capacity_factor)});
    w.add("--moe-pad-expert-input-to-capacity");
  }
}

// More experts than this have widths of their own in all published models.
constexpr int64_t kFewExperts = 16;

void read_moe(const Reading& r) {
  model::Shape& s = r.launch.job.shape;
  s.n_routed_experts = r.given.whole("--num-experts", 0);
  if (!s.has_experts()) {
    s.drop_experts();
    r.launch.job.exchange.capacity_factor = 0;
    return;
  }
  s.num_experts_per_tok = r.given.whole("--moe-router-topk", 2, 1, s.n_routed_experts);
  s.moe_intermediate_size = r.given.whole("--moe-ffn-hidden-size", s.intermediate_size, 1);
  if (!r.given.has("--moe-ffn-hidden-size") && s.n_routed_experts > kFewExperts)
    r.notes.push_back(
        fmt::format("--moe-ffn-hidden-size is not given: each of {} experts has --ffn-hidden-size, {}",
                    s.n_routed_experts, s.intermediate_size));
  s.set_shared_width(r.given.whole("--moe-shared-expert-intermediate-size", 0));
  if (r.given.has("--n-shared-experts"))
    s.set_shared_width(s.moe_intermediate_size * r.given.whole("--n-shared-experts", 0, 0, 1024));
  s.shared_expert_gate = r.given.any({"--moe-shared-expert-gate", "--shared-expert-gate"});
  s.moe_latent_size = r.given.whole("--moe-latent-size", 0);
  s.sigmoid_scores = r.given.text("--moe-router-score-function") == "sigmoid";
  s.topk_bias = r.given.has("--moe-router-enable-expert-bias");
  s.router_bias = s.experts_bias;  // as all linear maps
  const int64_t reachable = r.given.whole("--moe-router-group-topk", 0),
                groups = r.given.whole("--moe-router-num-groups", 0);
  if (reachable > 0 && groups > reachable) s.topk_group = reachable, s.n_group = groups;
  s.routed_scaling_factor = r.given.real("--moe-router-topk-scaling-factor", 1);
  // Sigmoid gates are normed always.
  s.norm_topk_prob = s.sigmoid_scores || !r.given.has("--moe-router-pre-softmax");
  double& capacity = r.launch.job.exchange.capacity_factor;
  capacity = std::max(0.0, r.given.real("--moe-expert-capacity-factor", 0));  // below 0: none
  if (capacity > 0 && !r.given.has("--moe-pad-expert-input-to-capacity"))
    r.notes.emplace_back("--moe-expert-capacity-factor: experts are taken as padded to their capacity");
  if (capacity > 0 && r.given.text("--moe-token-drop-policy") == "position")
    r.notes.emplace_back("--moe-token-drop-policy position: Heddle drops the lowest gates");
  read_layers_with_experts(r);
}

// MindSpeed-LLM's adapters: the weights below them are frozen.
void write_adapters(const Writing& w) {
  if (!w.launch.job.frozen_base || w.dialect != Dialect::mindspeed) return;
  w.add("--lora-r", {"16"});
  w.add("--lora-alpha", {"32"});
  w.add("--lora-target-modules", {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"});
}
void read_adapters(const Reading& r) {
  bool& frozen = r.launch.job.frozen_base;
  frozen = r.dialect == Dialect::mindspeed && r.given.has("--lora-target-modules");
  if (!frozen) return;
  for (const char* other : {"--lora-r", "--lora-alpha", "--lora-fusion", "--lora-load", "--lora-ckpt-filter",
                            "--lora-register-forward-hook"})
    r.given.has(other);
  r.notes.emplace_back("--lora-target-modules: adapters are counted as a two-hundredth of the frozen weights");
}

}  // namespace

const std::vector<Row>& model_rows() {
  using M = model::ModelConfig;
  using F = model::Foreign;
  static const std::vector<Row> all{
      {"model", write_layers, read_layers},
      number_row<"--hidden-size", &M::hidden_size, kNeeded>("model"),
      number_row<"--num-attention-heads", &M::num_attention_heads, kNeeded>("model"),
      {"model", write_attention, read_attention},
      latent_row<"--q-lora-rank", &M::q_lora_rank>(),
      latent_row<"--kv-lora-rank", &M::kv_lora_rank>(),
      latent_row<"--qk-head-dim", &M::qk_nope_head_dim>(),
      latent_row<"--qk-pos-emb-head-dim", &M::qk_rope_head_dim>(),
      latent_row<"--v-head-dim", &M::v_head_dim>(),
      {"model", write_ffn, read_ffn},
      {"model", write_biases, read_biases},
      switch_row<"--untie-embeddings-and-output-weights", &M::tie_word_embeddings, false>("model"),
      switch_row<"--embed-layernorm", &F::embedding_norm>("model"),
      {"model", write_positions, read_positions},
      {"model", write_window, read_window},
      number_row<"--mtp-num-layers", &M::num_nextn_predict_layers, 0>("model"),
      {"experts", write_moe, read_moe},
      {"model", write_vocabulary, read_vocabulary},
      {"training", write_adapters, read_adapters},
  };
  return all;
}

}  // namespace heddle::advisor
