// A launch as settings of a run of Heddle's, which trains latent and grouped attention, dense layers and experts,
// sigmoid or softmax routing, RMSNorm; what lies outside is refused.
#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/plan/layout.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/search/launch/emit.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/plans/copies.h"
#include "heddle/search/search.h"

namespace heddle::search {

namespace {

// The whole model as one of Heddle's presets; "" when its sizes are written out.
std::string preset_of(const model::Shape& s) {
  for (const auto& [published, preset] :
       {std::pair("DeepSeek-V3", "deepseek-v3"), std::pair("DeepSeek-V2-Lite", "deepseek-v2-lite")}) {
    const model::Shape* known = model::find_shape(published);
    if (known == nullptr) continue;
    model::Shape named = *known;
    named.name = s.name;
    if (named == s) return preset;
  }
  return "";
}

}  // namespace

std::vector<std::string> recompute_words_of(const model::Recompute& c, int64_t first, int64_t last,
                                            int64_t layers) {
  std::vector<std::string> words;
  const auto add = [&](const char* word, int64_t end) {
    if (end < first) return;
    words.push_back(first == 0 && end == layers - 1 ? word : fmt::format("{}:{}-{}", word, first, end));
  };
  if (c.full) add("layer", first + std::llround(c.every * static_cast<double>(last - first + 1)) - 1);
  if (c.full && c.every == 1) return words;
  if (c.scores) add("attention", last);
  if (c.norms) add("norm", last);
  if (c.latent_up) add("mla_up", last);
  if (c.activations) add("activation", last);
  if (c.dense) add("mlp", last);
  if (c.experts) add("moe", last);
  return words;
}

namespace {

// What leaves for the host: at least the part of the kept bytes that the estimate takes away. What is computed
// again is not there to be sent.
std::vector<std::string> offload_words_of(const StageKeeping& keeping, int64_t first, int64_t last,
                                          int64_t layers) {
  if (!keeping.offload || last < first) return {};
  const model::Recompute& c = keeping.recompute;
  const char* word = c.full ? "input" : c.experts ? "attention" : "expert_up";
  return {first == 0 && last == layers - 1 ? word : fmt::format("{}:{}-{}", word, first, last)};
}

// Words of all stages; neighbours that keep the same are one range.
struct Words {
  std::vector<std::string> recompute, offload;
};
// Layers of each stage as the launch's layout has them.
std::vector<int> layers_told(const Launch& launch) {
  if (launch.job.layout.pp == 1 || launch.layout.empty()) return layers_of_stages(launch.job);
  const int stages = launch.job.layout.pp * std::max(1, pipeline_size(launch.job).chunks);
  std::vector<int> layers;
  for (const std::string& stage : plan::letters_of_layout(launch.layout, stages))
    layers.push_back(static_cast<int>(std::count(stage.begin(), stage.end(), 't')));
  return layers;
}

Words words_of(const Launch& launch) {
  const Job& j = launch.job;
  // The blocks of multi-token prediction are the layers after the last, on the last stage.
  const int64_t layers = j.shape.layers + j.shape.mtp;
  std::vector<StageKeeping> stages = launch.by_stage;
  if (stages.empty()) stages = {{static_cast<int>(j.shape.layers), j.recompute, j.software.offload_activations}};
  Words words;
  const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  const auto is_cut = [](const model::Recompute& r) { return r.full && r.every != 1; };  // of each stage by itself
  if (launch.by_stage.empty() && is_cut(j.recompute)) {
    stages.clear();
    for (const int n : layers_told(launch)) stages.push_back({n, j.recompute, j.software.offload_activations});
  }
  int64_t first = 0;
  for (size_t s = 0; s < stages.size();) {
    const StageKeeping& keeping = stages[s];
    int64_t end = first;
    const bool cut = is_cut(keeping.recompute);
    do {
      end += stages[s++].layers;
      if (s == stages.size()) end = layers;
    } while (!cut && s < stages.size() && stages[s].recompute == keeping.recompute &&
             stages[s].offload == keeping.offload);
    append(words.recompute, recompute_words_of(keeping.recompute, first, end - 1, layers));
    append(words.offload, offload_words_of(keeping, first, end - 1, layers));
    first = end;
  }
  return words;
}

// A folder's name from the model's: letters, digits and dashes.
std::string folder_name(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 60))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-') out += c;
  return out.empty() ? "searched" : out;
}

}  // namespace

std::string_view heddle_backend(const cost::Accelerator& device) {
  switch (device.family) {
    case cost::Family::ampere:
    case cost::Family::hopper:
    case cost::Family::blackwell: return "cuda";
    case cost::Family::ascend:
    case cost::Family::cdna3: return "";
    case cost::Family::other: return "host";
  }
  return "";
}

std::vector<std::string> heddle_refusals(const Launch& given) {
  const Launch launch = normalized(given);
  const Job& j = launch.job;
  const Layout& l = j.layout;
  const model::Shape& s = j.shape;
  const Software& w = j.software;
  std::vector<std::string> no;
  const auto when = [&](bool wrong, const std::string& why) {
    if (wrong) no.push_back(why);
  };
  when(s.is_hybrid(), "Heddle trains no hybrid models");
  when(!s.gated || !s.moe.gated, "Heddle's feed-forward blocks are gated");
  when(s.sinks, "Heddle's attention has no sinks");
  when(s.norm_bias || s.ffn_bias || (!s.is_mla() && (s.qkv_bias || s.out_bias)) || s.moe.bias || s.alibi ||
           s.positions > 0 || s.embedding_norm || s.window > 0 || s.moe.latent > 0 || s.moe.shared_gate,
       "Heddle has rotary positions, RMSNorm and no biases, windows or latent experts");
  when(s.moe.count > 0 && s.moe.shared_ffn % std::max<int64_t>(1, s.moe.ffn) != 0,
       "shared experts are as wide as routed ones");
  when(s.moe.most_nodes > 0 && s.moe.count % s.moe.groups != 0,
       fmt::format("{} experts don't divide into {} groups", s.moe.count, s.moe.groups));
  when(j.frozen_base, "Heddle trains all weights");
  when(j.precision != cost::Precision::bf16,
       fmt::format("Heddle multiplies in bf16, f32 and f64, not {}", cost::name_of(j.precision)));
  when(w.sharded_weights, "Heddle does not shard weights over data ranks");
  when(std::fmod(j.sequence, 1) != 0, "a sequence is a whole number of tokens");
  when(j.global_batch % (int64_t{l.dp} * j.microbatch) != 0,
       fmt::format("a global batch of {} is no multiple of dp x microbatch = {}", j.global_batch,
                   int64_t{l.dp} * j.microbatch));
  for (const auto& [what, size, degree] :
       {std::tuple("attention heads", s.heads, int64_t{l.tp}),
        std::tuple("heads of keys and values", s.is_mla() ? s.heads : s.kv_heads, int64_t{l.tp}),
        std::tuple("vocabulary", s.vocab, int64_t{l.tp}), std::tuple("width of dense layers", s.ffn, int64_t{l.tp}),
        std::tuple("width of shared experts", s.moe.shared_ffn, int64_t{l.tp}),
        std::tuple("experts", s.moe.count, int64_t{l.ep}),
        std::tuple("width of experts", s.moe.ffn, int64_t{l.etp}),
        std::tuple("sequence", static_cast<int64_t>(j.sequence), int64_t{l.tp} * (l.cp > 1 ? 2 * l.cp : 1))})
    when(size % degree != 0, fmt::format("{} ({}) no multiple of {}", what, size, degree));
  when(l.tp * l.cp * l.dp % (l.ep * l.etp) != 0,
       fmt::format("ep x etp = {} does not divide a stage's {} ranks", l.ep * l.etp, l.tp * l.cp * l.dp));
  const std::vector<std::string> names = schedule::generator_names();
  const bool known = std::find(names.begin(), names.end(), launch.schedule) != names.end();
  when(!known,
       fmt::format("no schedule '{}'{}", launch.schedule.substr(0, 40), did_you_mean(launch.schedule, names)));
  if (known && l.pp > 1) {
    const schedule::Generator& generator = schedule::find_generator(launch.schedule);
    when(!generator.any_chunks && l.vpp > 1 && l.vpp != generator.chunks,
         fmt::format("{} takes {} chunks a rank, not {}", launch.schedule, generator.chunks, l.vpp));
    schedule::GeneratorOptions options;
    options.ranks = l.pp;
    options.microbatches = static_cast<int>(microbatches(j));
    options.chunks = generator.any_chunks ? l.vpp : 0;
    if (no.empty()) {
      try {
        schedule::make_schedule(launch.schedule, options);
      } catch (const ConfigError& error) {
        no.emplace_back(error.what());
      }
    }
  }
  return no;
}

std::vector<std::string> heddle_settings(const Launch& given) {
  const Launch launch = normalized(given);
  const Job& j = launch.job;
  const Layout& l = j.layout;
  const model::Shape& s = j.shape;
  std::vector<std::string> out;
  std::string section;
  const auto key = [&](const char* name, const auto& value) {
    out.push_back(fmt::format("{}{}={}", section, name, value));
  };
  key("name", folder_name(s.name));
  section = "model.";
  const std::string preset = preset_of(s);
  if (!preset.empty()) {
    key("preset", preset);
  } else {
    key("vocab_size", s.vocab);
    key("hidden_size", s.hidden);
    key("num_hidden_layers", s.layers);
    key("intermediate_size", std::max<int64_t>(1, s.ffn));
    key("first_k_dense_replace", s.dense_blocks());
    key("tie_word_embeddings", s.tied);
    key("max_position_embeddings", static_cast<int64_t>(j.sequence));
    key("num_attention_heads", s.heads);
    if (s.is_mla()) {
      key("q_lora_rank", s.mla.q_rank);
      key("kv_lora_rank", s.mla.kv_rank);
      key("qk_nope_head_dim", s.mla.nope_dim);
      key("qk_rope_head_dim", s.mla.rope_dim);
      key("v_head_dim", s.mla.v_dim);
    } else {
      key("attention", "grouped");
      key("num_key_value_heads", s.kv_heads);
      key("head_dim", s.head_dim);
      key("qk_norm", s.qk_norm);
      key("rope_interleave", false);
    }
    if (s.moe.count > 0) {
      key("n_routed_experts", s.moe.count);
      key("num_experts_per_tok", s.moe.chosen);
      key("n_shared_experts", s.moe.shared_ffn / s.moe.ffn);
      key("moe_intermediate_size", s.moe.ffn);
      key("n_group", std::max<int64_t>(1, s.moe.groups));
      key("topk_group", s.moe.most_nodes > 0 ? s.moe.most_nodes : 1);
      key("topk_bias", s.moe.router_bias);
      key("sigmoid_scores", s.moe.router_bias);
      key("routed_scaling_factor", s.moe.gate_scale);
      key("norm_topk_prob", s.moe.normed_gates);
    }
    key("num_nextn_predict_layers", s.mtp);
  }
  section = "train.";
  key("global_batch", j.global_batch);
  key("microbatch", j.microbatch);
  key("sequence_length", static_cast<int64_t>(j.sequence));
  section = "device.";
  if (const std::string_view backend = heddle_backend(j.device); !backend.empty()) key("backend", backend);
  key("memory_bytes", std::llround(launch.memory_bytes > 0 ? launch.memory_bytes : usable_bytes(j.device)));
  key("dtype", "bf16");
  if (j.software.captured > 0) key("graphs", true);
  section = "mesh.";
  for (const auto& [name, degree] : {std::pair("tp", l.tp), std::pair("cp", l.cp), std::pair("dp", l.dp),
                                     std::pair("pp", l.pp), std::pair("ep", l.ep), std::pair("etp", l.etp)})
    key(name, degree);
  section = "parallel.";
  if (l.pp > 1) {
    key("schedule", launch.schedule);
    if (schedule::find_generator(launch.schedule).any_chunks) key("chunks", l.vpp);
    if (!launch.layout.empty()) key("layout", launch.layout);
  }
  key("weave", j.software.overlap_exchange ? "pairs" : "layers");
  if (l.cp > 1) key("context", j.software.context_all_to_all ? "ulysses" : "ring");
  if (l.ep > 1) {
    key("exchange", j.software.once_a_node && j.shape.moe.capacity == 0 ? "node" : "plain");
    // What the exchange has from here to there: the device's own links, and a node's to others, which are those of
    // all its devices.
    const int inside = cost::ranks_inside(j.device, {l.devices, 1});
    key("within_rate", fmt::format("{:.1f}", j.device.inner.bytes_per_s / 1e9));
    key("across_rate", fmt::format("{:.1f}", inside * j.device.outer.bytes_per_s / 1e9));
  }
  section = "moe.";
  if (s.moe.capacity > 0) key("capacity_factor", s.moe.capacity);
  if (s.moe.copies() > 0) key("replicas", replicas_word(s.moe.replicas));
  const Words words = words_of(launch);
  section = "memory.";
  if (!words.recompute.empty()) key("recompute", fmt::format("{}", fmt::join(words.recompute, ", ")));
  if (!words.offload.empty()) key("offload", fmt::format("{}", fmt::join(words.offload, ", ")));
  const Residency& home = j.residency;
  if (home.optimizer != plan::StateHome::device) key("optimizer", word_of(home.optimizer));
  if (home.master != plan::MasterForm::full) key("master", word_of(home.master));
  if (home.weights) key("weights", "all");
  if (home.gradients) key("gradients", "all");
  if (!words.offload.empty() || !home.on_device())
    key("host_rate", fmt::format("{:.1f}", j.device.host_bytes_per_s / 1e9));
  if (home.optimizer == plan::StateHome::host)
    key("update_rate", fmt::format("{:.1f}", j.device.host_memory_bytes_per_s / 1e9));
  return out;
}

}  // namespace heddle::search
