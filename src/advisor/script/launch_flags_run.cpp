// Flags that say how the model runs: degrees, schedule, recompute, precision, optimizer, kernels, overlap.
#include <algorithm>
#include <cmath>
#include <optional>

#include "advisor/script/launch_flag_row.h"
#include "advisor/script/schedule_words.h"
#include "advisor/script/stage_flags.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/plan/layout.h"

namespace heddle::advisor {

namespace {

using cost::Precision;

bool tensor(const Launch& l) { return l.job.mesh.tp > 1; }

void write_batch(const Writing& w) {
  w.add("--micro-batch-size", {text_of(w.launch.job.microbatch)});
  w.add("--global-batch-size", {text_of(w.launch.job.global_batch)});
}
void read_batch(const Reading& r) {
  Job& j = r.launch.job;
  j.microbatch = static_cast<int>(r.given.whole("--micro-batch-size", 1, 1));
  const plan::Degrees& l = j.mesh;
  const auto within = [&](const char* name, int degree) {
    if (degree > r.devices) r.given.refuse(name, fmt::format("up to the {} devices (--devices)", r.devices));
  };
  within("--tensor-model-parallel-size", l.tp), within("--pipeline-model-parallel-size", l.pp),
      within("--context-parallel-size", l.cp);
  // Three degrees of up to 2^24 each: their product is bounded step by step.
  const int64_t two = static_cast<int64_t>(l.tp) * l.pp, ranks = two > r.devices ? two : two * l.cp;
  if (r.devices % ranks != 0) config_error("{} devices are no multiple of tp x pp x cp = {}", r.devices, ranks);
  j.mesh.dp = static_cast<int>(r.devices / ranks);
  // Without the flag a step is one microbatch of every data rank.
  j.global_batch = static_cast<int>(
      r.given.whole("--global-batch-size", static_cast<int64_t>(j.microbatch) * j.mesh.dp, 1, 1 << 30));
}

void write_experts_parallel(const Writing& w) {
  const plan::Degrees& l = w.launch.job.mesh;
  if (!moe(w.launch)) return;
  w.add("--expert-model-parallel-size", {text_of(l.ep)});
  w.add("--expert-tensor-parallel-size", {text_of(l.etp)});
}
void read_experts_parallel(const Reading& r) {
  plan::Degrees& l = r.launch.job.mesh;
  l.ep = static_cast<int>(r.given.whole("--expert-model-parallel-size", 1, 1));
  // Megatron's default is the tensor degree.
  int64_t etp = r.given.whole("--expert-tensor-parallel-size", l.tp, 1);
  if (r.dialect == Dialect::mindspeed && r.given.has("--moe-tp-extend-ep")) {
    etp = 1;
    l.ep = static_cast<int>(std::min<int64_t>(int64_t{l.ep} * l.tp, 1 << 24));
  }
  l.etp = static_cast<int>(etp);
  if (!moe(r.launch)) l.ep = l.etp = 1;
}

void write_pipeline(const Writing& w) {
  const plan::Degrees& l = w.launch.job.mesh;
  const int chunks = w.launch.job.chunks;
  const std::string_view method = method_of(w.launch.schedule);
  if (l.pp > 1 && !w.launch.layout.empty() && w.launch.noop.empty()) {
    w.add("--pipeline-model-parallel-layout", {w.launch.layout});
  } else if (chunks > 1 && method.empty()) {
    if (w.dialect == Dialect::megatron) {
      w.add("--num-virtual-stages-per-pipeline-rank", {text_of(chunks)});
    } else {
      w.add("--num-layers-per-virtual-pipeline-stage", {text_of(places_of(w.launch) / l.pp / chunks)});
    }
  }
  if (!method.empty()) {
    w.add("--schedules-method", {std::string(method)});
  } else if (chunks > 1 && !w.launch.job.software.overlap_pp) {
    w.add("--no-overlap-p2p-communication");
  }
}
void read_pipeline(const Reading& r) {
  Launch& launch = r.launch;
  const plan::Degrees& l = launch.job.mesh;
  int& chunks = launch.job.chunks;
  const int64_t layers = launch.job.shape.num_hidden_layers;
  chunks = static_cast<int>(r.given.whole("--num-virtual-stages-per-pipeline-rank", 1, 1, 4096));
  if (const int64_t each = r.given.whole("--num-layers-per-virtual-pipeline-stage", 0); each > 0 && l.pp > 1) {
    const int64_t counted = counted_places(r);
    if (counted % (each * l.pp) != 0)
      r.given.refuse("--num-layers-per-virtual-pipeline-stage",
                     fmt::format("a divisor of {} layers on {} ranks", counted, l.pp));
    chunks = static_cast<int>(counted / each / l.pp);
  }
  if (int64_t{l.pp} * chunks > 100000) config_error("{} x {} pipeline stages", l.pp, chunks);
  launch.layout = r.given.text("--pipeline-model-parallel-layout");
  const Pipeline named = pipeline_of_method(r.given.text("--schedules-method"));
  if (!launch.layout.empty()) {
    // Repeats hide bars: the number of stages is the multiple of the ranks that reading the string finds.
    std::optional<int64_t> held;
    for (int v = 1; v <= 256 && !held && int64_t{l.pp} * v <= 100000; ++v) {
      try {
        held = 0;
        for (const std::string& stage : plan::letters_of_layout(launch.layout, l.pp * v))
          *held += std::count(stage.begin(), stage.end(), 't');
        chunks = v;
      } catch (const ConfigError&) {
        held.reset();
      }
    }
    if (!held) r.given.refuse("--pipeline-model-parallel-layout", fmt::format("stages for {} ranks", l.pp));
    if (*held != layers)
      r.given.refuse("--pipeline-model-parallel-layout", fmt::format("stages that hold all {} layers", layers));
  }
  launch.job.software.overlap_pp = !r.given.has("--no-overlap-p2p-communication");
  const bool overlap = r.given.any({"--overlap-moe-expert-parallel-comm", "--moe-fb-overlap"});
  r.given.any({"--delay-wgrad-compute"});  // a part of that overlap
  if (named != nullptr) chunks = 1;
  launch.job.pipeline = named != nullptr           ? named
                        : chunks == 1 || l.pp == 1 ? one_f_one_b()
                        : overlap && l.ep > 1      ? interleaved_fused()
                                                   : interleaved();
  launch.schedule = launch.job.pipeline->name();
  if (l.pp > 1 && (launch.layout.empty() || !launch.noop.empty())) launch.layout = layout_by_flags(r);
}

// Words of --recompute-modules, in the order in which they are written.
constexpr std::pair<std::string_view, GroupName> kRecomputeModules[] = {
    {"core_attn", GroupName::attention}, {"layernorm", GroupName::norm}, {"mla_up_proj", GroupName::mla_up},
    {"moe_act", GroupName::activation},  {"mlp", GroupName::mlp},        {"moe", GroupName::moe}};

void write_recompute(const Writing& w) {
  const Job& j = w.launch.job;
  const Recompute& c = j.recompute;
  const auto stage = places_of(w.launch) / (int64_t{j.mesh.pp} * j.chunks);
  if (c.has(GroupName::layer)) {
    w.add("--recompute-granularity", {"full"});
    w.add("--recompute-method", {c.every == 1 ? "uniform" : "block"});
    w.add("--recompute-num-layers",
          {text_of(c.every == 1 ? 1 : std::llround(c.every * static_cast<double>(stage)))});
    return;
  }
  const bool own_words = w.dialect == Dialect::mindspeed;
  std::vector<std::string> modules;
  for (const auto& [word, group] : kRecomputeModules) {
    const bool has_own_word = group == GroupName::norm || group == GroupName::activation;
    if (!c.has(group) || (own_words && has_own_word) || (group == GroupName::activation && !moe(w.launch)))
      continue;
    modules.emplace_back(word);
  }
  if (!modules.empty()) {
    w.add("--recompute-granularity", {"selective"});
    w.add("--recompute-modules", modules);
  }
  if (c.has(GroupName::norm) && own_words) w.add("--recompute-norm");
  if (c.has(GroupName::activation) && own_words) w.add("--recompute-activation-function");
}
void read_recompute(const Reading& r) {
  Job& j = r.launch.job;
  Recompute& c = j.recompute = {};
  std::string granularity = r.given.text("--recompute-granularity");
  const std::string method = r.given.text("--recompute-method");
  // As it was said before there were other granularities.
  if (r.given.any({"--checkpoint-activations", "--activations-checkpoint-method"})) granularity = "full";
  const int64_t layers = r.given.whole("--recompute-num-layers", 1);
  // MindSpeed's own words, which full recomputation leaves nothing to.
  const bool norms = r.given.has("--recompute-norm"), experts = r.given.has("--moe-layer-recompute"),
             activations = r.given.any({"--recompute-activation-function", "--moe-zero-memory"});
  if (granularity == "full") {
    c.set(GroupName::layer);
    const double stage = static_cast<double>(places_of(r.launch)) / j.mesh.pp / j.chunks;
    if (method == "block") c.every = std::min(1.0, static_cast<double>(layers) / stage);
    return;
  }
  if (granularity != "" && granularity != "selective") r.given.refuse("--recompute-granularity", "full, selective");
  c.set(GroupName::norm, norms), c.set(GroupName::activation, activations), c.set(GroupName::moe, experts);
  if (granularity.empty() && !r.given.has("--recompute-activations")) return;
  std::vector<std::string> modules = r.given.all("--recompute-modules");
  if (modules.empty()) modules = {"core_attn"};
  for (const std::string& m : modules) {
    const auto* found = std::ranges::find(kRecomputeModules, m, [](const auto& row) { return row.first; });
    if (found != std::end(kRecomputeModules)) {
      c.set(found->second);
    } else {
      r.notes.push_back(fmt::format("--recompute-modules: '{}' is not described", shown(m)));
    }
  }
}

void write_offload(const Writing& w) {
  const Job& j = w.launch.job;
  if (!j.software.offload_activations) return;
  if (w.dialect == Dialect::mindspeed) {
    w.add("--swap-attention");
  } else {
    w.add("--cpu-offloading");
    w.add("--cpu-offloading-num-layers", {text_of(j.shape.num_hidden_layers - 1)});
  }
}
void read_offload(const Reading& r) {
  const bool layers = r.given.whole("--cpu-offloading-num-layers", 0) > 0;
  r.launch.job.software.offload_activations =
      r.given.any({"--cpu-offloading", "--fine-grained-activation-offloading", "--swap-attention"}) || layers;
}

// Homes of masters and moments, read once their bytes are known. MindSpeed's come to the device for the update in
// so many slices, each way beside the other. Megatron-LM's are updated on the host: gradients go there and weights
// come back.
constexpr double kReached = 0.7;  // part of the rated links and memory
constexpr int64_t kUsualSlices = 16;

PricedResidency swapped(const Job& j, int64_t slices) {
  const double bytes = j.software.state_bytes;
  PricedResidency home;
  home.optimizer = plan::StateResidency::swap;
  home.away_bytes = bytes * (1 - 1 / static_cast<double>(slices));
  home.host_bytes = bytes;
  home.end_s = bytes / (kReached * j.device.host_bytes_per_s);
  return home;
}

PricedResidency updated_on_host(const Job& j, double part, bool overlap) {
  const double bytes = j.software.state_bytes, link = kReached * j.device.host_bytes_per_s;
  PricedResidency home;
  home.optimizer = plan::StateResidency::host;
  home.away_bytes = home.host_bytes = part * bytes;
  const double update = part * (2 * bytes + 4) / (kReached * j.device.host_memory_bytes_per_s),
               there = part * 4 / link, back = part * 2 / link;
  home.end_s = overlap ? std::max({update, there, back}) : update + there + back;
  return home;
}

double to_millionths(double part) { return std::round(std::clamp(part, 0.0, 1.0) * 1e6) / 1e6; }

void write_optimizer_home(const Writing& w) {
  const Job& j = w.launch.job;
  const PricedResidency& home = j.residency;
  const double away = home.away_bytes / j.software.state_bytes;
  if (home.optimizer == plan::StateResidency::swap && w.dialect == Dialect::mindspeed) {
    w.add("--swap-optimizer");
    const int64_t slices = away < 1 ? std::llround(1 / (1 - away)) : kUsualSlices;
    if (slices != kUsualSlices) w.add("--swap-optimizer-times", {text_of(slices)});
  }
  if (home.optimizer != plan::StateResidency::host || w.dialect != Dialect::megatron) return;
  const double part = to_millionths(away);
  w.add("--optimizer-cpu-offload");
  if (part != 1) w.add("--optimizer-offload-fraction", {fmt::format("{}", part)});
  if (home == updated_on_host(j, part, true)) w.add("--overlap-cpu-optimizer-d2h-h2d");
}
void read_optimizer_home(const Reading& r) {
  Job& j = r.launch.job;
  j.residency = {};
  const int64_t slices = r.given.whole("--swap-optimizer-times", kUsualSlices, 1, 1 << 20);
  const double part = to_millionths(r.given.real("--optimizer-offload-fraction", 1));
  const bool overlap = r.given.has("--overlap-cpu-optimizer-d2h-h2d");
  if (r.given.has("--swap-optimizer")) {
    j.residency = swapped(j, slices);
  } else if (r.given.has("--optimizer-cpu-offload")) {
    j.residency = updated_on_host(j, part, overlap);
  }
}

void write_precision(const Writing& w) {
  const Precision p = w.launch.job.precision;
  if (p == Precision::fp16) return w.add("--fp16");
  w.add("--bf16");
  if (p == Precision::nvfp4) {
    w.add("--fp4-format", {"e2m1"});
    w.add("--fp4-recipe", {"nvfp4"});
  } else if (p != Precision::bf16) {
    w.add("--fp8-format", {p == Precision::mxfp8 ? "e4m3" : "hybrid"});
    w.add("--fp8-recipe", {p == Precision::mxfp8 ? "mxfp8" : p == Precision::block8 ? "blockwise" : "tensorwise"});
  }
}
void read_precision(const Reading& r) {
  Precision& p = r.launch.job.precision;
  p = r.given.has("--fp16") ? Precision::fp16 : Precision::bf16;
  if (!r.given.has("--fp16") && !r.given.has("--bf16"))
    r.notes.emplace_back("neither --bf16 nor --fp16: taken as bf16");
  if (r.given.any({"--fp8-format", "--fp8"})) {
    const std::string recipe = r.given.text("--fp8-recipe");
    if (recipe != "" && recipe != "delayed" && recipe != "tensorwise" && recipe != "mxfp8" && recipe != "blockwise")
      r.given.refuse("--fp8-recipe", "delayed, tensorwise, mxfp8, blockwise");
    p = recipe == "mxfp8" ? Precision::mxfp8 : recipe == "blockwise" ? Precision::block8 : Precision::fp8;
  }
  if (r.given.has("--fp4-format")) p = Precision::nvfp4;
}

void write_gradients(const Writing& w) {
  const Software& s = w.launch.job.software;
  if (s.sharded_weights) {
    if (w.dialect == Dialect::megatron) {
      w.add("--use-megatron-fsdp");
      w.add("--data-parallel-sharding-strategy", {"optim_grads_params"});
      w.add("--ckpt-format", {"fsdp_dtensor"});
    } else {
      w.add("--use-torch-fsdp2");
      w.add("--ckpt-format", {"torch_dist"});
      w.add("--no-gradient-accumulation-fusion");
    }
  }
  // FSDP2 shards the states itself.
  const bool itself = s.sharded_weights && w.dialect == Dialect::mindspeed;
  if (s.sharded_states && !itself) w.add("--use-distributed-optimizer");
  if (s.overlap_dp) {
    w.add("--overlap-grad-reduce");
    if (s.sharded_states && !itself && s.overlap_gather) w.add("--overlap-param-gather");
  }
  if (s.gradient_bytes == 2) w.add("--grad-reduce-in-bf16");
  if (s.state_bytes == 10) w.add("--reuse-fp32-param");
  if (s.state_bytes == 8 || s.state_bytes == 7 || s.state_bytes == 6) {
    w.add("--use-precision-aware-optimizer");
    w.add("--exp-avg-dtype", {s.state_bytes == 8 ? "bf16" : "fp8"});
    w.add("--exp-avg-sq-dtype", {s.state_bytes == 6 ? "fp8" : "bf16"});
  }
}
double moment_bytes(const Reading& r, const char* name) {
  const std::string type = r.given.text(name);
  if (type != "" && type != "fp32" && type != "fp16" && type != "bf16" && type != "fp8")
    r.given.refuse(name, "fp32, bf16, fp16, fp8");
  return type == "fp8" ? 1 : type == "bf16" || type == "fp16" ? 2 : 4;
}
void read_gradients(const Reading& r) {
  Software& s = r.launch.job.software;
  const std::string sharding = r.given.text("--data-parallel-sharding-strategy");
  s.sharded_weights = r.given.any({"--use-megatron-fsdp", "--use-custom-fsdp"}) && sharding == "optim_grads_params";
  s.sharded_weights = r.given.has("--use-torch-fsdp2") || s.sharded_weights;
  s.sharded_states = r.given.has("--use-distributed-optimizer") || s.sharded_weights;
  s.reduce_scatter = s.sharded_states;
  s.overlap_dp = r.given.has("--overlap-grad-reduce");
  s.overlap_gather = r.given.has("--overlap-param-gather");
  s.gradient_bytes = s.reduce_bytes = r.given.has("--grad-reduce-in-bf16") ? 2 : 4;
  s.state_bytes = r.given.has("--reuse-fp32-param") ? 10 : 12;
  const double first = moment_bytes(r, "--exp-avg-dtype"), second = moment_bytes(r, "--exp-avg-sq-dtype");
  if (r.given.has("--use-precision-aware-optimizer")) s.state_bytes = 4 + first + second;
}

void write_kernels(const Writing& w) {
  const Software& s = w.launch.job.software;
  const double dropout = s.dropout ? 0.1 : 0;
  for (const char* name : {"--attention-dropout", "--hidden-dropout"})
    w.add(name, {fmt::format("{:.1f}", dropout)});
  if (w.dialect == Dialect::mindspeed) {
    if (s.fused_attention) w.add("--use-flash-attn");
    if (s.fused_elementwise) {
      w.add("--use-fused-swiglu");
      w.add("--use-fused-rmsnorm");
      const model::Shape& shape = w.launch.job.shape;
      if (shape.learned_positions() == 0 && !shape.foreign.alibi) w.add("--use-fused-rotary-pos-emb");
    }
  } else {
    w.add("--attention-backend", {s.fused_attention ? "fused" : "unfused"});
    if (!s.fused_elementwise) {
      w.add("--no-bias-swiglu-fusion");
      w.add("--no-bias-gelu-fusion");
      w.add("--no-rope-fusion");
    }
    if (s.captured == 0.5) {
      w.add("--cuda-graph-impl", {"transformer_engine"});
      w.add("--cuda-graph-scope", {"attn"});
    } else if (s.captured == 0.95) {
      w.add("--cuda-graph-impl", {"full_iteration"});
      w.add("--no-check-for-nan-in-loss-and-grad");
    }
  }
}
void read_kernels(const Reading& r) {
  Software& s = r.launch.job.software;
  const double hidden = r.given.real("--hidden-dropout", 0.1), scores = r.given.real("--attention-dropout", 0.1);
  s.dropout = hidden > 0 || scores > 0;
  const std::string backend = r.given.text("--attention-backend");
  const bool mindspeed = r.dialect == Dialect::mindspeed;
  s.fused_attention = mindspeed ? r.given.has("--use-flash-attn") : backend != "unfused" && backend != "local";
  s.fused_elementwise =
      mindspeed ? r.given.any({"--use-fused-swiglu", "--use-fused-rmsnorm", "--use-fused-rotary-pos-emb"})
                : !r.given.any({"--no-bias-swiglu-fusion", "--no-bias-gelu-fusion"});
  const std::string scope = r.given.text("--cuda-graph-scope"), impl = r.given.text("--cuda-graph-impl");
  s.captured = 0;
  if (r.given.any({"--enable-cuda-graph", "--external-cuda-graph"}) || (impl != "" && impl != "none"))
    s.captured = scope == "full_iteration" || impl == "full_iteration" ? 0.95 : 0.5;
}

void write_overlaps(const Writing& w) {
  const Job& j = w.launch.job;
  const Software& s = j.software;
  if (tensor(w.launch) && s.overlap_tp)
    w.add(w.dialect == Dialect::megatron ? "--tp-comm-overlap" : "--use-ascend-mc2");
  if (j.mesh.cp > 1) {
    const bool a2a = j.context == model::Context::ulysses, both = j.context == model::Context::hybrid;
    const std::string inner = fmt::format("{}", j.context_inner);
    if (w.dialect == Dialect::megatron) {
      w.add("--cp-comm-type", {both ? "a2a+p2p" : a2a ? "a2a" : "p2p"});
      if (both)
        w.add("--hierarchical-context-parallel-sizes", {inner, fmt::format("{}", j.mesh.cp / j.context_inner)});
    } else {
      w.add("--context-parallel-algo", {both ? "hybrid_cp_algo" : a2a ? "ulysses_cp_algo" : "megatron_cp_algo"});
      if (both) w.add("--ulysses-degree-in-cp", {inner});
      if (j.context == model::Context::double_ring) w.add("--cp-window-size", {inner});
    }
  }
  if (!moe(w.launch)) return;
  if (j.mesh.ep > 1 && once_a_node(j) && j.exchange.capacity_factor == 0) {  // flex takes no padded experts
    w.add("--moe-token-dispatcher-type", {"flex"});
    w.add("--moe-flex-dispatcher-backend", {"deepep"});
  } else {
    w.add("--moe-token-dispatcher-type", {"alltoall"});
  }
  if (j.mesh.ep > 1 && s.layer_overlap != LayerOverlap::none && !s.overlap_exchange) {
    const bool all = s.layer_overlap == LayerOverlap::all;
    w.add(all && w.dialect == Dialect::mindspeed ? "--moe-alltoall-overlap-comm" : "--moe-shared-expert-overlap");
  }
  if (j.mesh.ep > 1 && s.overlap_exchange) {
    if (w.dialect == Dialect::megatron) {
      w.add("--overlap-moe-expert-parallel-comm");
      w.add("--delay-wgrad-compute");
    } else {
      w.add("--moe-fb-overlap");
    }
  }
}
void read_overlaps(const Reading& r) {
  Job& j = r.launch.job;
  Software& s = j.software;
  s.overlap_tp = r.given.any({"--tp-comm-overlap", "--use-ascend-mc2", "--use-ascend-coc", "--use-mc2"});
  const std::string context = r.given.text("--cp-comm-type"), algo = r.given.text("--context-parallel-algo");
  const bool two_levels = context == "a2a+p2p" || algo == "hybrid_cp_algo";
  const bool all_to_all = two_levels || context == "a2a" || algo == "ulysses_cp_algo" ||
                          (r.dialect == Dialect::mindspeed && algo.empty() && context.empty());
  j.context = all_to_all ? model::Context::ulysses : model::Context::ring;
  const int64_t cp = r.given.whole("--context-parallel-size", 1, 1),
                window = r.given.whole("--cp-window-size", 1, 1);
  if (window > 1 && cp > 1 && j.context == model::Context::ring) {
    if (window >= cp || cp % window != 0)
      r.given.refuse("--cp-window-size", fmt::format("a divisor of {} below it", cp));
    j.context = model::Context::double_ring;
    j.context_inner = static_cast<int>(window);
  }
  if (two_levels && window > 1) r.notes.emplace_back("--cp-window-size beside two levels is taken as one ring");
  if (two_levels) {
    const bool megatron = context == "a2a+p2p";
    const char* const sizes = megatron ? "--hierarchical-context-parallel-sizes" : "--ulysses-degree-in-cp";
    const int64_t inner = r.given.whole(sizes, 0, 1);
    if (inner > 1 && inner < cp && cp % inner == 0) {
      j.context = model::Context::hybrid;
      j.context_inner = static_cast<int>(inner);
    } else if (cp > 1) {
      if (inner > 0 && cp % inner != 0) r.given.refuse(sizes, fmt::format("a divisor of {} first", cp));
      r.notes.emplace_back(inner == 1 ? "context parallelism of two levels is taken as a ring"
                                      : "context parallelism of two levels is taken as all-to-all");
      if (inner == 1) j.context = model::Context::ring;
    }
  }
  const std::string dispatcher = r.given.text("--moe-token-dispatcher-type"),
                    backend = r.given.text("--moe-flex-dispatcher-backend");
  const bool flex = dispatcher == "flex" && (backend.empty() || backend == "deepep" || backend == "hybridep");
  j.exchange.topology = r.given.has("--moe-enable-deepep") || flex ? ir::Topology::node : ir::Topology::plain;
  if (dispatcher == "allgather") r.notes.emplace_back("the all-gather dispatcher is taken as all-to-all");
  s.overlap_exchange = r.given.any({"--overlap-moe-expert-parallel-comm", "--moe-fb-overlap"});
  // Overlap within a microbatch: beside shared experts, or beside the weight gradients of the others too.
  const bool shared = r.given.has("--moe-shared-expert-overlap"),
             all = r.given.any({"--moe-alltoall-overlap-comm", "--moe-allgather-overlap-comm"});
  s.layer_overlap = all ? LayerOverlap::all : shared ? LayerOverlap::shared : LayerOverlap::none;
  // One expert's rows beside another's products: grouped products, which every script has, leave nothing of that.
  if (r.given.has("--moe-permutation-async-comm") && !r.given.has("--moe-grouped-gemm"))
    r.notes.emplace_back("--moe-permutation-async-comm beside experts one by one: taken as no overlap");
  if (r.given.has("--moe-router-force-load-balancing")) r.launch.job.imbalance = 1;
}

}  // namespace

const std::vector<Row>& run_rows() {
  static const std::vector<Row> all{
      number_row<"--tensor-model-parallel-size", &plan::Degrees::tp, 1>("parallel"),
      number_row<"--pipeline-model-parallel-size", &plan::Degrees::pp, 1>("parallel"),
      number_row<"--context-parallel-size", &plan::Degrees::cp, 1>("parallel"),
      switch_row<"--sequence-parallel", &Software::sequence_parallel, true, tensor>("parallel"),
      {"training", write_batch, read_batch},
      {"parallel", write_experts_parallel, read_experts_parallel},
      {"parallel", write_pipeline, read_pipeline},
      {"parallel", write_overlaps, read_overlaps},
      {"memory", write_recompute, read_recompute},
      {"memory", write_offload, read_offload},
      {"training", write_precision, read_precision},
      {"memory", write_gradients, read_gradients},
      {"memory", write_optimizer_home, read_optimizer_home},
      {"training", write_kernels, read_kernels},
      switch_row<"--cross-entropy-loss-fusion", &Software::fused_loss>("training"),
  };
  return all;
}

}  // namespace heddle::advisor
