// Refusals of a plan: by which key, each cause once, and none of a plan that lowers.
#include "heddle/plan/check.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/passes/recompute.h"
#include "tests/support/tiny_models.h"

namespace heddle::plan {
namespace {

Plan plan_of_two() {
  Plan plan;
  plan.sequences = 2;
  plan.sequence_length = 16;
  plan.microbatches = 4;
  return plan;
}

std::vector<std::string> keys_of(const model::ModelConfig& config, const Plan& plan) {
  std::vector<std::string> keys;
  for (const Refusal& refusal : refusals_of(config, plan)) keys.push_back(refusal.key);
  return keys;
}

using Keys = std::vector<std::string>;

TEST(Check, NothingIsRefusedOfWhatLowers) {
  const model::ModelConfig config = test::small_model();
  Plan plan = plan_of_two();
  EXPECT_EQ(keys_of(config, plan), Keys{});
  plan.mesh.pp = 2;
  EXPECT_EQ(keys_of(config, plan), Keys{});
  EXPECT_NO_THROW(lower(config, plan));
}

TEST(Check, EachCauseHasItsKey) {
  const model::ModelConfig config = test::small_model();
  const auto with = [&](const std::function<void(Plan&)>& change) {
    Plan plan = plan_of_two();
    change(plan);
    return keys_of(config, plan);
  };
  EXPECT_EQ(with([&](Plan& p) { p.sequence_length = 2 * config.max_position_embeddings; }),
            Keys{"train.sequence_length"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.tp = 3;
              p.sequence_length = 18;
            }),
            (Keys{"mesh.tp", "mesh.tp"}));
  EXPECT_EQ(with([](Plan& p) { p.mesh.ep = 3; }), Keys{"mesh.ep"});
  EXPECT_EQ(with([](Plan& p) { p.mesh.dp = p.mesh.ep = 3; }), Keys{"mesh.ep"});
  EXPECT_EQ(with([](Plan& p) { p.mesh.dp = 0; }), Keys{"mesh.dp"});
  EXPECT_EQ(with([](Plan& p) { p.mesh.order = "tp-dp"; }), Keys{"mesh.order"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.cp = 2;
              p.sequence_length = 18;
            }),
            Keys{"train.sequence_length"});
  EXPECT_EQ(with([](Plan& p) { p.parallel.schedule = "no such"; }), Keys{"parallel.schedule"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.dp = 4;
              p.parallel.shard = passes::Shard::weights;
              p.parallel.shard_ranks = 3;
            }),
            Keys{"parallel.shard_ranks"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.pp = 2;
              p.parallel.schedule = "dual_pipe";
              p.parallel.shard = passes::Shard::gradients;
            }),
            Keys{"parallel.shard"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.pp = 2;
              p.parallel.layout = "Et|t";
            }),
            Keys{"parallel.layout"});
  EXPECT_EQ(with([](Plan& p) { p.device.expert_product = ProductWay::batched; }), Keys{"moe.product"});
  EXPECT_EQ(with([](Plan& p) { p.parallel.exchange.room_factor = p.parallel.exchange.capacity_factor = 2; }),
            Keys{"moe.room_factor"});
  EXPECT_EQ(with([](Plan& p) {
              p.parallel.exchange.room_factor = 2;
              p.memory.recompute = passes::recompute_groups("expert_up>1.25");
            }),
            Keys{"moe.room_factor"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.dp = 2;
              p.cached_sequences = 1;
            }),
            Keys{"mesh"});
  EXPECT_EQ(with([](Plan& p) {
              p.objective.learns = model::Learns::dpo;
              p.sequences = 3;
              p.weighs_labels = true;
            }),
            (Keys{"train.microbatch", "data.weight_key"}));
  model::ModelConfig wrong = config;
  wrong.num_experts_per_tok = wrong.n_routed_experts + 1;
  EXPECT_EQ(keys_of(wrong, plan_of_two()), Keys{"model.num_experts_per_tok"});
}

// Experts without computation, pairs of layers and two gates in turn each refuse what does not go with them.
TEST(Check, ExpertsWithoutComputationPairsAndMixersSayWhatTheyNeed) {
  model::ModelConfig config = test::small_model();
  config.zero_expert_num = 3;
  config.n_group = config.topk_group = 1;
  config.num_nextn_predict_layers = 0;
  Plan plan = plan_of_two();
  EXPECT_EQ(keys_of(config, plan), Keys{});
  EXPECT_NO_THROW(lower(config, plan));
  plan.parallel.exchange.capacity_factor = 1;
  EXPECT_EQ(keys_of(config, plan), Keys{"moe.capacity_factor"});
  plan.parallel.exchange.capacity_factor = 0;
  plan.parallel.exchange.replicas = model::Dispatcher::kReplicasByCost;
  EXPECT_EQ(keys_of(config, plan), Keys{"moe.replicas"});
  plan.parallel.exchange.replicas = 0;
  plan.parallel.exchange.migrate_every = 4;
  EXPECT_EQ(keys_of(config, plan), Keys{"moe.migrate_every"});
  plan.parallel.exchange.migrate_every = 0;
  model::ModelConfig more = config;
  more.num_experts_per_tok = more.n_routed_experts + 1;
  EXPECT_EQ(keys_of(more, plan), Keys{});
  plan.mesh.dp = 2;
  EXPECT_EQ(keys_of(more, plan), Keys{});
  plan.mesh.dp = 1;

  const auto refused = [&](const std::function<void(model::ModelConfig&)>& change) {
    model::ModelConfig other = config;
    change(other);
    const std::vector<Refusal> all = refusals_of(other, plan);
    return all.empty() ? std::string() : all.front().message;
  };
  EXPECT_NE(refused([](auto& c) { c.n_group = c.topk_group = 2; }).find("needs model.n_group = 1"),
            std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.experts_bias = true; }).find("model.experts_bias = false"), std::string::npos);
  const auto pairs = [](model::ModelConfig& c) {
    c.shortcut_experts = true;
    c.first_k_dense_replace = 0;
    c.num_hidden_layers = 4;
  };
  EXPECT_EQ(refused(pairs), "");
  EXPECT_NE(refused([&](auto& c) { pairs(c), c.num_hidden_layers = 3; }).find("layers are pairs"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& c) { pairs(c), c.residual_dropout = 0.1; }).find("residual_dropout = 0"),
            std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.sparse_mixer = true; }).find("model.sparse_mixer needs"), std::string::npos);
}

// Layers that choose experts by token id have a table and no bias, on whatever stage they are; it reads the ids.
TEST(Check, HashLayersHaveATableInPlaceOfABias) {
  model::ModelConfig config = test::small_model();
  config.num_hash_layers = config.first_k_dense_replace + 1;
  config.topk_bias = true;
  config.sequence_aux_loss_alpha = 0.01;
  Plan plan = plan_of_two();
  plan.mesh.pp = 2;
  const Lowered lowered = lower(config, plan);
  std::map<int, std::set<std::string>> of_layer;
  for (size_t s = 0; s < lowered.parameters.size(); ++s) {
    for (const model::Parameter& p : lowered.parameters[s]) {
      if (p.name.find("mlp.gate.") == std::string::npos) continue;
      of_layer[p.layer].insert(p.name.substr(p.name.find("mlp.gate.") + 9));
      const ir::Listing& listing = lowered.program.listings[s];
      if (p.name.ends_with("tid2eid")) EXPECT_NE(listing.find_input("ids_of_rows"), nullptr);
    }
    for (const ir::Value& value : lowered.program.listings[s].values)
      EXPECT_FALSE(value.name.starts_with(fmt::format("loss.sequence_aux.{}", config.num_hash_layers - 1)));
  }
  for (const auto& [layer, names] : of_layer) {
    const bool by_id = config.chooses_by_id(layer);
    EXPECT_EQ(names, by_id ? (std::set<std::string>{"weight", "tid2eid"})
                           : (std::set<std::string>{"weight", "e_score_correction_bias"}))
        << layer;
  }
  EXPECT_EQ(std::ranges::count_if(of_layer, [&](const auto& each) { return config.chooses_by_id(each.first); }), 1);

  const auto refused = [&](const std::function<void(model::ModelConfig&)>& change) {
    model::ModelConfig other = config;
    change(other);
    const std::vector<Refusal> all = refusals_of(other, plan);
    return all.empty() ? std::string() : all.front().message;
  };
  EXPECT_NE(
      refused([](auto& c) { c.num_hash_layers = c.num_hidden_layers + 1; }).find("more than model.num_hidden"),
      std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.num_hash_layers = c.first_k_dense_replace; }).find("none of these layers has"),
            std::string::npos);
  EXPECT_NE(refused([](auto& c) {
              c.num_experts_per_tok = 2;
              c.n_group = c.topk_group = 1;
              c.sigmoid_scores = c.topk_bias = c.norm_topk_prob = false;
              c.routed_scaling_factor = 1;
              c.sparse_mixer = true;
            }).find("needs model.sparse_mixer = false"),
            std::string::npos);
}

// The residual goes from stage to stage as wide as it is; each block has three parameters for its streams, the head
// too. What would be added to one row beside the blocks does not go with them.
TEST(Check, StreamsGoFromStageToStage) {
  model::ModelConfig config = test::small_model();
  config.num_nextn_predict_layers = 0;
  config.hyper_connections = 4;
  Plan plan = plan_of_two();
  plan.mesh.pp = 2;
  const Lowered lowered = lower(config, plan);
  std::map<std::string, int> parameters;
  int messages = 0;
  for (size_t s = 0; s < lowered.parameters.size(); ++s) {
    for (const model::Parameter& p : lowered.parameters[s]) {
      if (p.part == model::Parameter::Part::hyper_connection) ++parameters[p.name.substr(p.name.rfind('.') + 1)];
    }
    const ir::Listing& listing = lowered.program.listings[s];
    for (const ir::Op& op : listing.ops) {
      if (op.kind() != "send") continue;
      ++messages;
      EXPECT_EQ(listing.value(op.in[0]).shape.back().count, 4 * config.hidden_size);
    }
  }
  EXPECT_EQ(messages, 2) << "a state and its gradient";
  const int blocks = 2 * static_cast<int>(config.num_hidden_layers);
  EXPECT_EQ(
      parameters,
      (std::map<std::string, int>{
          {"fn", blocks}, {"base", blocks}, {"scale", blocks}, {"hc_fn", 1}, {"hc_base", 1}, {"hc_scale", 1}}));

  const auto refused = [&](const std::function<void(model::ModelConfig&)>& change) {
    model::ModelConfig other = config;
    change(other);
    const std::vector<Refusal> all = refusals_of(other, plan_of_two());
    return all.empty() ? std::string() : all.front().message;
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  for (const auto& [change, needs] : std::vector<std::pair<std::function<void(model::ModelConfig&)>, const char*>>{
           {[](auto& c) { c.num_nextn_predict_layers = 1, c.norm = model::Norm::layer; }, "model.norm = \"rms\""},
           {[](auto& c) { c.mlp_alpha_factor = 2; }, "model.mlp_alpha_factor of 1"},
           {[](auto& c) { c.norm_places = model::NormPlaces::stream; }, "another model.norm_places"}}) {
    EXPECT_NE(refused(change).find(std::string("model.hyper_connections is 4, and needs ")), std::string::npos);
    EXPECT_NE(refused(change).find(needs), std::string::npos) << refused(change);
  }
  EXPECT_NE(refused([](auto& c) { c.hyper_connections = 9; }).find("must be at most 8"), std::string::npos);
  EXPECT_EQ(refused([](auto& c) { c.hyper_connections_magnitude = 1; }),
            "model.hyper_connections_magnitude needs model.hyper_connections_kind = \"independent\"");
  EXPECT_EQ(refused([](auto& c) {
              c.hyper_connections_kind = model::HyperConnection::independent;
              c.hyper_connections_iterations = 3;
            }),
            "model.hyper_connections_iterations needs model.hyper_connections_kind = \"constrained\"");
  EXPECT_EQ(refused([](auto& c) { c.hyper_connections_rank = 3; }),
            "model.hyper_connections_rank needs model.hyper_connections_kind = \"gated\"");
  EXPECT_EQ(refused([](auto& c) {
              c.hyper_connections_kind = model::HyperConnection::gated;
              c.hyper_connections = 1;
            }),
            "model.hyper_connections_kind is \"gated\", and needs model.hyper_connections of 2 or more");
}

// Tables of n-grams are cut among ranks of tp, and so are columns of streams around their convolution.
TEST(Check, TablesOfNgramsAreCut) {
  model::ModelConfig config = test::small_model();
  config.num_nextn_predict_layers = 0;
  config.hyper_connections = 2;
  config.hyper_connections_kind = model::HyperConnection::gated;
  config.ngram_layers = "2";
  config.ngram_heads = 2;
  config.ngram_vocab_size = 5;
  config.ngram_vocab_multiple = 2;
  Plan plan = plan_of_two();
  plan.mesh.tp = 2;
  EXPECT_EQ(keys_of(config, plan), Keys{});
  config.ngram_vocab_multiple = 1;
  config.ngram_vocab_size = 2;
  EXPECT_EQ(keys_of(config, plan), Keys{"mesh.tp"}) << "2 + 3 + 5 + 7 rows";
  const Lowered lowered = lower(config, plan_of_two());
  const ir::Input* ngrams = lowered.program.listings[0].find_input("ngrams.1");
  ASSERT_NE(ngrams, nullptr);
  EXPECT_EQ(ngrams->attributes.integer("each"), 4);
}

// Sizes of layers that a model doesn't have are in nobody's way.
TEST(Check, OnlyTheModelsOwnLayersAreCut) {
  model::ModelConfig config = test::small_model();
  config.num_attention_heads = 3, config.vocab_size = 63, config.intermediate_size = 66;
  Plan plan = plan_of_two();
  plan.mesh.tp = 3;
  plan.sequence_length = 18;
  EXPECT_EQ(keys_of(config, plan), Keys{"mesh.tp"});  // shared experts
  config.first_k_dense_replace = config.num_hidden_layers;
  EXPECT_EQ(keys_of(config, plan), Keys{});
  EXPECT_NO_THROW(lower(config, plan));
  config.intermediate_size = 64;
  EXPECT_EQ(keys_of(config, plan), Keys{"mesh.tp"});
}

// All of what is wrong at once, the model first; the schedule is not asked for.
TEST(Check, SeveralCausesAreAllTold) {
  const model::ModelConfig config = test::small_model();
  Plan plan = plan_of_two();
  plan.sequence_length = 2 * config.max_position_embeddings;
  plan.device.expert_product = ProductWay::batched;
  plan.mesh.dp = 0;
  plan.parallel.schedule = "no such";
  EXPECT_EQ(keys_of(config, plan), (Keys{"train.sequence_length", "moe.product", "mesh.dp"}));
  try {
    check(config, plan);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), refusals_of(config, plan).front().message);
  }
}

}  // namespace
}  // namespace heddle::plan
