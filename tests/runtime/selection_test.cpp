// Models that select keys, entries or blocks: of all keys they are plain latent attention to the bit; what each
// stage trains; layouts against one rank; what is made again, kept on the host and predicted of memory; cuts that
// part a layer from its choice.
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/model/keys.h"
#include "heddle/model/parameter_count.h"
#include "heddle/model/shapes/shape.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/recompute.h"
#include "tests/runtime/kept_bits.h"
#include "tests/runtime/same_batches.h"

namespace heddle::test {
namespace {

using model::IndexStage;

model::ModelConfig selecting(IndexStage stage = IndexStage::sparse, int64_t keys = 3) {
  model::ModelConfig c = small();
  c.index_topk = keys;
  c.index_n_heads = 3;
  c.index_head_dim = 6;
  c.index_stage = stage;
  c.index_loss_weight = 0.5;
  return c;
}

// With sinks, and with a gate of attention's output.
model::ModelConfig selecting_beside(IndexStage stage) {
  model::ModelConfig c = selecting(stage);
  c.attention_sinks = true;
  c.attention_gate = stage == IndexStage::sparse ? model::AttentionGate::element : model::AttentionGate::head;
  return c;
}

enum class Scored : uint8_t { keys, entries, greatest, mean, gated };
constexpr std::array kScored{Scored::keys, Scored::entries, Scored::greatest, Scored::mean, Scored::gated};

// An indexer of each kind, that scores keys, entries of tokens, or blocks of keys.
model::ModelConfig scoring(Scored scored, IndexStage stage) {
  model::ModelConfig c = selecting(stage);
  if (scored == Scored::keys) return selecting_beside(stage);
  if (scored == Scored::entries) {
    c.attention = model::ModelConfig::Attention::compressed;
    c.compression_pattern = "SWHS";
    c.sliding_window = 3, c.sparse_rate = 2, c.heavy_rate = 4;
    c.index_topk = 2;
    c.head_dim = 6, c.qk_rope_head_dim = 4, c.o_groups = 2, c.o_lora_rank = 4;
    c.attention_sinks = true;
    model::reset_foreign_keys(c);
    return c;
  }
  c.index_block_size = 2, c.index_topk = 4;
  if (scored == Scored::gated) {
    c.index_blocks = model::IndexBlocks::gated;
    c.positions = model::Positions::none;
    return c;
  }
  c.attention = model::ModelConfig::Attention::grouped;
  c.num_key_value_heads = 2, c.head_dim = 6;
  c.index_blocks = scored == Scored::greatest ? model::IndexBlocks::greatest : model::IndexBlocks::mean;
  if (scored == Scored::greatest) c.index_n_heads = 2, c.index_local_blocks = 1;
  model::reset_foreign_keys(c);
  return c;
}

std::string text_of(Scored scored, IndexStage stage) {
  return fmt::format("{} of kind {}", word_of(stage), static_cast<int>(scored));
}

bool of_indexer(const std::string& name) { return name.find(".indexer.") != std::string::npos; }

std::map<std::string, std::vector<double>> step(const model::ModelConfig& c, const plan::Plan& plan,
                                                const std::string& backend = "reference") {
  TinyRun run(c, plan, backend, kArenaBytes);
  fill(run, c, 5);
  run.run(same_batches(c, run));
  auto found = gradients_of(run);
  if (c.selects() && c.index_stage != IndexStage::off) {
    double sum = 0;
    for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
      if (c.has_indexer(layer)) sum += run.total(fmt::format("loss.index.{}", layer));
    }
    found["index loss"] = {sum};
  }
  return found;
}

plan::Plan one_rank(Dtype dtype = Dtype::f64) {
  plan::Plan plan = plan_of_four({});
  plan.microbatches = 8;
  plan.dtype = dtype;
  return plan;
}

TEST(SelectionOfKeys, OfAllKeysIsPlainAttention) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const IndexStage stage : {IndexStage::sparse, IndexStage::dense, IndexStage::off}) {
      model::ModelConfig plain = selecting(stage, kTinySequence);
      const auto found = step(plain, one_rank(dtype));
      plain.index_topk = 0;
      plain.index_stage = IndexStage::sparse;
      for (const auto& [name, values] : step(plain, one_rank(dtype))) {
        if (stage == IndexStage::dense && name != "loss") continue;
        EXPECT_EQ(found.at(name), values) << name << " in " << name_of(dtype) << ", stage " << word_of(stage);
      }
    }
  }
}

// The same of blocks in grouped attention, one of them the last that a sequence ends within.
TEST(SelectionOfKeys, OfAllBlocksIsPlainAttention) {
  for (const model::IndexBlocks blocks : {model::IndexBlocks::greatest, model::IndexBlocks::mean}) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      model::ModelConfig c = small();
      c.attention = model::ModelConfig::Attention::grouped;
      c.num_attention_heads = 4;
      c.num_key_value_heads = 2;
      c.head_dim = 6;
      model::ModelConfig chosen = c;
      chosen.index_blocks = blocks;
      chosen.index_block_size = 3;
      chosen.index_topk = 3 * kTinySequence;
      chosen.index_n_heads = blocks == model::IndexBlocks::greatest ? 2 : 3;
      chosen.index_head_dim = 6;
      chosen.index_stage = IndexStage::off;
      const auto found = step(chosen, one_rank(dtype));
      for (const auto& [name, values] : step(c, one_rank(dtype)))
        EXPECT_EQ(found.at(name), values) << name << " in " << name_of(dtype) << ", " << word_of(blocks);
      chosen.index_topk = 3;
      EXPECT_NE(step(chosen, one_rank(dtype)).at("loss"), found.at("loss")) << word_of(blocks);
    }
  }
}

// In each stage: what has a gradient, and what a step moves.
TEST(SelectionOfKeys, StagesTrainTheirWeights) {
  for (const Scored scored : kScored) {
    for (const IndexStage stage : {IndexStage::sparse, IndexStage::dense, IndexStage::off}) {
      const model::ModelConfig c = scoring(scored, stage);
      TinyRun run(c, one_rank(), "reference", kArenaBytes);
      fill(run, c, 5);
      std::map<std::string, std::vector<double>> before;
      for (const model::Parameter& p : run.parameters(0)) before[p.name] = run.whole("master.", p.name);
      run.run(same_batches(c, run));
      for (const model::Parameter& p : run.parameters(0)) {
        if (p.start == model::Parameter::Start::rope_table) continue;
        const bool trained = stage == IndexStage::sparse || of_indexer(p.name) == (stage == IndexStage::dense);
        EXPECT_EQ(run.whole("master.", p.name) != before.at(p.name), trained)
            << p.name << ", " << text_of(scored, stage);
      }
    }
  }
}

// A sink draws its head's share of attention away from keys, and with it what their indexer learns. A gate of the
// output does not.
TEST(SelectionOfKeys, SinksChangeWhatIndexersLearnFirst) {
  const auto first_loss = [](const model::ModelConfig& c) {
    TinyRun run(c, one_rank(), "reference", kArenaBytes);
    fill(run, c, 5);
    run.run(same_batches(c, run));
    return run.total("loss.index.0");
  };
  model::ModelConfig c = selecting();
  const double plain = first_loss(c);
  c.attention_gate = model::AttentionGate::element;
  EXPECT_EQ(first_loss(c), plain);
  c.attention_sinks = true;
  EXPECT_NE(first_loss(c), plain);
}

// The loss of the indexers alone moves them, and moves nothing else.
TEST(SelectionOfKeys, TheIndexersLearnApart) {
  for (const Scored scored : kScored) {
    model::ModelConfig c = scoring(scored, IndexStage::sparse);
    const auto half = step(c, one_rank());
    c.index_loss_weight = 1;
    const auto whole = step(c, one_rank());
    for (const auto& [name, values] : half) {
      if (name == "index loss" || of_indexer(name)) {
        std::vector<double> doubled = values;
        for (double& v : doubled) v *= 2;
        EXPECT_EQ(whole.at(name), doubled) << name;
      } else {
        EXPECT_EQ(whole.at(name), values) << name;
      }
    }
    EXPECT_GT(half.at("index loss")[0], 0.01) << text_of(scored, IndexStage::sparse);
  }
}

// An indexer learns to order keys as attention does: steps of its loss alone lower it.
TEST(SelectionOfKeys, TheLossFalls) {
  for (const Scored scored : kScored) {
    const model::ModelConfig c = scoring(scored, IndexStage::dense);
    TinyRun run(c, one_rank(), "reference", kArenaBytes);
    fill(run, c, 5);
    std::vector<double> losses;
    for (int n = 0; n < 12; ++n) {
      run.run(same_batches(c, run));
      double sum = 0;
      for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
        if (c.has_indexer(layer)) sum += run.total(fmt::format("loss.index.{}", layer));
      }
      losses.push_back(sum);
    }
    EXPECT_LT(losses.back(), 0.9 * losses.front()) << text_of(scored, IndexStage::dense);
  }
}

TEST(SelectionOfKeys, LayoutsAgreeWithOneRank) {
  for (const Scored scored : kScored) {
    for (const IndexStage stage : {IndexStage::sparse, IndexStage::dense}) {
      model::ModelConfig c = scoring(scored, stage);
      if (scored != Scored::entries) c.index_topk_freq = 2;  // layers 0, 1 and 3 have indexers
      const auto expected = step(c, one_rank());
      for (const plan::Degrees& mesh : std::vector<plan::Degrees>{{.tp = 2},
                                                                  {.cp = 2},
                                                                  {.tp = 2, .cp = 2},
                                                                  {.dp = 2, .ep = 2},
                                                                  {.tp = 2, .dp = 2, .pp = 2, .ep = 2}}) {
        plan::Plan plan = plan_of_four(mesh);
        plan.microbatches = 8 / mesh.dp;
        plan.dtype = Dtype::f64;
        plan.parallel.context = model::Context::gather;
        if (mesh.pp == 2) plan.parallel.layout = "Et|tttL";
        const auto found = step(c, plan);
        for (const auto& [name, values] : expected) {
          EXPECT_LT(relative(found.at(name), values), 1e-12)
              << name << " on " << plan::text_of(mesh) << ", " << text_of(scored, stage);
        }
      }
    }
  }
}

TEST(SelectionOfKeys, MadeAgainAndOnTheHostKeepsEveryBit) {
  for (const Scored scored : kScored) {
    for (const IndexStage stage : {IndexStage::sparse, IndexStage::dense}) {
      model::ModelConfig c = scoring(scored, stage);
      c.index_head_dim = 8;  // whole parts of all ranks: what fills the last one up is of no account
      if (!c.is_latent()) c.head_dim = 8;
      const std::vector<const char*> words =
          scored == Scored::keys
              ? std::vector{"mla_up", "attention", "norm,gather,mla_up,attention,medium", "layer"}
              : std::vector{"norm,gather,mla_up,attention,medium", "layer"};
      for (const char* each : words) {
        for (const plan::Degrees& mesh : std::vector<plan::Degrees>{{}, {.tp = 2, .cp = 2}}) {
          plan::Plan plan = plan_of_four(mesh);
          plan.parallel.context = model::Context::gather;
          plan.memory.recompute = passes::recompute_groups(each);
          expect_same_bits(c, plan, "host");
          expect_peak_as_predicted(c, plan);
        }
      }
      plan::Plan plan = plan_of_four({});
      plan.memory.offload = passes::offload_groups("input,layer");
      plan.durations = [](const ir::Listing&, const ir::Op& op) {
        return op.kind().starts_with("copy_") ? 0.0 : 1.0;
      };
      expect_same_bits(c, plan, "host");
      expect_peak_as_predicted(c, plan);
    }
  }
}

// The choice is kept from forward to backward, and never made again.
TEST(SelectionOfKeys, NoChoiceIsMadeTwice) {
  plan::Plan plan = plan_of_four({});
  plan.memory.recompute = passes::recompute_groups("layer");
  const plan::Lowered lowered = plan::lower(selecting(), plan);
  std::map<std::string_view, int> again, all;
  for (const ir::Op& op : lowered.program.listings[0].ops) {
    ++all[op.kind()];
    again[op.kind()] += op.again ? 1 : 0;
  }
  EXPECT_EQ(all["choose_keys"], 4);
  EXPECT_EQ(again["choose_keys"], 0);
  EXPECT_GT(again["chosen_attention"], 0);
}

// The closed forms of search and prediction count what the text holds, in every stage.
TEST(SelectionOfKeys, ParametersAreThoseOfTheClosedForm) {
  for (const Scored scored : kScored) {
    if (scored == Scored::keys) continue;
    for (const IndexStage stage : {IndexStage::sparse, IndexStage::dense, IndexStage::off}) {
      model::ModelConfig c = scoring(scored, stage);
      c.topk_bias = false;  // no parameter of the text's count
      const plan::Lowered lowered = plan::lower(c, plan_of_four({}));
      const auto counted = model::count_parameters(c, lowered.parameters[0], lowered.program.listings[0]);
      EXPECT_EQ(static_cast<double>(counted.total), model::total_parameters(model::shape_of(c, "")))
          << text_of(scored, stage);
    }
  }
  for (const IndexStage stage : {IndexStage::sparse, IndexStage::dense, IndexStage::off}) {
    for (const int64_t every : {1, 3}) {
      for (const int64_t rank : {0, 8}) {
        model::ModelConfig c = selecting_beside(stage);
        c.q_lora_rank = rank;
        c.index_topk_freq = every;
        c.topk_bias = false;  // no parameter of the text's count
        c.num_nextn_predict_layers = 1;
        const plan::Lowered lowered = plan::lower(c, plan_of_four({}));
        const auto counted = model::count_parameters(c, lowered.parameters[0], lowered.program.listings[0]);
        EXPECT_EQ(static_cast<double>(counted.total), model::total_parameters(model::shape_of(c, ""), true))
            << word_of(stage) << ", one indexer of " << every;
      }
    }
  }
}

TEST(SelectionOfKeys, IsRefusedWhereAChoiceIsElsewhere) {
  const auto refusal = [](const model::ModelConfig& c, const plan::Plan& plan) -> std::string {
    try {
      plan::lower(c, plan);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  model::ModelConfig c = selecting();
  plan::Plan plan = plan_of_four({.cp = 2});
  plan.parallel.context = model::Context::ring;
  EXPECT_EQ(
      refusal(c, plan),
      "parallel.context is \"ring\" with model.index_topk = 3 and mesh.cp = 2: keys are chosen where those of a "
      "whole sequence are; parallel.context = \"gather\" goes with it");
  c.index_topk_freq = 4;
  EXPECT_EQ(refusal(c, plan_of_four({.pp = 2})),
            "parallel.layout begins a stage with layer 2, which takes the keys that a layer before it has chosen "
            "(model.index_topk_freq = 4); a stage may begin with layer 0, 1");
  plan = plan_of_four({});
  plan.lora.rank = 2;
  EXPECT_EQ(refusal(c, plan),
            "model.index_stage is \"sparse\" with lora.rank = 2: adapters freeze the indexers; model.index_stage = "
            "\"off\" goes with it");
  model::ModelConfig means = small();
  means.attention = model::ModelConfig::Attention::grouped;
  means.index_topk = means.index_block_size = 2 * kTinySequence;
  means.num_attention_heads = 4;
  means.num_key_value_heads = 2;
  means.head_dim = means.index_head_dim = 6;
  means.index_blocks = model::IndexBlocks::mean;
  means.index_stage = IndexStage::off;
  EXPECT_NE(refusal(means, plan_of_four({})).find("model.index_blocks = \"mean\" chooses blocks of"),
            std::string::npos)
      << refusal(means, plan_of_four({}));
  c.sliding_window = 4;
  EXPECT_EQ(refusal(c, plan_of_four({})),
            "model.index_topk needs model.sliding_window = 0: it selects among all keys");
}

}  // namespace
}  // namespace heddle::test
