// GPT-2, and GPT-3, which is GPT-2 but for its size (half of the layers of the paper's own attend in bands, which
// is not built): LayerNorm, learned positions, GELU, biases everywhere, the head tied to the embedding.
//
// Sources: GPT2Config and modeling_gpt2 of Transformers 5, gone through key by key; the config.json files released
// with openai-community/gpt2 to gpt2-xl; Radford et al., Language Models are Unsupervised Multitask Learners, 2019;
// arXiv 2005.14165, table 2.1, with the vocabulary padded as Megatron-LM trains it.
#include <algorithm>
#include <array>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::Activation;
using model::AttentionBias;
using model::ModelConfig;

void read_activation(const JsonKeys& keys, ModelConfig& c) {
  constexpr const char* kName = "activation_function";
  const std::string word = keys.word(kName, "gelu_new");
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is_one_of({"gelu_new", "gelu_pytorch_tanh", "gelu_fast"})) {
    c.activation = Activation::gelu_tanh;
  } else if (is_one_of({"gelu", "gelu_python"})) {
    c.activation = Activation::gelu;
  } else {
    config_error("{}: '{}' is {}, accepted: 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu', 'gelu_python'",
                 keys.place(), kName, formats::shown(*keys.find(kName)));
  }
}

int64_t usual_width(const ModelConfig& c) { return 4 * c.hidden_size; }

void read_width(const JsonKeys& keys, ModelConfig& c) {
  c.intermediate_size = keys.whole("n_inner", usual_width(c));
}
nlohmann::ordered_json width_json(const ModelConfig& c) {
  if (c.intermediate_size == usual_width(c)) return nullptr;
  return c.intermediate_size;
}

void read_heads(const JsonKeys& keys, ModelConfig& c) {
  c.num_attention_heads = keys.whole("n_head");
  c.num_key_value_heads = c.num_attention_heads;
  if (c.num_attention_heads < 1 || c.hidden_size % c.num_attention_heads != 0) {
    config_error("{}: 'n_embd' ({}) is not a multiple of 'n_head' ({})", keys.place(), c.hidden_size,
                 c.num_attention_heads);
  }
  c.head_dim = c.hidden_size / c.num_attention_heads;
}

bool holds_gpt2(const ModelConfig& c) {
  return !c.is_latent() && !c.has_experts() && c.norm == model::Norm::layer && c.learns_positions() &&
         c.activation != Activation::swiglu && !c.qk_norm && c.attention_bias == AttentionBias::all && c.mlp_bias &&
         c.num_key_value_heads == c.num_attention_heads && c.head_dim * c.num_attention_heads == c.hidden_size;
}

struct Module {
  std::string_view ours, theirs;
  bool linear = true;
  int part = 0, parts = 1;
};
constexpr Module kModules[] = {{"input_layernorm", "ln_1", false},
                               {"post_attention_layernorm", "ln_2", false},
                               {"self_attn.q_proj", "attn.c_attn", true, 0, 3},
                               {"self_attn.k_proj", "attn.c_attn", true, 1, 3},
                               {"self_attn.v_proj", "attn.c_attn", true, 2, 3},
                               {"self_attn.o_proj", "attn.c_proj"},
                               {"mlp.up_proj", "mlp.c_fc"},
                               {"mlp.down_proj", "mlp.c_proj"}};
constexpr std::string_view kLayer = "model.layers.";

// "3", "mlp.up_proj" and "weight" of "model.layers.3.mlp.up_proj.weight"; no module elsewhere.
struct InLayer {
  explicit InLayer(std::string_view name) {
    if (!name.starts_with(kLayer)) return;
    const size_t dot = name.find('.', kLayer.size()), last = name.rfind('.');
    if (dot == std::string::npos || last <= dot) return;
    number = name.substr(kLayer.size(), dot - kLayer.size());
    kind = name.substr(last + 1);
    const std::string_view ours = name.substr(dot + 1, last - dot - 1);
    const auto at =
        std::find_if(std::begin(kModules), std::end(kModules), [&](const Module& m) { return m.ours == ours; });
    if (at != std::end(kModules)) module = &*at;
  }
  std::string_view number, kind;
  const Module* module = nullptr;
};

std::string spelt_gpt2(std::string name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kEnds{
      {{"model.embed_tokens.", "transformer.wte."},
       {"model.embed_positions.", "transformer.wpe."},
       {"model.norm.", "transformer.ln_f."}}};
  for (const auto& [ours, theirs] : kEnds) {
    if (name.starts_with(ours)) return std::string(theirs) + name.substr(ours.size());
  }
  const InLayer of(name);
  return of.module == nullptr ? name : fmt::format("transformer.h.{}.{}.{}", of.number, of.module->theirs, of.kind);
}

// Linear maps are Conv1D, whose matrices lie with the inputs first; queries, keys and values are one.
std::optional<ReleasedPlace> stacked_gpt2(const std::string& name, const std::vector<int64_t>& shape, int64_t,
                                          const JoinedRows&) {
  const InLayer of(name);
  if (of.module == nullptr || !of.module->linear) return std::nullopt;
  const Module& m = *of.module;
  if (of.kind == "weight" && shape.size() == 2) {
    const int64_t all = shape[0] * m.parts;
    return ReleasedPlace{.name = spelt_gpt2(name),
                         .shape = {shape[1], all},
                         .first = shape[0] * m.part,
                         .row_step = 1,
                         .column_step = all,
                         .is_whole = false};
  }
  if (of.kind != "bias" || shape.size() != 1 || m.parts == 1) return std::nullopt;
  return ReleasedPlace{
      .name = spelt_gpt2(name), .shape = {shape[0] * m.parts}, .first = shape[0] * m.part, .is_whole = false};
}

// Masks that older files hold beside the weights.
bool passed_over_gpt2(std::string_view name, const HasTensor&) {
  if (name.starts_with("transformer.")) name.remove_prefix(12);
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

ModelConfig base_gpt2() {
  ModelConfig c = grouped_base();
  c.norm = model::Norm::layer;
  c.positions = model::Positions::learned;
  c.activation = Activation::gelu_tanh;
  c.attention_bias = AttentionBias::all;
  c.mlp_bias = true;
  c.tie_word_embeddings = true;
  c.rms_norm_eps = 1e-5;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  return c;
}

ModelConfig sized_gpt2(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t heads, int64_t positions) {
  ModelConfig c = base_gpt2();
  c.vocab_size = vocabulary;
  c.hidden_size = hidden;
  c.num_hidden_layers = c.first_k_dense_replace = layers;
  c.intermediate_size = usual_width(c);
  c.num_attention_heads = c.num_key_value_heads = heads;
  c.head_dim = hidden / heads;
  c.max_position_embeddings = positions;
  return c;
}
ModelConfig released(int64_t hidden, int64_t layers, int64_t heads) {
  return sized_gpt2(50257, hidden, layers, heads, 1024);
}
ModelConfig gpt3() {
  ModelConfig c = sized_gpt2(51200, 12288, 96, 96, 2048);
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0;
  return c;
}

}  // namespace

Family gpt2() {
  Family f;
  f.architecture = "GPT2LMHeadModel";
  f.model_type = "gpt2";
  f.base = base_gpt2();
  f.keys = {
      key("vocab_size"),
      key("n_positions", "max_position_embeddings"),
      key("n_embd", "hidden_size"),
      key("n_layer", "num_hidden_layers"),
      {.name = "n_head", .ours = "num_attention_heads", .read = read_heads},
      {.name = "n_inner", .ours = "intermediate_size", .read = read_width, .write = width_json},
      {.name = "activation_function",
       .ours = "activation",
       .read = read_activation,
       .write = [](const ModelConfig& c) { return c.activation == Activation::gelu ? "gelu" : "gelu_new"; }},
      key("resid_pdrop", "residual_dropout", 0.1),
      key("embd_pdrop", "embedding_dropout", 0.1),
      key("attn_pdrop", "attention_dropout", 0.1),
      key("layer_norm_epsilon", "rms_norm_eps", 1e-5),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", true),
      fixed("scale_attn_weights", true),
      fixed("scale_attn_by_inverse_layer_idx", false),
      fixed("reorder_and_upcast_attn", false),
  };
  f.only = {is("scale_attn_weights", true, "scores without a scale are not built"),
            off("scale_attn_by_inverse_layer_idx", "scores scaled by their layer are not built"),
            off("reorder_and_upcast_attn", "scores are fp32 in any case, in the usual order")};
  f.read_besides = {"n_ctx",
                    "summary_type",
                    "summary_use_proj",
                    "summary_activation",
                    "summary_proj_to_labels",
                    "summary_first_dropout",
                    "predict_special_tokens"};
  f.said = {"norm", "positions", "attention_bias", "mlp_bias", "num_key_value_heads", "head_dim", "qk_norm"};
  f.holds = holds_gpt2;
  f.derive = make_dense;
  f.spelt = spelt_gpt2;
  f.stacked = stacked_gpt2;
  f.may_lack = "transformer.";
  f.passed_over = passed_over_gpt2;
  f.presets = {{"gpt2", released(768, 12, 12)},
               {"gpt2-medium", released(1024, 24, 16)},
               {"gpt2-large", released(1280, 36, 20)},
               {"gpt2-xl", released(1600, 48, 25)},
               {"gpt3-175b", gpt3()}};
  return f;
}

}  // namespace heddle::config
