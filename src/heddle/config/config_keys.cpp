#include "heddle/config/config_keys.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using Json = nlohmann::json;

// Null and absent are accepted everywhere: Transformers then takes the value that is built.
struct Only {
  const char* key;
  std::function<bool(const Json& value, const Json& root)> accepted;
  const char* reason;
};

bool is_off(const Json& value) { return value == false || (value.is_number() && value == 0); }

// The sum of sizes that the file itself gives; files with other types are refused where those are read.
bool equals_sum(const Json& value, const Json& root, std::initializer_list<const char*> keys) {
  int64_t sum = 0;
  for (const char* key : keys) {
    const auto at = root.find(key);
    if (at == root.end() || !at->is_number_integer() || at->get<double>() > 1e15 || at->get<double>() < -1e15) {
      return true;
    }
    sum += at->get<int64_t>();
  }
  return value == sum;
}

const std::vector<Only>& only() {
  const auto off = [](const Json& value, const Json&) { return is_off(value); };
  static const std::vector<Only> all{
      {"model_type", [](const Json& v, const Json&) { return v == "deepseek_v3"; }, "only 'deepseek_v3' is built"},
      {"hidden_act", [](const Json& v, const Json&) { return v == "silu"; }, "only 'silu' is built"},
      {"attention_bias", off, "biases in attention are not built"},
      {"mlp_bias", off, "biases in MLPs are not built"},
      {"attention_dropout", off, "dropout is not built"},
      {"hidden_dropout", off, "dropout is not built"},
      {"embd_pdrop", off, "dropout is not built"},
      {"resid_pdrop", off, "dropout is not built"},
      {"moe_layer_freq", [](const Json& v, const Json&) { return v == 1; },
       "every layer after the dense ones has experts"},
      {"topk_method", [](const Json& v, const Json&) { return v == "noaux_tc"; }, "only 'noaux_tc' is built"},
      {"scoring_func",
       [](const Json& v, const Json& root) {
         return v == "sigmoid" || (v == "softmax" && root.contains("heddle"));
       },
       "the V3 family has 'sigmoid'"},
      {"num_key_value_heads",
       [](const Json& v, const Json& root) { return equals_sum(v, root, {"num_attention_heads"}); },
       "latent attention has as many as heads"},
      {"head_dim", [](const Json& v, const Json& root) { return equals_sum(v, root, {"qk_rope_head_dim"}); },
       "it stands for the rotated part of a head and must equal qk_rope_head_dim"},
      {"qk_head_dim",
       [](const Json& v, const Json& root) {
         return equals_sum(v, root, {"qk_nope_head_dim", "qk_rope_head_dim"});
       },
       "it must be the sum of qk_nope_head_dim and qk_rope_head_dim"},
      {"partial_rotary_factor", [](const Json& v, const Json&) { return v == 1; },
       "heads rotated in part by it are not built"},
      {"use_sliding_window", off, "attention in windows is not built"},
      {"sliding_window",
       [](const Json&, const Json& root) { return root.contains("use_sliding_window"); },  // then that one tells
       "attention in windows is not built"},
      {"layer_types",
       [](const Json& v, const Json&) {
         return v.is_array() &&
                std::all_of(v.begin(), v.end(), [](const Json& t) { return t == "full_attention"; });
       },
       "only 'full_attention' is built"},
      {"mlp_layer_types", [](const Json&, const Json&) { return false; },
       "first_k_dense_replace alone says which layers are dense"},
      {"index_topk", [](const Json&, const Json&) { return false; }, "sparse attention (V3.2) is not built"},
      {"attn_logit_softcapping", [](const Json&, const Json&) { return false; }, "capped logits are not built"},
      {"final_logit_softcapping", [](const Json&, const Json&) { return false; }, "capped logits are not built"},
      {"router_jitter_noise", off, "noise in the router is not built"},
      {"quantization_config", [](const Json&, const Json&) { return false; },
       "quantised weights are not read; convert the model to BF16 first"},
  };
  return all;
}

// Read by model_json and run_config_models.
constexpr const char* kRead[] = {"vocab_size",
                                 "hidden_size",
                                 "num_hidden_layers",
                                 "intermediate_size",
                                 "first_k_dense_replace",
                                 "rms_norm_eps",
                                 "initializer_range",
                                 "tie_word_embeddings",
                                 "max_position_embeddings",
                                 "num_attention_heads",
                                 "q_lora_rank",
                                 "kv_lora_rank",
                                 "qk_nope_head_dim",
                                 "qk_rope_head_dim",
                                 "v_head_dim",
                                 "rope_interleave",
                                 "rope_theta",
                                 "rope_scaling",
                                 "rope_parameters",
                                 "original_max_position_embeddings",
                                 "n_routed_experts",
                                 "num_experts_per_tok",
                                 "n_shared_experts",
                                 "moe_intermediate_size",
                                 "n_group",
                                 "topk_group",
                                 "norm_topk_prob",
                                 "routed_scaling_factor",
                                 "num_nextn_predict_layers",
                                 "heddle",
                                 "aux_loss_alpha",
                                 "seq_aux",
                                 "num_local_experts",
                                 "num_experts",
                                 "num_mtp_layers"};

// Of storage, of generation, of other programs' parallelism, of who wrote the file: nothing of the computation.
constexpr const char* kHarmless[] = {"architectures",
                                     "auto_map",
                                     "torch_dtype",
                                     "dtype",
                                     "transformers_version",
                                     "_name_or_path",
                                     "name_or_path",
                                     "_attn_implementation",
                                     "_attn_implementation_autoset",
                                     "_experts_implementation",
                                     "use_cache",
                                     "bos_token_id",
                                     "eos_token_id",
                                     "pad_token_id",
                                     "sep_token_id",
                                     "cls_token_id",
                                     "decoder_start_token_id",
                                     "pretraining_tp",
                                     "ep_size",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "output_router_logits",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "chunk_size_feed_forward",
                                     "is_encoder_decoder",
                                     "is_decoder",
                                     "id2label",
                                     "label2id",
                                     "num_labels",
                                     "problem_type",
                                     "task_specific_params",
                                     "tokenizer_class",
                                     "prefix",
                                     "max_window_layers",
                                     "gradient_checkpointing",
                                     "base_model_tp_plan",
                                     "base_model_pp_plan",
                                     "base_model_ep_plan",
                                     "max_length",
                                     "min_length",
                                     "temperature",
                                     "top_p",
                                     "top_k",
                                     "do_sample",
                                     "unsloth_version",
                                     "unsloth_fixed"};

template <size_t n>
bool is_among(const std::string& key, const char* const (&list)[n]) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

}  // namespace

void check_keys(const Json& root, const std::string& place, std::vector<std::string>* warnings) {
  std::vector<std::string> known;
  for (const Only& each : only()) {
    known.emplace_back(each.key);
    const auto at = root.find(each.key);
    if (at == root.end() || at->is_null() || each.accepted(*at, root)) continue;
    config_error("{}: '{}' is {}: {}", place, each.key, formats::shown(*at), each.reason);
  }
  if (warnings == nullptr) return;
  for (const char* key : kRead) known.emplace_back(key);
  for (const auto& [key, value] : root.items()) {
    if (value.is_null() || is_among(key, kHarmless)) continue;
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    warnings->push_back(fmt::format("{}: the key '{}' is not known and passed over{}", place, escaped(key, 60),
                                    did_you_mean(key, known)));
  }
}

}  // namespace heddle::config
