#include "advisor/points/point_job.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "advisor/points/point_software.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::advisor {

namespace {

using cost::Precision;

std::string lower(std::string_view text) {
  std::string out(text.substr(0, 2000));
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// One row, read once.
class PointRow {
 public:
  PointRow(const PointTable& table, size_t row) : table_(table), row_(row) {}
  std::string_view text(std::string_view name) const { return table_.field(row_, name); }
  std::string lowered(std::string_view name) const { return lower(text(name)); }
  /// A whole number ≥ 0; 0 when blank. Anything else is remembered as wrong.
  int64_t whole(std::string_view name) {
    bool bad = false;
    const std::optional<double> n = number(text(name), bad);
    if (bad || (n && (*n < 0 || *n > 1e9 || std::floor(*n) != *n))) {
      if (wrong_.empty()) wrong_ = fmt::format("{} is '{}', not a whole number", name, text(name).substr(0, 40));
      return 0;
    }
    return n ? static_cast<int64_t>(*n) : 0;
  }
  const std::string& wrong() const { return wrong_; }
  /// Degrees that are read in place of the row's.
  void set_layout(int tp, int pp, int ep, int mbs) { tp_ = tp, pp_ = pp, ep_ = ep, mbs_ = mbs; }
  bool has_set_layout() const { return tp_ > 0; }
  int64_t degree(std::string_view name) {
    if (tp_ > 0 && name == "tp") return tp_;
    if (ep_ > 0 && name == "ep") return ep_;
    if (name == "mbs") return mbs_ > 0 ? mbs_ : whole(name);
    return tp_ > 0 && name == "pp" ? pp_ : whole(name);
  }

 private:
  const PointTable& table_;
  size_t row_;
  std::string wrong_;
  int tp_ = 0, pp_ = 0, ep_ = 0, mbs_ = 0;
};

// "GPT 15.6B": whether so many parameters are those of gated blocks, and not of plain ones.
bool counts_gates(const std::string& name, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads,
                  int64_t ffn) {
  const size_t at = name.find_first_of("0123456789");
  if (at == std::string::npos || ffn == 0 || heads == 0) return false;
  const double billions = number_after(name, name.substr(0, at));
  const auto of = [](int64_t n) { return static_cast<double>(n); };
  const double groups = kv_heads > 0 ? of(kv_heads) / of(heads) : 1;
  const auto blocks = [&](double products) {
    return of(layers) * of(hidden) * ((2 + 2 * groups) * of(hidden) + products * of(ffn)) / 1e9;
  };
  return std::abs(blocks(3) / billions - 1) < 0.05 && std::abs(blocks(2) / billions - 1) > 0.15;
}

// The preset's numbers with the row's own put over them; a model without preset is described by the row alone.
std::string read_shape(PointRow& row, model::Shape& s) {
  const std::string name = row.lowered("model"), hw = row.lowered("hw");
  if (name.empty()) return "no model";
  std::string base = name;
  bool proxy = false;
  for (const char* cut : {" proxy", "_proxy", "-proxy"})
    if (const size_t at = base.find(cut); at != std::string::npos) base.resize(at), proxy = true;
  const model::Shape* preset = model::find_shape(base);
  const int64_t hidden = row.whole("hidden"), layers = row.whole("layers"), heads = row.whole("heads"),
                kv_heads = row.whole("kv_heads"), ffn = row.whole("ffn"), moe_ffn = row.whole("moe_ffn"),
                experts = row.whole("experts"), topk = row.whole("topk"), shared = row.whole("shared_experts"),
                vocab = row.whole("vocab");
  if (preset == nullptr && (hidden == 0 || layers == 0))
    return fmt::format("the model '{}' is not known and the row lacks its dimensions",
                       row.text("model").substr(0, 60));
  if (preset != nullptr && hidden > 0 && hidden != preset->hidden_size) preset = nullptr;
  if (preset != nullptr) {
    s = *preset;
  } else {
    s.hidden_size = hidden;
    s.num_hidden_layers = layers;
    const bool gpt = has(name, "gpt") || has(name, "megatron") || has(name, "bloom") || has(name, "mpt") ||
                     has(name, "opt-") || has(name, "turing");
    if (gpt && !has(name, "gpt-oss") && !counts_gates(name, hidden, layers, heads, kv_heads, ffn)) {
      s.activation = model::Activation::gelu;
      s.tie_word_embeddings = true;
      if (!has(name, "mpt")) {
        s.attention_bias = model::AttentionBias::all;
        s.norm = model::Norm::layer;
        s.mlp_bias = true;
      }
      if (has(name, "mpt") || has(hw, "jean zay")) {
        s.foreign.alibi = true;
      } else {
        s.positions = model::Positions::learned, s.max_position_embeddings = 2048;
      }
    }
    if (has(name, "nemotron")) s.activation = model::Activation::relu2;
    if (has(name, "deepseek") || has(name, "kimi")) s.set_latent(1536, 512, 128, 64, 128);
    // Mixers of cut models, by the whole one's.
    const std::pair<const char*, const char*> cuts[] = {{"qwen3_next", "Qwen3-Next-80B-A3B"},
                                                        {"qwen3-next", "Qwen3-Next-80B-A3B"},
                                                        {"qwen3.5", "Qwen3-Next-80B-A3B"},
                                                        {"qwen3.6", "Qwen3-Next-80B-A3B"},
                                                        {"deepseek32", "DeepSeek-V3.2"},
                                                        {"v3.2", "DeepSeek-V3.2"},
                                                        {"glm5", "GLM-5"},
                                                        {"glm-5", "GLM-5"}};
    for (const auto& [part, whole] : cuts)
      if (const model::Shape* known = has(name, part) ? model::find_shape(whole) : nullptr; known != nullptr) {
        if (known->recurs()) {
          s.recurrence = known->recurrence;
          s.full_attention_interval = known->full_attention_interval;
          s.linear_num_key_heads = known->linear_num_key_heads;
          s.linear_num_value_heads = known->linear_num_value_heads;
          s.linear_key_head_dim = known->linear_key_head_dim;
          s.linear_value_head_dim = known->linear_value_head_dim;
        }
        s.index_topk = known->index_topk;
        s.index_n_heads = known->index_n_heads, s.index_head_dim = known->index_head_dim;
        if (known->is_latent())
          s.set_latent(known->q_lora_rank, known->kv_lora_rank, known->qk_nope_head_dim, known->qk_rope_head_dim,
                       known->v_head_dim);
      }
    s.intermediate_size = s.has_gated_mlp() ? 0 : 4 * hidden;
    s.num_attention_heads = std::max<int64_t>(1, hidden / 128);
    s.num_key_value_heads = 0;
    s.vocab_size = has(hw, "jean zay") || has(name, "bloom") ? 250880 : s.has_gated_mlp() ? 128256 : 51200;
  }
  s.name = row.text("model").substr(0, 80);
  if (layers > 0 && layers != s.num_hidden_layers && s.interleaves())
    return "a hybrid model cut to other layers is not described";
  if (layers > 0 && layers < s.num_hidden_layers && proxy)
    s.first_k_dense_replace = 0, s.num_nextn_predict_layers = 0;
  if (layers > 0) s.num_hidden_layers = layers;
  const bool other_heads = heads > 0 && heads != s.num_attention_heads;
  if (heads > 0) s.num_attention_heads = heads;
  if (kv_heads > 0 && !s.is_latent()) s.num_key_value_heads = kv_heads;
  if (s.num_key_value_heads == 0 || (other_heads && kv_heads == 0)) s.num_key_value_heads = s.num_attention_heads;
  if (s.head_dim == 0 || other_heads) s.head_dim = std::max<int64_t>(1, s.hidden_size / s.num_attention_heads);
  if (ffn > 0) s.intermediate_size = ffn;
  if (vocab > 0) s.vocab_size = vocab;
  if (experts > 0) s.n_routed_experts = experts;
  if (topk > 0) s.num_experts_per_tok = topk;
  const int64_t shared_width = s.shared_width();
  if (moe_ffn > 0) s.moe_intermediate_size = moe_ffn;
  s.set_shared_width(row.text("shared_experts").empty() || preset != nullptr ? shared_width
                                                                             : shared * s.moe_intermediate_size);
  const std::string missing = model::check_shape(s);
  return missing.empty() ? "" : fmt::format("the row lacks {}", missing);
}

// "FP8 or NVFP4" is the narrower: both were shipped, the faster was run.
Precision read_precision(const PointRow& row, const std::string& source) {
  const std::string p = row.lowered("precision");
  if (has(p, "fp4")) return Precision::nvfp4;
  if (has(p, "mxfp8") || has(p, "fp8-mx") || has(p, "finer")) return Precision::mxfp8;
  if (has(p, "1x128") || has(p, "block") || has(p, "fp8-sc")) return Precision::block8;
  if (has(p, "fp8") || has(p, "int8")) return Precision::fp8;
  if (has(p, "fp16") || (p.empty() && has(source, "bigscience"))) return Precision::fp16;
  if (p.empty() && has(source, "mlcommons")) return Precision::fp8;
  return Precision::bf16;
}

// The whole number after `mark`, 0 when there is none of at most six digits.
int64_t whole_after(const std::string& text, std::string_view mark) {
  const size_t at = text.find(mark);
  int64_t n = 0;
  if (at == std::string::npos) return 0;
  for (size_t i = at + mark.size(); i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
       ++i) {
    n = 10 * n + (text[i] - '0');
    if (n > 999999) return 0;
  }
  return n;
}

// Megatron's and MindFormers' own default: tensor ranks share each expert. Recipes turn it off.
bool splits_experts(const Release& release) {
  return release.stack == "mindspore" || release.framework.starts_with("megatron") ||
         release.framework == "mindspeed";
}

// Tokens of a sample where the row says that windows are packed, and not with what.
constexpr double kPackedSample = 4096;

std::string read_layout(PointRow& row, PointJob& p) {
  Job& j = p.job;
  std::string& assumed = p.assumed;
  plan::Degrees& l = j.mesh;
  int64_t gpus = row.whole("gpus");
  const int64_t tp = row.degree("tp"), pp = row.degree("pp"), vpp = row.whole("vpp"), ep = row.degree("ep"),
                etp = row.whole("etp"), cp = row.whole("cp"), dp = row.whole("dp"), mbs = row.degree("mbs"),
                gbs = row.whole("gbs");
  if (!row.wrong().empty()) return row.wrong();
  for (const int64_t n : {gpus, tp, pp, vpp, ep, etp, cp, dp, mbs})
    if (n > (1 << 24)) return fmt::format("a degree of {}", n);
  const auto or_one = [](int64_t n) { return static_cast<int>(std::max<int64_t>(1, n)); };
  l.tp = or_one(tp), l.pp = or_one(pp), j.chunks = or_one(vpp), l.ep = or_one(ep), l.etp = or_one(etp),
  l.cp = or_one(cp);
  if (cp == 0 && gpus > 0 && dp > 0 && gpus % (dp * l.tp * l.pp) == 0)
    l.cp = static_cast<int>(gpus / (dp * l.tp * l.pp));
  const int64_t ranks = static_cast<int64_t>(l.tp) * l.pp * l.cp;
  if (ranks <= 0 || ranks > (1 << 26)) return "tp x pp x cp is too large";
  if (gpus == 0 && dp == 0) {
    // One replica, wide enough for the experts.
    const int64_t wide =
        (static_cast<int64_t>(l.ep) * l.etp + l.tp * l.cp - 1) / (static_cast<int64_t>(l.tp) * l.cp);
    gpus = ranks * std::max<int64_t>(1, wide);
    if (gpus > (1 << 24)) return "the row lacks gpus";
    note(assumed, fmt::format("{} gpus", gpus));
    p.devices_assumed = true;
  }
  if (gpus > 0 && gpus % ranks != 0)
    return fmt::format("{} gpus are no multiple of tp x pp x cp = {}", gpus, ranks);
  l.dp = static_cast<int>((gpus > 0 ? gpus : std::min<int64_t>(ranks * dp, 1 << 26)) / ranks);
  if (gpus > 0 && dp > 0 && dp != l.dp) note(assumed, fmt::format("dp {} from gpus, not {}", l.dp, dp));
  const int64_t stage_ranks = static_cast<int64_t>(l.tp) * l.cp * l.dp;
  if (etp == 0 && j.shape.n_routed_experts > 0 && splits_experts(p.release) &&
      static_cast<int64_t>(l.ep) * l.tp <= stage_ranks)
    l.etp = l.tp;
  if (l.ep > 1 && static_cast<int64_t>(l.ep) * l.etp > stage_ranks && stage_ranks % l.etp == 0) {
    note(assumed, fmt::format("ep {}, all of a stage's ranks, not {}", stage_ranks / l.etp, l.ep));
    l.ep = static_cast<int>(stage_ranks / l.etp);
  }
  j.microbatch = or_one(mbs);
  if (gbs > (1 << 30)) return fmt::format("a global batch of {}", gbs);
  // A pipeline is filled eight times over when nothing else is known.
  const int64_t fills = l.pp > 1 ? 8LL * l.pp : 1;
  const int64_t local = whole_after(row.lowered("extra"), "local batch ");
  // torchtitan cuts a local batch into as many microbatches as there are stages.
  if (local > 0 && mbs == 0) j.microbatch = static_cast<int>(std::max<int64_t>(1, local / l.pp));
  if (vpp == 0 && has(row.lowered("extra"), "interleaved")) j.chunks = 2;
  // So are MLPerf's pipelines: those that it prints have six chunks (GPT-3) or eight (Llama-3.1-405B, whose ends
  // count as layers).
  constexpr int kMostChunks = 8;
  if (vpp == 0 && l.pp > 1 && row.has_set_layout() && p.release.stack == "mlperf")
    for (int n = 1; n <= kMostChunks; ++n)
      for (const int64_t layers : {j.shape.num_hidden_layers, j.shape.num_hidden_layers + 2})
        if (layers % (static_cast<int64_t>(l.pp) * n) == 0) j.chunks = n;
  // Meta's own schedule is interleaved, a layer a chunk (arXiv 2407.21783, section 3.3.2).
  if (vpp == 0 && l.pp > 1 && p.release.framework == "meta")
    j.chunks = static_cast<int>((j.shape.num_hidden_layers + l.pp - 1) / l.pp);
  const int64_t assumed_batch = local > 0 ? local * l.dp : fills * j.microbatch * l.dp;
  if (mbs == 0) note(assumed, fmt::format("microbatch {}", j.microbatch)), p.microbatch_assumed = true;
  if (gbs == 0 && assumed_batch > (1 << 30)) return "the row lacks gbs";
  if (gbs == 0) note(assumed, fmt::format("global batch {}", assumed_batch));
  p.batch_assumed = gbs == 0 && local == 0 && l.pp > 1;
  j.global_batch = static_cast<int>(gbs > 0 ? gbs : assumed_batch);
  if (j.global_batch < l.dp) return fmt::format("a global batch of {} on {} data ranks", j.global_batch, l.dp);
  if (gbs > 0 && mbs > 0) j.microbatch = std::min(j.microbatch, std::max(1, j.global_batch / l.dp));
  return "";
}

// Reads all of a row but the model and the device. Degrees that `layout` gives stand in for blank ones.
std::string read_run(PointRow& row, PointJob& p) {
  Job& j = p.job;
  if (const std::string wrong = read_layout(row, p); !wrong.empty()) return wrong;
  j.sequence = static_cast<double>(row.whole("seq"));
  if (!row.wrong().empty()) return row.wrong();
  if (j.sequence == 0) {
    j.sequence = j.shape.vocab_size == 128256 ? 8192 : j.shape.learned_positions() > 0 ? 2048 : 4096;
    note(p.assumed, fmt::format("sequence {}", j.sequence));
    p.sequence_assumed = true;
  }
  if (has(row.lowered("notes"), "within samples") && j.sequence > kPackedSample) {
    // Samples packed into one window see each other nowhere: as many sequences of a sample's length.
    const double samples = j.sequence / kPackedSample;
    if (samples * j.global_batch > (1 << 30)) return "the row's window is too long";
    j.microbatch = static_cast<int>(samples * j.microbatch),
    j.global_batch = static_cast<int>(samples * j.global_batch);
    j.sequence = kPackedSample;
    p.sequence_assumed = true;
    note(p.assumed, fmt::format("samples of {} in each window", kPackedSample));
  }
  const std::string source = row.lowered("source");
  j.precision = read_precision(row, source);
  describe_software(
      {row.lowered("extra"), row.lowered("notes"), row.lowered("recompute"), row.lowered("precision"), source},
      p.release, j, p.assumed);
  return "";
}

// For a row that prints no layout: the fastest of the usual ones that fit. These vary tensor degrees, pipelines,
// experts over a node or the fast domain, and microbatches where the row has none. Where none fits without
// recomputation, all layers are recomputed; where none fits at all, the layout that needs least memory stands in.
void choose_layout(const PointTable& table, size_t index, PointJob& p) {
  const bool sharded = p.release.stack == "xla" || p.release.stack == "fsdp" || p.release.stack == "fsdp2";
  const bool moe = p.job.shape.n_routed_experts > 0;
  const std::vector<int> microbatches =
      table.field(index, "mbs").empty() ? std::vector<int>{1, 2, 4, 8} : std::vector<int>{0};
  PointJob best, least;
  double fastest = 0, least_bytes = 0;
  const auto consider = [&](int tp, int pp, int ep, int mbs, bool again) {
    PointRow row(table, index);
    row.set_layout(tp, pp, ep, mbs);
    PointJob one = p;
    one.reason = read_run(row, one);
    if (!one.reason.empty()) return;
    if (again) one.job.recompute.set(GroupName::layer);
    const Estimate e = estimate(one.job);
    if (!e.reason.empty()) return;
    note(one.assumed,
         fmt::format("tp {}, pp {}{}{}{}", tp, pp, ep > 0 ? fmt::format(", ep {}", ep) : "",
                     mbs > 0 ? fmt::format(", microbatch {}", mbs) : "", again ? ", full recomputation" : ""));
    one.microbatch_assumed |= mbs > 0;
    const bool fits = e.peak_bytes <= 0.95 * one.job.device.memory_bytes;
    if (fits && e.tokens_per_s_per_device > fastest) fastest = e.tokens_per_s_per_device, best = one;
    if (least_bytes == 0 || e.peak_bytes < least_bytes) least_bytes = e.peak_bytes, least = one;
  };
  for (const bool again : {false, true}) {
    for (const int tp : {1, 2, 4, 8, 16, 32})
      for (const int pp : {1, 2, 4, 8, 16})
        for (const int ep : {0, 8, 64})
          for (const int mbs : microbatches)
            if ((moe || ep == 0) && !(sharded && (pp > 1 || (tp > 1 && fastest > 0))))
              consider(tp, pp, ep, mbs, again);
    if (fastest > 0) break;
  }
  if (least_bytes == 0) {
    p.reason = "the row lacks tp and pp, and no usual layout is possible";
    return;
  }
  p = fastest > 0 ? best : least;
  p.layout_assumed = true;
}

// A row with tokens and TFLOP/s says what a token costs. Conventions differ by recomputation, the square of the
// scores and frozen weights, not by more than these.
void check_figures(const PointTable& table, size_t index, PointJob& p) {
  constexpr double kLeast = 0.62, kMost = 1.75;
  bool bad = false;
  const auto tokens = number(table.field(index, "tokens_per_s_per_gpu"), bad),
             tflops = number(table.field(index, "tflops_per_gpu"), bad);
  if (bad || !p.reason.empty() || !tokens || !tflops || *tokens <= 0 || *tflops <= 0) return;
  const double of_model = model::training_flops_per_token(p.job.shape, p.job.sequence, p.job.with_mtp),
               said = *tflops * 1e12 / *tokens;
  if (said > kLeast * of_model && said < kMost * of_model) return;
  p.contradicts = true;
  note(p.assumed,
       fmt::format("the model's {:.0f} GFLOP a token, the row's figures give {:.0f}", of_model / 1e9, said / 1e9));
}

}  // namespace

PointJob job_of_point(const PointTable& table, size_t index) {
  PointJob p;
  Job& j = p.job;
  PointRow row(table, index);
  const std::string source = row.lowered("source"), software = row.lowered("software"),
                    release = row.lowered("release"), released = row.lowered("released"),
                    reports = row.lowered("reports");
  p.release = read_release({source, software, release, released, reports});
  p.reason = read_shape(row, j.shape);
  if (!row.wrong().empty()) p.reason = row.wrong();
  if (!p.reason.empty()) return p;
  j.device = cost::find_accelerator(row.text("hw"));
  if (j.device.name.empty() && row.lowered("hw").starts_with("gpu reference")) {
    j.device = *cost::accelerator_named("A100-80");
    p.release.framework = "reference";
    note(p.assumed, "an A100");
  }
  if (j.device.name.empty()) {
    p.reason = fmt::format("the device '{}' is not known", row.text("hw").substr(0, 60));
    return p;
  }
  if (!p.release.unknown.empty())
    note(p.assumed, fmt::format("software '{}' as a current Megatron-LM", p.release.unknown));
  p.words = row.lowered("extra");
  if (row.lowered("hw").find("not native") != std::string::npos) p.release.framework += kForeign;
  const bool blank = row.whole("tp") == 0 && row.whole("pp") == 0 && row.wrong().empty();
  if (blank)
    choose_layout(table, index, p);
  else
    p.reason = read_run(row, p);
  check_figures(table, index, p);
  return p;
}

double measured_tokens_per_s(const PointTable& table, size_t row, const PointJob& point) {
  bool bad = false;
  if (const auto tokens = number(table.field(row, "tokens_per_s_per_gpu"), bad); tokens && *tokens > 0)
    return *tokens;
  const auto tflops = number(table.field(row, "tflops_per_gpu"), bad);
  if (!tflops || *tflops <= 0 || !point.reason.empty()) return 0;
  const Job& j = point.job;
  // Megatron-LM's 2021 papers count recomputation and the whole square of the scores.
  const bool hardware = has(lower(table.field(row, "notes")), "hardware tflops");
  return *tflops * 1e12 /
         model::training_flops_per_token(j.shape, j.sequence, j.with_mtp,
                                         hardware && j.recompute.has(GroupName::layer), hardware);
}

double measured_peak_bytes(const PointTable& table, size_t row) {
  bool bad = false;
  const auto gib = number(table.field(row, "peak_mem_gb"), bad);
  if (!gib || *gib <= 0 || has(lower(table.field(row, "notes")), "not measured")) return 0;
  return *gib * 1024.0 * 1024 * 1024;
}

}  // namespace heddle::advisor
