// The defaults of Transformers 5.24: each family's configuration class.
#include "heddle/config/families/absent_sizes.h"

#include <algorithm>

#include "heddle/config/families/grouped_keys.h"

namespace heddle::config {

namespace {

struct AbsentSizes {
  const char* model_type;
  int64_t positions;
  int64_t key_heads = 0, head_dim = 0;  // 0: what the family's own key says
};

constexpr AbsentSizes kAbsentSizes[] = {
    {"afmoe", 16384},
    {"axk1", 32768},
    {"axk2", 131072},
    {"bamba", 262144},
    {"cohere", 8192},
    {"cohere2", 8192},
    {"cohere2_moe", 8192},
    {"cwm", 131072, 8, 128},
    {"deepseek_v2", 2048},
    {"deepseek_v3", 4096},
    {"deepseek_v32", 163840},
    {"deepseek_v4", 1048576},
    {"dots1", 2048, 32},
    {"dots3_note", 524288},
    {"dots3_note_text", 524288},
    {"ernie4_5", 131072, 2, 128},
    {"ernie4_5_moe", 131072, 4},
    {"exaone4", 2048, 32},
    {"exaone_moe", 2048, 32},
    {"flex_olmo", 4096},
    {"gemma", 8192, 16, 256},
    {"gemma2", 8192, 4, 256},
    {"gemma3", 131072, 4, 256},
    {"gemma3_text", 131072, 4, 256},
    {"gemma4", 131072},
    {"gemma4_text", 131072},
    {"gemma4_unified", 262144},
    {"gemma4_unified_text", 262144},
    {"glm", 131072},
    {"glm4", 131072},
    {"glm4_moe", 131072, 8},
    {"glm4_moe_lite", 202752},
    {"glm5_next", 1048576},
    {"glm_moe_dsa", 202752},
    {"gpt2", 1024},
    {"gpt_oss", 131072, 8, 64},
    {"granite", 2048},
    {"granite_swa", 8192, 4},
    {"granitemoe", 2048},
    {"granitemoe_swa", 2048},
    {"granitemoehybrid", 2048},
    {"granitemoeshared", 2048},
    {"hunyuan_v1_dense", 2048},
    {"hunyuan_v1_moe", 2048},
    {"hy_v3", 131072, 8, 128},
    {"hy_v4", 262144},
    {"hy_v4_vl", 262144},
    {"kolibri1", 262144},
    {"laguna", 131072},
    {"lfm2", 128000},
    {"lfm2_moe", 128000},
    {"lfm3", 128000},
    {"llama", 2048},
    {"llama4", 131072},
    {"llama4_text", 131072},
    {"longcat_flash", 131072},
    {"mellum", 131072},
    {"mimo_v2_flash", 131072, 4, 192},
    {"minimax", 131072, 8},
    {"minimax_m2", 196608, 8, 128},
    {"minimax_m3_vl", 524288, 4, 128},
    {"minimax_m3_vl_text", 524288, 4, 128},
    {"ministral3", 262144, 8},
    {"mistral", 131072, 8},
    {"mistral4", 1048576},
    {"mixtral", 131072, 8},
    {"nemotron_h", 4096},
    {"olmo2", 2048},
    {"olmo3", 2048},
    {"olmo_hybrid", 65536},
    {"olmoe", 4096},
    {"phi3", 4096},
    {"phimoe", 131072},
    {"qwen2", 32768},
    {"qwen2_5_vl", 32768, 8},
    {"qwen2_moe", 32768, 16},
    {"qwen2_vl", 32768, 8},
    {"qwen3", 32768, 32, 128},
    {"qwen3_5", 32768, 4, 256},
    {"qwen3_5_moe", 32768, 2, 256},
    {"qwen3_5_moe_text", 32768, 2, 256},
    {"qwen3_5_text", 32768, 4, 256},
    {"qwen3_moe", 32768, 4},
    {"qwen3_next", 32768, 2, 256},
    {"qwen3_vl", 128000, 32, 128},
    {"qwen3_vl_moe", 128000, 16},
    {"qwen4_exp", 32768, 2, 256},
    {"qwen4_exp_text", 32768, 2, 256},
    {"sarvam_mla", 4096},
    {"sarvam_moe", 131072},
    {"seed_oss", 524288, 8, 128},
    {"smollm3", 32768, 4},
    {"solar_open", 131072, 8, 128},
    {"step3p5", 128000},
    {"youtu", 131072},
};

}  // namespace

void give_absent_sizes(Family& family) {
  const std::string& type = family.text_type.empty() ? family.model_type : family.text_type;
  const auto at = std::find_if(std::begin(kAbsentSizes), std::end(kAbsentSizes),
                               [&](const AbsentSizes& each) { return type == each.model_type; });
  if (at == std::end(kAbsentSizes)) return;
  for (PublishedKey& key : family.keys) {
    if (key.ours == "max_position_embeddings" && !key.read && key.standard.is_null()) key.standard = at->positions;
    if (key.name == "num_key_value_heads" && at->key_heads > 0) key = kv_heads_key(at->key_heads);
    if (key.name == "head_dim" && at->head_dim > 0) key = head_dim_key(at->head_dim);
  }
}

}  // namespace heddle::config
