#include "heddle/planner/launch_settings.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/model/keys.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/passes/op_groups.h"
#include "heddle/plan/check.h"
#include "heddle/plan/costs/state_cost.h"
#include "heddle/plan/layout.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/search.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

using passes::GroupName;
using search::Job;
using search::Launch;
using search::StageKeeping;

bool same_router(const model::Shape& a, const model::Shape& b) {
  const auto router_of = [](const model::Shape& s) {
    return std::tuple(s.sigmoid_scores, s.topk_bias, s.router_bias, s.n_group, s.topk_group, s.norm_topk_prob,
                      s.routed_scaling_factor, s.experts_bias, s.shared_width(), s.num_hash_layers);
  };
  return router_of(a) == router_of(b);
}

// The preset that is the model of the launch, with the constants that no shape has; "" where none is, or where the
// job says its constants itself.
std::string preset_of(const Launch& launch) {
  const model::Shape& s = launch.job.shape;
  if (launch.job.constants) return "";
  for (const std::string& preset : config::preset_names()) {
    const model::Shape* published = model::find_shape(preset);
    if (published == nullptr || published->name != s.name) continue;
    Launch named = launch;
    named.job.shape = *published;
    if (search::normalized(named).job.shape == s && same_router(model::shape_of(config::preset(preset), preset), s))
      return preset;
  }
  return "";
}

// The values to offload: at least the part of the kept bytes that the estimate takes away. Recomputed values are
// not there to be sent.
std::vector<std::string> offload_words_of(const StageKeeping& keeping, int64_t first, int64_t last,
                                          int64_t layers) {
  if (!keeping.offload || last < first) return {};
  const search::Recompute& c = keeping.recompute;
  const char* word = c.has(GroupName::layer) ? "input" : c.has(GroupName::moe) ? "attention" : "expert_up";
  return {first == 0 && last == layers - 1 ? word : fmt::format("{}:{}-{}", word, first, last)};
}

// Words of all stages; neighbours that keep the same are one range.
struct Words {
  std::vector<std::string> recompute, offload;
};
// Layers of each stage as the launch's layout has them.
std::vector<int> layers_told(const Launch& launch) {
  if (launch.job.mesh.pp == 1 || launch.layout.empty()) return search::layers_of_stages(launch.job);
  const int stages = launch.job.mesh.pp * std::max(1, search::pipeline_size(launch.job).chunks);
  std::vector<int> layers;
  for (const std::string& stage : plan::letters_of_layout(launch.layout, stages))
    layers.push_back(static_cast<int>(std::count(stage.begin(), stage.end(), 't')));
  return layers;
}

Words words_of(const Launch& launch) {
  const Job& j = launch.job;
  // The blocks of multi-token prediction are the layers after the last, on the last stage.
  const int64_t layers = j.shape.num_hidden_layers + j.shape.num_nextn_predict_layers;
  std::vector<StageKeeping> stages = launch.by_stage;
  if (stages.empty())
    stages = {{static_cast<int>(j.shape.num_hidden_layers), j.recompute, j.software.offload_activations}};
  Words words;
  const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  const auto is_cut = [](const search::Recompute& r) {
    return r.has(GroupName::layer) && r.every != 1;
  };  // a cut of each stage by
      // itself
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
    append(words.recompute, search::recompute_words_of(keeping.recompute, first, end - 1, layers));
    append(words.offload, offload_words_of(keeping, first, end - 1, layers));
    first = end;
  }
  return words;
}

// The configuration of a model without foreign parts, for sequences of so many tokens.
model::ModelConfig trained_model(const model::Shape& s, int64_t sequence) {
  model::ModelConfig c = s;
  const model::ModelConfig usual;
  c.intermediate_size = s.intermediate_size > 0 ? s.intermediate_size : s.hidden_size;
  if (!c.learns_positions()) c.max_position_embeddings = sequence;
  c.first_k_dense_replace = s.interleaves() ? 0 : s.dense_blocks();
  if (!s.has_experts()) {
    c.n_routed_experts = usual.n_routed_experts, c.num_experts_per_tok = usual.num_experts_per_tok;
    c.n_shared_experts = usual.n_shared_experts, c.moe_intermediate_size = usual.moe_intermediate_size;
    c.sigmoid_scores = usual.sigmoid_scores, c.topk_bias = usual.topk_bias;
  }
  model::reset_foreign_keys(c);
  return c;
}

// A folder's name from the model's: letters, digits and dashes.
std::string folder_name(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 60))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-') out += c;
  return out.empty() ? "searched" : out;
}

// Properties of a model, a job and its software that no key of Heddle's can say.
std::vector<std::string> unsayable(const Launch& launch) {
  const Job& j = launch.job;
  const plan::Degrees& l = j.mesh;
  const model::Shape& s = j.shape;
  std::vector<std::string> no;
  const auto when = [&](bool wrong, const std::string& why) {
    if (wrong) no.push_back(why);
  };
  when(s.foreign.alibi, "Heddle has no ALiBi positions");
  when(s.foreign.embedding_norm, "Heddle has no norm after the embedding");
  when(s.foreign.has_numbers(), "Heddle has not this form of layers");
  when(s.n_routed_experts > 0 && s.experts_bias && s.shared_width() > 0, "Heddle's shared experts have no biases");
  when(j.frozen_base, "a search does not choose which weights have adapters (lora.rank, lora.targets)");
  when(j.precision != cost::Precision::bf16,
       fmt::format("Heddle takes no less time in {} than in bf16 (device.fp8 saves memory alone): search in bf16",
                   cost::name_of(j.precision)));
  when(std::fmod(j.sequence, 1) != 0, "a sequence is a whole number of tokens");
  const std::vector<std::string> names = schedule::generator_names();
  if (std::find(names.begin(), names.end(), launch.schedule) == names.end()) {
    when(true,
         fmt::format("no schedule '{}'{}", launch.schedule.substr(0, 40), did_you_mean(launch.schedule, names)));
  } else if (const schedule::Generator& generator = schedule::find_generator(launch.schedule); l.pp > 1) {
    when(!generator.any_chunks && j.chunks > 1 && j.chunks != generator.chunks,
         fmt::format("{} takes {} chunks a rank, not {}", launch.schedule, generator.chunks, j.chunks));
  }
  return no;
}

}  // namespace

std::string_view backend_on(const cost::Accelerator& device) {
  switch (device.family) {
    case cost::Family::ampere:
    case cost::Family::hopper:
    case cost::Family::blackwell: return "cuda";
    case cost::Family::ascend:
    case cost::Family::cdna3:
    case cost::Family::gaudi:
    case cost::Family::tpu: return "";
    case cost::Family::other: return "host";
  }
  return "";
}

std::vector<std::string> settings_of(const Launch& given) {
  const Launch launch = search::normalized(given);
  const Job& j = launch.job;
  const plan::Degrees& l = j.mesh;
  const model::Shape& s = j.shape;
  std::vector<std::string> out;
  std::string section;
  const auto key = [&](const char* name, const auto& value) {
    out.push_back(fmt::format("{}{}={}", section, name, value));
  };
  key("name", folder_name(s.name));
  section = "model.";
  const auto sequence = static_cast<int64_t>(j.sequence);
  const std::string preset = preset_of(launch);
  if (!preset.empty()) {
    key("preset", preset);
    if (config::preset(preset).max_position_embeddings < sequence && s.learned_positions() == 0)
      key("max_position_embeddings", sequence);
  } else {
    for (std::string& setting : settings_of_model(trained_model(s, sequence))) out.push_back(std::move(setting));
  }
  section = "train.";
  key("global_batch", j.global_batch);
  key("microbatch", j.microbatch);
  key("sequence_length", sequence);
  if (const passes::Moments moments = plan::moments_of(j.software.state_bytes); moments != passes::Moments::fp32)
    key("moments", word_of(moments));
  section = "device.";
  if (const std::string_view backend = backend_on(j.device); !backend.empty()) key("backend", backend);
  key("memory_bytes", std::llround(launch.memory_bytes > 0 ? launch.memory_bytes : search::usable_bytes(j.device)));
  key("dtype", "bf16");
  if (j.software.captured > 0) key("graphs", true);
  section = "mesh.";
  for (const auto& [name, degree] : {std::pair("tp", l.tp), std::pair("cp", l.cp), std::pair("dp", l.dp),
                                     std::pair("pp", l.pp), std::pair("ep", l.ep), std::pair("etp", l.etp)})
    key(name, degree);
  section = "parallel.";
  if (l.pp > 1) {
    key("schedule", launch.schedule);
    if (schedule::find_generator(launch.schedule).any_chunks) key("chunks", j.chunks);
    if (!launch.layout.empty()) key("layout", launch.layout);
  }
  key("weave", j.software.overlap_exchange ? "pairs" : "layers");
  if (search::Sharding cut = j.sharding; j.software.sharded_weights || cut.shard != passes::Shard::state) {
    if (j.software.sharded_weights) cut.shard = passes::Shard::weights;
    key("shard", word_of(cut.shard));
    if (cut.ranks > 0) key("shard_ranks", cut.ranks);
    // Gathers are placed by the rate of their messages: each rank of a node brings its part over its own card.
    const int together = cut.ranks > 0 ? cut.ranks : l.stage_ranks(), inside = std::max(1, j.device.inner.ranks);
    const double across = inside * j.device.outer.bytes_per_s;
    const bool leaves = together > inside && across > 0 && across < j.device.inner.bytes_per_s;
    key("message_rate", fmt::format("{:.1f}", (leaves ? across : j.device.inner.bytes_per_s) / 1e9));
  }
  if (l.cp > 1) key("context", word_of(s.selects() ? model::Context::gather : j.context));
  if (l.cp > 1 && !s.selects() && j.context_inner > 0) key("context_inner", j.context_inner);
  if (l.ep > 1) {
    key("exchange", once_a_node(j) && j.exchange.capacity_factor == 0 ? "node" : "plain");
    // Rates of the exchange: the device's own links, and a node's to others, which are those of all its devices.
    const int inside = cost::ranks_inside(j.device, {l.ranks(), 1});
    key("within_rate", fmt::format("{:.1f}", j.device.inner.bytes_per_s / 1e9));
    key("across_rate", fmt::format("{:.1f}", inside * j.device.outer.bytes_per_s / 1e9));
  }
  section = "moe.";
  if (j.exchange.capacity_factor > 0) key("capacity_factor", j.exchange.capacity_factor);
  if (replica_slots(j) > 0) key("replicas", search::replicas_word(j.exchange.replicas));
  const Words words = words_of(launch);
  section = "memory.";
  if (!words.recompute.empty()) key("recompute", fmt::format("{}", fmt::join(words.recompute, ", ")));
  if (!words.offload.empty()) key("offload", fmt::format("{}", fmt::join(words.offload, ", ")));
  const search::PricedResidency& home = j.residency;
  if (home.optimizer != plan::StateResidency::device) key("optimizer", word_of(home.optimizer));
  if (home.master != plan::MasterForm::full) key("master", word_of(home.master));
  if (!home.weights.empty()) key("weights", passes::text_of(home.weights));
  if (!home.gradients.empty()) key("gradients", passes::text_of(home.gradients));
  if (!words.offload.empty() || !home.on_device())
    key("host_rate", fmt::format("{:.1f}", j.device.host_bytes_per_s / 1e9));
  if (home.optimizer == plan::StateResidency::host)
    key("update_rate", fmt::format("{:.1f}", j.device.host_memory_bytes_per_s / 1e9));
  // A script's constants come last, instead of those that follow from the shape.
  static const std::vector<std::string> none;
  for (const std::string& constant : j.constants ? *j.constants : none) {
    const std::string name = constant.substr(0, constant.find('=') + 1);
    std::erase_if(out, [&](const std::string& setting) { return setting.starts_with(name); });
    out.push_back(constant);
  }
  return out;
}

std::vector<std::string> settings_of_model(const model::ModelConfig& model) {
  config::RunConfig config;
  config.model = model;
  std::vector<std::string> out;
  for (const config::Setting& s : config::settings()) {
    if (s.key.starts_with("model.") && (!s.present || s.present(config)))
      out.push_back(fmt::format("{}={}", s.key, plan::text_of(s.get(config))));
  }
  return out;
}

config::RunConfig config_of(const Launch& launch) { return config::parse_run_config("", "", settings_of(launch)); }

std::string config_text(const Launch& launch) {
  std::string text = "# Written by heddle search. `heddle inspect` counts it, `heddle train` runs it.\n";
  for (const std::string& lost : launch.lost) text += "# Not carried over: " + escaped(lost) + "\n";
  return text + config::toml_of(config_of(launch), config::RunConfig());
}

std::vector<std::string> refusals_of_training(const Launch& launch) {
  std::vector<std::string> no = unsayable(search::normalized(launch));
  if (!no.empty()) return no;
  try {
    const config::RunConfig config = config_of(launch);
    for (const plan::Refusal& refusal : plan::refusals_of(config.model, train::plan_of(config)))
      no.push_back(refusal.message);
  } catch (const ConfigError& error) {  // "--set KEY=VALUE: …", and nobody has set anything
    const std::string_view what = error.what();
    no.emplace_back(what.starts_with("--set ") ? what.substr(what.find(": ") + 2) : what);
  }
  return no;
}

std::vector<std::string> refusals_of(const Launch& launch) {
  // Reasons that make the job itself impossible come first.
  if (const std::string reason = search::impossible(launch); !reason.empty()) return {reason};
  if (backend_on(launch.job.device).empty())
    return {fmt::format("Heddle has no backend for {}", launch.job.device.name)};
  return refusals_of_training(launch);
}

}  // namespace heddle::planner
