#include "advisor/script/constants.h"

#include <algorithm>
#include <cmath>

#include "advisor/script/flag_effects.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor {

namespace {

// Settings and losses as they are found.
class Found {
 public:
  Found(const GivenFlags& flags, const Launch& launch, Constants& into)
      : given(flags), launch(launch), into_(into) {}

  template <class Value>
  void set(const char* key, const Value& value) {
    into_.settings.push_back(fmt::format("{}={}", key, value));
  }
  /// A flag that Heddle has no key for, with what it says.
  void lose(const std::string& what) { into_.lost.push_back(what); }
  void lose_flag(const std::string& flag) {
    if (given.has(flag)) lose(fmt::format("{} {}", flag, shown(given.known_text(flag))));
  }
  /// The number of a flag that is not needed: where nobody knows it, it is lost.
  std::optional<double> number(const std::string& flag, double otherwise) {
    if (!given.has(flag)) return otherwise;
    if (!given.is_known(flag)) {
      lose(flag + " (its value is not known)");
      return std::nullopt;
    }
    return given.real(flag, otherwise);
  }
  void carry(const char* key, const std::string& flag, double otherwise) {
    if (const std::optional<double> n = number(flag, otherwise)) set(key, *n);
  }

  const GivenFlags& given;
  const Launch& launch;

 private:
  Constants& into_;
};

void rotary(Found& f) {
  const model::Shape& s = f.launch.job.shape;
  if (s.learned_positions() > 0 || s.foreign.alibi) return;
  f.carry("model.rope_theta", "--rotary-base", 10000);
  const std::optional<double> part = f.number("--rotary-percent", 1);
  if (part && !s.is_latent()) f.set("model.partial_rotary_factor", *part);
  // MindSpeed's words; then LLaMA 3's, then YaRN's, which latent attention takes by default in Megatron-LM.
  const std::string type = f.given.known_text("--rope-scaling-type");
  const bool llama = f.given.has("--use-rope-scaling");
  const double factor = f.number("--rotary-scaling-factor", 1).value_or(1);
  const bool yarn = type == "yarn" || (!llama && type.empty() && factor > 1 &&
                                       (s.is_latent() || f.given.known_text("--rope-type") == "yarn"));
  if (llama) {
    f.set("model.rope_scaling.type", "llama3");
    f.carry("model.rope_scaling.factor", "--rope-scaling-factor", 8);
    f.set("model.rope_scaling.low_freq_factor", 1);
    f.set("model.rope_scaling.high_freq_factor", 4);
    f.set("model.rope_scaling.original_max_position_embeddings", 8192);
  } else if (yarn) {
    const bool own = type == "yarn";
    f.set("model.rope_scaling.type", "yarn");
    if (own) {
      f.carry("model.rope_scaling.factor", "--rope-scaling-factor", 1);
    } else {
      f.set("model.rope_scaling.factor", factor);
    }
    f.carry("model.rope_scaling.original_max_position_embeddings",
            own ? "--rope-scaling-original-max-position-embeddings" : "--yarn-original-max-position-embeddings",
            4096);
    f.carry("model.rope_scaling.beta_fast", own ? "--beta-fast" : "--yarn-beta-fast", 32);
    f.carry("model.rope_scaling.beta_slow", own ? "--beta-slow" : "--yarn-beta-slow", 1);
    f.carry("model.rope_scaling.mscale", own ? "--rope-scaling-mscale" : "--mscale", 1);
    f.carry("model.rope_scaling.mscale_all_dim", own ? "--rope-scaling-mscale-all-dim" : "--mscale-all-dim", 0);
  } else {
    f.lose_flag("--rope-scaling-type");
  }
}

void experts(Found& f) {
  const model::Shape& m = f.launch.job.shape;
  if (m.n_routed_experts == 0) return;
  const std::string score = f.given.known_text("--moe-router-score-function");
  if (score != "" && score != "softmax" && score != "sigmoid") f.lose_flag("--moe-router-score-function");
  f.set("model.sigmoid_scores", score == "sigmoid");
  const bool bias = f.given.has("--moe-router-enable-expert-bias");
  f.set("model.topk_bias", bias);
  if (bias) f.carry("model.bias_update_rate", "--moe-router-bias-update-rate", 1e-3);
  const std::optional<double> z = f.number("--moe-z-loss-coeff", 0);
  if (z) f.set("model.z_loss_weight", *z);
  // Several losses go with as many weights.
  const std::vector<std::string> types = f.given.all("--moe-router-load-balancing-type"),
                                 weights = f.given.all("--moe-aux-loss-coeff");
  const bool by_sequence = f.given.has("--seq-aux");
  for (size_t i = 0; i < std::max<size_t>(1, types.size()); ++i) {
    const std::string type = i < types.size() ? types[i] : "aux_loss";
    const std::string weight = i < weights.size() ? weights[i] : "0";
    if (type == "none") continue;
    if (type == "seq_aux_loss" || (by_sequence && type == "aux_loss")) {
      f.set("model.sequence_aux_loss_alpha", std::strtod(weight.c_str(), nullptr));
    } else if (type != "aux_loss" && type != "global_aux_loss") {
      f.lose(fmt::format("--moe-router-load-balancing-type {}", shown(type)));
    } else if (std::strtod(weight.c_str(), nullptr) != 0) {
      f.lose(
          fmt::format("--moe-aux-loss-coeff {} of {} (Heddle's balance loss is by sequence)", shown(weight), type));
    }
  }
  f.given.has("--moe-router-dtype"), f.given.has("--moe-router-pre-softmax"), f.given.has("--norm-topk-prob");
}

void model_constants(Found& f) {
  const model::Shape& s = f.launch.job.shape;
  f.carry("model.rms_norm_eps", "--norm-epsilon", 1e-5);
  f.carry("model.initializer_range", "--init-method-std", 0.02);
  const std::optional<double> hidden = f.number("--hidden-dropout", 0.1),
                              scores = f.number("--attention-dropout", 0.1);
  if (hidden) f.set("model.residual_dropout", *hidden), f.set("model.embedding_dropout", *hidden);
  // Not every kernel of Heddle's on a GPU drops probabilities, and a plan is counted without asking which will run.
  f.set("model.attention_dropout", 0);
  if (scores && *scores > 0)
    f.lose(fmt::format("--attention-dropout {} (model.attention_dropout sets it where the GPU's kernel has it)",
                       *scores));
  if (f.launch.job.shape.num_nextn_predict_layers > 0)
    f.carry("model.mtp_loss_weight", "--mtp-loss-scaling-factor", 0.1);
  rotary(f);
  experts(f);
  // The activation of GPT-OSS: gates and ups clamped, up + 1, the gate's sigmoid at 1.702 times.
  const double clamp = f.number("--activation-func-clamp-value", 0).value_or(0),
               offset = f.number("--glu-linear-offset", 0).value_or(0);
  const bool quick = f.given.has("--quick-geglu");
  if (quick && clamp > 0 && offset == 1) {
    f.set("model.swiglu_limit", clamp);
    f.set("model.swiglu_alpha", 1.702);
  } else {
    if (quick) f.lose("--quick-geglu without a clamp and an offset of 1 (Heddle's gate is SwiGLU)");
    if (clamp > 0) f.lose_flag("--activation-func-clamp-value");
    if (offset != 0) f.lose_flag("--glu-linear-offset");
  }
  if (s.activation == model::Activation::relu2) {
    f.set("model.activation", "relu2");
  } else if (!s.has_gated_mlp()) {
    f.set("model.activation", f.given.has("--openai-gelu") ? "gelu_tanh" : "gelu");
  }
  for (const char* other : {"--geglu", "--gelu-tanh"})
    if (f.given.has(other)) f.lose(fmt::format("{} (Heddle's gate is SwiGLU)", other));
}

void precision(Found& f) {
  if (f.given.has("--fp16")) f.lose("--fp16 (Heddle multiplies in bf16)");
  const std::string recipe = f.given.known_text("--fp8-recipe");
  if (f.given.has("--fp4-format")) {
    f.lose_flag("--fp4-format");
  } else if (f.given.has("--fp8-format") || f.given.has("--fp8")) {
    if (recipe == "blockwise") {
      f.set("device.fp8", "blocks");
    } else {
      f.lose(fmt::format("--fp8-recipe {} (Heddle's operands in eight bits go by blocks)",
                         recipe.empty() ? "delayed" : shown(recipe)));
    }
  }
}

// Steps of a number that is given in steps or in sequences.
std::optional<double> steps_of(Found& f, const char* iterations, const char* samples) {
  if (f.given.has(iterations)) return f.number(iterations, 0);
  if (!f.given.has(samples)) return std::nullopt;
  const std::optional<double> n = f.number(samples, 0);
  return n ? std::optional(std::ceil(*n / f.launch.job.global_batch)) : std::nullopt;
}

void rates(Found& f) {
  const std::optional<double> steps = steps_of(f, "--train-iters", "--train-samples"),
                              decays = steps_of(f, "--lr-decay-iters", "--lr-decay-samples");
  if (steps && *steps >= 1) f.set("train.steps", std::llround(*steps));
  if (decays && steps && *decays != *steps)
    f.lose(fmt::format("a decay over {:.0f} steps of {:.0f} (Heddle's ends with the run)", *decays, *steps));
  if (f.given.has("--lr")) f.carry("train.learning_rate", "--lr", 0);
  f.carry("train.min_learning_rate", "--min-lr", 0);
  const std::string style = f.given.known_text("--lr-decay-style");
  if (style == "WSD" || style == "wsd") {
    f.set("train.schedule", "wsd");
    const std::optional<double> last = steps_of(f, "--lr-wsd-decay-iters", "--lr-wsd-decay-samples");
    if (last) f.set("train.decay_steps", std::llround(*last));
    if (f.given.known_text("--lr-wsd-decay-style") != "linear")
      f.lose(fmt::format(
          "--lr-wsd-decay-style {} (Heddle's falls in a line)",
          f.given.has("--lr-wsd-decay-style") ? shown(f.given.known_text("--lr-wsd-decay-style")) : "exponential"));
  } else if (style == "" || style == "linear" || style == "cosine" || style == "constant") {
    f.set("train.schedule", style.empty() ? "linear" : style);
  } else if (style == "inverse-square-root") {
    f.set("train.schedule", "inverse_sqrt");
  } else {
    f.lose_flag("--lr-decay-style");
  }
  std::optional<double> warm = steps_of(f, "--lr-warmup-iters", "--lr-warmup-samples");
  if (!warm && f.given.has("--lr-warmup-fraction") && (decays || steps))
    warm = std::floor(f.number("--lr-warmup-fraction", 0).value_or(0) * (decays ? *decays : *steps));
  f.set("train.warmup_steps", std::llround(std::min(1e12, warm.value_or(0))));
  if (f.number("--lr-warmup-init", 0).value_or(0) != 0) f.lose_flag("--lr-warmup-init");
}

void optimizer(Found& f) {
  const std::string name = f.given.known_text("--optimizer");
  if (name.find("muon") != std::string::npos) {
    f.set("train.optimizer", "muon");
    f.carry("train.muon_momentum", "--muon-momentum", 0.95);
  } else if (name != "" && name != "adam") {
    f.lose_flag("--optimizer");
  }
  f.carry("train.beta1", "--adam-beta1", 0.9);
  f.carry("train.beta2", "--adam-beta2", 0.999);
  f.carry("train.epsilon", "--adam-eps", 1e-8);
  f.carry("train.weight_decay", "--weight-decay", 0.01);
  f.carry("train.clip_norm", "--clip-grad", 1);
  if (f.given.has("--qk-clip")) {
    f.carry("train.qk_clip", "--qk-clip-threshold", 100);
    if (f.number("--qk-clip-alpha", 0.5).value_or(0.5) != 0.5) f.lose_flag("--qk-clip-alpha");
    if (f.given.has("--group-query-attention"))
      f.lose("--qk-clip by the largest logit of a group (Heddle scales each head's queries by its own)");
  }
  const std::string ramp = fmt::format("{}", fmt::join(f.given.all("--rampup-batch-size"), " "));
  if (!ramp.empty()) f.set("train.batch_ramp", ramp);
  if (f.given.known_text("--weight-decay-incr-style") != "constant") f.lose_flag("--weight-decay-incr-style");
  for (const char* flag : {"--decoupled-lr", "--decoupled-min-lr", "--apply-wd-to-qk-layernorm", "--use-mup"})
    f.lose_flag(flag);
}

}  // namespace

Constants constants_of(const GivenFlags& flags, const Launch& launch) {
  Constants constants;
  Found found(flags, launch, constants);
  model_constants(found);
  precision(found);
  rates(found);
  optimizer(found);
  for (const std::string& flag : flags.unread())
    if (effect_of(flag) == FlagEffect::values) found.lose_flag(flag);
  return constants;
}

}  // namespace heddle::advisor
