#include "advisor/points/point_software.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "heddle/cost/device_time.h"

namespace heddle::advisor {

namespace {

// `word` by itself: no letter or digit before and behind it.
bool has_word(std::string_view text, std::string_view word) {
  const auto inside = [&](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    if ((at == 0 || !inside(at - 1)) && !inside(at + word.size())) return true;
  return false;
}

// Setting of replicas of hot experts in a run of Heddle's: "replicas auto", or the number of slots.
int replicas_after(const std::string& text) {
  constexpr std::string_view kMark = "replicas ";
  const size_t at = text.find(kMark);
  if (at == std::string::npos) return 0;
  const std::string word = text.substr(at + kMark.size());
  return replicas_of(word.substr(0, word.find_first_of(" ;,"))).value_or(0);
}

// Part of the layers that "full block 21" recomputes: so many of each stage's chunk.
double block_part(const std::string& text, const Job& j) {
  const double blocks = number_after(text, "block ");
  if (blocks <= 0) return 1;
  const double of = number_after(text, "of ");
  const auto layers = static_cast<double>(of > 0 ? of : j.shape.num_hidden_layers);
  return std::min(1.0, blocks * (of > 0 ? 1 : j.mesh.pp * j.chunks) / layers);
}

// Mean of "[3 0]" over the layers of a stage.
double listed_part(const std::string& text, const Job& j) {
  const size_t open = text.find('['), close = text.find(']', open);
  if (open == std::string::npos || close == std::string::npos) return 1;
  double sum = 0;
  int count = 0;
  for (size_t at = open + 1; at < close;) {
    double n = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + close, n);
    if (error == std::errc() && n >= 0 && n < 1e4) sum += n, ++count, at = static_cast<size_t>(end - text.data());
    ++at;
  }
  return std::clamp(sum / static_cast<double>(std::max<int64_t>(1, j.shape.num_hidden_layers)), 0.0,
                    count > 0 ? 1.0 : 0.0);
}

void read_recompute(const SoftwareText& t, const Release& release, Job& j, std::string& assumed) {
  Recompute& r = j.recompute;
  std::string text = t.recompute;
  // Some sources print it among other words: "recompute layernorm, moe_act; ...".
  if (const size_t at = t.extra.find("recompute "); at != std::string::npos && text.empty())
    text = t.extra.substr(at + 10, t.extra.find(';', at) - at - 10);
  if (has(text, "none") || has(text, "no recompute")) return;
  if (has(text, "full")) {
    r.set(GroupName::layer);
    r.every = has(text, "[") ? listed_part(text, j) : block_part(text, j);
    if (r.every <= 0) r.set(GroupName::layer, false), r.every = 1;
    if (r.has(GroupName::layer) && r.every >= 1) return;
  }
  // Selective checkpointing of ops computes every second product again.
  if (has(text, "sac") || has(text, "selective ac") || (text.empty() && release.stack == "titan"))
    r.set(GroupName::layer), r.every = 0.5;
  if (release.stack == "xla") {
    // MaxText's policies: `minimal` keeps the products, others those outside of the feed-forward block.
    if (has(text, "offloaded")) r.set(GroupName::layer), r.every = 0.8;
    if (has(text, "minimal") || has(text, "save_dot")) r.set(GroupName::norm), r.set(GroupName::activation);
    if (has(text, "ffn1") || has(text, "mlpwi")) r.set(GroupName::mlp);
    return;
  }
  if (has(text, "core_attn") || text == "selective") r.set(GroupName::attention);
  if (has(text, "norm") || has_word(text, "select")) r.set(GroupName::norm);
  if (has(text, "mla_up") || has(text, "mla up")) r.set(GroupName::mla_up);
  if ((has(text, "act") || has_word(text, "select")) && !r.has(GroupName::layer)) r.set(GroupName::activation);
  if (has_word(text, "mlp")) r.set(GroupName::mlp);
  if (has_word(text, "moe")) r.set(GroupName::moe);
  if (text.empty() && release.stack == "deepspeed" && release.name == "tr11")
    r.set(GroupName::layer), note(assumed, "full recomputation");
}

// Words that MindSpeed's and Primus's sources print for Megatron-LM's switches: none printed means off.
void read_switches(const SoftwareText& t, Job& j) {
  Software& s = j.software;
  const std::string& e = t.extra;
  if (e.empty()) return;
  s.sequence_parallel = has_word(e, "sp") || has(e, "sequence");
  s.sharded_states = has(e, "dist-opt") || has(e, "zero") || has(e, "optimizer") || has(e, "overlap");
  s.overlap_dp = has(e, "overlap") && !has(e, "no overlap");
  s.overlap_gather = has(e, "param");
  s.overlap_tp = has(e, "mc2") || has_word(e, "coc") || has(e, "fine_grain");
  if (has(e, "zero3")) s.sharded_weights = true;
  if (has(e, "swap-attention")) s.offload_activations = true;
  if (has(e, "reuse-fp32")) s.state_bytes = 10;
  if (has(e, "swap-optimizer")) {
    // Masters and moments come from the host and go back, at the step's end.
    constexpr double kState_bytes = 12, kLinkEfficiency = 0.5;  // pageable memory and casts on the way
    j.residency.away_bytes = j.residency.host_bytes = kState_bytes;
    j.residency.end_s = 2 * kState_bytes / (kLinkEfficiency * j.device.host_bytes_per_s);
  }
}

bool narrow_operands(const Job& j) {
  return j.precision != cost::Precision::bf16 && j.precision != cost::Precision::fp16;
}

void read_stack(const SoftwareText& t, const Release& release, Job& j) {
  Software& s = j.software;
  const std::string& extra = t.extra;
  const std::string& stack = release.stack;
  const bool moe = j.shape.n_routed_experts > 0;
  if (stack == "deepspeed" || stack == "megatron21") {
    s.fused_attention = s.sequence_parallel = s.overlap_tp = s.overlap_dp = s.overlap_pp = s.fused_loss = false;
    s.dropout = true;
    s.fused_elementwise = false;
    s.sharded_states = stack == "deepspeed";
    s.gradient_bytes = has(t.precision, "fp32 grad") || stack != "deepspeed" ? 4 : 2;
    s.reduce_bytes = 4;
    s.reduce_scatter = false;
    if (stack == "deepspeed") {
      // The BF16 optimizer keeps gradients in both types.
      if (s.gradient_bytes == 4) s.gradient_bytes = 6;
      s.launch_factor = 10;  // random states are fetched and put back around every checkpointed layer
    }
  } else if (stack == "fsdp") {
    s.sharded_weights = true;
    s.sequence_parallel = s.fused_elementwise = s.fused_loss = false;
    s.reduce_bytes = 2;
    s.attention_speed = 0.5;  // Triton kernels of 2023
  } else if (stack == "fsdp2") {
    s.sharded_weights = true;
    s.reduce_bytes = 2;
    s.gradient_bytes = 2;
    s.fused_elementwise = has_word(extra, "te") || has(extra, "compile") || has(extra, "liger");
    s.attention_speed = has(extra, "sdpa") || has(extra, "flex") ? 0.7 : 1;
  } else if (stack == "titan") {
    s.attention_speed = 0.7;             // FlashAttention-2
    s.sharded_weights = j.mesh.pp == 1;  // in a pipeline weights stay gathered for the whole step
    // The compiler fuses what is element-wise, not the casts of dynamic FP8.
    s.fused_elementwise = (has(extra, "compile") || j.mesh.pp > 1) && !narrow_operands(j);
    s.overlap_tp = has(extra, "async");
    s.fused_loss = false;
  } else if (stack == "xla") {
    // The compiler fuses, overlaps and launches whole steps.
    s.sharded_weights = s.sharded_inside = true;
    s.captured = 1;
    s.gradient_bytes = 4;
    s.reduce_bytes = 4;
  } else if (stack == "mindspore") {
    s.captured = 0.9;  // graph mode
    read_switches(t, j);
    s.fused_attention = has_word(extra, "fa") || has(extra, "flash") || release.date > 24.3;
  } else {
    // Megatron-Bridge's recipes accumulate and reduce in BF16; Megatron-Core by itself in fp32.
    s.gradient_bytes = release.framework == "bridge" || release.framework == "nemo" ? 2 : 4;
    s.reduce_bytes = release.framework.starts_with("megatron") ? 4 : 2;
    if (has(extra, "fsdp shard") || has(extra, "fsdp on") || has(extra, "zero3")) s.sharded_weights = true;
    if (release.framework == "mindspeed") read_switches(t, j);
    if (release.framework == "mindspeed" && j.sequence <= 8192)
      s.fused_attention = has_word(extra, "fa") || has(extra, "mcore");
    if (has(extra, "no overlap")) s.overlap_dp = false;
  }
  // Megatron's own loss works on logits in fp32; its fused one is a switch. Primus's cumulative rows turn it on
  // first.
  for (const char* plain : {"mindspeed", "megatron", "megatron-ci", "flagperf", "primus"})
    if (release.framework.starts_with(plain))
      s.fused_loss = has(extra, "ce fusion") || has(extra, "cross-entropy") || has(extra, "cumulative");
  if (j.device.family == cost::Family::cdna3 && stack != "mlperf" && !has(extra, "turbo")) {
    // Without the kernels of Primus-Turbo attention takes 27 % of Llama-70B's step at 8,192 positions, products
    // take 67 % (AMD, "Deep Dive into Primus"). On MI355X it runs at 730 TFLOP/s forward and 210 backward.
    s.attention_speed = 0.65;
    // Megatron-LM by itself is a fifth slower on a whole step than AMD's Primus, in two reports of MI300X and
    // MI355X.
    if (release.framework == "megatron") s.attention_speed = 0.43;
  }
  // Kernels before FlashAttention-3 gain nothing beyond 8,192 positions (arXiv 2407.08608, figure 5).
  constexpr double kLongest = 8192;
  if (const double half = cost::sustained(j.device).half_keys; s.attention_speed < 1 && j.sequence > kLongest)
    s.attention_speed *= (1 + half / j.sequence) / (1 + half / kLongest);
  if (release.framework.ends_with(kForeign)) {
    // Backward 2,790 ms beside 385 forward, where products make two of these: attention at a tenth of its rate.
    s.attention_speed = 0.065;
  }
  if (!moe && (stack == "mlperf" || (stack == "megatron" && j.device.family != cost::Family::ascend)))
    s.captured = 0.5;
  if (stack == "mlperf" && release.date > 25) s.captured = 0.95;  // whole iterations
}

void read_experts(const SoftwareText& t, const Release& release, Job& j) {
  Software& s = j.software;
  const std::string& extra = t.extra;
  const bool hopper = j.device.family == cost::Family::hopper;
  const bool plain = has(extra, "a2a") || has(extra, "tokendrop") || has(extra, "alltoall");
  const bool once = !plain || has(extra, "deepep") || has(extra, "hybridep");
  j.exchange.topology = once ? ir::Topology::node : ir::Topology::plain;
  s.overlap_exchange |= has(extra, "a2a overlap") || has(extra, "ep overlap") || has(extra, "a2a-overlap") ||
                        has(extra, "fb-overlap");
  // Megatron-Bridge's recipes overlap the exchange where it leaves the fast domain, and capture whole iterations
  // on Blackwell from 26.06 on.
  const bool recipes = release.name.starts_with("bridge ");
  if (recipes && cost::ranks_inside(j.device, {j.mesh.ep, j.mesh.etp}) < j.mesh.ep) s.overlap_exchange = true;
  if (recipes && !hopper) s.captured = release.date > 26.4 ? 0.9 : release.date > 26.05 ? 0.1 : 0;
  if (recipes && j.shape.is_hybrid()) s.captured = 0.3;
  if (release.name == "cards" && !hopper) s.captured = has(extra, "natural") ? 0 : 0.9;
  if (has(extra, "cuda graph")) s.captured = has(extra, "full-iteration") ? 0.95 : 0.5;
  if (has(extra, "eager")) s.captured = 0;
  j.exchange.capacity_factor = std::max(number_after(extra, "capacity "), number_after(extra, "capacity="));
  j.exchange.replicas = replicas_after(extra);
}

// Transformer Engine adds weight gradients to the accumulated ones within the product. Autograd then gets a tensor
// of the weight's shape that nobody fills, and one of each shape is kept for the whole run.
bool keeps_spare_gradients(const Release& release, const Job& j) {
  const bool nvidia = j.device.family == cost::Family::ampere || j.device.family == cost::Family::hopper ||
                      j.device.family == cost::Family::blackwell;
  return nvidia && release.stack == "megatron" && release.date > 24;
}
double spare_gradients(const Job& j) {
  const model::Shape& s = j.shape;
  const model::Parameters p = model::parameters_of(s);
  double shapes = (p.attention + (s.dense_blocks() > 0 ? p.dense : 0)) / j.mesh.tp;
  // Experts are all of the same two shapes.
  if (s.moe_blocks() > 0)
    shapes +=
        (p.moe - p.moe_routed) / j.mesh.tp + p.moe_routed / static_cast<double>(s.n_routed_experts) / j.mesh.etp;
  return 2 * shapes;
}

// Beside weights in BF16, Transformer Engine keeps 8-bit copies for the whole step, one for each way that products
// read them. Recipes of NeMo and Megatron-Bridge keep the weights themselves in 8 bits instead.
bool keeps_narrow_weights(const Release& release, const Job& j) {
  return narrow_operands(j) && (release.framework.starts_with("megatron") || release.framework == "primus");
}
double narrow_weights(const Job& j) {
  constexpr double kBothWays = 2;
  const model::Shape& s = j.shape;
  const model::Parameters p = model::parameters_of(s);
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const double shared = p.attention * d(s.attention_blocks()) + p.dense * d(s.dense_blocks()) +
                        (p.moe - p.moe_routed) * d(s.moe_blocks());
  const double experts = p.moe_routed * d(s.moe_blocks());
  return kBothWays * (shared / j.mesh.tp + experts / (j.mesh.ep * j.mesh.etp)) / j.mesh.pp;
}

}  // namespace

double number_after(const std::string& text, std::string_view mark) {
  const size_t at = text.find(mark);
  double n = 0;
  if (at == std::string::npos) return 0;
  const auto [end, error] = std::from_chars(text.data() + at + mark.size(), text.data() + text.size(), n);
  return error == std::errc() && n > 0 && n < 1e6 ? n : 0;
}

void describe_software(const SoftwareText& t, const Release& release, Job& j, std::string& assumed) {
  Software& s = j.software;
  const std::string& extra = t.extra;
  s.overlap_pp = true;
  read_stack(t, release, j);
  if (has(extra, "sp off")) s.sequence_parallel = false;
  if (has(extra, "no comm overlap")) s.overlap_tp = s.overlap_dp = s.overlap_pp = false;
  if (has(extra, "cp all-to-all") || has(extra, "ulysses")) j.context = model::Context::ulysses;
  const std::pair<const char*, const char*> schedules[] = {
      {"dualpipev", "dual_pipe_v"}, {"dualpipe", "dual_pipe"}, {"zbv", "zb_v"},         {"v-half", "v_half"},
      {"v-min", "v_min"},           {"zbb", "zb_h1"},          {"zero-bubble", "zb_h1"}};
  for (const auto& [word, name] : schedules)
    if (has(extra, word) && j.pipeline == nullptr && j.mesh.pp > 1) j.pipeline = schedule::find_pipeline(name);
  if (has(extra, "dualpipe")) s.overlap_exchange = true;
  s.offload_activations |= has(extra, "offload") && !has(extra, "offload off");
  if (j.shape.n_routed_experts > 0) read_experts(t, release, j);
  if (has(extra, "natural routing")) j.imbalance = 1.15;
  if (has(extra, "lora") || has(t.source, "lora")) j.frozen_base = true;
  j.with_mtp = !has(extra, "w/o mtp");
  // Blocks that the allocator holds and does not use; the driver's own, libraries' and communication's buffers.
  if (release.reports == "reserved" || release.reports == "driver")
    s.reserve = release.stack == "deepspeed" ? 1.3 : 1.12;
  if (release.reports == "driver") s.context_bytes = 3e9;
  if (!s.fused_loss && (release.stack == "titan" || release.stack.starts_with("fsdp"))) {
    // PyTorch's own loss holds logits in fp32, their logarithms and the gradient; Megatron's works in one place.
    constexpr double kMore = 6;
    s.context_bytes +=
        kMore * static_cast<double>(j.shape.vocab_size) / j.mesh.tp * j.microbatch * j.sequence / j.mesh.cp;
  }
  if (keeps_spare_gradients(release, j)) s.context_bytes += spare_gradients(j);
  if (keeps_narrow_weights(release, j)) s.context_bytes += narrow_weights(j);
  read_recompute(t, release, j, assumed);
}

}  // namespace heddle::advisor
