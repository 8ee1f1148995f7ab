// Emitted scripts against the other trainers' own definitions of their arguments (trainer_arguments.txt): names,
// how many values, types, choices, and the combinations that their checks refuse.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "advisor/advice/targets.h"
#include "advisor/script/emit.h"
#include "advisor/script/launch_script.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/space.h"
#include "tests/advisor/drawn_job.h"

namespace heddle::advisor {
namespace {

using Given = std::map<std::string, std::vector<std::string>>;

struct Argument {
  std::string values, type;
  std::vector<std::string> choices;
};

struct Term {
  std::string flag, value;
  char relation = ' ';  // '=' or '>'

  explicit Term(const std::string& text) {
    const size_t at = text.find_first_of("=>");
    flag = text.substr(0, at);
    if (at != std::string::npos) relation = text[at], value = text.substr(at + 1);
  }
  bool holds(const Given& given) const {
    const auto at = given.find(flag);
    if (at == given.end()) return false;
    const std::vector<std::string>& all = at->second;
    if (relation == '=') return std::find(all.begin(), all.end(), value) != all.end();
    return relation == ' ' || (!all.empty() && std::stol(all.front()) > std::stol(value));
  }
};

struct Refusal {
  std::string text;
  Term one, other;
  bool with;
};

struct Trainer {
  std::map<std::string, Argument> arguments;
  std::vector<Refusal> refusals;

  std::string wrong(const Given& given) const {
    for (const auto& [name, values] : given) {
      const auto at = arguments.find(name);
      if (at == arguments.end()) return "unrecognized argument " + name;
      const Argument& a = at->second;
      const bool fits = a.values == "none"  ? values.empty()
                        : a.values == "one" ? values.size() == 1
                                            : !values.empty();
      if (!fits) return name + " with " + std::to_string(values.size()) + " values";
      for (const std::string& value : values) {
        if (!a.choices.empty() && std::find(a.choices.begin(), a.choices.end(), value) == a.choices.end())
          return name + " " + value + " is no choice";
        if (a.type == "int" && value.find_first_not_of("0123456789") != std::string::npos)
          return name + " " + value + " is no whole number";
        if (a.type == "float" && value.find_first_not_of("0123456789.e-") != std::string::npos)
          return name + " " + value + " is no number";
      }
    }
    for (const Refusal& r : refusals)
      if (r.one.holds(given) && r.other.holds(given) == r.with) return r.text;
    return "";
  }
};

Trainer trainer_of(const std::string& wanted) {
  Trainer trainer;
  std::ifstream file(HEDDLE_SOURCE_DIR "/tests/advisor/trainer_arguments.txt");
  EXPECT_TRUE(file.good());
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, second, third, fourth, fifth;
    words >> first >> second >> third >> fourth >> fifth;
    if (first == "refuses" && second == wanted)
      trainer.refusals.push_back({line, Term(third), Term(fifth), fourth == "with"});
    if (first != wanted) continue;
    Argument& a = trainer.arguments[second];
    a.values = third, a.type = fourth;
    std::istringstream choices(fifth);
    for (std::string choice; std::getline(choices, choice, ',');) a.choices.push_back(choice);
  }
  EXPECT_GT(trainer.arguments.size(), 80u);
  EXPECT_GT(trainer.refusals.size(), 20u);
  return trainer;
}

// The flags of the command as the shell would give them; those of torchrun are its own.
Given flags_of_script(const std::string& script) {
  Given given = read_launch_script(script, "script.sh").flags;
  for (const char* own : {"--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port"})
    given.erase(own);
  return given;
}

std::string wrong_in(const Launch& launch, const char* target) {
  const Dialect dialect = target == std::string("megatron") ? Dialect::megatron : Dialect::mindspeed;
  return trainer_of(target).wrong(flags_of_script(emit(launch, dialect)));
}

RC_GTEST_PROP(TrainerArguments, TakeWhateverIsEmitted, (uint32_t seed)) {
  static const std::map<std::string, Trainer> trainers{{"megatron", trainer_of("megatron")},
                                                       {"mindspeed", trainer_of("mindspeed")}};
  std::mt19937 rng(seed);
  for (int i = 0; i < 60; ++i) {
    const Launch launch = launch_of(drawn_job(rng));
    for (const auto& [target, trainer] : trainers) {
      if (!refusals_of(launch, target).empty()) continue;
      const std::string script = emit(launch, target == "megatron" ? Dialect::megatron : Dialect::mindspeed);
      const std::string wrong = trainer.wrong(flags_of_script(script));
      if (!wrong.empty()) RC_FAIL(target + ": " + wrong + "\n" + script);
    }
  }
}

Job published(const char* model, const plan::Degrees& mesh) {
  Job j;
  j.shape = *model::find_shape(model);
  j.device = *cost::accelerator_named("H100");
  j.mesh = mesh;
  j.global_batch = 16 * mesh.dp;
  return j;
}

TEST(TrainerArguments, TakeRecomputationOfEveryKind) {
  int said = 0;
  for (const char* model : {"Llama-3-8B", "Qwen3-30B-A3B", "DeepSeek-V3"}) {
    const bool experts = model != std::string("Llama-3-8B");
    Job job = published(model, {.dp = 8, .pp = 8, .ep = experts ? 8 : 1});
    for (const search::RecomputeChoice& choice : search::recompute_choices(job.shape)) {
      job.recompute = choice.recompute;
      for (const char* target : {"megatron", "mindspeed"}) {
        if (!refusals_of(launch_of(job), target).empty()) continue;
        ++said;
        EXPECT_EQ(wrong_in(launch_of(job), target), "") << model << " " << choice.name;
      }
    }
  }
  EXPECT_GT(said, 20);
}

TEST(TrainerArguments, ActivationsOfADenseModelAreNoMatterOfMegatron) {
  Job job = published("Llama-3-8B", {.dp = 8});
  job.recompute.set(GroupName::activation);
  EXPECT_NE(refusals_of(launch_of(job), "megatron"), std::vector<std::string>{});
  EXPECT_EQ(refusals_of(launch_of(job), "mindspeed"), std::vector<std::string>{});
}

TEST(TrainerArguments, SayAllOfDeepSeekV3) {
  Given given =
      flags_of_script(emit(launch_of(published("DeepSeek-V3", {.dp = 8, .pp = 8, .ep = 8})), Dialect::megatron));
  using Values = std::vector<std::string>;
  EXPECT_TRUE(given.contains("--qk-layernorm"));
  EXPECT_EQ(given["--moe-router-topk-scaling-factor"], Values{"2.5"});
  EXPECT_EQ(given["--moe-router-num-groups"], Values{"8"});
  EXPECT_EQ(given["--moe-router-group-topk"], Values{"4"});
  EXPECT_EQ(given["--moe-router-score-function"], Values{"sigmoid"});
  EXPECT_EQ(given["--moe-router-dtype"], Values{"fp32"});
  EXPECT_TRUE(given.contains("--moe-router-enable-expert-bias"));
  EXPECT_FALSE(given.contains("--moe-router-pre-softmax"));
  given = flags_of_script(emit(launch_of(published("DeepSeek-V2-Lite", {.dp = 8, .ep = 8})), Dialect::megatron));
  EXPECT_TRUE(given.contains("--moe-router-pre-softmax"));
}

// That the definitions are held to at all.
TEST(TrainerArguments, RefuseWhatTheyDontKnow) {
  const Trainer megatron = trainer_of("megatron"), mindspeed = trainer_of("mindspeed");
  EXPECT_NE(megatron.wrong({{"--swap-attention", {}}}), "");
  EXPECT_EQ(mindspeed.wrong({{"--swap-attention", {}}}), "");
  EXPECT_NE(megatron.wrong({{"--num-layers", {}}}), "");
  EXPECT_NE(megatron.wrong({{"--num-layers", {"many"}}}), "");
  EXPECT_NE(megatron.wrong({{"--position-embedding-type", {"alibi"}}}), "");
  EXPECT_NE(
      megatron.wrong({{"--recompute-granularity", {"selective"}}, {"--recompute-modules", {"norm", "moe_act"}}}),
      "");
  EXPECT_NE(megatron.wrong({{"--cpu-offloading", {}}, {"--pipeline-model-parallel-size", {"2"}}}), "");
  EXPECT_EQ(megatron.wrong({{"--cpu-offloading", {}}, {"--pipeline-model-parallel-size", {"1"}}}), "");
}

}  // namespace
}  // namespace heddle::advisor
