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
  ModelConfig c = grouped_base();
  c.vocab_size = vocabulary;
  c.hidden_size = hidden;
  c.num_hidden_layers = c.first_k_dense_replace = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 4096;
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

// Factors of the released files. LongRoPE (arXiv 2402.13753) found them by a search.
const std::vector<double> kPhi35Short{1,
                                      1.0199999809265137,
                                      1.0299999713897705,
                                      1.0299999713897705,
                                      1.0499999523162842,
                                      1.0499999523162842,
                                      1.0499999523162842,
                                      1.0499999523162842,
                                      1.0499999523162842,
                                      1.0699999332427979,
                                      1.0999999046325684,
                                      1.1099998950958252,
                                      1.1599998474121094,
                                      1.1599998474121094,
                                      1.1699998378753662,
                                      1.2899998426437378,
                                      1.339999794960022,
                                      1.679999828338623,
                                      1.7899998426437378,
                                      1.8199998140335083,
                                      1.8499997854232788,
                                      1.8799997568130493,
                                      1.9099997282028198,
                                      1.9399996995925903,
                                      1.9899996519088745,
                                      2.0199997425079346,
                                      2.0199997425079346,
                                      2.0199997425079346,
                                      2.0199997425079346,
                                      2.0199997425079346,
                                      2.0199997425079346,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0299997329711914,
                                      2.0799996852874756,
                                      2.0899996757507324,
                                      2.189999580383301,
                                      2.2199995517730713,
                                      2.5899994373321533,
                                      2.729999542236328,
                                      2.749999523162842,
                                      2.8399994373321533};
const std::vector<double> kPhi35Long{
    1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601,  1.5899999141693115,
    1.600000023841858,  1.6200000047683716, 2.620000123977661,  3.2300000190734863, 3.2300000190734863,
    4.789999961853027,  7.400000095367432,  7.700000286102295,  9.09000015258789,   12.199999809265137,
    17.670000076293945, 24.46000099182129,  28.57000160217285,  30.420001983642578, 30.840002059936523,
    32.590003967285156, 32.93000411987305,  42.320003509521484, 44.96000289916992,  50.340003967285156,
    50.45000457763672,  57.55000305175781,  57.93000411987305,  58.21000289916992,  60.1400032043457,
    62.61000442504883,  62.62000274658203,  62.71000289916992,  63.1400032043457,   63.1400032043457,
    63.77000427246094,  63.93000411987305,  63.96000289916992,  63.970001220703125, 64.02999877929688,
    64.06999969482422,  64.08000183105469,  64.12000274658203,  64.41000366210938,  64.4800033569336,
    64.51000213623047,  64.52999877929688,  64.83999633789062};
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
  Family f;
  f.architecture = "Phi3ForCausalLM";
  f.model_type = "phi3";
  f.base = grouped_base();
  f.keys = grouped_keys(1e-5);
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
