// Phi-3 and Phi-4, dense: LLaMA whose queries, keys and values are one matrix of its files, and gate and up
// another.
//
// Sources: Phi3Config and modeling_phi3.py of Transformers 5, gone through key by key; arXiv 2404.14219 and
// 2412.08905; the config.json files released with Phi-3-mini-4k-instruct, Phi-3-medium-4k-instruct, phi-4,
// Phi-3.5-mini-instruct and Phi-4-mini-instruct.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

constexpr const char* kLengthPhi3 = "original_max_position_embeddings";
constexpr int64_t kUsualLengthPhi3 = 4096;

std::optional<ReleasedPlace> rows_of(const std::string& name, std::string_view part, const char* joint,
                                     const std::vector<int64_t>& shape, int64_t first, int64_t rows) {
  const size_t at = name.find(part);
  if (at == std::string::npos || shape.size() != 2) return std::nullopt;
  ReleasedPlace place{
      .name = name, .shape = {rows, shape[1]}, .first = first * shape[1], .row_step = shape[1], .is_whole = false};
  place.name.replace(at, part.size(), joint);
  return place;
}

std::optional<ReleasedPlace> stacked_phi3(const std::string& name, const std::vector<int64_t>& shape,
                                          int64_t experts, const JoinedRows& joined) {
  if (experts > 0) return std::nullopt;
  for (const std::string_view part : {".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."}) {
    if (auto place = rows_of(name, part, ".self_attn.qkv_proj.", shape, joined.first, joined.rows)) return place;
  }
  const int64_t width = shape.empty() ? 0 : shape[0];
  for (const auto& [part, first] : {std::pair{".mlp.gate_proj.", int64_t{0}}, {".mlp.up_proj.", width}}) {
    if (auto place = rows_of(name, part, ".mlp.gate_up_proj.", shape, first, 2 * width)) return place;
  }
  return std::nullopt;
}

ModelConfig sized_phi3(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t mlp, int64_t heads,
                       int64_t kv_heads) {
  ModelConfig c = sized(grouped_base(), {vocabulary, hidden, layers, mlp, heads, kv_heads, 4096});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  return c;
}

ModelConfig phi4() {
  ModelConfig c = sized_phi3(100352, 5120, 40, 17920, 40, 10);
  c.rope_theta = 250000;
  c.max_position_embeddings = 16384;
  return c;
}

ModelConfig mini() {
  ModelConfig c = sized_phi3(32064, 3072, 32, 8192, 32, 32);
  c.sliding_window = 2047;
  return c;
}

// The original length stands outside of the rotary keys, or is Transformers' default whatever they say.
void rewrite_phi3(Json& root, const std::string& place) {
  name_longrope(root, place);
  if (root.value(kLengthPhi3, Json()).is_null()) root[kLengthPhi3] = kUsualLengthPhi3;
}

// Heads turned in part; whole ones are written as LLaMA, or with a window as Mistral. The lists of longrope
// have a number for each pair of a head that shares the hidden width.
bool holds_phi3(const ModelConfig& c) {
  const bool scaled = c.rope_scaling && c.rope_scaling->type != model::RopeType::longrope;
  return !c.is_latent() && !c.has_experts() && !c.recurs() && !c.qk_norm && !c.rope_interleave && !scaled &&
         c.attention_bias == model::AttentionBias::none && !c.mlp_bias && c.norm == model::Norm::rms && c.turns() &&
         c.activation == model::Activation::swiglu && c.partial_rotary_factor != 1 &&
         c.head_dim * c.num_attention_heads == c.hidden_size;
}

// Factors of the released files, which are numbers of fp32. LongRoPE (arXiv 2402.13753) found them by a search.
const std::vector<double> kPhi35Short{
    1,          1.02F,      1.03F,      1.03F,      1.05F,      1.05F,      1.05F,      1.05F,
    1.05F,      1.0699999F, 1.0999999F, 1.1099999F, 1.1599998F, 1.1599998F, 1.1699998F, 1.2899998F,
    1.3399998F, 1.6799998F, 1.7899998F, 1.8199998F, 1.8499998F, 1.8799998F, 1.9099997F, 1.9399997F,
    1.9899997F, 2.0199997F, 2.0199997F, 2.0199997F, 2.0199997F, 2.0199997F, 2.0199997F, 2.0299997F,
    2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F, 2.0299997F,
    2.0799997F, 2.0899997F, 2.1899996F, 2.2199996F, 2.5899994F, 2.7299995F, 2.7499995F, 2.8399994F};
const std::vector<double> kPhi35Long{
    1.08F,      1.11F,      1.14F,      1.34F,      1.5899999F, 1.6F,       1.62F,      2.6200001F,
    3.23F,      3.23F,      4.79F,      7.4F,       7.7000003F, 9.09F,      12.2F,      17.67F,
    24.460001F, 28.570002F, 30.420002F, 30.840002F, 32.590004F, 32.930004F, 42.320004F, 44.960003F,
    50.340004F, 50.450005F, 57.550003F, 57.930004F, 58.210003F, 60.140003F, 62.610004F, 62.620003F,
    62.710003F, 63.140003F, 63.140003F, 63.770004F, 63.930004F, 63.960003F, 63.97F,     64.03F,
    64.07F,     64.08F,     64.12F,     64.41F,     64.48F,     64.51F,     64.53F,     64.84F};
const std::vector<double> kPhi4MiniLong{
    1,           1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897,  1.956131817, 2.187582649,
    2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023, 4.785517845, 5.351743533,
    5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372,  10.4687158,  11.70738129, 13.09260651,
    14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105, 25.61086418, 28.64115884, 32.03,
    32.1,        32.13,       32.23,       32.6,        32.61,       32.64,       32.66,       32.7,
    32.71,       32.93,       32.97,       33.28,       33.49,       33.5,        44.16,       47.77};

ModelConfig stretched_phi3(ModelConfig c, const std::vector<double>& short_factor,
                           const std::vector<double>& long_factor) {
  c.max_position_embeddings = 131072;
  c.rope_scaling = model::RopeScaling{.factor = 32,
                                      .type = model::RopeType::longrope,
                                      .short_factor = model::text_of_factors(short_factor),
                                      .long_factor = model::text_of_factors(long_factor)};
  return c;
}

ModelConfig phi4_mini() {
  ModelConfig c = sized_phi3(200064, 3072, 32, 8192, 24, 8);
  c.partial_rotary_factor = 0.75;
  c.tie_word_embeddings = true;
  return stretched_phi3(c, std::vector<double>(48, 1.0), kPhi4MiniLong);
}

}  // namespace

Family phi3() {
  Family f = grouped_family("Phi3ForCausalLM", "phi3", 1e-5);
  f.keys.push_back(partial_rotary_key(1.0));
  f.keys.push_back(window_of_all_layers(0));
  f.keys.push_back({.name = kLengthPhi3, .write = [](const ModelConfig& c) {
                      const nlohmann::ordered_json rope = rope_scaling_json(c);
                      return rope.is_null() ? nlohmann::ordered_json(kUsualLengthPhi3) : rope[kLengthPhi3];
                    }});
  f.read_besides = {"full_attn_mod", "interpolate_factor", "lm_head_bias"};  // Transformers doesn't read them
  f.rewrite = rewrite_phi3;
  f.stacked = stacked_phi3;
  f.holds = holds_phi3;
  f.derive = make_dense;
  f.presets = {{"phi-3-mini", mini()},
               {"phi-3.5-mini", stretched_phi3(sized_phi3(32064, 3072, 32, 8192, 32, 32), kPhi35Short, kPhi35Long)},
               {"phi-4", phi4()},
               {"phi-4-mini", phi4_mini()}};
  return f;
}

}  // namespace heddle::config
