// The configuration: layers, types, bounds, every message with its place, and writing it back.
#include "heddle/config/run_config.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "heddle/base/error.h"
#include "heddle/config/model_json.h"
#include "heddle/config/placed_config.h"
#include "heddle/config/setting_names.h"
#include "heddle/passes/op_groups.h"
#include "heddle/plan/check.h"
#include "heddle/plan/switches.h"
#include "heddle/train/run_config_plan.h"
#include "tests/support/scratch_folder.h"

namespace heddle::config {
namespace {

std::string message(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_run_config(text, "run.toml", overrides);
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return what;
  }
  return "accepted";
}

TEST(RunConfig, TheEmptyFileIsTheDefaults) { EXPECT_EQ(parse_run_config("", "run.toml"), RunConfig()); }

TEST(RunConfig, FileOverDefaultsAndFlagsOverFile) {
  const RunConfig c =
      parse_run_config("name = \"a\"\n[train]\nsteps = 7\nlearning_rate = 1\n[fusions]\nnorm = false\n", "run.toml",
                       {"train.steps=9", "device.memory_bytes=2 GiB", "model.topk_bias=false"});
  EXPECT_EQ(c.name, "a");
  EXPECT_EQ(c.train.steps, 9);
  EXPECT_EQ(c.train.learning_rate, 1.0);
  EXPECT_EQ(c.device.memory_bytes, int64_t{2} << 30);
  EXPECT_FALSE(c.model.topk_bias);
  EXPECT_FALSE(c.plan.fusions.contains("norm"));
  EXPECT_TRUE(c.plan.fusions.contains("swiglu"));
}

TEST(RunConfig, APresetIsTheBaseOfTheKeysAroundIt) {
  const std::string text = "[model]\nnum_hidden_layers = 2\npreset = \"deepseek-v3\"\n";
  EXPECT_EQ(parse_run_config(text, "run.toml").model.num_hidden_layers, 2);
  EXPECT_EQ(parse_run_config(text, "run.toml").model.hidden_size, 7168);
  const RunConfig other = parse_run_config(text, "run.toml", {"model.preset=deepseek-v2-lite"});
  EXPECT_EQ(other.model.hidden_size, 2048);
  EXPECT_EQ(other.model.num_hidden_layers, 27) << "the file's keys stood on the other preset";
}

TEST(RunConfig, MessagesNameThePlaceAndWhatIsAccepted) {
  EXPECT_EQ(message("[train]\n  stepz = 3\n"),
            "run.toml:2:3: unknown key 'train.stepz', did you mean 'train.steps'?");
  EXPECT_EQ(message("[trian]\nsteps = 3\n"), "run.toml:1:2: unknown section 'trian', did you mean 'train'?");
  EXPECT_EQ(message("learning_rate = 1\n"),
            "run.toml:1:1: unknown key 'learning_rate', did you mean 'train.learning_rate'?");
  EXPECT_EQ(message("[train]\nsteps = 1.5\n"),
            "run.toml:2:1: train.steps takes an integer of 1 or more, found the number 1.5");
  EXPECT_EQ(message("[train]\nsteps = [1]\n"),
            "run.toml:2:1: train.steps takes an integer of 1 or more, found an array");
  EXPECT_EQ(message("[train.steps]\n"), "run.toml:1:8: train.steps takes an integer of 1 or more, found a table");
  EXPECT_EQ(message("[train]\nsteps = 0\n"), "run.toml:2:1: train.steps is 0, must be an integer of 1 or more");
  EXPECT_EQ(message("[train]\nbeta1 = 1.5\n"),
            "run.toml:2:1: train.beta1 is 1.5, must be a number from 0 to 0.999999");
  EXPECT_EQ(message("[train]\nschedule = \"cosin\"\n"),
            "run.toml:2:1: train.schedule is 'cosin', accepted: cosine, wsd, constant, linear, inverse_sqrt, did "
            "you mean 'cosine'?");
  EXPECT_EQ(message("", {"train.steps=ten"}),
            "--set train.steps=ten: train.steps takes an integer of 1 or more, found 'ten'");
  EXPECT_EQ(message("", {"train.steps"}), "--set train.steps: expected key=value");
  EXPECT_EQ(message("", {"lr=1"}), "--set lr=1: unknown key 'lr', did you mean 'train.learning_rate'?");
  EXPECT_EQ(message("", {"model.topk_bias=yes"}),
            "--set model.topk_bias=yes: model.topk_bias takes true or false, found 'yes'");
  EXPECT_EQ(message("[device]\ndeterministic = false\n"),
            "run.toml:2:1: device.deterministic is false, accepted: true (there is no other mode)");
  EXPECT_EQ(message("[train]\nlearning_rate = nan\n"),
            "run.toml:2:1: train.learning_rate is nan, must be a number from 0 to 100");
}

TEST(RunConfig, AKeyThatIsRetiredIsReadWhereItMeansNothing) {
  EXPECT_EQ(parse_run_config("[parallel]\nahead_of_norm = false\n", "run.toml"), RunConfig());
  EXPECT_EQ(message("", {"parallel.ahead_of_norm=false"}), "accepted");
  const std::string why = "updates that run ahead of the norm were removed; leave the key out";
  EXPECT_TRUE(message("[parallel]\nahead_of_norm = true\n")
                  .starts_with("run.toml:2:1: parallel.ahead_of_norm = true: " + why));
  EXPECT_TRUE(message("", {"parallel.ahead_of_norm=true"})
                  .starts_with("--set parallel.ahead_of_norm=true: parallel.ahead_of_norm = true: " + why));
}

TEST(RunConfig, ARunIsCountedInStepsOrEndsByTheClock) {
  const std::string clock = "[train]\nminutes = 3\nwarmup_fraction = 0.1\n";
  const RunConfig by_clock = parse_run_config(clock, "run.toml");
  EXPECT_EQ(by_clock.length().seconds, 180);
  EXPECT_EQ(by_clock.train.warmup_fraction, 0.1);
  EXPECT_EQ(parse_run_config(toml_of(by_clock), "written.toml"), by_clock);
  EXPECT_EQ(toml_of(by_clock).find("\nsteps ="), std::string::npos) << toml_of(by_clock);
  // What is set over the file decides, and the file's other measure is left out.
  const RunConfig in_steps = parse_run_config(clock, "run.toml", {"train.steps=20", "train.warmup_steps=3"});
  EXPECT_EQ(in_steps.length().steps, 20);
  EXPECT_FALSE(in_steps.length().by_clock());
  EXPECT_EQ(in_steps.train.warmup_steps, 3);
  EXPECT_EQ(in_steps.train.warmup_fraction, RunConfig().train.warmup_fraction);
  EXPECT_TRUE(parse_run_config("[train]\nsteps = 9\ndecay_steps = 2\n", "run.toml", {"train.minutes=0.5"})
                  .length()
                  .by_clock());
  EXPECT_EQ(
      message("[train]\nminutes = 3\nsteps = 9\n"),
      "run.toml:2:1: train.minutes and train.steps are both given; only one of them can set the run's length");
  EXPECT_EQ(message(clock, {"train.steps=9", "train.minutes=1"}),
            "--set train.minutes=1: train.minutes and train.steps are both given; only one of them can set the "
            "run's length");
  EXPECT_EQ(message(clock, {"train.warmup_steps=9"}),
            "--set train.warmup_steps=9: train.warmup_steps is of a run that is counted in steps, and this one's "
            "length is train.minutes; set train.warmup_fraction");
  EXPECT_EQ(
      message("[train]\ndecay_fraction = 0.5\n"),
      "run.toml:2:1: train.decay_fraction is of a run by the clock, and this one's length is train.steps; set "
      "train.decay_steps");
  EXPECT_EQ(message("[train]\nminutes = 0\n"), "run.toml:2:1: train.minutes is 0.0, must be a number above 0");
}

TEST(RunConfig, ARunMayBeCountedInEpochs) {
  const std::string epochs = "[train]\nepochs = 2.5\nglobal_batch = 8\n";
  RunConfig c = parse_run_config(epochs, "run.toml");
  EXPECT_EQ(c.train.epochs, 2.5);
  EXPECT_FALSE(c.length().by_clock());
  EXPECT_GT(c.length().steps, 0) << "while the data is not known";
  EXPECT_EQ(parse_run_config(toml_of(c), "written.toml"), c);
  EXPECT_EQ(toml_of(c).find("\nsteps ="), std::string::npos);
  // The first number of steps that has read the data so often.
  EXPECT_EQ(c.steps_of_epochs(16), 5);
  EXPECT_EQ(c.steps_of_epochs(17), 6);
  EXPECT_EQ(c.steps_of_epochs(1), 1);
  c.train.epochs = 0.1;
  c.train.global_batch = 1;
  EXPECT_EQ(c.steps_of_epochs(30), 3) << "0.1 × 30 is a little more than 3";
  c.train.epochs = 1;
  c.train.global_batch = 16;
  c.train.batch_ramp = {4, 4, 24};  // 4, 4, 8, 12, 16, 16, …
  const int64_t steps = c.steps_of_epochs(60);
  EXPECT_GE(c.data_after(steps).consumed, 60);
  EXPECT_LT(c.data_after(steps - 1).consumed, 60);
  // A run writes what they came to, for those who do not read its data.
  c.train.batch_ramp = {};
  c.train.steps = 7;
  EXPECT_NE(toml_of(c).find("epoch_steps = 7\n"), std::string::npos);
  EXPECT_EQ(parse_run_config(toml_of(c), "written.toml"), c);
  EXPECT_EQ(parse_run_config(toml_of(c), "written.toml", {"train.epochs=3"}).train.steps, 0) << "of other epochs";
  // What is set over the file decides.
  EXPECT_EQ(parse_run_config(toml_of(c), "written.toml", {"train.steps=9"}).train.epochs, 0);
  EXPECT_EQ(parse_run_config(toml_of(c), "written.toml", {"train.steps=9"}).length().steps, 9);
  EXPECT_TRUE(parse_run_config(epochs, "run.toml", {"train.minutes=3"}).length().by_clock());
  EXPECT_EQ(parse_run_config("[train]\nminutes = 3\n", "run.toml", {"train.epochs=3"}).train.epochs, 3);
  EXPECT_EQ(message("[train]\nepochs = 3\nsteps = 9\n"),
            "run.toml:2:1: train.epochs and train.steps are both given; only one of them can set the run's length");
  EXPECT_EQ(message(epochs, {"train.minutes=1", "train.epochs=1"}),
            "--set train.minutes=1: train.minutes and train.epochs are both given; only one of them can set the "
            "run's length");
  EXPECT_EQ(message("[train]\nepoch_steps = 3\n"),
            "run.toml:2:1: train.epoch_steps follows from train.epochs, which is not given");
  EXPECT_NE(message("", {"epochs=3"}).find("did you mean 'train.epochs'"), std::string::npos);
}

TEST(RunConfig, TheFolderOfTheWeightsNamesTheModelToo) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "released";
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(HEDDLE_SOURCE_DIR "/tests/fixtures/qwen3/config.json", folder + "/config.json");
  const model::ModelConfig model = read_huggingface_config(folder);
  const std::string text = fmt::format("[train]\nsequence_length = 32\nstart = \"{}\"\n", folder);
  EXPECT_EQ(parse_run_config(text, "run.toml").model, model);
  EXPECT_EQ(parse_run_config("[train]\nsequence_length = 32\n", "run.toml", {"train.start=" + folder}).model,
            model);
  // Whatever else names a model holds.
  EXPECT_EQ(parse_run_config(text + "[model]\npreset = \"demo\"\n", "run.toml").model, preset("demo"));
  EXPECT_EQ(parse_run_config(text, "run.toml", {"model.hidden_size=64"}).model.hidden_size, 64);
  EXPECT_EQ(parse_run_config(text, "run.toml", {"model.hidden_size=64"}).model.vocab_size,
            RunConfig().model.vocab_size);
  // A run's folder keeps what its configuration says.
  std::ofstream(folder + "/config.toml") << "";
  EXPECT_EQ(parse_run_config(text, "run.toml").model, RunConfig().model);
}

TEST(RunConfig, TheRateOfTheBiasesIsOpenUnlessGiven) {
  EXPECT_FALSE(parse_run_config("", "run.toml").model.bias_update_rate);
  EXPECT_EQ(parse_run_config("", "run.toml", {"model.bias_update_rate=0"}).model.bias_update_rate, 0.0);
  EXPECT_EQ(preset("deepseek-v3").bias_update_rate, 0.001) << "the report's own recipe";
  RunConfig given;
  given.model.bias_update_rate = 0.25;
  EXPECT_EQ(parse_run_config(toml_of(given), "written.toml"), given);
}

TEST(RunConfig, Lists) {
  const auto recompute = [](const std::string& text, const std::vector<std::string>& set = {}) {
    const RunConfig c = parse_run_config("[memory]\nrecompute = " + text + "\n", "run.toml", set);
    EXPECT_EQ(parse_run_config(toml_of(c), "written.toml"), c);
    return passes::text_of(c.plan.memory.recompute);
  };
  EXPECT_EQ(recompute("[\"norm\", \"gather:0-3\"]"), "norm, gather:0-3");
  EXPECT_EQ(recompute("\"medium\""), "medium");
  EXPECT_EQ(recompute("[]"), "");
  EXPECT_EQ(recompute("\"\"", {"memory.recompute=mlp, moe:3, light:1-2"}), "mlp, moe:3, light:1-2");
  EXPECT_EQ(
      message("[memory]\nrecompute = [\"atention\"]\n"),
      "run.toml:2:1: memory.recompute: 'atention' is nothing to recompute, accepted: norm, activation, gather, "
      "mla_up, attention, router, permute, expert_up, shared, mlp, moe, layer, light, medium, full, "
      "zero_memory_level0, zero_memory_level1, did you "
      "mean 'attention'?");
  EXPECT_EQ(message("[memory]\nrecompute = [\"norm\", 3]\n"),
            "run.toml:2:1: memory.recompute takes a list of norm, activation, gather, mla_up, attention, router, "
            "permute, expert_up, shared, mlp, moe, layer, light, medium, full, zero_memory_level0, "
            "zero_memory_level1, found the integer 3 in the list");
  EXPECT_TRUE(message("", {"memory.recompute=norm:9-1"}).ends_with("accepted: 'norm:3' or 'norm:0-3'"));
}

TEST(RunConfig, WhatWaitsOnTheHostNeedsRoomThere) {
  const auto refusal = [](const std::vector<std::string>& set) -> std::string {
    try {
      train::arena_bytes_of(parse_run_config("", "run.toml", set), 0, {.memory = 1 << 20});
    } catch (const train::DoesNotFit& error) {
      return error.what();
    }
    return "it fits";
  };
  EXPECT_NE(refusal({"memory.offload=layer", "device.memory_bytes=8GiB"}).find("memory.offload puts"),
            std::string::npos);
  EXPECT_EQ(refusal({"device.memory_bytes=8GiB"}), "it fits");
}

// A refusal of a plan names the place where its key was set; for a key that nobody set, the file.
TEST(RunConfig, RefusalsOfAPlanHaveTheirPlace) {
  const ScratchFolder folder;
  const std::string path = folder / "run.toml";
  std::ofstream(path) << "[mesh]\ntp = 3\n[train]\nglobal_batch = 16\n";
  const auto refused = [&](const std::vector<std::string>& set) -> std::string {
    try {
      const PlacedConfig told = read_placed_config(path, set);
      told.refuse(plan::refusals_of(told.config.model, train::plan_of(told.config)));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused({}), path +
                             ":2:1: model.num_attention_heads (4) is not a multiple of mesh.tp (3); mesh.tp goes "
                             "with the model as 1, 2, 4");
  EXPECT_TRUE(
      refused({"mesh.tp=1", "moe.product=batched"}).starts_with("--set moe.product=batched: moe.product = "));
  EXPECT_TRUE(refused({"mesh.tp=1", "moe.room_factor=2", "moe.replicas=1", "device.backend=cuda"})
                  .starts_with("--set moe.room_factor=2: moe.room_factor is 2 beside moe.replicas"));
  EXPECT_TRUE(refused({"mesh.tp=1", "mesh.ep=3"}).starts_with("--set mesh.ep=3: mesh: ep × etp (3 × 1)"));
  EXPECT_TRUE(
      refused({"mesh.tp=1", "mesh.cp=2", "model.max_position_embeddings=255", "train.sequence_length=255"})
          .starts_with("--set train.sequence_length=255: train.sequence_length (255) is not a multiple of"));
  EXPECT_EQ(refused({"mesh.tp=1"}), "");
  EXPECT_EQ(PlacedConfig{.file = "x.toml"}.place_of("mesh.tp"), "x.toml");
}

TEST(RunConfig, WhatNoKeyAloneCanTell) {
  EXPECT_EQ(message("[model]\nnum_experts_per_tok = 20\n"),
            "run.toml:2:1: model.num_experts_per_tok is 20, more than model.n_routed_experts (16)");
  EXPECT_EQ(message("[train]\nsequence_length = 5000\n"),
            "run.toml:2:1: train.sequence_length is 5000, more than model.max_position_embeddings (4096)");
  EXPECT_EQ(
      message("[train]\nglobal_batch = 10\n"),
      "run.toml:2:1: train.global_batch is 10, not a multiple of train.microbatch (8); train.microbatch = 5 goes "
      "with it");
  EXPECT_EQ(message("[train]\nglobal_batch = 16\nmicrobatch = 4\n[mesh]\ndp = 3\n"),
            "run.toml:2:1: train.global_batch is 16, not a multiple of train.microbatch × mesh.dp (4 × 3); "
            "train.global_batch = 24 goes with it");
  EXPECT_EQ(
      message("[train]\nglobal_batch = 12\nmicrobatch = 8\nobjective = \"dpo\"\n"),
      "run.toml:2:1: train.global_batch is 12, not a multiple of train.microbatch (8); train.microbatch = 6 goes "
      "with it");
  EXPECT_EQ(message("[data]\nvocabulary = 9000\n"),
            "run.toml:2:1: data.vocabulary is 9000, more ids than model.vocab_size (8192)");
  EXPECT_EQ(message("[device]\ndtype = \"f64\"\n"),
            "run.toml:2:1: device.dtype is f64, which needs device.backend = \"reference\"");
  EXPECT_EQ(message("[model]\npreset = \"deepsek-v3\"\n"),
            fmt::format("run.toml:2:1: no preset 'deepsek-v3', accepted: {}, did you mean 'deepseek-v3'?",
                        fmt::join(preset_names(), ", ")));
  EXPECT_EQ(
      message("[train]\nexact_sums = true\n[mesh]\ncp = 2\n"),
      "run.toml:2:1: train.exact_sums does not hold with mesh.cp = 2 (it cuts a microbatch's partial gradients), "
      "it needs mesh.cp = 1");
  EXPECT_EQ(
      message("[train]\nexact_sums = true\nmicrobatch = 1\n[model]\nn_routed_experts = 24\n[mesh]\ndp = 4\nep = 2"),
      "run.toml:2:1: train.exact_sums does not hold with mesh.ep = 2 (a rank's 12 of 24 experts sum a token's rows "
      "in another order than one rank), it needs a power of two experts a rank: mesh.ep 1");
  EXPECT_EQ(message("name = \"../x\"\n"),
            "run.toml:1:1: name is '../x', must be the name of a folder (no '/', no '.' in front)");
}

TEST(RunConfig, BrokenTomlIsOneLineWithItsPlace) {
  for (const char* text :
       {"[train\n", "a = ", "a = 1\na = 2\n", "\"\x01\" = 3\n", "= 3\n", "[a]\n[a]\n", "x = \"\xff\"\n"}) {
    EXPECT_TRUE(message(text).starts_with("run.toml:")) << message(text);
  }
  EXPECT_EQ(message(std::string(static_cast<size_t>(kMostConfigBytes) + 1, ' ')),
            "run.toml: larger than 1048576 bytes, no configuration");
}

// What a run wrote down is what runs again, whatever the values.
RC_GTEST_PROP(RunConfig, ReadsBackWhatItWrites, ()) {
  RunConfig c;
  c.model = preset(*rc::gen::elementOf(preset_names()));
  c.seed = *rc::gen::inRange<int64_t>(0, INT64_MAX);
  c.train.sample_prompt = *rc::gen::string<std::string>();
  std::erase_if(c.train.sample_prompt, [](char x) { return x == '\0' || static_cast<unsigned char>(x) > 0x7e; });
  c.train.learning_rate = *rc::gen::inRange<int64_t>(1, 1 << 30) * 1e-9;
  c.train.min_learning_rate = c.train.learning_rate / 3;
  if (*rc::gen::arbitrary<bool>()) {
    c.train.steps = 0;
    c.train.minutes = *rc::gen::inRange<int64_t>(1, 1 << 20) / 60.0;
  }
  c.plan.update.weight_decay = 1.0 / *rc::gen::inRange<int64_t>(1, 1000);
  c.device.memory_bytes = *rc::gen::inRange<int64_t>(0, int64_t{1} << 50);
  for (const Setting& s : settings()) {
    if (s.is_switch(plan::MathsClass::changes_maths) || !s.as_switch || s.key.starts_with("mesh.")) continue;
    if (s.key != "train.exact_sums") s.set(c, *rc::gen::elementOf(s.tried_values()));
  }
  RC_ASSERT(parse_run_config(toml_of(c), "written.toml") == c);
}

TEST(RunConfig, SizesInBytes) {
  EXPECT_EQ(parse_bytes("4GiB"), int64_t{4} << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("7"), 7);
  EXPECT_EQ(parse_bytes("2e9 B"), 2'000'000'000);
  for (const char* text : {"", "GiB", "4 gib", "-1", "1e40", "nan", "4GiB4"})
    EXPECT_THROW(parse_bytes(text), ConfigError) << text;
}

TEST(RunConfig, EverySettingHasAMeaningAndReadsBack) {
  const RunConfig defaults;
  for (const Setting& s : settings()) {
    EXPECT_FALSE(s.meaning.empty()) << s.key;
    EXPECT_FALSE(s.accepted().empty()) << s.key;
    RunConfig copy;
    if (s.present && !s.present(defaults)) continue;
    s.set(copy, s.get(defaults));
    EXPECT_EQ(copy, defaults) << s.key;
  }
}

TEST(RunConfig, ExamplesAreAccepted) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(HEDDLE_SOURCE_DIR) + "/examples")) {
    if (entry.path().extension() != ".toml") continue;
    ++found;
    EXPECT_NO_THROW(read_run_config(entry.path().string())) << entry.path();
  }
  EXPECT_GE(found, 1);
}

std::string refusal_of(const std::string& text) {
  try {
    parse_run_config(text, "t.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunConfigText, WhatTheLibraryMayNotSeeIsRefusedBefore) {
  EXPECT_EQ(
      refusal_of("seed = 1\né = 1\n"),
      "t.toml:2:1: not TOML: found 'é' outside of quotes; keys there are of the letters A-Z a-z 0-9 _ -, others "
      "go into double quotes");
  EXPECT_TRUE(refusal_of("seed = 1 \x80").starts_with("t.toml:1:10: not TOML: found the byte '\\x80'"));
  EXPECT_TRUE(
      refusal_of("seed = \x1b[31m").starts_with("t.toml:1:8: not TOML: found the control character '\\x1b'"));
  std::string deep = "a";
  for (int i = 0; i < 100'000; ++i) deep += ".a";
  EXPECT_NE(refusal_of(deep + " = 1").find("more than 32 parts"), std::string::npos);
  EXPECT_NE(refusal_of("[" + deep + "]").find("more than 32 parts"), std::string::npos);
  EXPECT_TRUE(refusal_of("seed = \n").starts_with("t.toml:1:")) << refusal_of("seed = \n");
  EXPECT_NE(refusal_of("seed = \n").find("not TOML: "), std::string::npos) << refusal_of("seed = \n");
  EXPECT_EQ(refusal_of(R"(name = "a\u001bb")"),
            "t.toml:1:1: name is 'a\\x1bb', which holds the control character '\\x1b'");
}

// Letters where TOML has them, and quotes of all kinds around them.
TEST(RunConfigText, LettersStandInStringsAndComments) {
  for (const char* good :
       {"# é\nname = \"é\" # ü\n", "name = 'é'", R"(name = "a\"é")", "\xef\xbb\xbfname = 'x'",
        "[train]\nsample_prompt = \"\"\"é\n\"é\"\"\"\"\n", "[train]\nsample_prompt = '''é'é'''\n",
        "[train]\r\nsample_prompt = \"\"\"\\\n é\"\"\"\r\n"}) {
    EXPECT_EQ(refusal_of(good), "accepted") << good;
  }
}

TEST(RunConfigText, ARouterThatCannotLearnIsWarnedOf) {
  const auto warnings = [](const std::string& text) {
    std::vector<std::string> found;
    parse_run_config(text, "t.toml", {}, &found);
    return found;
  };
  EXPECT_TRUE(warnings("[model]\nnum_experts_per_tok = 2\n").empty());
  EXPECT_TRUE(warnings("[model]\nnum_experts_per_tok = 1\nnorm_topk_prob = false\n").empty());
  ASSERT_EQ(warnings("[model]\nnum_experts_per_tok = 1\n").size(), 1u);
  EXPECT_NE(warnings("[model]\nnum_experts_per_tok = 1\n")[0].find("model.norm_topk_prob"), std::string::npos);
}

TEST(Switches, EachHasItsPage) {
  for (const Setting& s : settings()) {
    if (!s.as_switch) continue;
    const std::string path = std::string(HEDDLE_SOURCE_DIR) + "/" + s.as_switch->page;
    std::ifstream page(path);
    const std::string text{std::istreambuf_iterator<char>(page), {}};
    EXPECT_NE(text.find("`" + s.key + "`"), std::string::npos) << path << " does not name " << s.key;
    EXPECT_NE(text.find(std::string(plan::name_of(s.as_switch->maths))), std::string::npos)
        << path << " does not give the class";
    EXPECT_NE(text.find("## Tests"), std::string::npos) << path;
    EXPECT_NE(text.find("```sh"), std::string::npos) << path << " has no command that shows it";
  }
}

TEST(Switches, EachFusionIsASwitch) {
  for (const std::string& name : passes::fusion_names()) {
    const Setting* s = find_setting("fusions." + name);
    EXPECT_TRUE(s != nullptr && s->as_switch) << name;
  }
}

TEST(Switches, EveryRowOfThePlanIsAKey) {
  for (const plan::Setting<plan::Choices>& s : plan::settings()) EXPECT_NE(find_setting(s.key), nullptr) << s.key;
}

// What tests try is what a user may write: each value alone is accepted and read back.
TEST(Switches, TriedValuesAreAccepted) {
  for (const Setting& s : settings()) {
    if (!s.as_switch || s.is_switch(plan::MathsClass::changes_maths)) continue;
    for (const Value& value : s.tried_values()) {
      const RunConfig c = parse_run_config("", "run.toml", {s.key + "=" + plan::text_of(value)});
      EXPECT_EQ(s.get(c), value) << s.key;
    }
  }
}

TEST(RunConfig, OthersNamesOfKeysAreOfOneKeyEach) {
  std::map<std::string, std::string> owner;
  size_t called = 0;
  for (const Setting& s : settings()) {
    for (const std::string& name : s.synonyms) {
      ++called;
      EXPECT_EQ(keys_called(name), std::vector<std::string>{s.key}) << name;
    }
  }
  EXPECT_GT(called, 100u);
  EXPECT_EQ(keys_called("schedule"), (std::vector<std::string>{"train.schedule", "parallel.schedule"}));
  EXPECT_EQ(keys_called("train.Schedule"), std::vector<std::string>{"train.schedule"});
  EXPECT_EQ(message("", {"schedule=x"}),
            "--set schedule=x: unknown key 'schedule', did you mean 'train.schedule' or 'parallel.schedule'?");
  EXPECT_EQ(message("", {"learning_rat=1"}),
            "--set learning_rat=1: unknown key 'learning_rat', did you mean 'train.learning_rate'?");
}

TEST(RunConfig, AModelNamedOverTheFileTakesThePlaceOfTheFiles) {
  const std::string text = "[model]\nhidden_size = 64\n[train]\nminutes = 1\n";
  std::vector<std::string> warnings;
  const RunConfig c = parse_run_config(
      text, "run.toml", {"train.steps=9", "model.num_hidden_layers=3", "model.preset=DeepSeek-V3"}, &warnings);
  EXPECT_EQ(c.model.hidden_size, 7168);
  EXPECT_EQ(c.model.num_hidden_layers, 3);
  EXPECT_EQ(c.train.steps, 9) << "the file's other sections stand";
  ASSERT_FALSE(warnings.empty());
  EXPECT_EQ(warnings[0],
            "--set model.preset=DeepSeek-V3 takes the place of the whole model of run.toml, which sets "
            "model.hidden_size");
  warnings.clear();
  parse_run_config("[train]\nsteps = 1000\n", "run.toml", {"model.preset=deepseek-v3"}, &warnings);
  EXPECT_TRUE(warnings.empty());
}

TEST(RunConfig, CountsAndWordsAsPeopleWriteThem) {
  const RunConfig c = parse_run_config(
      "[train]\nsteps = \"500M\"\nwarmup_steps = 1e3\nschedule = \"Cosine\"\n", "run.toml",
      {"train.decay_steps=1.5K", "device.dtype=BF16", "train.learning_rate=2e-3", "model.topk_bias=False"});
  EXPECT_EQ(c.train.steps, 500'000'000);
  EXPECT_EQ(c.train.warmup_steps, 1000);
  EXPECT_EQ(c.train.decay_steps, 1500);
  EXPECT_EQ(c.train.schedule, RateShape::cosine);
  EXPECT_EQ(c.device.dtype, Dtype::bf16);
  EXPECT_FALSE(c.model.topk_bias);
  EXPECT_EQ(message("[train]\nsteps = \"many\"\n"),
            "run.toml:2:1: train.steps takes an integer of 1 or more, found the text 'many'");
  EXPECT_EQ(message("", {"train.learning_rate=nan"}),
            "--set train.learning_rate=nan: train.learning_rate takes a number from 0 to 100, found 'nan'");
}

TEST(RunConfig, WhatIsHardlyMeantIsSaid) {
  const auto said = [](const std::string& text) {
    std::vector<std::string> warnings;
    parse_run_config(text + "[model]\nnum_hidden_layers = 4\n", "run.toml", {}, &warnings);
    return warnings;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(
      said("[train]\nsteps = 20\nwarmup_steps = 50\nlearning_rate = 1e-3\n"),
      Lines{
          "run.toml:3:1: train.warmup_steps is 50, the run has 20 steps: the learning rate rises until the end, to "
          "0.0004"});
  EXPECT_EQ(
      said("[train]\nsteps = 20\nwarmup_steps = 5\ndecay_steps = 16\n"),
      Lines{"run.toml:4:1: train.warmup_steps and train.decay_steps (5 + 16) are more than the run's 20 steps: the "
            "decay has 15"});
  EXPECT_EQ(said("[train]\nsteps = 20\nwarmup_steps = 5\ndecay_steps = 15\n"), Lines{});
  EXPECT_EQ(said("[train]\nsteps = 20\nwarmup_steps = 5\ndecay_steps = 16\nschedule = \"cosine\"\n"), Lines{});
  EXPECT_EQ(said("[train]\nminutes = 2\nwarmup_fraction = 0.5\ndecay_fraction = 0.6\n").size(), 1u);
  EXPECT_EQ(said("").size(), 0u) << "the usual values are meant";
  std::vector<std::string> unnamed;
  parse_run_config("", "run.toml", {}, &unnamed);
  ASSERT_EQ(unnamed.size(), 1u);
  EXPECT_NE(unnamed[0].find("no key of [model] is given"), std::string::npos) << unnamed[0];
}

}  // namespace
}  // namespace heddle::config
