// Presets have the parameters of the models that they are named after.
#include <gtest/gtest.h>

#include "heddle/config/families/family.h"
#include "heddle/config/run_config.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::config {
namespace {

// Counts of the released weights, a tied head once.
TEST(Published, PresetsHaveThePublishedCounts) {
  const std::pair<const char*, double> published[] = {
      {"llama-2-7b", 6738415616},
      {"llama-2-70b", 68976648192},
      {"llama-3-8b", 8030261248},
      {"llama-3.1-405b", 405853388800},
      {"llama-3.2-1b", 1235814400},
      {"llama-3.2-3b", 3212749824},
      {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-1.5b", 1543714304},
      {"qwen2.5-7b", 7615616512},
      {"qwen2.5-72b", 72706203648},
      {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},
      {"qwen3-4b", 4022468096},
      {"qwen3-8b", 8190735360},
      {"qwen3-30b-a3b", 30532122624},
      {"qwen3-235b-a22b", 235093634560},
      {"mixtral-8x7b", 46702792704},
      {"granite-4.0-h-tiny", 6939037248},
      {"granite-4.0-h-small", 32207337984},
      {"granite-4.0-h-micro", 3191396096},
      {"lfm2-350m", 354483968},
      {"lfm2-700m", 742489344},
      {"lfm2-1.2b", 1170340608},
      {"lfm2-8b-a1b", 8339930560},
      {"olmo-hybrid-7b", 7430870688},
      {"falcon-h1-0.5b", 521411104},
      {"bamba-9b", 9780235392},
      {"lfm3-1.7b", 1728801536},
      {"gpt2", 124439808},
      {"gpt2-medium", 354823168},
      {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},
      // Those of Transformers for the released config.json, biases of the choice included.
      {"youtu-llm-2b", 1961560064},
      {"sarvam-105b", 106031767424},
      {"a.x-k1", 518983052288},  // without biases of the choice
      {"a.x-k2-light", 20314500992},
      {"mistral-small-4", 118972826624},
      {"ministral-3-8b", 8489553920},
      {"dots3-note", 279551729536},
      {"minimax-m2", 228689764864},
      {"minimax-m3", 447422393856},
      {"qwen3-next-80b-a3b", 79674391296},
      {"kimi-linear-48b-a3b", 49122681728},
      {"ling-3.0-flash", 124414211552},
      {"ling-3.0-tiny", 7893392800},
      {"glm-5.3-flash", 313326811966},  // of the text model
      {"minimax-01", 456089655296},
      {"olmo-2-1b", 1484916736},
      {"olmo-2-7b", 7298617344},
      {"olmo-2-13b", 13716198400},
      {"olmo-2-32b", 32234279936},
      {"olmoe-1b-7b", 6919161856},
      {"granite-3.1-2b", 2533531648},
      {"granite-3.1-8b", 8170848256},
      {"granite-3.1-1b-a400m", 1334628352},
      {"granite-3.1-3b-a800m", 3298793472},
      {"ernie-4.5-0.3b", 360748032},
      {"ernie-4.5-21b-a3b", 21825437888},
      {"ernie-4.5-300b-a47b", 299484163264},
      {"qwen1.5-moe-a2.7b", 14315784192},
      {"qwen2-57b-a14b", 57408658944},
      {"gemma-2b", 2506172416},
      {"gemma-7b", 8537680896},
      {"gemma-2-2b", 2614341888},
      {"gemma-2-9b", 9241705984},
      {"gemma-2-27b", 27227128320},
      {"qwen3.5-9b", 8953803264},
      {"qwen3.5-27b", 26895998464},
      {"qwen3.5-35b-a3b", 34660610688},
      {"qwen3.5-397b-a17b", 396346350336},
      {"olmo-3-7b", 7298011136},
      {"olmo-3-32b", 32233522176},
      {"cwm-32b", 32581097472},
      {"phi-3-mini", 3821079552},
      {"phi-3.5-mini", 3821079552},
      {"phi-4-mini", 3836021760},
      {"phi-4", 14659507200},
      {"solar-open-100b", 102651799552},
      {"smollm3-3b", 3075098624},
      {"exaone-4.0-32b", 32003216384},
      {"gemma-3-270m", 268098176},
      {"gemma-3-1b", 999885952},
      {"gemma-4-e2b", 4628569344},
      {"gemma-4-e4b", 7463013376},
      {"gemma-4-12b", 11907350272},
      {"gemma-4-26b-a4b", 25233141760},
      {"gemma-4-31b", 30697345280},
      {"dots.llm1", 142774381696},
      {"hunyuan-a13b", 80393183232},
      {"hy3", 295033543488},
      {"hy4-preview", 58278201581},
      {"hy4", 769907408797},
      {"mimo-v2-flash", 308778780864},
      {"ling-mini-2.0", 16255643392},
      {"ling-1t", 999705328640},
      {"ling-flash-2.0", 102889705216},
      {"seed-oss-36b", 36151104512},
      {"glm-4.7-flash", 29943393920},
      {"deepseek-v3.2", 671877944064},
      {"glm-5", 743911218432},
      {"longcat-flash", 560664980480},  // without the halves of experts that have no computation
      {"phi-3.5-moe", 41873153344},
      {"k-exaone-236b-a23b", 236571156352},
      {"trinity-nano", 6120003328},
      {"trinity-mini", 26123974400},
      {"laguna-xs.2", 33442617088},
      {"mellum2-12b-a2.5b", 12149923072},
      {"kolibri-1", 78103074560},
      {"sarvam-30b", 32152650368},
      {"glm-4-9b-chat", 9399951360},
      {"glm-4-9b-0414", 9400279040},
      {"glm-4-32b-0414", 32566081536},
      {"command-r", 34980831232},
      {"command-r7b", 8028033024},
      {"command-a", 111057580032},
      {"llama-4-scout", 107769861120},  // of the text model
      {"llama-4-maverick", 400711848960},
  };
  for (const auto& [name, count] : published)
    EXPECT_EQ(model::total_parameters(model::shape_of(preset(name), name)), count) << name;
  // Counts of the papers.
  EXPECT_NEAR(model::total_parameters(model::shape_of(preset("gpt3-175b"), "")), 174.6e9, 0.1e9);
  EXPECT_NEAR(model::total_parameters(model::shape_of(preset("kimi-k2"), "")), 1.04e12, 0.02e12);
  EXPECT_NEAR(model::total_parameters(model::shape_of(preset("glm-4.5"), "")), 355e9, 5e9);
  EXPECT_NEAR(model::active_parameters(model::shape_of(preset("glm-4.5"), "")), 32e9, 2e9);
  EXPECT_NEAR(model::total_parameters(model::shape_of(preset("glm-4.5-air"), "")), 106e9, 2e9);
  EXPECT_NEAR(model::active_parameters(model::shape_of(preset("glm-5"), "")), 40e9, 2e9);
  EXPECT_NEAR(model::total_parameters(model::shape_of(preset("glm-5.2"), "")), 743377019904, 1);
  const struct {
    const char* name;
    double total, active;
  } others[] = {{"ling-mini-2.0", 16.3e9, 1.43e9}, {"ling-flash-2.0", 103e9, 6.1e9},
                {"ling-1t", 1e12, 51e9},           {"ling-3.0-flash", 124e9, 5.1e9},
                {"ling-3.0-tiny", 7.9e9, 1.3e9},   {"step-3.5-flash", 196.8e9, 11e9}};
  for (const auto& [name, total, active] : others) {
    EXPECT_NEAR(model::total_parameters(model::shape_of(preset(name), "")), total, 0.01 * total) << name;
    EXPECT_NEAR(model::active_parameters(model::shape_of(preset(name), "")), active, 0.1 * active) << name;
  }
}

// Each layer of Falcon-H1 has both. A layer of LFM3 has one of three, of which a convolution makes no scores.
TEST(Published, FlopsOfMixersAreThoseOfTheirLayers) {
  const model::Shape falcon = model::shape_of(preset("falcon-h1-0.5b"), "");
  const model::ForwardFlops both = model::forward_flops(falcon, 4096);
  EXPECT_EQ(falcon.recurrent(), 1);
  EXPECT_EQ(both.attention_core, 4096.0 * 8 * 2 * 64);
  EXPECT_EQ(both.recurrence, 128.0 * (128 + 24 * 64) + 4.0 * 24 * 64 * 128);
  const double matrices = 1024.0 * (2 * 8 * 64 + 2 * 2 * 64) + 1024.0 * (3 * 1536 + 2 * 128 + 24);
  EXPECT_EQ(both.attention_linear, 2 * matrices);
  const model::ForwardFlops kinds = model::forward_flops(model::shape_of(preset("lfm3-1.7b"), ""), 4096);
  EXPECT_NEAR(kinds.attention_core, 2.0 * (6 * 2048 + 5 * 248) / 24 * 16 * 256, 1);
}

TEST(Published, PresetsAreTheShapesOfTheirNames) {
  int known = 0;
  for (const std::string& name : preset_names()) {
    const model::Shape* shape = model::find_shape(name);
    if (shape == nullptr) continue;
    ++known;
    EXPECT_EQ(model::total_parameters(model::shape_of(preset(name), name), true),
              model::total_parameters(*shape, true))
        << name;
  }
  EXPECT_GE(known, 10);
}

}  // namespace
}  // namespace heddle::config
