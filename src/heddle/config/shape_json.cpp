#include "heddle/config/shape_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::Activation;
using model::AttentionBias;
using model::Shape;

constexpr int64_t kMostSize = 1'000'000'000;
constexpr int64_t kMustStand = -1;

// The sizes of an object, of which each may be missing.
class FormSizes {
 public:
  FormSizes(const Json& root, const std::string& place) : keys_(root, place, "") {}

  /// The value by the first of its names that is there; ConfigError where none is and it must stand.
  int64_t of(std::initializer_list<const char*> names, int64_t otherwise = 0) const {
    for (const char* name : names) {
      if (keys_.find(name) == nullptr) continue;
      const auto size = std::get<int64_t>(keys_.required(name, model::Key::Kind::integer));
      if (size < 0 || size > kMostSize) {
        config_error("{}: '{}' is {}, accepted: a whole number from 0 to {}", keys_.place(), name, size, kMostSize);
      }
      return size;
    }
    if (otherwise == kMustStand) config_error("{}: '{}' is missing", keys_.place(), *names.begin());
    return otherwise;
  }
  bool says(const char* name, const char* word) const { return keys_.word(name, "") == word; }
  bool flag(const char* name, bool otherwise = false) const { return keys_.boolean(name, otherwise); }
  double number(const char* name, double otherwise) const { return keys_.number(name, otherwise); }

  /// ConfigError where a key says another form than the one that is counted.
  void refuse(bool wrong, const char* name) const {
    if (wrong)
      config_error("{}: '{}' is {}: parameters of this form are not counted", keys_.place(), name,
                   keys_.find(name) == nullptr ? "missing" : formats::shown(*keys_.find(name)));
  }
  void refuse_unless_off(const char* name) const { refuse(flag(name), name); }
  /// ConfigError unless each layer of a list, where there is one, is of that kind.
  void refuse_others(const char* name, const char* kind, size_t from = 0) const {
    const Json* list = keys_.find(name);
    if (list == nullptr || !list->is_array()) return;
    for (size_t i = 0; i < list->size(); ++i) refuse(((*list)[i] == kind) != (i >= from), name);
  }
  /// ConfigError where the key is missing; null will do.
  void refuse_absent(const char* name) const { refuse(!keys_.contains(name), name); }
  /// ConfigError where the key holds something.
  void refuse_filled(const char* name) const {
    const Json* value = keys_.find(name);
    refuse(value != nullptr && !value->empty(), name);
  }

 private:
  JsonKeys keys_;
};

// Adds the biases of the attention's maps and of the MLP's where the usual keys say so.
void put_biases(const FormSizes& z, Shape& s, bool attention = false, bool mlp = false) {
  if (z.flag("attention_bias", attention)) s.attention_bias = AttentionBias::all;
  s.mlp_bias = z.flag("mlp_bias", mlp);
}

// All linear maps have biases, and norms too; the MLP has two matrices.
void put_gpt(Shape& s) {
  s.norm = model::Norm::layer;
  s.activation = Activation::gelu;
  s.attention_bias = AttentionBias::all;
  s.mlp_bias = true;
}

// Attention and MLP take rows of one norm.
void share_norm(Shape& s) {
  s.foreign.layer_numbers -= static_cast<double>((s.has_norm_bias() ? 2 : 1) * s.hidden_size);
}

void learn_positions(const FormSizes& z, Shape& s, std::initializer_list<const char*> names) {
  s.positions = model::Positions::learned;
  s.max_position_embeddings = z.of(names, kMustStand);
}

// The MLP's width, 4 times the stream's where it is not said.
void widen_mlp(const FormSizes& z, Shape& s, std::initializer_list<const char*> names) {
  s.intermediate_size = z.of(names, 4 * s.hidden_size);
}

// `width`, `shared`: an expert's width and the number of shared experts where the file does not say them.
void put_experts(const FormSizes& z, Shape& s, int64_t dense_layers, int64_t width, int64_t shared) {
  s.n_routed_experts = z.of({"n_routed_experts", "num_experts", "num_local_experts"}, kMustStand);
  if (!s.has_experts()) return;
  s.num_experts_per_tok = z.of({"num_experts_per_tok"}, kMustStand);
  s.moe_intermediate_size = z.of({"moe_intermediate_size"}, width);
  const int64_t shared_width = z.of({"shared_intermediate_size"});
  s.set_shared_width(shared_width > 0
                         ? shared_width
                         : z.of({"n_shared_experts", "num_shared_experts"}, shared) * s.moe_intermediate_size);
  // Groups of experts stand for nodes where routing is limited to some of them.
  if (z.of({"n_group"}) > 1) s.n_group = z.of({"n_group"}), s.topk_group = z.of({"topk_group"});
  s.routed_scaling_factor = z.number("routed_scaling_factor", 1);
  s.norm_topk_prob = z.flag("norm_topk_prob", true);
  s.sigmoid_scores = z.says("scoring_func", "sigmoid");
  s.first_k_dense_replace = dense_layers;
}

void put_latent(const FormSizes& z, Shape& s) {
  z.refuse_absent("q_lora_rank");
  z.refuse_unless_off("attention_bias");
  s.set_latent(z.of({"q_lora_rank"}), z.of({"kv_lora_rank"}, kMustStand), z.of({"qk_nope_head_dim"}, kMustStand),
               z.of({"qk_rope_head_dim"}, kMustStand), z.of({"v_head_dim"}, kMustStand));
}

void put_llama(const FormSizes& z, Shape& s) { put_biases(z, s); }
void put_plain(const FormSizes&, Shape&) {}
void put_mixtral(const FormSizes& z, Shape& s) { put_experts(z, s, 0, s.intermediate_size, 0); }
void put_qwen3(const FormSizes& z, Shape& s) {
  s.qk_norm = true;
  if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
}
void put_cohere(const FormSizes& z, Shape& s) {
  share_norm(s);
  if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
  if (z.flag("use_qk_norm"))
    s.foreign.layer_numbers += static_cast<double>((s.num_attention_heads + s.num_key_value_heads) * s.head_dim);
}
void put_granite_moe(const FormSizes& z, Shape& s) {
  if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
  put_experts(z, s, 0, s.intermediate_size, 0);
}
void put_gptj(const FormSizes& z, Shape& s) {
  put_gpt(s);
  s.attention_bias = AttentionBias::none;
  s.head_bias = true;
  share_norm(s);
  widen_mlp(z, s, {"n_inner"});
}

// A file says the number and width of key and value heads, their number, perhaps that (else each query's head has
// its own), or nothing.
enum class KeyHeads : uint8_t { with_width, said, as_queries, none };

// A family that Heddle does not build, or not in each of its forms. Sources: the configuration and the model of
// each in Transformers 5.23, whose counts the forms are held to.
struct Form {
  const char* model_type;
  void (*put)(const FormSizes&, Shape&);
  KeyHeads heads = KeyHeads::as_queries;
  bool tied = false;  // where the file does not say it
};

const Form kForms[] = {
    {"apertus",
     [](const FormSizes& z, Shape& s) {
       s.activation = Activation::relu2;
       s.qk_norm = true;
       if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
       if (!z.says("hidden_act", "relu2")) s.foreign.layer_numbers = 2;  // of xIELU
     }},
    {"arcee",
     [](const FormSizes& z, Shape& s) {
       s.activation = Activation::relu2;
       put_biases(z, s);
     }},
    {"biogpt",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       learn_positions(z, s, {"max_position_embeddings"});
       s.foreign.end_numbers = static_cast<double>(2 * s.hidden_size);  // its table has two rows more
     },
     KeyHeads::none, true},
    {"bitnet",
     [](const FormSizes& z, Shape& s) {
       if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
       s.foreign.layer_numbers = static_cast<double>(s.hidden_size + s.intermediate_size);  // inner norms
     },
     KeyHeads::said},
    {"bloom",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       widen_mlp(z, s, {});
       s.foreign.alibi = s.foreign.embedding_norm = true;
     },
     KeyHeads::none, true},
    {"codegen", put_gptj, KeyHeads::none},
    {"cohere", put_cohere, KeyHeads::as_queries, true},
    {"deepseek_v3",
     [](const FormSizes& z, Shape& s) {
       put_latent(z, s);
       put_experts(z, s, z.of({"first_k_dense_replace"}, kMustStand), kMustStand, kMustStand);
       s.topk_bias = true;
       s.num_nextn_predict_layers = z.of({"num_nextn_predict_layers"});
     }},
    {"diffllama",
     [](const FormSizes& z, Shape& s) {
       if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
       s.foreign.layer_numbers = static_cast<double>(4 * s.head_dim);  // of the factor on the second scores
     }},
    {"falcon",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       if (!z.flag("bias")) s.attention_bias = AttentionBias::none, s.mlp_bias = false;
       const bool later = z.flag("new_decoder_architecture");
       s.num_key_value_heads = later                         ? z.of({"num_kv_heads"}, s.num_attention_heads)
                               : z.flag("multi_query", true) ? 1
                                                             : s.num_attention_heads;
       const int64_t norms = later ? z.of({"num_ln_in_parallel_attn"}, 2) : z.flag("parallel_attn", true) ? 1 : 2;
       if (norms == 1) share_norm(s);
       widen_mlp(z, s, {"ffn_hidden_size"});
       s.foreign.alibi = z.flag("alibi");
     },
     KeyHeads::none, true},
    {"gpt_bigcode",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       z.refuse_unless_off("add_cross_attention");
       learn_positions(z, s, {"n_positions"});
       s.num_key_value_heads = z.flag("multi_query", true) ? 1 : s.num_attention_heads;
       widen_mlp(z, s, {"n_inner"});
     },
     KeyHeads::none, true},
    {"gpt_neo",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       s.attention_bias = AttentionBias::none;
       s.foreign.layer_numbers = static_cast<double>(s.hidden_size);  // the bias of attention's output
       learn_positions(z, s, {"max_position_embeddings"});
       widen_mlp(z, s, {"intermediate_size"});
     },
     KeyHeads::none, true},
    {"gpt_neox",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       if (!z.flag("attention_bias", true)) s.attention_bias = AttentionBias::none;
     },
     KeyHeads::none},
    {"gptj", put_gptj, KeyHeads::none},
    {"granite", put_llama},
    {"granitemoe", put_granite_moe},
    {"helium",
     [](const FormSizes& z, Shape& s) {
       put_biases(z, s);
       if (s.has_qkv_bias()) s.attention_bias = AttentionBias::qkv;
     },
     KeyHeads::with_width},
    {"hyperclovax",
     [](const FormSizes& z, Shape& s) {
       put_biases(z, s);
       if (z.flag("use_post_norm", true)) s.norm_places = model::NormPlaces::both;
     }},
    {"internlm3",
     [](const FormSizes& z, Shape& s) {
       z.refuse_unless_off("bias");
       z.refuse_unless_off("qkv_bias");
       put_biases(z, s);
     },
     KeyHeads::with_width},
    {"iquestcoder", put_llama, KeyHeads::with_width},
    {"jais2",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       s.attention_bias = AttentionBias::none;
       put_biases(z, s, true, true);
     }},
    {"llama", put_llama},
    {"minicpm3",
     [](const FormSizes& z, Shape& s) {
       z.refuse_unless_off("mlp_bias");
       put_latent(z, s);
     },
     KeyHeads::as_queries, true},
    {"ministral", put_plain, KeyHeads::said},
    {"ministral3", put_plain, KeyHeads::with_width},
    {"mistral", put_plain, KeyHeads::said},
    {"mixtral", put_mixtral, KeyHeads::said},
    {"mpt",
     [](const FormSizes& z, Shape& s) {
       s.activation = Activation::gelu;
       s.intermediate_size = z.of({"expansion_ratio"}, 4) * s.hidden_size;
       s.foreign.alibi = true;
     },
     KeyHeads::none, true},
    {"nemotron",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       s.attention_bias = AttentionBias::none;
       put_biases(z, s);
     }},
    {"olmo",
     [](const FormSizes& z, Shape& s) {
       if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
       s.foreign.layer_numbers = static_cast<double>(-2 * s.hidden_size);  // norms without gains
       s.foreign.end_numbers = static_cast<double>(-s.hidden_size);
     }},
    {"opt",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       z.refuse(!z.flag("do_layer_norm_before", true), "do_layer_norm_before");
       z.refuse(!z.flag("enable_bias", true), "enable_bias");
       z.refuse(!z.flag("layer_norm_elementwise_affine", true), "layer_norm_elementwise_affine");
       z.refuse_unless_off("_remove_final_layer_norm");
       z.refuse(z.of({"word_embed_proj_dim"}, s.hidden_size) != s.hidden_size, "word_embed_proj_dim");
       learn_positions(z, s, {"max_position_embeddings"});
       s.foreign.end_numbers = static_cast<double>(2 * s.hidden_size);  // its table has two rows more
     },
     KeyHeads::none, true},
    {"persimmon",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       if (z.flag("qk_layernorm", true)) s.foreign.layer_numbers = static_cast<double>(4 * s.head_dim);
     },
     KeyHeads::none},
    {"phi",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       share_norm(s);
       if (z.flag("qk_layernorm")) s.foreign.layer_numbers += static_cast<double>(4 * s.head_dim);
       s.head_bias = true;
     }},
    {"qwen2", [](const FormSizes&, Shape& s) { s.attention_bias = AttentionBias::qkv; }, KeyHeads::said},
    {"qwen3", put_qwen3, KeyHeads::with_width},
    {"qwen3_moe",
     [](const FormSizes& z, Shape& s) {
       put_qwen3(z, s);
       z.refuse_filled("mlp_only_layers");
       z.refuse(z.of({"decoder_sparse_step"}, 1) != 1, "decoder_sparse_step");
       put_experts(z, s, 0, kMustStand, 0);
     },
     KeyHeads::said},
    {"stablelm",
     [](const FormSizes& z, Shape& s) {
       s.norm = model::Norm::layer;
       if (z.flag("use_qkv_bias")) s.attention_bias = AttentionBias::qkv;
       if (z.flag("use_parallel_residual")) share_norm(s);
       if (z.flag("qk_layernorm"))
         s.foreign.layer_numbers +=
             static_cast<double>((s.num_attention_heads + s.num_key_value_heads) * s.head_dim);
     },
     KeyHeads::said},
    {"starcoder2",
     [](const FormSizes& z, Shape& s) {
       put_gpt(s);
       if (!z.flag("use_bias", true)) s.attention_bias = AttentionBias::none, s.mlp_bias = false;
     },
     KeyHeads::said, true},
    {"vaultgemma",
     [](const FormSizes& z, Shape& s) {
       if (z.flag("attention_bias")) s.attention_bias = AttentionBias::all;
     },
     KeyHeads::with_width, true},
    {"youtu", put_latent, KeyHeads::as_queries, true},
};

Shape read_form(const Form& form, const FormSizes& z) {
  Shape s;
  s.hidden_size = z.of({"hidden_size", "n_embd", "n_embed", "d_model"}, kMustStand);
  s.num_hidden_layers = z.of({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, kMustStand);
  s.num_attention_heads = z.of({"num_attention_heads", "n_head", "n_heads", "num_heads"}, kMustStand);
  const bool must = form.heads == KeyHeads::said || form.heads == KeyHeads::with_width;
  s.num_key_value_heads = s.num_attention_heads;
  if (form.heads != KeyHeads::none)
    s.num_key_value_heads = z.of({"num_key_value_heads"}, must ? kMustStand : s.num_attention_heads);
  const int64_t shared = s.num_attention_heads > 0 ? s.hidden_size / s.num_attention_heads : 0;
  s.head_dim = z.of({"head_dim"}, form.heads == KeyHeads::with_width ? kMustStand : shared);
  s.intermediate_size = z.of({"intermediate_size", "ffn_dim"});
  s.vocab_size = z.of({"vocab_size"}, kMustStand);
  s.tie_word_embeddings = z.flag("tie_word_embeddings", form.tied);
  form.put(z, s);
  return s;
}

}  // namespace

Shape read_shape_json(const std::string& path, const std::string& name) {
  const Json root = read_config_json(path);
  const Json type = root.value("model_type", Json());
  const auto form =
      std::find_if(std::begin(kForms), std::end(kForms), [&](const Form& each) { return type == each.model_type; });
  Shape s;
  if (form != std::end(kForms)) {
    s = read_form(*form, FormSizes(root, path));
    s.name = name;
  } else if (find_family(root) != nullptr) {
    s = model::shape_of(read_huggingface_config(path), name);
  } else {
    std::vector<std::string> names;
    for (const Family& family : families()) {
      if (type == family.model_type) config_error("{}: {}", path, why_no_family(root));
      names.push_back(family.model_type);
    }
    for (const Form& each : kForms) names.emplace_back(each.model_type);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    config_error("{}: 'model_type' is {}: the parameters of this family are not counted; accepted: {}", path,
                 type.is_null() ? "missing" : formats::shown(type), fmt::join(names, ", "));
  }
  if (const std::string wrong = model::check_shape(s); !wrong.empty()) {
    config_error("{}: the model's {}", path, wrong);
  }
  return s;
}

}  // namespace heddle::config
