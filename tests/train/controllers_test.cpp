// Controllers: states that checkpoints hold by name, refuse where they can't be, and compare over the ranks.
#include "heddle/train/controllers/controllers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "heddle/train/controllers/expert_history.h"
#include "heddle/train/controllers/expert_migration.h"
#include "heddle/train/controllers/outliers.h"
#include "heddle/train/saved/state_json.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::train {
namespace {

using nlohmann::json;

TEST(Controllers, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const ControllerRow& row : controller_rows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

// The state of a checkpoint of two ranks, without its tensors, as the program wrote it that had no controllers.
constexpr const char* kOldState = R"(
{"config": "190e7fc9b2b42d84", "consumed_sequences": 12, "data": {"documents": "51",
"hash of the token ids": "d3fcd6da852f043a", "hash of tokenizer.json": "9b420fbe8d01e236",
"heldout_fraction": "0.02", "sequence_length": "32", "source": "text.txt", "tokens": "151218"},
"expert_history": [{"layer": 1, "rows": [55.25, 86.25, 50.5, 64.0], "uneven": true}],
"expert_homes": {"holders": 2, "layers": [{"homes": [2, 1, 0, 3], "layer": 1}]}, "format": 2,
"layout": {"backend": "host", "dtype": "bf16", "global_batch": "4", "microbatch": "1",
"ranks": "2 ranks: dp 2, ep 2", "sequence_length": "32"},
"model": {"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
"first_k_dense_replace": 1, "heddle": {"attention_dropout": 0.0, "bias_balance": "sign",
"embedding_dropout": 0.0, "mtp_loss_weight": 0.3, "residual_dropout": 0.0, "sequence_aux_loss_alpha": 0.0,
"topk_bias": true, "z_loss_weight": 0.0}, "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02,
"intermediate_size": 64, "kv_lora_rank": 16, "max_position_embeddings": 4096, "model_type": "deepseek_v3",
"moe_intermediate_size": 32, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 4, "n_shared_experts": 1,
"norm_topk_prob": true, "num_attention_heads": 2, "num_experts_per_tok": 2, "num_hidden_layers": 2,
"num_key_value_heads": 2, "num_nextn_predict_layers": 0, "q_lora_rank": null, "qk_nope_head_dim": 8,
"qk_rope_head_dim": 8, "rms_norm_eps": 1e-06, "rope_interleave": true, "rope_scaling": null,
"rope_theta": 10000.0, "routed_scaling_factor": 1.0, "scoring_func": "sigmoid", "tie_word_embeddings": false,
"topk_group": 1, "topk_method": "noaux_tc", "v_head_dim": 8, "vocab_size": 300},
"moments_digest": "70d7a2ae06ca3ab4", "outliers": {"gone_back": 0, "in_a_row": 1, "left_out": 1,
"losses": [5.759565493091941, 5.681269365927619], "norms": [1.4545436500644293, 1.433955214924169],
"skipped": 1}, "seed": 1, "step": 3, "trained_seconds": 0.130578887, "weights_digest": "01520e5f83c84377"}
)";

TrainerOptions options_of_old_state() {
  TrainerOptions options = small_options({.dp = 2, .ep = 2}, 1);
  options.model.n_routed_experts = 4;
  options.plan.update.skip_norm_above = 2;
  options.plan.parallel.exchange.migrate_every = 1000;
  return options;
}

TEST(Controllers, GoOnFromOlderCheckpoints) {
  const json old = json::parse(kOldState);
  const CheckpointState state = state_from(old, "old");
  EXPECT_EQ(state.controllers.size(), 3u);
  json again = json_of(state);
  again["format"] = old.at("format");
  EXPECT_EQ(again, old) << "older programs read it";

  RankTrainers ranks(options_of_old_state());
  ranks.each([&](Trainer& trainer) {
    trainer.initialise();
    trainer.controllers().restore(state.controllers);
  });
  for (int r = 0; r < 2; ++r) {
    const Controllers& controllers = ranks[r].controllers();
    EXPECT_EQ(controllers.get<Outliers>().history(),
              (OutlierHistory{
                  {1.4545436500644293, 1.433955214924169}, {5.759565493091941, 5.681269365927619}, 1, 1, 1, 0}));
    const ExpertHistory& history = controllers.get<ExpertLoads>().history();
    EXPECT_EQ(history, (ExpertHistory{{{1, {{55.25, 86.25, 50.5, 64.0}, true}}}}));
    EXPECT_EQ(controllers.get<ExpertMigration>().placements(), (ExpertPlacements{2, {{1, {2, 1, 0, 3}}}}));
    EXPECT_EQ(controllers.states(), state.controllers);
  }
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  EXPECT_TRUE(ranks[0].controllers().states().empty());
  EXPECT_EQ(ranks[1].controllers().get<ExpertMigration>().placements(), ExpertPlacements());
}

TEST(Controllers, RefuseStatesThatCannotBe) {
  const json sound = json::parse(kOldState);
  const auto refusal = [&](const char* at, const json& value) -> std::string {
    json state = sound;
    state[json::json_pointer(at)] = value;
    try {
      (void)state_from(state, "place");
    } catch (const ConfigError& error) {
      return error.what();
    } catch (const json::exception&) {
      return "of another type";
    }
    return "";
  };
  EXPECT_EQ(refusal("/outliers/left_out", 0), "");
  EXPECT_EQ(refusal("/outliers/norms", "many"), "of another type");
  EXPECT_TRUE(refusal("/outliers/left_out", 4).starts_with("place: 4 of 3 steps left out"));
  EXPECT_TRUE(
      refusal("/expert_history/0/rows", {1, 2, 3}).starts_with("place: the file names the rows of 3 experts"));
  EXPECT_TRUE(refusal("/expert_history/0/rows/1", -1).starts_with("place: the file names the rows of 4 experts"));
  EXPECT_TRUE(
      refusal("/expert_homes/layers/0/homes", {0, 1, 2, 2}).starts_with("place: the file places 4 experts"));
  EXPECT_TRUE(refusal("/expert_homes/holders", 3).starts_with("place: the file places 4 experts on 3 ranks"));
}

// A rank that decided by other knowledge would go its own way.
TEST(Controllers, MustRememberTheSameOnEveryRank) {
  for (const bool saves : {true, false}) {
    SCOPED_TRACE(saves ? "a checkpoint" : "a step");
    const ScratchFolder folder;
    RankTrainers ranks(options_of_old_state());
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    const auto go_on = [&] {
      if (!saves) {
        ranks.step(random_sequences(ranks[0], kSequences, 1));
        return;
      }
      ranks.each([&](Trainer& trainer) { save_trainer(folder.path().string(), {}, trainer); });
    };
    go_on();
    ranks[1].controllers().get<Outliers>().set_history({.left_out = 1});
    try {
      go_on();
      ADD_FAILURE() << "it went on";
    } catch (const Error& error) {  // its own, or a peer's that has stopped
      EXPECT_NE(std::string(error.what()).find("the same on every rank: outliers is "), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace heddle::train
