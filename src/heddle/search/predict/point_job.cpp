#include "heddle/search/predict/point_job.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/plans/copies.h"

namespace heddle::search {

namespace {

using cost::Precision;

std::string lower(std::string_view text) {
  std::string out(text.substr(0, 2000));
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// One row, read once.
class Row {
 public:
  Row(const PointTable& table, size_t row) : table_(table), row_(row) {}
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

 private:
  const PointTable& table_;
  size_t row_;
  std::string wrong_;
};

void note(std::string& list, const std::string& what) {
  if (!list.empty()) list += "; ";
  list += what;
}

// The preset's numbers with the row's own put over them; a model without preset is described by the row alone.
std::string read_shape(Row& row, model::Shape& s) {
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
  if (preset != nullptr && hidden > 0 && hidden != preset->hidden) preset = nullptr;
  if (preset != nullptr) {
    s = *preset;
  } else {
    s.hidden = hidden;
    s.layers = layers;
    const bool gpt = has(name, "gpt") || has(name, "megatron") || has(name, "bloom") || has(name, "mpt") ||
                     has(name, "opt-") || has(name, "turing");
    if (gpt && !has(name, "gpt-oss")) {
      s.gated = false;
      s.tied = true;
      if (!has(name, "mpt")) s.qkv_bias = s.out_bias = s.ffn_bias = s.norm_bias = true;
      if (has(name, "mpt") || has(hw, "jean zay"))
        s.alibi = true;
      else
        s.positions = 2048;
    }
    if (has(name, "nemotron")) s.gated = false;
    if (has(name, "deepseek") || has(name, "kimi")) s.mla = {1536, 512, 128, 64, 128};
    s.ffn = s.gated ? 0 : 4 * hidden;
    s.heads = std::max<int64_t>(1, hidden / 128);
    s.kv_heads = 0;
    s.vocab = has(hw, "jean zay") || has(name, "bloom") ? 250880 : s.gated ? 128256 : 51200;
  }
  s.name = row.text("model").substr(0, 80);
  if (layers > 0 && layers != s.layers && s.is_hybrid())
    return "a hybrid model cut to other layers is not described";
  if (layers > 0 && layers < s.layers && proxy) s.dense_layers = 0, s.mtp = 0;
  if (layers > 0) s.layers = layers;
  const bool other_heads = heads > 0 && heads != s.heads;
  if (heads > 0) s.heads = heads;
  if (kv_heads > 0 && !s.is_mla()) s.kv_heads = kv_heads;
  if (s.kv_heads == 0 || (other_heads && kv_heads == 0)) s.kv_heads = s.heads;
  if (s.head_dim == 0 || other_heads) s.head_dim = std::max<int64_t>(1, s.hidden / s.heads);
  if (ffn > 0) s.ffn = ffn;
  if (vocab > 0) s.vocab = vocab;
  if (experts > 0) s.moe.count = experts;
  if (topk > 0) s.moe.chosen = topk;
  if (moe_ffn > 0) s.moe.ffn = moe_ffn;
  if (!row.text("shared_experts").empty() && preset == nullptr) s.moe.shared_ffn = shared * s.moe.ffn;
  const std::string missing = model::check_shape(s);
  return missing.empty() ? "" : fmt::format("the row lacks {}", missing);
}

// "FP8 or NVFP4" is the narrower: both were shipped, the faster was run.
Precision read_precision(const Row& row, const std::string& source) {
  const std::string p = row.lowered("precision");
  if (has(p, "fp4")) return Precision::nvfp4;
  if (has(p, "mxfp8") || has(p, "fp8-mx") || has(p, "finer")) return Precision::mxfp8;
  if (has(p, "1x128") || has(p, "block") || has(p, "fp8-sc")) return Precision::block8;
  if (has(p, "fp8")) return Precision::fp8;
  if (has(p, "fp16") || (p.empty() && has(source, "bigscience"))) return Precision::fp16;
  if (p.empty() && has(source, "mlcommons")) return Precision::fp8;
  return Precision::bf16;
}

// The first "26.04" or "26.04.01" after an occurrence of `mark`, as years: 26 and 3/12, and half a month for the
// patch.
double date_after(const std::string& text, std::string_view mark) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::string_view rest = std::string_view(text).substr(at + mark.size());
    const auto digit = [&](size_t i) {
      return i < rest.size() && std::isdigit(static_cast<unsigned char>(rest[i])) ? rest[i] - '0' : -100;
    };
    if (rest.size() < 5 || rest[2] != '.') continue;
    const double year = digit(0) * 10 + digit(1), month = digit(3) * 10 + digit(4);
    if (year < 0 || month < 1 || month > 12) continue;
    const bool patch = rest.size() > 7 && rest[5] == '.' && digit(6) >= 0;
    return year + (month - 1) / 12 + (patch ? 0.5 / 12 : 0);
  }
  return 0;
}

Release read_release(const std::string& source, const std::string& extra) {
  struct Known {
    const char* part;
    const char* stack;
    const char* name;
    double date;
  };
  // Dates are those of the source's own text or of the repository's file.
  static const Known known[] = {
      {"bigscience", "deepspeed", "tr11", 22.1},
      {"2104.04473", "megatron21", "megatron 2021", 21.3},
      {"calculon", "megatron21", "megatron 2022", 22.4},
      {"llm-foundry", "fsdp", "llm-foundry", 23.8},
      {"202412", "titan", "torchtitan 24.12", 24.95},
      {"torchtitan", "titan", "torchtitan 25.06", 25.45},
      {"simumax", "megatron", "simumax", 26.0},
      {"moe-modelzoo", "megatron", "modelzoo", 25.8},
      {"2603.07685", "megatron", "mcore report", 26.1},
      {"mlcommons/training_results_v4.1", "mlperf", "mlperf 4.1", 24.75},
      {"mlcommons/training_results_v5.0", "mlperf", "mlperf 5.0", 25.3},
      {"mlcommons/training_results_v5.1", "mlperf", "mlperf 5.1", 25.7},
      {"mlcommons", "mlperf", "mlperf", 25.3},
      {"mcore r0.8.0", "megatron", "mcore 0.8", 24.6},
      {"performance_long_sequence", "megatron", "nemo long", 25.2},
      {"verification_cards", "megatron", "cards", 26.6},
      {"nemo-mbridge-perf", "megatron", "bridge skills", 26.2},
      {"2412.19437", "deepseek", "deepseek", 24.9},
      {"llama", "megatron", "meta", 24.5},
      {"megatron-lm", "megatron", "mcore", 25.8},
  };
  double date = date_after(source, "[");
  if (date == 0) date = date_after(source, "nemo ");
  if (date > 0) return {"megatron", fmt::format("nemo {:.3f}", date), date};
  for (const Known& k : known)
    if (has(source, k.part)) return {k.stack, k.name, k.date};
  return {has(extra, "fsdp") ? "fsdp" : "megatron", "other", 0};
}

void read_recompute(const Row& row, const std::string& source, model::Recompute& r, std::string& assumed) {
  const std::string text = row.lowered("recompute");
  if (has(text, "none")) return;
  r.full = has(text, "full");
  // Selective checkpointing of ops computes every second product again.
  if (has(text, "sac") || has(text, "selective ac") || (text.empty() && has(source, "torchtitan")))
    r.full = true, r.every = 0.5;
  if (has(text, "core_attn") || text == "selective") r.scores = true;
  if (has(text, "norm")) r.norms = true;
  if (has(text, "mla_up") || has(text, "mla up")) r.latent_up = true;
  if (has(text, "act") && !r.full) r.activations = true;
  if (has(text, "mlp")) r.dense = true;
  if (has(text, "moe") && !has(text, "moe_act")) r.experts = true;
  if (text.empty() && has(source, "bigscience")) r.full = true, note(assumed, "full recomputation");
}

// The number after `mark`; 0 where there is none.
double number_after(const std::string& text, std::string_view mark) {
  const size_t at = text.find(mark);
  double n = 0;
  if (at == std::string::npos) return 0;
  const auto [end, error] = std::from_chars(text.data() + at + mark.size(), text.data() + text.size(), n);
  return error == std::errc() && n > 0 && n < 1e6 ? n : 0;
}

// What a run of Heddle's is told of copies of hot experts: "replicas auto", or the number of slots.
int replicas_after(const std::string& text) {
  constexpr std::string_view kMark = "replicas ";
  const size_t at = text.find(kMark);
  if (at == std::string::npos) return 0;
  const std::string word = text.substr(at + kMark.size());
  return replicas_of(word.substr(0, word.find_first_of(" ;,"))).value_or(0);
}

// What the sources say, or what their software does by default.
void read_software(const std::string& extra, const Release& release, const Row& row, Job& j) {
  Software& s = j.software;
  const bool hopper = j.device.family == cost::Family::hopper, moe = j.shape.moe.count > 0;
  s.overlap_pp = true;
  if (release.stack == "deepspeed" || release.stack == "megatron21") {
    s.fused_attention = s.sequence_parallel = s.overlap_tp = s.overlap_dp = s.overlap_pp = s.fused_loss = false;
    s.dropout = true;
    s.fused_elementwise = false;
    s.sharded_states = release.stack == "deepspeed";
    s.gradient_bytes = has(row.lowered("precision"), "fp32 grad") || release.stack != "deepspeed" ? 4 : 2;
    s.reduce_bytes = 4;
    s.reduce_scatter = false;
    if (release.stack == "deepspeed") {
      // The BF16 optimizer keeps gradients in both types. Its reports are the driver's: reserved blocks, the
      // context.
      if (s.gradient_bytes == 4) s.gradient_bytes = 6;
      s.launch_factor = 10;  // random states are fetched and put back around every checkpointed layer
      s.reserve = 1.3;
      s.context_bytes = 3e9;
    }
  } else if (release.stack == "fsdp") {
    s.sharded_weights = true;
    s.sequence_parallel = s.fused_elementwise = s.fused_loss = false;
    s.reduce_bytes = 2;
    s.attention_speed = 0.5;  // Triton kernels of 2023
  } else if (release.stack == "titan") {
    s.attention_speed = 0.7;               // FlashAttention-2
    s.sharded_weights = j.layout.pp == 1;  // in a pipeline weights stay gathered for the whole step
    s.fused_elementwise = has(extra, "compile") || j.layout.pp > 1;
    s.overlap_tp = has(extra, "async");
    s.fused_loss = false;
  } else {
    // Megatron-Bridge's recipes accumulate in BF16; Megatron-Core by itself in fp32.
    const bool bridge =
        release.name.starts_with("nemo ") || release.name == "cards" || release.name == "bridge skills";
    s.gradient_bytes = bridge ? 2 : 4;
    s.reduce_bytes = 2;
    if (has(extra, "fsdp shard") || has(extra, "fsdp on")) s.sharded_weights = true;
  }
  if (has(extra, "sp off")) s.sequence_parallel = false;
  if (has(extra, "no comm overlap")) s.overlap_tp = s.overlap_dp = s.overlap_pp = false;
  if (has(extra, "cp all-to-all")) s.context_all_to_all = true;
  s.dual_pipe = has(extra, "dualpipe");
  if (s.dual_pipe) s.overlap_exchange = true;
  s.offload_activations = has(extra, "offload") && !has(extra, "offload off");
  if (moe) {
    const bool plain = has(extra, "a2a") || has(extra, "tokendrop");
    s.once_a_node = !plain || has(extra, "deepep") || has(extra, "hybridep");
    s.overlap_exchange |= has(extra, "a2a overlap") || has(extra, "ep overlap");
    // Megatron-Bridge's recipes overlap the exchange where it leaves the fast domain, and capture whole iterations
    // on Blackwell from 26.06 on.
    const bool recipes = release.name.starts_with("nemo ");
    if (recipes && cost::ranks_inside(j.device, {j.layout.ep, j.layout.etp}) < j.layout.ep)
      s.overlap_exchange = true;
    if (recipes && !hopper) s.captured = release.date > 26.4 ? 0.9 : release.date > 26.05 ? 0.1 : 0;
    if (recipes && j.shape.is_hybrid()) s.captured = 0.3;
    if (release.name == "cards" && !hopper) s.captured = has(extra, "natural") ? 0 : 0.9;
    if (has(extra, "cuda graph")) s.captured = has(extra, "full-iteration") ? 0.95 : 0.5;
    if (has(extra, "eager")) s.captured = 0;
  } else if (release.stack == "mlperf" || release.stack == "megatron") {
    s.captured = 0.5;
  }
  if (has(extra, "natural routing")) j.imbalance = 1.15;
  if (moe) j.shape.moe.capacity = number_after(extra, "capacity ");
  if (moe) j.shape.moe.replicas = replicas_after(extra);
  if (has(extra, "lora")) j.frozen_base = true;
  j.with_mtp = !has(extra, "w/o mtp");
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

std::string read_layout(Row& row, Job& j, std::string& assumed, bool& batch_known) {
  Layout& l = j.layout;
  const int64_t gpus = row.whole("gpus"), tp = row.whole("tp"), pp = row.whole("pp"), vpp = row.whole("vpp"),
                ep = row.whole("ep"), etp = row.whole("etp"), cp = row.whole("cp"), dp = row.whole("dp"),
                mbs = row.whole("mbs"), gbs = row.whole("gbs");
  if (!row.wrong().empty()) return row.wrong();
  if (tp == 0 && pp == 0) return "the row lacks tp and pp";
  for (const int64_t n : {gpus, tp, pp, vpp, ep, etp, cp, dp, mbs})
    if (n > (1 << 24)) return fmt::format("a degree of {}", n);
  const auto or_one = [](int64_t n) { return static_cast<int>(std::max<int64_t>(1, n)); };
  l.tp = or_one(tp), l.pp = or_one(pp), l.vpp = or_one(vpp), l.ep = or_one(ep), l.etp = or_one(etp),
  l.cp = or_one(cp);
  if (cp == 0 && gpus > 0 && dp > 0 && gpus % (dp * l.tp * l.pp) == 0)
    l.cp = static_cast<int>(gpus / (dp * l.tp * l.pp));
  const int64_t ranks = static_cast<int64_t>(l.tp) * l.pp * l.cp;
  if (gpus == 0 && dp == 0) return "the row lacks gpus";
  if (ranks <= 0 || ranks > (1 << 26)) return "tp x pp x cp is too large";
  if (gpus > 0 && gpus % ranks != 0)
    return fmt::format("{} gpus are no multiple of tp x pp x cp = {}", gpus, ranks);
  l.devices = static_cast<int>(gpus > 0 ? gpus : std::min<int64_t>(ranks * dp, 1 << 26));
  l.dp = static_cast<int>(l.devices / ranks);
  if (gpus > 0 && dp > 0 && dp != l.dp) note(assumed, fmt::format("dp {} from gpus, not {}", l.dp, dp));
  if (etp == 0 && j.shape.moe.count > 0) l.etp = 1;
  const int64_t stage_ranks = static_cast<int64_t>(l.tp) * l.cp * l.dp;
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
  if (vpp == 0 && has(row.lowered("extra"), "interleaved")) l.vpp = 2;
  const int64_t assumed_batch = local > 0 ? local * l.dp : fills * j.microbatch * l.dp;
  if (mbs == 0) note(assumed, fmt::format("microbatch {}", j.microbatch));
  if (gbs == 0 && assumed_batch > (1 << 30)) return "the row lacks gbs";
  if (gbs == 0) note(assumed, fmt::format("global batch {}", assumed_batch));
  batch_known = gbs > 0 || local > 0 || l.pp == 1;
  j.global_batch = static_cast<int>(gbs > 0 ? gbs : assumed_batch);
  if (j.global_batch < l.dp) return fmt::format("a global batch of {} on {} data ranks", j.global_batch, l.dp);
  if (gbs > 0 && mbs > 0) j.microbatch = std::min(j.microbatch, std::max(1, j.global_batch / l.dp));
  return "";
}

}  // namespace

PointJob job_of_point(const PointTable& table, size_t index) {
  PointJob p;
  Job& j = p.job;
  Row row(table, index);
  const std::string source = row.lowered("source"), extra = row.lowered("extra") + "; " + row.lowered("notes");
  p.release = read_release(source, extra);
  p.reason = read_shape(row, j.shape);
  if (!row.wrong().empty()) p.reason = row.wrong();
  if (!p.reason.empty()) return p;
  j.device = cost::find_accelerator(row.text("hw"));
  if (j.device.name.empty()) {
    p.reason = fmt::format("the device '{}' is not known", row.text("hw").substr(0, 60));
    return p;
  }
  bool batch_known = true;
  p.reason = read_layout(row, j, p.assumed, batch_known);
  if (!p.reason.empty()) return p;
  j.sequence = static_cast<double>(row.whole("seq"));
  if (!row.wrong().empty()) {
    p.reason = row.wrong();
    return p;
  }
  if (j.sequence == 0) {
    j.sequence = j.shape.vocab == 128256 ? 8192 : j.shape.positions > 0 ? 2048 : 4096;
    note(p.assumed, fmt::format("sequence {}", j.sequence));
  }
  if (!batch_known) p.time_reason = "the row lacks gbs: no throughput";
  j.precision = read_precision(row, source);
  read_recompute(row, source, j.recompute, p.assumed);
  read_software(row.lowered("extra"), p.release, row, j);
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
         model::training_flops_per_token(j.shape, j.sequence, j.with_mtp, hardware && j.recompute.full, hardware);
}

double measured_peak_bytes(const PointTable& table, size_t row) {
  bool bad = false;
  const auto gib = number(table.field(row, "peak_mem_gb"), bad);
  if (!gib || *gib <= 0 || has(lower(table.field(row, "notes")), "not measured")) return 0;
  return *gib * 1024.0 * 1024 * 1024;
}

}  // namespace heddle::search
