// Qwen4-Exp: Qwen3.5's layers with experts, around gated residual streams. In layers with attention an indexer
// chooses blocks of keys. Some layers add embeddings of hashed n-grams to the streams, and the gate of a
// recurrence's output may be a sigmoid.
//
// Its files hold a layer's tables of n-grams as equal runs of rows, and beside them the numbers of their hashes,
// which follow from config.json.
//
// Source: configuration and model of qwen4_exp of Transformers 5, gone through key by key. It has no sizes of a
// released model.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/formats/json_text.h"
#include "heddle/model/ngrams.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr const char *kRecurrentQwen4 = "linear_attention", *kIndexedQwen4 = "indexed_attention",
                     *kFullQwen4 = "full_attention";

// All layers with attention have an indexer. A query attends to blocks of keys by the scores of their means, and to
// the keys behind the last whole block.
void read_indexer_qwen4(const JsonKeys& keys, bool attends, ModelConfig& c) {
  const ModelConfig usual;
  c.index_topk = usual.index_topk, c.index_n_heads = usual.index_n_heads, c.index_head_dim = usual.index_head_dim;
  c.index_block_size = usual.index_block_size, c.index_blocks = usual.index_blocks;
  c.index_stage = usual.index_stage;
  if (!attends) return;
  const auto size = [&](const char* name) {
    if (keys.find(name) == nullptr) {
      config_error("{}: '{}' is missing: an indexer chooses the keys of layers with attention", keys.place(), name);
    }
    return keys.whole(name);
  };
  c.index_topk = size("indexer_budget");
  c.index_n_heads = size("indexer_n_heads");
  c.index_head_dim = size("indexer_head_dim");
  c.index_block_size = size("indexer_compress_ratio");
  if (const int64_t heads = size("indexer_kv_heads"); heads != 1)
    config_error("{}: 'indexer_kv_heads' is {}: only one head of an indexer's keys is built", keys.place(), heads);
  if (c.index_topk < 1 || c.index_block_size < 1 || c.index_topk % c.index_block_size != 0) {
    config_error("{}: 'indexer_budget' is {}, a multiple of 'indexer_compress_ratio' ({}) is expected",
                 keys.place(), c.index_topk, c.index_block_size);
  }
  c.index_blocks = model::IndexBlocks::mean;
  c.index_stage = model::IndexStage::off;
}

PublishedKey of_indexer(const char* name, const char* ours, int64_t (*value)(const ModelConfig&)) {
  return read_elsewhere(
      name, [value](const ModelConfig& c) { return c.selects() ? Written(value(c)) : Written(); }, ours);
}

// Absent layer types are three of linear attention and one of attention, or what full_attention_interval says.
void read_layer_types_qwen4(const JsonKeys& keys, ModelConfig& c) {
  const Json* types = keys.find("layer_types");
  std::vector<bool> attends;
  if (types == nullptr) {
    const int64_t interval = keys.whole("full_attention_interval", 4);
    for (int64_t l = 1; l <= c.num_hidden_layers; ++l) attends.push_back(interval > 0 && l % interval == 0);
  } else {
    bool known = types->is_array() && std::ssize(*types) == c.num_hidden_layers;
    for (const Json& type : known ? *types : Json::array()) {
      attends.push_back(type != kRecurrentQwen4);
      known = known && (type == kRecurrentQwen4 || type == kIndexedQwen4 || type == kFullQwen4);
    }
    if (!known) {
      config_error("{}: 'layer_types' is {}: each of {} layers is '{}' or '{}'", keys.place(),
                   formats::shown(*types), c.num_hidden_layers, kRecurrentQwen4, kIndexedQwen4);
    }
  }
  set_layer_kinds(keys, attends, Recurrence::gated_delta, c);
  read_indexer_qwen4(keys, std::count(attends.begin(), attends.end(), true) > 0, c);
}

Written layer_types_qwen4(const ModelConfig& c) {
  Written types = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    types.push_back(c.is_recurrent(l) ? kRecurrentQwen4 : kIndexedQwen4);
  return types;
}

// Layers are numbered from 1 on, in the files as in model.ngram_layers.
void read_ngram_layers(const JsonKeys& keys, ModelConfig& c) {
  c.ngram_layers.clear();
  const Json* layers = keys.find("ple_layer_ids");
  if (layers == nullptr) return;
  std::vector<int64_t> numbers;
  for (const Json& number : layers->is_array() ? *layers : Json::array({0})) {
    if (!number.is_number_integer() || number < 1 || number > c.num_hidden_layers) {
      config_error("{}: 'ple_layer_ids' is {}: a list of layers from 1 to {} is expected", keys.place(),
                   formats::shown(*layers), c.num_hidden_layers);
    }
    numbers.push_back(number.get<int64_t>());
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  c.ngram_layers = fmt::format("{}", fmt::join(numbers, ","));
}

Written ngram_layer_numbers(const ModelConfig& c) {
  Written numbers = Written::array();
  for (const int64_t layer : model::ngram_layers_of(c)) numbers.push_back(layer + 1);
  return numbers;
}

// A key that counts only where there are n-grams; else files hold what Transformers has for it.
PublishedKey of_ngrams(const char* name, const char* ours, int64_t ModelConfig::*member, int64_t standard) {
  return {.name = name,
          .ours = ours,
          .read =
              [=](const JsonKeys& keys, ModelConfig& c) {
                c.*member = c.has_ngrams() ? keys.whole(name, standard) : ModelConfig().*member;
              },
          .write =
              [=](const ModelConfig& c) {
                const bool open = c.*member == 0 && standard == 0;  // it follows from another key
                return c.has_ngrams() && !open ? Written(c.*member) : Written(Written::value_t::discarded);
              }};
}

// The first of several.
void read_end_of_ngrams(const JsonKeys& keys, ModelConfig& c) {
  c.ngram_end_token = 0;
  if (!c.has_ngrams()) return;
  const Json* tokens = keys.find("eos_token_id");
  const Json first = tokens != nullptr && tokens->is_array() && !tokens->empty() ? (*tokens)[0]
                     : tokens != nullptr                                         ? *tokens
                                                                                 : Json();
  if (!first.is_number_integer() || first < 0) {
    config_error("{}: 'eos_token_id' is {}: a token is expected, behind which no n-gram of 'ple_layer_ids' goes on",
                 keys.place(), tokens == nullptr ? "missing" : formats::shown(*tokens));
  }
  c.ngram_end_token = first.get<int64_t>();
}

void read_output_gate(const JsonKeys& keys, ModelConfig& c) {
  const std::string gate = keys.word("output_gate_type", "silu");
  if (gate != "silu" && gate != "sigmoid")
    config_error("{}: 'output_gate_type' is '{}', accepted: silu, sigmoid", keys.place(), gate);
  c.linear_sigmoid_gate = gate == "sigmoid";
}

void add_ngram_keys(Family& f) {
  add_keys(
      f,
      {{.name = "ple_layer_ids", .ours = "ngram_layers", .read = read_ngram_layers, .write = ngram_layer_numbers},
       of_ngrams("ngram_size", "ngram_size", &ModelConfig::ngram_size, 3),
       of_ngrams("heads_per_ngram", "ngram_heads", &ModelConfig::ngram_heads, 8),
       of_ngrams("ple_embed_dim", "ngram_embedding_size", &ModelConfig::ngram_embedding_size, 0),
       of_ngrams("ngram_vocab_size_base", "ngram_vocab_size", &ModelConfig::ngram_vocab_size, 20'000'000),
       of_ngrams("make_ngram_vocab_size_divisible_by", "ngram_vocab_multiple", &ModelConfig::ngram_vocab_multiple,
                 128),
       of_ngrams("seed", "ngram_seed", &ModelConfig::ngram_seed, 1234),
       of_ngrams("ple_conv_kernel_size", "ngram_conv_kernel_dim", &ModelConfig::ngram_conv_kernel_dim, 4),
       of_ngrams("split_ngram_parts", "ngram_parts", &ModelConfig::ngram_parts, 512),
       {.name = "eos_token_id",
        .ours = "ngram_end_token",
        .read = read_end_of_ngrams,
        .write = [](const ModelConfig& c) {
          return c.has_ngrams() ? Written(c.ngram_end_token) : Written(Written::value_t::discarded);
        }}});
}

void derive_qwen4(ModelConfig& c) {
  c.intermediate_size = c.moe_intermediate_size;
  c.first_k_dense_replace = 0;
  c.n_shared_experts = 1;
  if (!c.recurs()) model::reset_foreign_keys(c);
}

bool passed_over_qwen4(std::string_view name, const HasTensor&) {
  return name.starts_with("mtp.") || name.ends_with(".ple_embedding.layer_multipliers") ||
         name.ends_with(".ple_embedding.ngram_heads_vocab_sizes") ||
         name.ends_with(".ple_embedding.ngram_heads_offsets");
}

}  // namespace

Family qwen4_exp() {
  Family f = qwen3_5_moe();
  f.architecture = "Qwen4ExpForCausalLM";
  f.model_type = "qwen4_exp_text";
  f.base.hyper_connections = 4;
  f.base.hyper_connections_kind = model::HyperConnection::gated;
  f.base.partial_rotary_factor = 1;
  f.presets.clear();
  drop_keys(f, {"mtp_num_hidden_layers"});
  replace_keys(
      f, {{.name = "layer_types", .ours = "recurrence", .read = read_layer_types_qwen4, .write = layer_types_qwen4},
          partial_rotary_key(1)});
  std::erase(f.said, "norm_topk_prob");
  std::erase_if(f.only, [](const Only& only) { return only.name == "norm_topk_prob"; });
  add_keys(f,
           {key("norm_topk_prob", "norm_topk_prob", true),
            key("hc_count", "hyper_connections", 4),
            key("hc_lowrank", "hyper_connections_rank", 320),
            {.name = "output_gate_type",
             .ours = "linear_sigmoid_gate",
             .read = read_output_gate,
             .write = [](const ModelConfig& c) { return Written(c.linear_sigmoid_gate ? "sigmoid" : "silu"); }}});
  add_keys(f,
           {of_indexer("indexer_n_heads", "index_n_heads", [](const ModelConfig& c) { return c.index_n_heads; }),
            of_indexer("indexer_kv_heads", "", [](const ModelConfig&) { return int64_t{1}; }),
            of_indexer("indexer_head_dim", "index_head_dim", [](const ModelConfig& c) { return c.index_head_dim; }),
            of_indexer("indexer_budget", "index_topk", [](const ModelConfig& c) { return c.index_topk; }),
            of_indexer("indexer_compress_ratio", "index_block_size",
                       [](const ModelConfig& c) { return c.index_block_size; })});
  add_ngram_keys(f);
  f.said.insert(f.said.end(), {"hyper_connections_kind", "index_blocks"});
  // Transformers computes nothing of layers that predict further tokens.
  f.read_besides.insert(f.read_besides.end(), {"mtp_num_hidden_layers", "number_of_conv_states"});
  f.derive = derive_qwen4;
  f.complete = nullptr;
  f.passed_over = passed_over_qwen4;
  f.holds = [](const ModelConfig& c) {
    bool attends = false;
    for (int64_t l = 0; l < c.num_hidden_layers; ++l) attends = attends || !c.is_recurrent(l);
    return c.has_gated_streams() && c.is_grouped() && c.qk_norm && c.zero_centered_norms &&
           c.attention_gate == model::AttentionGate::element && c.first_k_dense_replace == 0 &&
           c.n_shared_experts == 1 && c.shared_expert_gate && c.shared_intermediate_size > 0 && !c.sigmoid_scores &&
           (!c.recurs() || c.linear_projections_apart) && attends == c.selects() &&
           (!attends || c.index_blocks == model::IndexBlocks::mean);
  };
  return f;
}

Family qwen4_exp_beside_pictures() {
  Family f = beside_pictures(qwen4_exp(), "Qwen4ExpForConditionalGeneration", "qwen4_exp");
  f.rewrite = [](Json& root, const std::string& place) {
    take_text_config(root, place);
    qwen4_exp().rewrite(root, place);
  };
  f.passed_over = [](std::string_view name, const HasTensor& has) {
    return name.starts_with("model.visual.") || passed_over_qwen4(name, has);
  };
  f.spelt = qwen3_5_moe_beside_pictures().spelt;
  return f;
}

}  // namespace heddle::config
