// The whole configuration of a run: model, data, training, device. Read from a TOML file in layers,
//
//   defaults < preset or imported model < file < --set key=value
//
// and written back whole, so that a run folder says exactly what ran. Paths are relative to the working directory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/base/long_samples.h"
#include "heddle/base/repeated_samples.h"
#include "heddle/config/batch_ramp.h"
#include "heddle/config/learning_rate.h"
#include "heddle/config/run_length.h"
#include "heddle/config/step_range.h"
#include "heddle/model/model_config.h"
#include "heddle/plan/choices.h"
#include "heddle/plan/setting.h"

namespace heddle {

/// The type of weights and activations; nothing is the faster one here.
constexpr auto words_of(std::optional<Dtype>) {
  return std::to_array<Word<std::optional<Dtype>>>(
      {{std::nullopt, "auto"}, {Dtype::bf16, "bf16"}, {Dtype::f32, "f32"}, {Dtype::f64, "f64"}});
}

}  // namespace heddle

namespace heddle::config {

/// The optimizer's moments at a run's start: fresh, or kept with the weights that it begins from.
enum class StartMoments : uint8_t { fresh, kept };
constexpr auto words_of(StartMoments) {
  return std::to_array<Word<StartMoments>>({{StartMoments::fresh, "fresh"}, {StartMoments::kept, "kept"}});
}

struct RunConfig {
  std::string name = "run";
  int64_t seed = 1;
  std::string output;  // the run's folder; empty: runs/NAME

  model::ModelConfig model;

  struct Data {
    // Texts of Debian packages, a .txt or .jsonl file or folder, a prefix of .bin and .idx, or several with
    // weights.
    std::string source = "demo";
    std::string validation;         // another such text, held out whole; empty: a share of `source` is
    std::string folder = "data";    // folder of prepared tokens
    std::string text_key = "text";  // of a JSON line
    std::string tokenizer;          // a file or a folder with one; empty: one is trained, in `folder`
    int64_t vocabulary = 0;         // of a tokenizer that is trained; 0: the model's
    double heldout_fraction = 0.02;
    bool any_bytes = false;               // text may hold bytes that are none
    bool attend_across_documents = true;  // of those packed in a sequence
    int64_t document_end = -1;            // the id of a document's last token; −1: the tokenizer's
    bool chat = false;                    // lines of .jsonl are prompts with their answers, or conversations
    std::string prompt_key = "prompt", answer_key = "completion", messages_key = "messages";
    std::string chosen_key = "chosen", rejected_key = "rejected";  // of pairs of answers
    std::string weight_key;         // key of the weight of a sample's targets; empty: all count alike
    std::string chat_template;      // a file; empty: the tokenizer's
    std::string chat_arguments;     // of the template: "enable_thinking=false effort=high"
    std::string chat_date;          // the template's today; empty: data::kChatDate
    std::string end_of_text;        // the token that ends a document; empty: the tokenizer's
    bool last_answer_only = false;  // of a conversation
    bool skip_bad_lines = false;    // count lines that cannot be read, and go on
    Repeated repeated = Repeated::automatic;
    LongSamples long_samples = LongSamples::refuse;
    bool operator==(const Data&) const = default;
  } data;

  struct Train {
    int64_t steps = 1000;       // 0 where the clock ends the run, and of epochs while the data is not known
    double minutes = 0;         // 0 where steps do
    double epochs = 0;          // passes over the data that `steps` come to; 0: steps are set themselves
    int64_t global_batch = 16;  // sequences a step
    BatchRamp batch_ramp;       // up to which it grows
    int64_t microbatch = 8;     // sequences at a time
    int64_t sequence_length = 256;
    double learning_rate = 1e-3;
    double min_learning_rate = 1e-4;
    RateShape schedule = RateShape::wsd;
    int64_t warmup_steps = 50;
    int64_t decay_steps = 200;  // of wsd, at the end
    // Warm-up and decay of a run by the clock, as parts of its time.
    double warmup_fraction = 0.05, decay_fraction = 0.25;
    int64_t checkpoint_every = 200;
    double mtbf_hours = 0;     // between failures of the job; 0: not said, frequencies are as configured
    int64_t digest_every = 0;  // 0: each step where the host can read the weights, else with each checkpoint
    int64_t compare_copies_every = 100;  // steps; 0: never
    int64_t record_ops = 0;              // steps whose ops' digests are kept
    int64_t keep_checkpoints = 2;
    int64_t skip_window = 50;     // steps whose norms and losses say what is an outlier
    int64_t roll_back_after = 0;  // steps left out in a row; 0: never
    int64_t eval_every = 100;
    int64_t eval_sequences = 64;
    std::string sample_prompt = "The ";
    int64_t sample_tokens = 64;
    double sample_temperature = 0.7;
    int64_t trace_step = 5;
    StepRange op_times_steps;                          // steps whose ops are timed on every rank
    std::string alarm_command;                         // run with reports of slow ranks and links; empty: none
    std::string start;                                 // weights to begin from; empty: from the seed
    StartMoments start_moments = StartMoments::fresh;  // of those
    std::string start_adapter;                         // adapters to begin from, as PEFT writes them; empty: anew
    bool operator==(const Train&) const = default;
  } train;

  struct Device {
    std::string backend = "host";
    int64_t threads = 0;  // 0: every core
    std::optional<Dtype> dtype;
    int64_t memory_bytes = 0;  // 0: the machine's
    bool deterministic = true;
    bool operator==(const Device&) const = default;
  } device;

  int64_t mesh_ranks = 0;                 // 0: as many as the degrees multiply to
  plan::Choices plan{.mesh = {.dp = 0}};  // dp 0: what the other degrees leave of the ranks

  /// Ranks that have one copy of the model.
  int64_t copy_ranks() const { return int64_t{plan.mesh.tp} * plan.mesh.cp * plan.mesh.pp; }
  /// Copies of the model, each of which takes its share of a step's sequences.
  int64_t data_ranks() const {
    return plan.mesh.dp > 0 ? plan.mesh.dp : std::max<int64_t>(1, mesh_ranks / copy_ranks());
  }
  int64_t ranks() const { return copy_ranks() * data_ranks(); }
  /// Degrees, with what was left open.
  plan::Degrees degrees() const {
    plan::Degrees all = plan.mesh;
    all.dp = static_cast<int>(data_ranks());
    return all;
  }
  /// Microbatches of one rank, a step.
  int64_t microbatches() const { return train.global_batch / (train.microbatch * data_ranks()); }
  /// Sequences of the step that follows so many, and those that they have read.
  BatchRamp::Place data_after(int64_t steps) const { return train.batch_ramp.after(steps, train.global_batch); }
  int64_t tokens_after(int64_t steps) const { return data_after(steps).consumed * train.sequence_length; }
  RunLength length() const {
    const bool open = train.steps == 0 && train.epochs > 0;
    return {open ? static_cast<int64_t>(RunLength::kUnknownSteps) : train.steps, train.minutes * 60};
  }
  /// The first number of steps that have read train.epochs times so many sequences.
  int64_t steps_of_epochs(int64_t train_sequences) const;
  std::string folder() const { return output.empty() ? "runs/" + name : output; }
  bool operator==(const RunConfig&) const = default;
};

using plan::Value;
/// A row of the table of keys. `explain` and the parser read the same.
using Setting = plan::Setting<RunConfig>;

/// Every key, section by section.
const std::vector<Setting>& settings();

/// The keys that exist in this configuration, in the table's order, each with its value as it would be written.
std::vector<std::pair<std::string, std::string>> setting_texts(const RunConfig& config);
const Setting* find_setting(std::string_view key);
std::vector<std::string> setting_keys();

/// Named models for `model.preset`.
std::vector<std::string> preset_names();
model::ModelConfig preset(std::string_view name);

/// Reads and checks a file, or the standard input as "-", with `overrides` ("key=value") on top. ConfigError,
/// always one line that begins with the place ("file:line:column: " or "--set key=value: "). What is accepted but
/// hardly meant is added to `warnings`, one line each, unless null.
RunConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides = {},
                          std::vector<std::string>* warnings = nullptr);
/// Reads a text likewise; `place` stands for the file's name.
RunConfig parse_run_config(std::string_view text, const std::string& place,
                           const std::vector<std::string>& overrides = {},
                           std::vector<std::string>* warnings = nullptr);

/// The whole configuration as TOML; parsing it gives the same configuration.
std::string toml_of(const RunConfig& config);
/// The keys alone that are not as in `usual`.
std::string toml_of(const RunConfig& config, const RunConfig& usual);

/// "4GiB", "512 MiB", "1.5e9" or plain bytes. ConfigError without a place.
int64_t parse_bytes(std::string_view text);

inline constexpr int64_t kMostConfigBytes = 1 << 20;
inline constexpr int64_t kMostRanks = 1 << 14;

}  // namespace heddle::config
