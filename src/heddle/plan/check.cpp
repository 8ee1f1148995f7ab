#include "heddle/plan/check.h"

#include <numeric>

#include "heddle/base/error.h"
#include "heddle/model/ngrams.h"
#include "heddle/plan/context_ranks.h"
#include "heddle/plan/divisors.h"
#include "heddle/plan/layout.h"
#include "heddle/plan/sharding.h"

namespace heddle::plan {

namespace {

struct Size {
  const char* key;
  int64_t elements;
};

// "1, 2, 4": the degrees by which all sizes are cut evenly.
std::string degrees_for(const std::vector<Size>& sizes) {
  int64_t common = 0;
  for (const Size& size : sizes) common = std::gcd(common, size.elements);
  return divisors_text(common);
}

class Refusals {
 public:
  template <class... Args>
  void add(std::string key, fmt::format_string<Args...> text, Args&&... args) {
    all.push_back({std::move(key), fmt::format(text, std::forward<Args>(args)...)});
  }
  /// Adds what a function throws, whose message begins with the key unless one is given.
  template <class Function>
  void add_thrown(const Function& function, const std::string& key = "") {
    try {
      function();
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      all.push_back({key.empty() ? what.substr(0, what.find_first_of(": ")) : key, what});
    }
  }
  /// Refuses the first of the sizes that the degree does not cut evenly: it says what others would, too.
  void cuts(const std::vector<Size>& sizes, const char* key, const char* by, int64_t degree,
            const std::string& remedy = "") {
    for (const Size& size : sizes) {
      if (size.elements % degree == 0) continue;
      add(key, "{} ({}) is not a multiple of {} ({}); {}", size.key, size.elements, by, degree,
          remedy.empty() ? fmt::format("{} goes with the model as {}", by, degrees_for(sizes)) : remedy);
      return;
    }
  }

  std::vector<Refusal> all;
};

// Sizes that a mesh cuts must divide.
void check_sizes(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  const Degrees& mesh = plan.mesh;
  std::vector<Size> heads;
  if (config.attends()) heads.push_back({"model.num_attention_heads", config.num_attention_heads});
  if (config.is_compressed()) heads.push_back({"model.o_groups", config.o_groups});
  if (config.attends() && config.is_grouped()) {
    heads.push_back({"model.num_key_value_heads", config.num_key_value_heads});
    if (config.window_attention_heads > 0)
      heads.push_back({"model.window_attention_heads", config.window_attention_heads});
    if (config.window_key_value_heads > 0)
      heads.push_back({"model.window_key_value_heads", config.window_key_value_heads});
  }
  if (config.has_states()) heads.push_back({"model.linear_num_key_heads", config.linear_num_key_heads});
  if (config.recurs() && !config.has_states()) heads.push_back({"model.hidden_size", config.hidden_size});
  std::vector<Size> of_tp = heads;
  if (config.has_dense_layers()) of_tp.push_back({"model.intermediate_size", config.intermediate_size});
  if (config.has_experts()) {
    of_tp.push_back({config.shared_intermediate_size > 0 ? "model.shared_intermediate_size"
                                                         : "model.n_shared_experts × moe_intermediate_size",
                     config.shared_width()});
  }
  std::vector<Size> vocabulary = of_tp;
  vocabulary.push_back({"model.vocab_size", config.vocab_size});
  no.cuts(of_tp, "mesh.tp", "mesh.tp", mesh.tp,
          fmt::format("mesh.tp goes with the model as {}", degrees_for(vocabulary)));
  no.cuts({{"model.vocab_size", config.vocab_size}}, "mesh.tp", "mesh.tp", mesh.tp,
          fmt::format("mesh.tp goes with the model as {}, and {} with model.vocab_size = {}",
                      degrees_for(vocabulary), mesh.tp, next_multiple(config.vocab_size, mesh.tp)));
  if (config.has_experts()) {
    no.cuts({{"model.n_routed_experts", config.n_routed_experts}}, "mesh.ep", "mesh.ep", mesh.ep);
    no.cuts({{"model.moe_intermediate_size", config.moe_intermediate_size}}, "mesh.etp", "mesh.etp", mesh.etp);
  }
  if (plan.parallel.context == model::Context::ulysses) {
    no.cuts(heads, "parallel.context", "mesh.tp × mesh.cp, as parallel.context 'ulysses' needs",
            int64_t{mesh.tp} * mesh.cp,
            fmt::format("a product of {} goes with the model, any with parallel.context = \"ring\"",
                        degrees_for(heads)));
  }
  if (config.has_ngrams()) {
    const std::vector<Size> streams{{"model.hyper_connections × hidden_size", config.residual_width()}};
    for (const int64_t layer : model::ngram_layers_of(config)) {
      no.cuts({{"rows of tables of n-grams", model::ngram_rows(config, model::ngram_index(config, layer))}},
              "mesh.tp", "mesh.tp", mesh.tp, "a multiple of mesh.tp as model.ngram_vocab_multiple goes with it");
    }
    no.cuts(streams, "mesh.tp", "mesh.tp", mesh.tp);
    if (plan.parallel.context == model::Context::ulysses) {
      no.cuts(streams, "parallel.context", "mesh.tp × mesh.cp, as parallel.context 'ulysses' needs",
              int64_t{mesh.tp} * mesh.cp);
    }
  }
  const int64_t parts = (mesh.cp > 1 ? 2 * mesh.cp : 1) * mesh.tp;
  no.cuts({{"train.sequence_length", plan.sequence_length}}, "train.sequence_length",
          mesh.cp > 1 ? "2 × mesh.cp × mesh.tp" : "mesh.tp", parts,
          fmt::format("train.sequence_length = {} goes with it", next_multiple(plan.sequence_length, parts)));
}

// Runs of neighbours are more than one rank and fewer than all. Those of `hybrid` have equal parts of the heads.
void check_context_runs(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  const Degrees& mesh = plan.mesh;
  if (!has_runs(plan.parallel.context) || mesh.cp == 1 || !config.attends()) return;
  const bool cuts_heads = plan.parallel.context == model::Context::hybrid;
  const int64_t heads = cuts_heads ? common_heads(config) / mesh.tp : 0;
  std::string fitting;
  for (int n = 2; n < mesh.cp; ++n) {
    if (mesh.cp % n == 0 && heads % n == 0) fitting += fmt::format("{}{}", fitting.empty() ? "" : ", ", n);
  }
  const int inner = context_inner(config, plan.parallel, mesh);
  if (inner > 1 && inner < mesh.cp && mesh.cp % inner == 0 && heads % inner == 0) return;
  const std::string ranks =
      fmt::format("mesh.cp = {}", mesh.cp) +
      (cuts_heads ? fmt::format(" and {} heads on each rank of mesh.tp", heads) : std::string());
  if (fitting.empty()) {
    no.add(
        "parallel.context",
        "parallel.context = \"{}\" with {}: no run of 2 to {} ranks divides {}; parallel.context = \"ring\" goes "
        "with it",
        word_of(plan.parallel.context), ranks, mesh.cp - 1, cuts_heads ? "both" : "them");
  } else {
    no.add("parallel.context_inner", "parallel.context_inner is {} with {}; {} go with {}", inner, ranks, fitting,
           cuts_heads ? "them" : "it");
  }
}

// A copy of a stage's weights lies on neighbouring ranks, each of which has its share of whatever cuts them.
void check_shards(const Plan& plan, Refusals& no) {
  const Degrees& mesh = plan.mesh;
  const int ranks = plan.parallel.shard_ranks;
  if (ranks == 0 || plan.parallel.shard == passes::Shard::state) return;
  if (plan.parallel.exchange.migrates() && mesh.ep > 1 && ranks < mesh.stage_ranks()) {
    no.add(
        "parallel.shard_ranks",
        "parallel.shard_ranks = {} with moe.migrate_every = {}: experts move in the order of all ranks that hold "
        "them; parallel.shard_ranks = 0 goes with it",
        ranks, plan.parallel.exchange.migrate_every);
  }
  if (shard_ranks_go(mesh, ranks)) return;
  std::string fitting;
  for (int n = 1; n <= mesh.stage_ranks(); ++n) {
    if (shard_ranks_go(mesh, n)) fitting += fmt::format("{}{}", fitting.empty() ? "" : ", ", n);
  }
  no.add("parallel.shard_ranks",
         "parallel.shard_ranks is {}, and a stage has {} ranks with tp {} and ep {} × etp {}; {} go with them",
         ranks, mesh.stage_ranks(), mesh.tp, mesh.ep, mesh.etp, fitting);
}

void check_pairs(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  if (plan.sequences % 2 != 0) {
    no.add("train.microbatch",
           "train.microbatch is {}, and train.objective = \"dpo\" takes pairs of sequences; an even number goes "
           "with it",
           plan.sequences);
  }
  if (config.num_nextn_predict_layers > 0) {
    no.add("model.num_nextn_predict_layers",
           "train.objective = \"dpo\" trains nothing that predicts further tokens, and "
           "model.num_nextn_predict_layers is {}; model.num_nextn_predict_layers = 0 goes with it",
           config.num_nextn_predict_layers);
  }
  if (plan.weighs_labels) {
    no.add("data.weight_key", "train.objective = \"dpo\" counts whole answers; no data.weight_key goes with it");
  }
}

// An entry stands for tokens side by side. So a rank makes entries of whole sequences.
void check_compression(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  if (!config.is_compressed()) return;
  if (plan.mesh.cp > 1 && plan.parallel.context != model::Context::gather) {
    no.add("parallel.context",
           "parallel.context is \"{}\" with model.attention = \"compressed\" and mesh.cp = {}: entries are made "
           "where a whole sequence is; parallel.context = \"gather\" goes with it",
           word_of(plan.parallel.context), plan.mesh.cp);
  }
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    if (const int64_t tokens = config.entry_tokens(l); plan.sequence_length < tokens) {
      no.add("train.sequence_length",
             "train.sequence_length is {}, and an entry of layer {} is made of {} tokens; {} or more go with it",
             plan.sequence_length, l, tokens, tokens);
      return;
    }
  }
}

// A rank attends to chosen keys where it has those of the whole sequence.
void check_selection(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  if (!config.selects()) return;
  if (plan.mesh.cp > 1 && !config.is_compressed() && plan.parallel.context != model::Context::gather) {
    no.add(
        "parallel.context",
        "parallel.context is \"{}\" with model.index_topk = {} and mesh.cp = {}: keys are chosen where those of a "
        "whole sequence are; parallel.context = \"gather\" goes with it",
        word_of(plan.parallel.context), config.index_topk, plan.mesh.cp);
  }
  const bool means = config.selects_blocks() && config.index_blocks != model::IndexBlocks::greatest;
  if (means && plan.sequence_length < config.index_block_size) {
    no.add("train.sequence_length",
           "train.sequence_length is {}, and model.index_blocks = \"{}\" chooses blocks of {} keys; {} or more go "
           "with it",
           plan.sequence_length, word_of(config.index_blocks), config.index_block_size, config.index_block_size);
  }
  if (plan.lora.rank > 0 && config.index_stage != model::IndexStage::off) {
    no.add("model.index_stage",
           "model.index_stage is \"{}\" with lora.rank = {}: adapters freeze the indexers; model.index_stage = "
           "\"off\" "
           "goes with it",
           word_of(config.index_stage), plan.lora.rank);
  }
}

// Logits follow the weights of queries and keys where nothing norms or caps them in between.
void check_qk_clip(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  if (plan.update.qk_clip <= 0) return;
  const auto refuse = [&](const std::string& what, const char* why) {
    no.add("train.qk_clip", "train.qk_clip = {} with {}: {}; train.qk_clip = 0 goes with it", plan.update.qk_clip,
           what, why);
  };
  if (config.is_compressed())
    refuse("model.attention = \"compressed\"",
           "queries are normed behind their weights, whose size no logit follows");
  if (config.is_grouped() && config.qk_norm)
    refuse("model.qk_norm = true", "queries and keys are normed behind their weights, whose size no logit follows");
  if (config.attention_logit_cap > 0)
    refuse(fmt::format("model.attention_logit_cap = {}", config.attention_logit_cap),
           "the cap bounds each logit already");
  if (config.selects_blocks())
    refuse(fmt::format("model.index_blocks = \"{}\"", word_of(config.index_blocks)),
           "logits of blocks that are chosen are not counted");
  if (config.raw_latent_of_queries)
    refuse("model.raw_latent_of_queries = true", "rows of the queries' weight make gates, too");
  if (config.trains_indexers_alone())
    refuse(fmt::format("model.index_stage = \"{}\"", word_of(config.index_stage)), "the heads' weights stay");
  if (plan.lora.rank > 0)
    refuse(fmt::format("lora.rank = {}", plan.lora.rank), "adapters freeze the heads' weights");
}

// Capacities, replicas and migration count the rows of every expert.
void check_zero_experts(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  if (config.zero_expert_num == 0 || !config.has_experts()) return;
  const auto refuse = [&](const char* key, const std::string& value, const char* otherwise) {
    no.add(key,
           "{} = {} with model.zero_expert_num = {}: it counts the rows of every expert, and those without "
           "computation have none; {} = {} goes with it",
           key, value, config.zero_expert_num, key, otherwise);
  };
  const model::Dispatcher& exchange = plan.parallel.exchange;
  if (exchange.capacity_factor > 0) refuse("moe.capacity_factor", fmt::format("{}", exchange.capacity_factor), "0");
  if (exchange.replicas != 0) {
    const bool by_cost = exchange.replicas == model::Dispatcher::kReplicasByCost;
    refuse("moe.replicas", by_cost ? "\"auto\"" : fmt::format("{}", exchange.replicas), "\"off\"");
  }
  if (exchange.migrates()) refuse("moe.migrate_every", fmt::format("{}", exchange.migrate_every), "\"off\"");
}

void check_model(const model::ModelConfig& config, const Plan& plan, Refusals& no) {
  no.add_thrown([&] { model::validate(config); });
  if (plan.sequence_length > config.max_position_embeddings) {
    no.add("train.sequence_length", "train.sequence_length is {}, more than model.max_position_embeddings ({})",
           plan.sequence_length, config.max_position_embeddings);
  }
  if (plan.objective.of_pairs()) check_pairs(config, plan, no);
}

}  // namespace

std::vector<Refusal> refusals_of_model(const model::ModelConfig& config, const Plan& plan) {
  Refusals no;
  check_model(config, plan, no);
  return no.all;
}

std::vector<Refusal> refusals_before_schedule(const model::ModelConfig& config, const Plan& plan) {
  Refusals no;
  check_model(config, plan, no);
  check_compression(config, plan, no);
  check_selection(config, plan, no);
  check_qk_clip(config, plan, no);
  check_zero_experts(config, plan, no);
  for (Refusal& refusal : refusals_of(plan)) no.all.push_back(std::move(refusal));
  if (plan.cached_sequences > 0 && plan.ranks() > 1)
    no.add("mesh", "a cache of sequences is kept on one rank, the mesh has {}", plan.ranks());
  const size_t before = no.all.size();
  no.add_thrown([&] { (void)Mesh(plan.mesh); });
  if (no.all.size() == before) {
    check_sizes(config, plan, no);  // which divides by degrees
    check_context_runs(config, plan, no);
    check_shards(plan, no);
  } else if (no.all.back().key == "mesh") {
    no.all.back().key = "mesh.ep";  // of degrees that don't go together
  }
  return no.all;
}

// An expert's state is shared out among the ranks that hold copies of it, and moves among others of the same share.
std::vector<Refusal> refusals_of_placement(const Plan& plan, const schedule::Placement& placement) {
  Refusals no;
  if (plan.parallel.exchange.migrates() && plan.mesh.ep > 1 && placement.routes > 1) {
    no.add("moe.migrate_every",
           "moe.migrate_every = {} with parallel.schedule = \"{}\": experts change ranks in one pipeline, and this "
           "schedule holds two copies of each stage; moe.migrate_every = \"off\" goes with it",
           plan.parallel.exchange.migrate_every, plan.parallel.schedule);
  }
  if (plan.parallel.shard != passes::Shard::state && placement.routes > 1) {
    no.add("parallel.shard",
           "parallel.shard = \"{}\" with parallel.schedule = \"{}\": this schedule holds two copies of each stage, "
           "on ranks that run it at different times; parallel.shard = \"state\" goes with it",
           word_of(plan.parallel.shard), plan.parallel.schedule);
  }
  return no.all;
}

std::vector<Refusal> refusals_of(const model::ModelConfig& config, const Plan& plan) {
  Refusals no;
  no.all = refusals_before_schedule(config, plan);
  if (!no.all.empty()) return no.all;
  schedule::Placement placement;
  no.add_thrown([&] { placement = schedule_of(plan).placement; }, "parallel.schedule");
  if (!no.all.empty()) return no.all;
  no.all = refusals_of_placement(plan, placement);
  no.add_thrown([&] { layout_of(plan.parallel.layout, config, placement.stages); }, "parallel.layout");
  return no.all;
}

void refuse(const std::vector<Refusal>& refusals) {
  if (!refusals.empty()) throw ConfigError(refusals.front().message);
}

void check(const model::ModelConfig& config, const Plan& plan) { refuse(refusals_of(config, plan)); }

}  // namespace heddle::plan
