// A family of published models: what its config.json says and in which words, what of it Heddle refuses, and what
// its released folders hold besides the parameters. A family is one file and one row of families().
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/families/json_keys.h"
#include "heddle/model/model_config.h"

namespace heddle::config {

using Json = nlohmann::json;

/// What every family calls it.
inline constexpr const char* kEmbedding = "model.embed_tokens.weight";

/// A published key that says something of the model.
struct PublishedKey {
  std::string name;
  /// The key of model/keys.h; "" for one that is written and only checked (Family::only), or cannot say all that
  /// the key can: what differs then stands in an object "heddle".
  std::string ours;
  /// What the family takes where the key is absent or null. Null: it must be there.
  Json standard;
  Json where_null;  // where it is null, if that is something else
  /// In place of the key's own value, for what is no plain value. Null: the plain value.
  std::function<void(const JsonKeys&, model::ModelConfig&)> read;
  std::function<nlohmann::ordered_json(const model::ModelConfig&)> write;
};
PublishedKey key(const char* name);  // named as ours, and required
PublishedKey key(const char* name, const char* ours, Json standard = nullptr, Json where_null = nullptr);
/// Rotary positions: rope_theta, which reads the others too, and rope_scaling; and the part of a head that has
/// them, which only some families let be less than 1.
PublishedKey rope_theta_key();
PublishedKey rope_scaling_key();
PublishedKey partial_rotary_key(double standard);
/// Always written as it is.
PublishedKey fixed(const char* name, Json value);

/// A published key that may have the one value that Heddle computes. Null and absent are accepted everywhere:
/// Transformers then takes that value too.
struct Only {
  std::string name;
  std::function<bool(const Json& value, const Json& root)> accepted;
  std::string reason;
  std::string read_by = {};  // where a family has a key of this name, it is its own to read; "": of its own name
};
Only is(const char* name, Json value, const char* reason);
Only off(const char* name, const char* reason);  // false or 0
Only never(const char* name, const char* reason);

/// Tensors of a released folder that repeat others, and tensors of zeros.
struct FurtherTensors {
  struct Copy {
    std::string name, original;
  };
  struct Zeros {
    std::string name;
    int64_t count = 0;  // F32
  };
  std::vector<Copy> copies;
  std::vector<Zeros> zeros;
};

/// A published model by name, for `model.preset`.
struct Preset {
  std::string name;
  model::ModelConfig model;
};

/// How a family's released files hold a tensor.
struct Spelling {
  Spelling(std::string name) : name(std::move(name)) {}  // NOLINT: as it is, under that name
  std::string name;
  bool turned = false;  // a matrix [N, K] lies as [K, N]
  /// It is one of so many equal parts of a joint tensor: its rows stand below those of the part before or, where it
  /// is turned, beside them.
  int part = 0, parts = 1;
  bool is_plain() const { return !turned && parts == 1; }
};

struct Family {
  std::string architecture, model_type;  // "DeepseekV3ForCausalLM", "deepseek_v3"
  /// What its models are where no key of theirs says it.
  model::ModelConfig base;
  /// In the order in which they are written.
  std::vector<PublishedKey> keys;
  std::vector<Only> only;
  std::vector<std::string> read_besides;  // further keys with a meaning here
  std::vector<std::string> said;          // keys of model/keys.h that follow from the family and its other keys

  std::vector<Preset> presets;

  /// Whether it is the family that a model is written as.
  bool (*holds)(const model::ModelConfig&) = nullptr;
  /// Puts a file into the words of `keys`, ConfigError where it says what Heddle computes otherwise. Null: nothing.
  void (*rewrite)(Json& root, const std::string& place) = nullptr;
  /// A released file, not one that Heddle wrote: what its words mean beyond the model. Null: nothing.
  void (*adopt)(Json& root, const std::string& place, std::vector<std::string>* warnings) = nullptr;
  /// What else follows from the keys. Null: nothing.
  void (*derive)(model::ModelConfig&) = nullptr;
  /// For a released file, after reading. Null: nothing.
  void (*complete)(model::ModelConfig&, const std::string& path, std::vector<std::string>* warnings) = nullptr;
  FurtherTensors (*further)(const model::ModelConfig&) = nullptr;
  /// The name of the tensor that `name` of a released folder repeats, or "". `head` is what the head is called.
  std::string_view (*repeats)(std::string_view name, std::string_view head) = nullptr;
  /// How its released files hold tensors, of the names that parameters have here. Null: under the same.
  Spelling (*spelt)(std::string name) = nullptr;
  std::string may_lack;  // what released files of the family may leave out in front of names
  /// Whether a tensor of its files is no parameter and says nothing. Null: none is.
  bool (*passed_over)(std::string_view name) = nullptr;
};

/// Every family.
const std::vector<Family>& families();
/// By "architectures" and "model_type", of which one alone will do; null when none has them.
const Family* find_family(const Json& root);
const Family& family_of(const model::ModelConfig& config);

/// Copies that released files repeat: of the embedding as head of a tied model, and whatever a family repeats. The
/// name of the original, or "".
std::string_view original_of(std::string_view name, bool has_head);

/// How a family holds the tensor that is called `name` here.
Spelling spelling_in(const Family& family, const std::string& name);
/// What it calls it.
std::string name_in(const Family& family, const std::string& name);
/// How families hold it, first as it is here.
std::vector<Spelling> spellings_of(const std::string& name);
/// Whether a tensor of that name is passed over by a family.
bool is_passed_over(std::string_view name);

/// Second names of keys: what stands under the first of a pair is put under the second. ConfigError where both
/// stand and differ.
void join_names(Json& root, const std::string& place,
                std::initializer_list<std::pair<const char*, const char*>> names);

/// The names of model keys that no key of the family says: they stand in an object "heddle".
std::vector<std::string> unsaid_keys(const Family& family);

/// ConfigError naming the key, its value and what is accepted; what nobody knows is added to `warnings` unless
/// null, one line each. `root` is in the family's own words.
void check_keys(const Family& family, const Json& root, const std::string& place,
                std::vector<std::string>* warnings);

/// One row each of families().
Family deepseek_v3();
Family deepseek_v2();
Family kimi_k2();
Family glm4_moe();
Family gpt2();
Family llama();
Family mixtral();
Family qwen2();
Family qwen3();
Family qwen3_moe();

}  // namespace heddle::config
