// The table of a model's keys. What reads, writes, bounds, explains or compares a model's configuration walks it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/model/model_config.h"

namespace heddle::model {

using KeyValue = std::variant<bool, int64_t, double, std::string>;

struct Key {
  enum class Kind : uint8_t { boolean, integer, number, word };
  /// The models that have the key.
  enum class Of : uint8_t {
    any,
    latent,
    grouped,
    compressed,
    latent_compressed,   // latent or compressed attention
    latent_grouped,      // latent or grouped attention
    grouped_compressed,  // grouped or compressed attention
    experts,
    recurrent,
    stateful,  // recurrent, with states: not by short convolutions alone
    streams,   // several of the residual
    ngrams,    // embeddings of n-grams
    scaling,   // rotary positions that are stretched, in any way; then of some ways alone
    yarn,
    llama3,
    longrope,
    yarn_longrope,
    of_length,  // all but linear: they know the context before stretching
  };

  std::string name;  // below "model.": "rope_scaling.factor"
  Kind kind = Kind::integer;
  double least = 0, most = 0;  // of numbers, both accepted
  std::string meaning;
  KeyValue (*get)(const ModelConfig&) = nullptr;
  void (*set)(ModelConfig&, const KeyValue&) = nullptr;
  Of of = Of::any;
  std::vector<std::string> words;               // of a word
  bool (*given)(const ModelConfig&) = nullptr;  // of a key that may be left open; null: it always has a value
  std::string open;                             // what holds where it is
  bool trains = false;                          // of training alone: models that differ in it are one model
  std::vector<std::string> synonyms;            // what other programs and people call it
};

/// Section by section, in the order in which they are written.
const std::vector<Key>& keys();
/// Null where there is none.
const Key* find_key(std::string_view name);

/// True if a model of this attention and positions has the key. Those of experts exist in dense models too.
bool has_key(const ModelConfig& config, const Key& key);
/// True if it is one of model.rope_scaling, which a model may have none of.
bool is_of_scaling(const Key& key);
/// Keys that the model does not have go back to their defaults.
void reset_foreign_keys(ModelConfig& config);

/// 5, 0.5, true, "word"
std::string shown(const KeyValue& value);

}  // namespace heddle::model
