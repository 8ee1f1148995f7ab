#include "heddle/config/shape_json.h"

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/config/families/json_keys.h"
#include "heddle/config/model_json.h"

namespace heddle::config {

namespace {

constexpr int64_t kMostSize = 1'000'000'000;

// The sizes of an object, of which each may be missing.
class Sizes {
 public:
  Sizes(const nlohmann::json& root, const std::string& place) : keys_(root, place, "") {}

  /// The value by the first of its names that is there.
  int64_t of(std::initializer_list<const char*> names, int64_t otherwise = 0) const {
    for (const char* name : names) {
      if (keys_.find(name) == nullptr) continue;
      const auto size = std::get<int64_t>(keys_.required(name, model::Key::Kind::integer));
      if (size < 0 || size > kMostSize) {
        config_error("{}: '{}' is {}, accepted: a whole number from 0 to {}", keys_.place(), name, size, kMostSize);
      }
      return size;
    }
    return otherwise;
  }
  bool says(const char* name, const char* word) const { return keys_.word(name, "") == word; }
  bool flag(const char* name, bool otherwise = false) const { return keys_.boolean(name, otherwise); }
  double number(const char* name, double otherwise) const { return keys_.number(name, otherwise); }

 private:
  JsonKeys keys_;
};

void read_experts(const Sizes& sizes, model::Shape& s) {
  s.n_routed_experts = sizes.of({"n_routed_experts", "num_experts", "num_local_experts"});
  if (!s.has_experts()) return;
  s.num_experts_per_tok = sizes.of({"num_experts_per_tok"});
  s.moe_intermediate_size = sizes.of({"moe_intermediate_size"}, s.intermediate_size);
  s.set_shared_width(
      sizes.of({"shared_expert_intermediate_size"}, sizes.of({"n_shared_experts"}) * s.moe_intermediate_size));
  // Groups of experts stand for nodes where routing is limited to some of them.
  if (sizes.of({"n_group"}) > 1) s.n_group = sizes.of({"n_group"}), s.topk_group = sizes.of({"topk_group"});
  s.routed_scaling_factor = sizes.number("routed_scaling_factor", 1);
  s.norm_topk_prob = sizes.flag("norm_topk_prob", true);
  s.sigmoid_scores = sizes.says("scoring_func", "sigmoid");
  s.topk_bias = sizes.says("topk_method", "noaux_tc");
  s.first_k_dense_replace = sizes.of({"first_k_dense_replace"});
  s.num_nextn_predict_layers = sizes.of({"num_nextn_predict_layers"});
}

}  // namespace

model::Shape read_shape_json(const std::string& path, const std::string& name) {
  const nlohmann::json root = read_config_json(path);
  const Sizes sizes(root, path);
  model::Shape s;
  s.name = name;
  s.hidden_size = sizes.of({"hidden_size"});
  s.num_hidden_layers = sizes.of({"num_hidden_layers"});
  s.num_attention_heads = sizes.of({"num_attention_heads"});
  s.num_key_value_heads = sizes.of({"num_key_value_heads"}, s.num_attention_heads);
  s.head_dim = sizes.of({"head_dim"}, s.num_attention_heads > 0 ? s.hidden_size / s.num_attention_heads : 0);
  s.intermediate_size = sizes.of({"intermediate_size"});
  s.vocab_size = sizes.of({"vocab_size"});
  s.tie_word_embeddings = sizes.flag("tie_word_embeddings");
  if (sizes.flag("attention_bias")) s.attention_bias = model::AttentionBias::qkv;
  if (sizes.of({"kv_lora_rank"}) > 0)
    s.set_latent(sizes.of({"q_lora_rank"}), sizes.of({"kv_lora_rank"}), sizes.of({"qk_nope_head_dim"}),
                 sizes.of({"qk_rope_head_dim"}), sizes.of({"v_head_dim"}));
  read_experts(sizes, s);
  if (const std::string wrong = model::check_shape(s); !wrong.empty()) {
    config_error("{}: the model's {}", path, wrong);
  }
  return s;
}

}  // namespace heddle::config
