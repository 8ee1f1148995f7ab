// Released files in and out: what is missing, misshapen or left over is told, nothing is applied by halves.
#include "heddle/train/released_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/safetensors.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_models.h"

namespace heddle::train {
namespace {

const model::ModelConfig kModel = test::tiny_model();
const int64_t kHidden = kModel.hidden_size, kWidth = kModel.moe_intermediate_size,
              kExperts = kModel.n_routed_experts, kVocabulary = kModel.vocab_size;

// A model of few parameters: embedding, head, one layer's experts, and a prediction module's norm.
struct Model {
  explicit Model(double start, bool tied = false) {
    add({.name = "model.embed_tokens.weight", .released = {{"model.embed_tokens.weight", 0, kVocabulary}}},
        {kVocabulary, kHidden}, 1);
    if (!tied)
      add({.name = "lm_head.weight", .released = {{"lm_head.weight", 0, kVocabulary}}}, {kVocabulary, kHidden}, 1);
    add({.name = "model.layers.0.mlp.experts.gate_up_proj.weight",
         .experts = kExperts,
         .released = {{"model.layers.0.mlp.experts.{}.gate_proj.weight", 0, kWidth},
                      {"model.layers.0.mlp.experts.{}.up_proj.weight", kWidth, kWidth}}},
        {kExperts, 2 * kWidth, kHidden}, 2);
    for (auto& memory : memories) {
      for (float& value : *memory) value = static_cast<float>(start++);
    }
    config.tie_word_embeddings = tied;
    config.num_hidden_layers = 1;
    config.num_nextn_predict_layers = 1;
  }

  void add(const model::Parameter& p, std::vector<int64_t> shape, size_t pieces) {
    formats::LogicalTensor tensor{p.name, Dtype::f32, std::move(shape), {}};
    memories.push_back(std::make_unique<std::vector<float>>(static_cast<size_t>(tensor.elements())));
    auto* bytes = reinterpret_cast<uint8_t*>(memories.back()->data());
    const size_t each = static_cast<size_t>(tensor.size_bytes()) / pieces;
    for (size_t i = 0; i < pieces; ++i) tensor.pieces.emplace_back(bytes + i * each, each);
    parameters.push_back({p, std::move(tensor)});
  }

  void leave(const std::string& folder) const {
    export_released(folder, config, parameters, {.stored = Dtype::f32});
  }
  bool operator==(const Model& other) const {
    for (size_t i = 0; i < memories.size(); ++i) {
      if (*memories[i] != *other.memories[i]) return false;
    }
    return true;
  }

  model::ModelConfig config = kModel;
  std::vector<ParameterTensor> parameters;
  std::vector<std::unique_ptr<std::vector<float>>> memories;
};

std::string refusal(const std::string& path, const Model& model) {
  try {
    import_released(path, model.parameters);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

using Tensors = std::vector<std::pair<formats::TensorHeading, std::vector<float>>>;

void write(const std::string& path, const Tensors& tensors) {
  std::vector<formats::TensorHeading> headings;
  for (const auto& [heading, values] : tensors) headings.push_back(heading);
  formats::SafetensorsWriter writer(path, headings);
  for (const auto& [heading, values] : tensors) writer.write(values.data(), values.size() * sizeof(float));
  writer.commit();
}

Tensors read(const std::string& path) {
  const formats::SafetensorsFile file(path);
  Tensors tensors;
  for (const formats::StoredTensor& t : file.tensors()) {
    std::vector<float> values(static_cast<size_t>(t.elements()));
    t.read(0, t.elements(), Dtype::f32, values.data());
    tensors.push_back({{t.name, Dtype::f32, t.shape}, std::move(values)});
  }
  return tensors;
}

TEST(ReleasedModel, ExpertsLeaveOneByOneAndComeBack) {
  const ScratchFolder folder;
  const Model model(1);
  model.leave(folder.path().string());
  const formats::SafetensorsFile file(folder / "model.safetensors");
  EXPECT_EQ(file.tensors().size(), 2 + 2 * kExperts + 2);  // and the module's copies of embedding and head
  const formats::StoredTensor& up = file.at("model.layers.0.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{kWidth, kHidden}));
  float first = 0;
  up.read(0, 1, Dtype::f32, &first);
  EXPECT_EQ(first, 1 + 2 * kVocabulary * kHidden + 3 * kWidth * kHidden);
  Model back(-1000);
  import_released(folder.path().string(), back.parameters);
  EXPECT_EQ(back, model);
  import_released(folder / "model.safetensors", back.parameters);
  EXPECT_EQ(config::read_model_config(folder / "config.json"), model.config);
}

TEST(ReleasedModel, TiedHeadIsTheEmbedding) {
  const ScratchFolder folder;
  const Model model(1, true);
  model.leave(folder.path().string());
  Model back(-1000, true);
  import_released(folder.path().string(), back.parameters);
  EXPECT_EQ(back, model);
  // Programs that store a shared matrix once may keep the head's name.
  const std::string path = folder / "model.safetensors";
  Tensors tensors = read(path);
  std::erase_if(tensors, [](const auto& each) { return each.first.name == "lm_head.weight"; });
  for (auto& [heading, bytes] : tensors)
    if (heading.name == "model.embed_tokens.weight") heading.name = "lm_head.weight";
  write(path, tensors);
  Model by_head(-1000, true);
  import_released(path, by_head.parameters);
  EXPECT_EQ(by_head, model);
}

TEST(ReleasedModel, ShardsAreReadThroughTheirIndex) {
  const ScratchFolder folder;
  const Model model(1);
  model.leave(folder.path().string());
  const Tensors tensors = read(folder / "model.safetensors");
  std::filesystem::remove(folder / "model.safetensors");
  write(folder / "a.safetensors", {tensors.begin(), tensors.begin() + 3});
  write(folder / "b.safetensors", {tensors.begin() + 3, tensors.end()});
  nlohmann::json map;
  for (size_t i = 0; i < tensors.size(); ++i)
    map[tensors[i].first.name] = i < 3 ? "a.safetensors" : "b.safetensors";
  const std::string index = folder / "model.safetensors.index.json";
  write_file(index, nlohmann::json{{"weight_map", map}}.dump());
  Model back(-1000);
  import_released(folder.path().string(), back.parameters);
  EXPECT_EQ(back, model);

  for (const char* bad : {R"({"weight_map":{"a":"../a.safetensors"}})", R"({"weight_map":{"a":5}})", "{}", "",
                          "[1]", R"({"weight_map":{"a":"a.bin"}})"}) {
    write_file(index, bad);
    EXPECT_NE(refusal(folder.path().string(), back), "") << bad;
  }
  std::filesystem::remove(index);
  EXPECT_NE(refusal(folder.path().string(), back).find("in it, but a.safetensors, which is not"),
            std::string::npos);
  write_file(folder / "model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 1234\n");
  EXPECT_NE(refusal(folder.path().string(), back).find("`git lfs pull`"), std::string::npos);
}

TEST(ReleasedModel, EveryTensorIsAccountedFor) {
  const ScratchFolder folder;
  const Model model(1);
  model.leave(folder.path().string());
  const std::string path = folder / "model.safetensors";
  const Tensors whole = read(path);
  const auto refused = [&](const std::function<void(Tensors&)>& change) {
    Tensors tensors = whole;
    change(tensors);
    write(path, tensors);
    Model into(-1000);
    std::string reason = refusal(path, into);
    EXPECT_EQ(into, Model(-1000)) << reason;
    return reason;
  };
  const auto at = [](Tensors& tensors, const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first.name == name; });
  };
  const std::string expert = "model.layers.0.mlp.experts.1.up_proj.weight";
  EXPECT_NE(refused([&](Tensors& t) { t.erase(at(t, expert)); }).find("1 tensors are missing: " + expert),
            std::string::npos);
  EXPECT_NE(refused([&](Tensors& t) {
              at(t, expert)->first.shape = {kHidden, kWidth};
            }).find(fmt::format("[{0}, {1}] instead of [{1}, {0}]", kHidden, kWidth)),
            std::string::npos);
  EXPECT_NE(refused([&](Tensors& t) { at(t, expert)->first.dtype = Dtype::i32; }).find(expert + " of the type I32"),
            std::string::npos);
  EXPECT_NE(refused([&](Tensors& t) {
              t.push_back({{"extra", Dtype::f32, {1}}, {1}});
            }).find("1 belong nowhere: extra"),
            std::string::npos);
  EXPECT_NE(
      refused([&](Tensors& t) { ++at(t, "model.layers.1.embed_tokens.weight")->second[2]; }).find("should repeat"),
      std::string::npos);
  Tensors fewer = whole;  // copies and rotary constants may be there or not
  fewer.erase(at(fewer, "model.layers.1.embed_tokens.weight"));
  fewer.push_back({{"model.layers.0.self_attn.rotary_emb.inv_freq", Dtype::f32, {1}}, {1}});
  write(path, fewer);
  Model into(-1000);
  EXPECT_EQ(refusal(path, into), "");
  EXPECT_EQ(into, model);
}

// They stay exact where weights are rounded; others than a router's experts would be memory that is not its own.
TEST(ReleasedModel, TablesOfExpertsHoldDifferentExpertsThatThereAre) {
  const std::string name = "model.layers.0.mlp.gate.tid2eid";
  const auto with_table = [&] {
    Model model(1);
    model.add({.name = name,
               .start = model::Parameter::Start::hashed_experts,
               .deviation = static_cast<double>(kExperts),
               .trained = false,
               .released = {{name, 0, kVocabulary}}},
              {kVocabulary, 2}, 1);
    std::vector<float>& table = *model.memories.back();
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>((i / 2 + i % 2) % kExperts);
    return model;
  };
  const ScratchFolder folder;
  const Model model = with_table();
  export_released(folder.path().string(), model.config, model.parameters, {.stored = Dtype::bf16});
  EXPECT_EQ(formats::SafetensorsFile(folder / "model.safetensors").at(name).type, formats::StoredType::f32);
  Model back = with_table();
  std::fill(back.memories.back()->begin(), back.memories.back()->end(), -7.0f);
  import_released(folder.path().string(), back.parameters);
  EXPECT_EQ(*back.memories.back(), *model.memories.back());

  // As Transformers stores them.
  const std::string path = folder / "model.safetensors";
  const Tensors floats = read(path);
  std::vector<formats::TensorHeading> headings;
  for (const auto& [heading, values] : floats) headings.push_back(heading);
  for (formats::TensorHeading& heading : headings) {
    if (heading.name == name) heading.dtype = Dtype::i64;
  }
  formats::SafetensorsWriter writer(folder / "integers.safetensors", headings);
  for (const auto& [heading, values] : floats) {
    const std::vector<int64_t> integers(values.begin(), values.end());
    heading.name == name ? writer.write(integers.data(), integers.size() * sizeof(int64_t))
                         : writer.write(values.data(), values.size() * sizeof(float));
  }
  writer.commit();
  std::fill(back.memories.back()->begin(), back.memories.back()->end(), -7.0f);
  import_released(folder / "integers.safetensors", back.parameters);
  EXPECT_EQ(*back.memories.back(), *model.memories.back());

  for (const float wrong :
       {-1.0f, static_cast<float>(kExperts), 0.5f, std::nanf(""), model.memories.back()->at(11)}) {
    Tensors tensors = read(path);
    for (auto& [heading, values] : tensors) {
      if (heading.name == name) values[10] = wrong;
    }
    write(folder / "wrong.safetensors", tensors);
    EXPECT_NE(refusal(folder / "wrong.safetensors", back).find("for token id 5, 2 different ones of 0 to"),
              std::string::npos)
        << wrong;
  }
}

// Under the names of Transformers' modules, in fp32 beside bf16 weights, and back to the bit. Its configuration is
// read as it was written. No published family has it: such a model is not exported as one, its tensors leave here
// as those of the model without streams would.
TEST(ReleasedModel, HyperConnectionsLeaveAndComeBack) {
  model::ModelConfig config = kModel;
  config.hyper_connections = 3;
  config.hyper_connections_iterations = 7;
  config.hyper_connections_eps = 1e-4;
  config.num_nextn_predict_layers = 0;
  std::vector<std::unique_ptr<std::vector<float>>> memories;
  std::map<std::string, std::vector<int64_t>> shapes;
  const auto masters = [&](float from) {
    std::vector<ParameterTensor> all = masters_of_model(config);
    for (ParameterTensor& each : all) {
      std::vector<float>& memory =
          *memories.emplace_back(std::make_unique<std::vector<float>>(static_cast<size_t>(each.tensor.elements())));
      for (float& x : memory) x = from == 0 ? 0 : (from += 0.37f) / 3;
      each.tensor.dtype = Dtype::f32;
      each.tensor.pieces = {{reinterpret_cast<uint8_t*>(memory.data()), memory.size() * sizeof(float)}};
      if (each.parameter.part == model::Parameter::Part::hyper_connection)
        shapes[each.parameter.name] = each.tensor.shape;
    }
    return all;
  };
  const int64_t width = 3 * kHidden;
  std::map<std::string, std::vector<int64_t>> expected{
      {"model.hc_head.hc_fn", {3, width}}, {"model.hc_head.hc_base", {3}}, {"model.hc_head.hc_scale", {1}}};
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const char* block : {"attn_hc", "ffn_hc"}) {
      const std::string name = fmt::format("model.layers.{}.{}.", layer, block);
      expected[name + "fn"] = {15, width};
      expected[name + "base"] = {15};
      expected[name + "scale"] = {3};
    }
  }
  const ScratchFolder folder;
  const auto left = masters(0.1f);
  EXPECT_EQ(shapes, expected);
  try {
    export_released(folder.path().string(), config, left, {.stored = Dtype::bf16});
    ADD_FAILURE() << "it is no published model";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.hyper_connections is 3"), std::string::npos) << error.what();
  }
  model::ModelConfig plain = config;
  plain.hyper_connections = 0;
  model::reset_foreign_keys(plain);
  export_released(folder.path().string(), plain, left, {.stored = Dtype::bf16});
  const formats::SafetensorsFile file(folder / "model.safetensors");
  for (const auto& [name, shape] : expected) {
    EXPECT_EQ(file.at(name).type, formats::StoredType::f32) << name;
    EXPECT_EQ(file.at(name).shape, shape) << name;
  }
  const auto back = masters(0);
  import_released(folder.path().string(), back);
  for (size_t i = 0; i < left.size(); ++i) {
    if (!expected.contains(left[i].parameter.name)) continue;
    const std::span<uint8_t> one = left[i].tensor.pieces[0], other = back[i].tensor.pieces[0];
    EXPECT_TRUE(std::ranges::equal(one, other)) << left[i].parameter.name;
  }
  const nlohmann::json written = nlohmann::json(config::model_config_to_json(config));
  EXPECT_EQ(config::differences(config::model_config_from_json(written, "x"), config), std::vector<std::string>());
}

TEST(ReleasedModel, ConfigurationsAreReadStrictly) {
  const nlohmann::json good = nlohmann::json(config::model_config_to_json(Model(0).config));
  EXPECT_EQ(config::model_config_from_json(good, "x"), Model(0).config);
  const auto refused = [&](const char* change) {
    nlohmann::json json = good;
    json.merge_patch(nlohmann::json::parse(change));
    try {
      config::model_config_from_json(json, "x/config.json");
    } catch (const ConfigError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("x/config.json: ")) << error.what();
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](const char* change, const char* part) {
    EXPECT_NE(refused(change).find(part), std::string::npos) << change << ": " << refused(change);
  };
  expect(R"({"hidden_size":null})", "'hidden_size' is missing");
  expect(R"({"hidden_size":"4"})", "a whole number is expected");
  expect(R"({"hidden_size":4.5})", "a whole number is expected");
  expect(R"({"hidden_size":99999999999999999999})", "a whole number");
  expect(R"({"hidden_size":9223372036854775807})", "below 2^40");
  expect(R"({"hidden_size":0})", "at least 1");
  expect(R"({"model_type":"llama"})", "beside 'model_type' \"llama\", accepted: 'LlamaForCausalLM'");
  expect(R"({"hidden_act":"gelu"})", "only 'silu'");
  expect(R"({"attention_bias":true})", "not built");
  expect(R"({"mlp_bias":true})", "'mlp_bias' is true");
  expect(R"({"attention_dropout":0.1})", "'attention_dropout' is 0.1: dropout");
  expect(R"({"moe_layer_freq":2})", "'moe_layer_freq' is 2");
  expect(R"({"scoring_func":"tanh"})", "'scoring_func' is \"tanh\"");
  expect(R"({"head_dim":64})", "must equal qk_rope_head_dim");
  expect(R"({"qk_head_dim":64})", "the sum of");
  expect(R"({"index_topk":64})", "models that select keys");
  expect(R"({"sliding_window":64})", "windows");
  expect(R"({"layer_types":["full_attention","sliding_attention"]})", "only 'full_attention'");
  expect(R"({"partial_rotary_factor":0.5})", "rotated in part");
  expect(R"({"rms_norm_eps":-1})", "model.rms_norm_eps is -1");
  expect(R"({"rope_theta":0})", "model.rope_theta is 0");
  expect(R"({"rope_scaling":{"type":"yarn","factor":2,"low_freq_factor":1}})", "'rope_scaling.low_freq_factor'");
  expect(R"({"rope_scaling":{"type":"yarn","factor":2,"mscale_all_dims":1}})", "did you mean 'mscale_all_dim'?");
  expect(R"({"rope_scaling":{"type":"yarn","factor":2,"attention_factor":0}})", "more than 0 is expected");
  expect(R"({"rope_scaling":{"type":"yarn","factor":2,"mscale":-1}})", "'rope_scaling.mscale' is -1");
  expect(R"({"rope_scaling":{"type":"yarn","factor":2,"truncate":1}})", "true or false is expected");
  expect(R"({"rope_scaling":{"type":"default","partial_rotary_factor":0.5}})", "rotated in part");
  expect(R"({"hidden_act":"\u001b[31m\n"})", "\\u001b[31m\\n");
  expect(R"({"num_key_value_heads":1})", "as many as heads");
  expect(R"({"quantization_config":{"quant_method":"awq"}})", "quantised");
  expect(R"({"topk_method":"greedy"})", "only 'noaux_tc'");
  expect(R"({"rope_scaling":{"type":"dynamic","factor":2}})", "'dynamic'");
  expect(R"({"rope_scaling":{"type":"yarn"}})", "'rope_scaling.factor' is missing");
  expect(R"({"rope_scaling":{"type":"yarn","factor":0.5}})", "at least 1");
  expect(R"({"rope_scaling":5})", "an object is expected");
  expect(R"({"heddle":{"topk_bias":1}})", "'heddle.topk_bias' is 1, true or false is expected");
  EXPECT_EQ(refused(R"({"_name_or_path":"anything","transformers_version":"4"})"), "");
}

// What is known not to matter is passed over without a word, what nobody knows is warned of.
TEST(ReleasedModel, UnknownKeysAreWarnedOf) {
  nlohmann::json json = nlohmann::json(config::model_config_to_json(Model(0).config));
  json["use_cache"] = true;
  json["bos_token_id"] = 0;
  json["head_dim"] = json["qk_rope_head_dim"];
  std::vector<std::string> warnings;
  config::model_config_from_json(json, "x", &warnings);
  EXPECT_EQ(warnings, std::vector<std::string>{});
  json["n_shared_expert"] = 2;
  json["\x1b[2J"] = 1;
  config::model_config_from_json(json, "x", &warnings);
  EXPECT_EQ(warnings,
            (std::vector<std::string>{"x: the key '\\x1b[2J' is not known and ignored",
                                      "x: the key 'n_shared_expert' is not known and ignored, did you mean "
                                      "'n_shared_experts'?"}));
}

// Shared experts of width 0, as Transformers writes them, hold nothing that could be missed.
TEST(ReleasedModel, TensorsWithoutElementsMayBeThere) {
  const ScratchFolder folder;
  const Model model(1);
  model.leave(folder.path().string());
  const std::string path = folder / "model.safetensors";
  Tensors tensors = read(path);
  tensors.push_back({{"model.layers.0.mlp.shared_experts.gate_proj.weight", Dtype::f32, {0, kHidden}}, {}});
  write(path, tensors);
  Model into(-1000);
  EXPECT_EQ(refusal(path, into), "");
  EXPECT_EQ(into, model);
}

// Both ways of writing YaRN are the same model; every value survives the way out and back.
TEST(ReleasedModel, YarnIsReadInBothForms) {
  model::ModelConfig c = Model(0).config;
  c.rope_theta = 123.5;
  c.rope_scaling = model::RopeScaling{40, 4096, 16, 2, 0.7, 0.8, 1.25, false};
  c.topk_bias = false;
  c.q_lora_rank = 3;
  c.z_loss_weight = 1.0 / 3;
  nlohmann::json json = nlohmann::json(config::model_config_to_json(c));
  EXPECT_EQ(config::model_config_from_json(json, "x"), c);
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_type"] = "yarn";
  json["rope_parameters"]["rope_theta"] = 123.5;
  json["rope_parameters"].erase("type");
  json.erase("rope_scaling");
  json.erase("rope_theta");
  EXPECT_EQ(config::model_config_from_json(json, "x"), c);
  json["rope_theta"] = 7.0;  // the one inside holds
  EXPECT_EQ(config::model_config_from_json(json, "x"), c);
}

}  // namespace
}  // namespace heddle::train
