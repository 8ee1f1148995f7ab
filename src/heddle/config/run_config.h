// Everything a run is told: model, data, training, device. Read from a TOML file in layers,
//
//   defaults < preset or imported model < file < --set key=value
//
// and written back whole, so that a run folder says exactly what ran. Paths are relative to the working directory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/config/run_length.h"
#include "heddle/model/model_config.h"
#include "heddle/passes/fuse.h"

namespace heddle::config {

struct RunConfig {
  std::string name = "run";
  int64_t seed = 1;
  std::string output;  // the run's folder; empty: runs/NAME

  model::ModelConfig model;

  struct Data {
    std::string source =
        "demo";  // texts of Debian packages, a .txt or .jsonl file or folder, or a prefix of .bin and .idx
    std::string folder = "data";  // where prepared tokens lie
    std::string tokenizer;        // a tokenizer.json; empty: one is trained, in `folder`
    int64_t vocabulary = 0;       // of a tokenizer that is trained; 0: the model's
    double heldout_fraction = 0.02;
    bool operator==(const Data&) const = default;
  } data;

  struct Train {
    int64_t steps = 1000;       // 0 where the clock ends the run
    double minutes = 0;         // 0 where steps do
    int64_t global_batch = 16;  // sequences a step
    int64_t microbatch = 8;     // sequences at a time
    int64_t sequence_length = 256;
    double learning_rate = 1e-3;
    double min_learning_rate = 1e-4;
    std::string schedule = "wsd";
    int64_t warmup_steps = 50;
    int64_t decay_steps = 200;  // of wsd, at the end
    // The same of a run by the clock, as parts of its time.
    double warmup_fraction = 0.05, decay_fraction = 0.25;
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1.0;
    bool exact_sums = false;
    int64_t checkpoint_every = 200;
    int64_t keep_checkpoints = 2;
    int64_t eval_every = 100;
    int64_t eval_sequences = 64;
    std::string sample_prompt = "The ";
    int64_t sample_tokens = 64;
    double sample_temperature = 0.7;
    int64_t trace_step = 5;
    bool operator==(const Train&) const = default;
  } train;

  struct Device {
    std::string backend = "host";
    int64_t threads = 0;  // 0: every core
    std::string dtype = "auto";
    int64_t memory_bytes = 0;  // 0: the machine's
    bool pack_weights = true;
    bool graphs = false;
    bool deterministic = true;
    bool operator==(const Device&) const = default;
  } device;

  /// How many ranks, and along which axes they lie: plan::Degrees with what may be left open.
  struct Mesh {
    int64_t ranks = 0;  // 0: as many as the degrees multiply to
    int64_t tp = 1, cp = 1;
    int64_t dp = 0;  // 0: what the other degrees leave of the ranks
    int64_t pp = 1, ep = 1, etp = 1;
    std::string order = "tp-cp-dp-pp", expert_order = "etp-ep-edp";
    bool operator==(const Mesh&) const = default;
  } mesh;

  struct Parallel {
    std::string schedule = "1f1b";
    int64_t chunks = 0, group = 0;
    std::string layout = "even";
    std::string weave = "pairs";
    std::string context = "gather";
    std::string exchange = "plain";
    bool reuse_lists = true;
    double within_rate = 10, across_rate = 1;  // GB/s
    double within_latency_us = 5, across_latency_us = 20;
    bool operator==(const Parallel&) const = default;
  } parallel;

  struct Memory {
    std::string recompute, offload;  // passes/op_groups
    double host_rate = 0;            // GB/s between device and host; 0: usual for the backend
    bool operator==(const Memory&) const = default;
  } memory;

  std::set<std::string> fusions{passes::fusion_names().begin(), passes::fusion_names().end()};

  /// Copies of the model, each of which takes its share of a step's sequences.
  int64_t data_ranks() const {
    const int64_t others = mesh.tp * mesh.cp * mesh.pp;
    return mesh.dp > 0 ? mesh.dp : std::max<int64_t>(1, mesh.ranks / others);
  }
  int64_t ranks() const { return mesh.tp * mesh.cp * data_ranks() * mesh.pp; }
  /// Of one rank, a step.
  int64_t microbatches() const { return train.global_batch / (train.microbatch * data_ranks()); }
  int64_t tokens_per_step() const { return train.global_batch * train.sequence_length; }
  RunLength length() const { return {train.steps, train.minutes * 60}; }
  std::string folder() const { return output.empty() ? "runs/" + name : output; }
  bool operator==(const RunConfig&) const = default;
};

/// A value of a configuration key.
using Value = std::variant<bool, int64_t, double, std::string>;

/// One configuration key: how it is typed, bounded, read and set. `explain` and the parser read the same table.
struct Setting {
  enum class Kind : uint8_t { boolean, integer, number, word, bytes, list };
  std::string key;  // "train.learning_rate"
  Kind kind = Kind::word;
  std::string meaning;
  double least = 0, most = 0;      // of numbers, both accepted
  std::vector<std::string> words;  // accepted words; empty: any. Of a list: those that may stand in it
  bool text = false;               // of words: control characters are accepted, for it is never part of a message
  /// Of a list, as one text with commas: ConfigError, without a place, when it is not accepted. Null: always.
  std::function<void(const std::string&)> check;
  std::function<Value(const RunConfig&)> get;
  std::function<void(RunConfig&, const Value&)> set;
  /// Null: always. A key of an optional group (model.rope_scaling) exists only where the group does.
  std::function<bool(const RunConfig&)> present;
  std::string unset = "off";  // what holds where it is not present

  /// "an integer of 1 or more"
  std::string accepted() const;
  /// As it stands in TOML.
  std::string text_of(const Value& value) const;
};

/// Every key, section by section.
const std::vector<Setting>& settings();
const Setting* find_setting(std::string_view key);
std::vector<std::string> setting_keys();

/// Named models for `model.preset`.
std::vector<std::string> preset_names();
model::ModelConfig preset(std::string_view name);

/// The model of a Hugging Face config.json of the DeepSeek-V2 and V3 families. ConfigError naming file and key
/// where it is broken, too large, of another architecture, or asks for something that Heddle computes otherwise.
/// What was passed over or taken otherwise is added to `warnings` unless null. Prediction layers that the weights
/// in the same folder lack are not counted.
model::ModelConfig read_huggingface_config(const std::string& path, std::vector<std::string>* warnings = nullptr);

/// Reads and checks a file with `overrides` ("key=value") on top. ConfigError, always one line that begins with the
/// place ("file:line:column: " or "--set key=value: "). What is accepted but hardly meant is added to `warnings`,
/// one line each, unless null.
RunConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides = {},
                          std::vector<std::string>* warnings = nullptr);
/// The same from a text; `place` stands for the file's name.
RunConfig parse_run_config(std::string_view text, const std::string& place,
                           const std::vector<std::string>& overrides = {},
                           std::vector<std::string>* warnings = nullptr);

/// The whole configuration as TOML; parsing it gives the same configuration.
std::string toml_of(const RunConfig& config);
/// Only the keys that are not as in `usual`.
std::string toml_of(const RunConfig& config, const RunConfig& usual);

/// "4GiB", "512 MiB", "1.5e9" or plain bytes. ConfigError without a place.
int64_t parse_bytes(std::string_view text);

inline constexpr int64_t kMostConfigBytes = 1 << 20;
inline constexpr int64_t kMostRanks = 1 << 14;

}  // namespace heddle::config
