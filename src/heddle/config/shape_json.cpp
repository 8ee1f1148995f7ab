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

  /// By the first of its names that is there.
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
  bool flag(const char* name, bool otherwise = false) const { return keys_.boolean(name, otherwise); }
  double number(const char* name, double otherwise) const { return keys_.number(name, otherwise); }

 private:
  JsonKeys keys_;
};

model::Experts experts_of(const Sizes& sizes, int64_t dense_width) {
  model::Experts e;
  e.count = sizes.of({"n_routed_experts", "num_experts", "num_local_experts"});
  if (e.count == 0) return e;
  e.chosen = sizes.of({"num_experts_per_tok"});
  e.ffn = sizes.of({"moe_intermediate_size"}, dense_width);
  e.shared_ffn = sizes.of({"shared_expert_intermediate_size"}, sizes.of({"n_shared_experts"}) * e.ffn);
  // Groups of experts stand for nodes where routing is limited to some of them.
  if (sizes.of({"n_group"}) > 1) e.most_nodes = sizes.of({"topk_group"}), e.groups = sizes.of({"n_group"});
  e.gate_scale = sizes.number("routed_scaling_factor", 1);
  e.normed_gates = sizes.flag("norm_topk_prob", true);
  return e;
}

}  // namespace

model::Shape read_shape_json(const std::string& path, const std::string& name) {
  const nlohmann::json root = read_config_json(path);
  const Sizes sizes(root, path);
  model::Shape s;
  s.name = name;
  s.hidden = sizes.of({"hidden_size"});
  s.layers = sizes.of({"num_hidden_layers"});
  s.heads = sizes.of({"num_attention_heads"});
  s.kv_heads = sizes.of({"num_key_value_heads"}, s.heads);
  s.head_dim = sizes.of({"head_dim"}, s.heads > 0 ? s.hidden / s.heads : 0);
  s.ffn = sizes.of({"intermediate_size"});
  s.vocab = sizes.of({"vocab_size"});
  s.tied = sizes.flag("tie_word_embeddings");
  s.qkv_bias = sizes.flag("attention_bias");
  s.mla = {sizes.of({"q_lora_rank"}), sizes.of({"kv_lora_rank"}), sizes.of({"qk_nope_head_dim"}),
           sizes.of({"qk_rope_head_dim"}), sizes.of({"v_head_dim"})};
  s.moe = experts_of(sizes, s.ffn);
  if (s.moe.count > 0) {
    s.dense_layers = sizes.of({"first_k_dense_replace"});
    s.mtp = sizes.of({"num_nextn_predict_layers"});
  }
  if (const std::string wrong = model::check_shape(s); !wrong.empty()) {
    config_error("{}: the model's {}", path, wrong);
  }
  return s;
}

}  // namespace heddle::config
