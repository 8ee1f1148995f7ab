// Texts read back: those of lowered programs, whole, and those that say something wrong.
#include "heddle/ir/parse.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/ir/print.h"
#include "heddle/ir/verify/verify.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/plan.h"
#include "tests/ir/changed_texts.h"
#include "tests/ir/small_listing.h"
#include "tests/support/tiny_models.h"

namespace heddle::ir {
namespace {

struct Setting {
  std::string name;
  plan::Plan plan;
  model::ModelConfig model = test::tiny_model();
};

plan::Plan plan_on(const plan::Degrees& mesh, const std::string& schedule = "1f1b") {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.parallel.schedule = schedule;
  plan.microbatches = 8;
  plan.sequences = 2;
  plan.sequence_length = 16;
  plan.evaluates = plan.predicts = true;
  return plan;
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  all.push_back({"one rank", plan_on({})});
  all.push_back({"pipeline", plan_on({.pp = 2})});
  all.push_back({"chunks of two routes", plan_on({.pp = 2}, "dual_pipe_v")});
  all.push_back({"chunks", plan_on({.pp = 2}, "interleaved")});
  all.push_back({"I and W apart", plan_on({.pp = 2}, "zb_h1")});
  all.push_back({"experts", plan_on({.dp = 2, .ep = 2})});
  all.push_back({"tp, cp and expert tp", plan_on({.tp = 2, .cp = 2, .ep = 2, .etp = 2})});
  all.push_back({"grouped", plan_on({.tp = 2}), test::tiny_grouped_model()});
  all.push_back({"balanced", plan_on({.dp = 2, .ep = 2}), test::tiny_balanced_model()});
  all.push_back({"cached", plan_on({})});
  all.back().plan.cached_sequences = 3;
  all.push_back({"cached, grouped", plan_on({}), test::tiny_grouped_model()});
  all.back().plan.cached_sequences = 2;
  all.push_back({"unfused", plan_on({.dp = 2, .ep = 2})});
  all.back().plan.fusions.clear();
  all.push_back({"recomputed", plan_on({.dp = 2, .ep = 2})});
  all.back().plan.memory.recompute = passes::recompute_groups("layer");
  all.push_back({"recomputed apart", plan_on({.pp = 2}, "zb_h1")});
  all.back().plan.memory.recompute = passes::recompute_groups("norm,expert_up");
  all.push_back({"offloaded", plan_on({.pp = 2})});
  all.back().plan.memory.offload = passes::offload_groups("input,attention");
  all.back().plan.durations = [](const Listing&, const Op&) { return 1.0; };
  all.push_back({"exact", plan_on({.dp = 2, .ep = 2})});
  all.back().plan.exact_sums = true;
  all.push_back({"copies of experts", plan_on({.dp = 2, .ep = 2})});
  all.back().plan.parallel.exchange.replicas = 2;
  all.push_back({"copies chosen ahead, of experts that move", plan_on({.dp = 2, .ep = 2})});
  all.back().plan.parallel.exchange.replicas = 2;
  all.back().plan.parallel.exchange.replicas_from = model::ReplicasFrom::history;
  all.back().plan.parallel.exchange.migrate_every = 2;
  all.push_back({"dropout, documents apart, outliers left out", plan_on({.tp = 2, .cp = 2})});
  all.back().model.attention_dropout = all.back().model.residual_dropout = 0.1;
  all.back().plan.documents_apart = true;
  all.back().plan.update.skip_loss_above = 2;
  all.push_back({"exact, with copies of experts", plan_on({.dp = 2, .ep = 2})});
  all.back().plan.parallel.exchange.replicas = 1;
  all.back().plan.exact_sums = true;
  all.push_back({"packed bf16", plan_on({.dp = 2})});
  all.back().plan.dtype = Dtype::bf16;
  all.back().plan.packed_bytes = [](const Value& value) { return value.shape.back().count % 8 == 0 ? 4096 : 0; };
  all.push_back({"sharded weights", plan_on({.dp = 2, .pp = 2, .ep = 2})});
  all.back().plan.parallel.shard = passes::Shard::weights;
  all.push_back({"exact, with weights sharded by two", plan_on({.dp = 4})});
  all.back().plan.parallel.shard = passes::Shard::weights;
  all.back().plan.parallel.shard_ranks = 2;
  all.back().plan.exact_sums = true;
  all.push_back({"further tokens", plan_on({.pp = 2})});
  all.back().model.num_nextn_predict_layers = 2;
  all.push_back({"tied", plan_on({.pp = 2})});
  all.back().model.tie_word_embeddings = true;
  return all;
}

// Ops as they stand within their phases; operands by name, for numbers of values differ.
std::vector<std::string> facts(const Listing& listing) {
  std::vector<std::string> facts;
  const auto name = [&](ValueId id) { return id == none ? "none" : listing.value(id).name; };
  const auto fact = [&](const Op& op, ValueId id) {
    const Value& v = listing.value(id);
    facts.push_back(fmt::format("{} of '{}': {} {} {} {}", v.name, op.kind(), name_of(v.role), text_of(listing, v),
                                v.packed_bytes, v.shared_with));
  };
  for (const Phase phase : {Phase::begin, Phase::F, Phase::I, Phase::W, Phase::end}) {
    for (const Op& op : listing.ops) {
      if (op.phase != phase) continue;
      facts.push_back(fmt::format("{} {} group '{}' layer {} chunk {} part '{}' {}{}{}", name_of(phase), op.kind(),
                                  op.group, op.layer, op.chunk, op.part, op.again, op.ahead, op.fresh));
      for (const std::vector<ValueId>* ids : {&op.in, &op.out, &op.updates, &op.mentions}) {
        for (const ValueId id : *ids) {
          if (id != none) fact(op, id);
        }
      }
    }
  }
  for (const auto& [weight, sums] : listing.accumulators) {
    for (const ValueId sum : sums) facts.push_back(name(weight) + " sums up in " + name(sum));
  }
  for (const Chunk& chunk : listing.chunks) facts.push_back(fmt::format("chunk {}/{}", chunk.route, chunk.routes));
  return facts;
}

TEST(Parse, ReadsWhatIsPrinted) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const StepProgram program = plan::lower(setting.model, setting.plan).program;
    const std::vector<Listing> read = parse_listings(text_of(program), ops::find);
    ASSERT_EQ(read.size(), program.listings.size());
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(text_of(read[i]), text_of(program.listings[i]));
      EXPECT_EQ(facts(read[i]), facts(program.listings[i]));
      EXPECT_EQ(read[i].inputs, program.listings[i].inputs);
      verify(read[i]);
    }
  }
}

TEST(Parse, ReadsWhatEveryPassLeaves) {
  plan::Plan plan = plan_on({.dp = 2, .ep = 2});
  plan.memory.recompute = passes::recompute_groups("norm");
  for (const std::string& pass : plan::pass_names()) {
    SCOPED_TRACE(pass);
    for (const Listing& listing : plan::lower(test::tiny_model(), plan, pass).program.listings) {
      const Listing read = parse_listing(text_of(listing), ops::find);
      EXPECT_EQ(text_of(read), text_of(listing));
      EXPECT_EQ(facts(read), facts(listing));
    }
  }
}

TEST(Parse, KeepsTheOrderOfTheText) {
  const std::string text = text_of(test::small_listing().listing);
  const Listing listing = parse_listing(text, ops::find);
  EXPECT_EQ(listing.ops.size(), test::small_listing().listing.ops.size());
  const Listing twice =
      parse_listing(text + "listing 0, I\n    dy = add y, z\nlisting 0, F\n    v = add y, z\n", ops::find);
  ASSERT_EQ(twice.ops.size(), listing.ops.size() + 2);
  EXPECT_EQ(twice.ops.back().phase, Phase::F);
  EXPECT_EQ(twice.value(twice.find("dy")).role, Role::gradient);
  EXPECT_EQ(twice.value(twice.find("v")).role, Role::activation);
}

TEST(Parse, Attributes) {
  for (const Attributes::Item& item : {Attributes::Item(int64_t{-3}), Attributes::Item(1e-6),
                                       Attributes::Item(std::string("rows")), Attributes::Item(std::string("0 1")),
                                       Attributes::Item(std::string("7")), Attributes::Item(std::string())}) {
    EXPECT_EQ(item_of(text_of(item)), item) << text_of(item);
  }
  EXPECT_EQ(text_of(Attributes::Item(std::string("a,b"))), "\"a,b\"");
}

std::string refusal(const std::string& text) {
  try {
    parse_listings(text, ops::find);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(Parse, SaysWhereAndWhy) {
  const std::string table = "listing 0\n  weight x f32[4, 8]\n  weight map f32[8, 8]\n";
  const std::string begin = table + "listing 0, F\n";
  const auto op = [&](const std::string& line) { return refusal(begin + "    " + line + "\n"); };
  EXPECT_EQ(op("y = linear x, map"), "none");
  EXPECT_EQ(
      op("y = linear x, mop"),
      "program text, line 5: 'mop', expected a value of the table, or one that an op above makes, did you mean "
      "'map'?");
  EXPECT_EQ(op("x = linear x, map"), "program text, line 5: 'x', expected a name that no value above has");
  EXPECT_EQ(op("y = linear x, map  copy_in"),
            "program text, line 5: 'copy_in', expected the stream of 'linear', such as 'compute'");
  EXPECT_EQ(op("y = linear x, map  compute #1"), "program text, line 5: '1', expected a chunk from 0 to 0");
  EXPECT_EQ(op("y = linear x, map  compute  stall"),
            "program text, line 5: 'stall', expected no stall of 'linear'");
  EXPECT_EQ(op("y = linear x, map {wide 1"), "program text, line 5: '', expected ',' or '}'");
  EXPECT_EQ(op("y = linear x, map fresh fresh"), "program text, line 5: 'fresh', expected the end of the line");
  EXPECT_EQ(op("y = linear x, map (elsewhere"),
            "program text, line 5: 'elsewhere', expected a value of the table, or one that an op above makes");
  EXPECT_EQ(op("all_gather x"),
            "program text, line 5: '', expected two blanks and the stream of 'all_gather', which "
            "communicates");
  for (const char* line :
       {"y = linaer x, map", "y = add map, x", "y, z = linear x, map", "y = linear x", "y =", "= linear x, map",
        "y, y = split x {first 4}", "y = linear x, map {deep 1}", "linear x,"}) {
    const std::string found = op(line);
    EXPECT_TRUE(found.starts_with("program text, line 5: ")) << line << ": " << found;
  }
  EXPECT_EQ(refusal(table + "  weight x f32[4]\n"),
            "program text, line 4: 'x', expected a name that no value above has");
  EXPECT_TRUE(
      refusal(table + "  takes a f32[4] step of b else -1\n  takes a f32[4] standing of b\n")
          .starts_with("program text, line 5: input 'a' is f32[4] step of b else -1, and f32[4] standing of b"));
  EXPECT_EQ(refusal(table + "  takes a f32[4] step of b else in_order {c 1, d e}\n"), "none");
  EXPECT_TRUE(op("y = load {input a}")
                  .starts_with("program text, line 5: 'load' names 'a', which is no input of listing 0"));
  EXPECT_EQ(refusal(table + "listing 1, F\n"),
            "program text, line 4: 'listing 1, F', expected 'listing 0, ' and one of begin, F, I, W, end");
  for (const char* row : {"  activity a f32[4]",
                          "  weight a f33[4]",
                          "  weight a f32[4",
                          "  weight a f32[-1]",
                          "  weight a f32[4 4]",
                          "  weight a f32[1000000000000, 1000000000000]",
                          "  weight a f32[rows b]",
                          "  weight a f32[4] packed in 8",
                          "  weight a f32[4] of listing -1",
                          "  takes a f32[4]",
                          "  takes a f32[4] daily of b",
                          "  takes a f32[4] step",
                          "  takes a f32[4] step of b else c",
                          "  takes a f32[rows x] step of b",
                          "  takes a f32[4] step of b {c}",
                          "  takes a f32[4] step of b {c 1} d",
                          "  chunks 1/1",
                          "  chunks",
                          "   weight a f32[4]",
                          "    y = linear x, map"}) {
    const std::string found = refusal(table + row + "\n");
    EXPECT_TRUE(found.starts_with("program text, line 4: ")) << row << ": " << found;
  }
  EXPECT_TRUE(refusal("  listing").starts_with("program text, line 1: "));
}

TEST(Parse, ChangedTexts) {
  test::expect_refused_or_read(
      text_of(plan::lower(test::tiny_model(), plan_on({.dp = 2, .ep = 2}), "differentiate").program.listings[0]),
      400, ops::find);
}

TEST(Parse, OneListing) {
  EXPECT_THROW(parse_listing("", ops::find), ConfigError);
  EXPECT_THROW(parse_listing("listing 0\n\nlisting 1\n", ops::find), ConfigError);
  EXPECT_EQ(parse_listings("listing 0\n\nlisting 1\n\ntrain, ranks of class 0: F0.0\n", ops::find).size(), 2u);
}

}  // namespace
}  // namespace heddle::ir
