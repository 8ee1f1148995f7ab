// A family of published models: what its config.json says and in which words, what of it Heddle refuses, and what
// its released folders hold besides the parameters. A family is one file and one row of families().
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/families/json_keys.h"
#include "heddle/config/families/released_place.h"
#include "heddle/model/model_config.h"

namespace heddle::config {

using Json = nlohmann::json;

/// The embedding's name in every family.
inline constexpr const char* kEmbedding = "model.embed_tokens.weight";

/// A published key that says something of the model.
struct PublishedKey {
  std::string name;
  /// The key of model/keys.h; "" for one that is written and only checked (Family::only), or cannot say all that
  /// the key can: what differs then stands in an object "heddle".
  std::string ours;
  /// The family's value where the key is absent or null. Null: it must be there.
  Json standard;
  Json where_null;  // value for null, if that is something else
  /// Reader and writer in place of the key's own value, for what is no plain value. Null: the plain value.
  std::function<void(const JsonKeys&, model::ModelConfig&)> read;
  std::function<nlohmann::ordered_json(const model::ModelConfig&)> write;  // discarded: the key is left out
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
/// Written so; another key reads it too.
PublishedKey read_elsewhere(const char* name,
                            std::function<nlohmann::ordered_json(const model::ModelConfig&)> write,
                            const char* ours = "");

/// A published key that may have the one value that Heddle computes. Null and absent are accepted everywhere:
/// Transformers then takes that value too.
struct Only {
  std::string name;
  std::function<bool(const Json& value, const Json& root)> accepted;
  std::string reason;
  std::string read_by = {};  // a family that has a key of this name reads it itself; "": of its own name
};
Only is(const char* name, Json value, const char* reason);
Only off(const char* name, const char* reason);  // false or 0
Only above_zero(const char* name);               // a number
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

/// True if a folder has a tensor of that name.
using HasTensor = std::function<bool(std::string_view)>;

/// A published model by name, for `model.preset`.
struct Preset {
  std::string name;
  model::ModelConfig model;
};

struct Family {
  std::string architecture, model_type;  // "DeepseekV3ForCausalLM", "deepseek_v3"
  std::string also_architecture = {};    // what its files may say instead; "": nothing
  /// The model_type of the text model in folders of other models beside it, where it is not always the same. "":
  /// any.
  std::string text_type = {};
  /// Properties of its models that no key of theirs says.
  model::ModelConfig base;
  /// Keys in the order in which they are written.
  std::vector<PublishedKey> keys;
  std::vector<Only> only;
  std::vector<std::string> read_besides;  // further keys with a meaning here
  std::vector<std::string> said;          // keys of model/keys.h that follow from the family and its other keys

  std::vector<Preset> presets;

  /// True if it is the family that a model is written as.
  bool (*holds)(const model::ModelConfig&) = nullptr;
  /// Puts a file into the words of `keys`, ConfigError where it says what Heddle computes otherwise. Null: nothing.
  void (*rewrite)(Json& root, const std::string& place) = nullptr;
  /// A released file, not one that Heddle wrote: what its words mean beyond the model. Null: nothing.
  void (*adopt)(Json& root, const std::string& place, std::vector<std::string>* warnings) = nullptr;
  /// Sets what else follows from the keys. Null: nothing.
  void (*derive)(model::ModelConfig&) = nullptr;
  /// Completes a released file, after reading. Null: nothing.
  void (*complete)(model::ModelConfig&, const std::string& path, std::vector<std::string>* warnings) = nullptr;
  FurtherTensors (*further)(const model::ModelConfig&) = nullptr;
  /// The name of the tensor that `name` of a released folder repeats, or "". `head` is what the head is called.
  std::string_view (*repeats)(std::string_view name, std::string_view head) = nullptr;
  /// The released tensor's name for a parameter's name here. Null: the same.
  std::string (*spelt)(std::string name) = nullptr;
  /// Spells it where other tensors of the model decide, by their names here. Null: they never do.
  std::string (*spelt_beside)(std::string name, const HasTensor& has) = nullptr;
  /// A further name that files of the family may give it, beside `spelt`. Null: none.
  std::string (*also_spelt)(std::string name) = nullptr;
  /// True if its files give the name here to another tensor: `spelt` and `also_spelt` go before it. Null: to none.
  bool (*renames)(std::string_view name) = nullptr;
  std::string may_lack;  // prefix of names that released files of the family may leave out
  /// True if a tensor of its files is no parameter and says nothing. Null: none is.
  bool (*passed_over)(std::string_view name, const HasTensor& has) = nullptr;
  /// The place of tensors that lie together, of all experts or joint, or turned, for the one that is called `name`
  /// here; nothing where it lies by itself. Null: everywhere so.
  std::optional<ReleasedPlace> (*stacked)(const std::string& name, const std::vector<int64_t>& shape,
                                          int64_t experts, const JoinedRows& joined) = nullptr;
};

/// Adds keys behind the others.
void add_keys(Family& family, const std::vector<PublishedKey>& more);
/// Puts each key in the place of the one of its name.
void replace_keys(Family& family, const std::vector<PublishedKey>& others);
/// The keys of these names must be there: Transformers has defaults of its own for them.
void require_keys(Family& family, std::initializer_list<const char*> names);
void drop_keys(Family& family, const std::vector<std::string>& names);

/// Every family.
const std::vector<Family>& families();
/// The family by "architectures" and "model_type", of which one alone will do; null when none has them.
const Family* find_family(const Json& root);
/// Says what a file without a family names, and what is accepted.
std::string why_no_family(const Json& root);
const Family& family_of(const model::ModelConfig& config);

/// Copies that released files repeat: of the embedding as head of a tied model, and whatever a family repeats. The
/// name of the original, or "".
std::string_view original_of(std::string_view name, bool has_head);

/// The family's name of the tensor that is called `name` here.
std::string name_in(const Family& family, const std::string& name);
/// The place in a family's folders of the tensor of `shape` that is called `name` here, one of so many experts' (0:
/// of none).
ReleasedPlace place_in(const Family& family, const std::string& name, const std::vector<int64_t>& shape,
                       int64_t experts, const JoinedRows& joined = {});
/// The places in any family's folders, each once. Those in folders of `own` come first (null: not known). Then come
/// those of families that rename it, that of its own name here, and the others.
std::vector<ReleasedPlace> places_of(const std::string& name, const std::vector<int64_t>& shape, int64_t experts,
                                     const JoinedRows& joined = {}, const Family* own = nullptr);
/// True if a family passes over a tensor of that name in a folder with others.
bool is_passed_over(std::string_view name, const HasTensor& has);

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
Family afmoe();
Family axk1();
Family axk2();
Family bailing_hybrid();
Family bailing_moe();
Family bailing_moe_v2();
Family bailing_moe_v3();
Family bamba();
Family cohere();
Family cohere2();
Family cohere2_moe();
Family cwm();
Family deepseek_v3();
Family deepseek_v2();
Family deepseek_v32();
Family deepseek_v4();
Family dots1();
Family dots3_note();
Family dots3_note_text();
Family ernie4_5();
Family ernie4_5_moe();
Family exaone4();
Family exaone_moe();
Family falcon_h1();
Family flex_olmo();
Family gemma();
Family gemma2();
Family gemma3();
Family gemma3_beside_pictures();
Family gemma4();
Family gemma4_beside_pictures();
Family gemma4_unified_text();
Family gemma4_unified();
Family kimi_k2();
Family kimi_k25();
Family kimi_linear();
Family glm();
Family glm4();
Family glm4_moe();
Family glm4_moe_lite();
Family glm_moe_dsa();
Family glm5_next();
Family gpt2();
Family gpt_oss();
Family granite();
Family granite_moe();
Family granite_moe_hybrid();
Family granite_moe_shared();
Family granite_moe_swa();
Family granite_swa();
Family hunyuan_dense();
Family hunyuan_moe();
Family hy_v3();
Family hy_v4();
Family hy_v4_beside_pictures();
Family kolibri1();
Family laguna();
Family lfm2();
Family lfm2_moe();
Family lfm3();
Family llama();
Family llama4_beside_pictures();
Family llama4_text();
Family longcat_flash();
Family mellum();
Family mimo_v2_flash();
Family minimax();
Family minimax_m2();
Family minimax_m3();
Family minimax_m3_beside_pictures();
Family minimax_text_01();
Family ministral3();
Family ministral3_beside_pictures();
Family mistral();
Family mistral_beside_pictures();
Family mistral4();
Family mistral4_beside_pictures();
Family mixtral();
Family nemotron_h();
Family olmo2();
Family olmo3();
Family olmo_hybrid();
Family olmoe();
Family phi3();
Family phimoe();
Family qwen2();
Family qwen2_5_vl();
Family qwen2_moe();
Family qwen2_vl();
Family qwen3();
Family qwen3_5();
Family qwen3_5_beside_pictures();
Family qwen3_5_moe();
Family qwen3_5_moe_beside_pictures();
Family qwen3_moe();
Family qwen3_next();
Family qwen3_vl();
Family qwen3_vl_moe();
Family qwen4_exp();
Family qwen4_exp_beside_pictures();
Family sarvam_mla();
Family sarvam_moe();
Family seed_oss();
Family smollm3();
Family solar_open();
Family step3p5();
Family youtu();

}  // namespace heddle::config
