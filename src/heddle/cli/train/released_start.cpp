#include "heddle/cli/train/released_start.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/base/say.h"
#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/formats/hub_cache.h"
#include "heddle/model/shapes/shape.h"
#include "heddle/observe/units.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::cli {

namespace {

namespace fs = std::filesystem;

// Defaults of a fine-tuning run, as TRL's trainers have them where they say one.
constexpr int64_t kSequence = 1024, kBatch = 16, kWarmup = 5, kRank = 16;
constexpr double kRate = 2e-5, kAdapterRate = 2e-4, kPairRate = 1e-6, kAdapterPairRate = 5e-6, kAlpha = 32;
constexpr double kTextEpochs = 1, kSampleEpochs = 3;

constexpr size_t kLongestName = 80;
constexpr std::string_view kWritten = "# Written by heddle train for a released model";

bool is_set(const std::vector<std::string>& set, std::string_view key) {
  return std::any_of(set.begin(), set.end(),
                     [&](const std::string& s) { return s.starts_with(key) && s[key.size()] == '='; });
}

/// Kinds of samples, by the keys of the first ones.
enum class Samples : uint8_t { text, answers, pairs };

Samples samples_in(const std::string& path, const std::vector<std::string>& set) {
  constexpr size_t kSeen = size_t{1} << 16;
  const bool told = is_set(set, "data.chat");
  std::error_code error;
  if (!fs::exists(path, error)) config_error("train: --data {}: nothing is there", path.substr(0, 200));
  if (fs::is_directory(path, error)) return Samples::text;
  if (path.ends_with(".gz") || path.ends_with(".zst")) {
    if (!told)
      config_error(
          "train: --data {}: compressed samples are not recognized; --set data.chat=true or false says what they "
          "are",
          path);
    return Samples::text;
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kSeen, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string::npos || (text[first] != '{' && text[first] != '[')) return Samples::text;
  const auto has = [&](const char* key) { return text.find(fmt::format("\"{}\"", key)) != std::string::npos; };
  if (has("chosen") && has("rejected")) return Samples::pairs;
  for (const char* key : {"messages", "conversations", "prompt", "instruction"})
    if (has(key)) return Samples::answers;
  return Samples::text;
}

// A file's name from a model's: small letters, digits, points and dashes.
std::string run_name(const std::string& model) {
  std::string name;
  for (const char c : model.substr(0, kLongestName)) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    name += (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9') || small == '.' || small == '-' ? small
                                                                                                             : '-';
  }
  name.erase(0, name.find_first_not_of(".-"));  // neither hidden nor a flag; all of it if nothing else is there
  return name.empty() ? "model" : name;
}

// The name that --set gives the run, as it is: of its file and of its folder alike. "" where it gives none.
std::string name_set(const std::vector<std::string>& set) {
  if (!is_set(set, "name")) return "";
  std::string name;
  for (const std::string& setting : set)
    if (setting.starts_with("name=")) name = setting.substr(setting.find('=') + 1);
  const bool good = !name.empty() && name.size() <= kLongestName && name[0] != '.' && name[0] != '-' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                             c == '.' || c == '-' || c == '_';
                    });
  if (!good)
    config_error(
        "train: --set name={}: a file is named so; accepted: letters, digits, '.', '-' and '_', such as {}",
        name.substr(0, kLongestName), run_name(name));
  return name;
}

std::string model_name(const std::string& words, const std::string& folder) {
  if (const std::optional<formats::HubName> hub = formats::hub_name(words); hub && hub->text() != folder)
    return hub->model;
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.filename().empty() ? path.parent_path() : path).filename().string();
}

// Without one, a tokenizer would be trained on the data, and the weights know nothing of its tokens.
void check_tokenizer(const TrainOptions& o, const std::string& folder) {
  if (is_set(o.set, "data.tokenizer") || !data::tokenizer_in(folder).empty()) return;
  const std::optional<formats::HubName> hub = formats::hub_name(o.config);
  config_error(
      "train: {} has no tokenizer (tokenizer.json, tokenizer.model): --set data.tokenizer=FILE names one{}", folder,
      hub && hub->text() != folder ? fmt::format(", `{}` completes it", formats::download_command(*hub)) : "");
}

// True if the folder holds weights, as files that Heddle reads.
bool has_weights(const std::string& folder) {
  std::error_code error;
  const fs::path path(folder);
  return fs::exists(path / "model.safetensors", error) || fs::exists(path / "model.safetensors.index.json", error);
}

/// Keys and values of the configuration, in its order.
struct Defaults {
  std::string name;
  std::vector<std::pair<std::string, std::string>> keys;  // values as TOML writes them
  std::string told;
};

std::string toml_of(const Defaults& d) {
  std::string out, section;
  for (const auto& [key, value] : d.keys) {
    const size_t point = key.find('.');
    const std::string own = point == std::string::npos ? "" : key.substr(0, point);
    if (own != section) out += fmt::format("\n[{}]\n", section = own);
    out += fmt::format("{} = {}\n", point == std::string::npos ? key : key.substr(point + 1), value);
  }
  return out;
}

// The file's text. Its first lines tell that nobody has changed the others.
std::string text_of(const std::string& path, const Defaults& d) {
  const std::string keys = toml_of(d);
  return fmt::format("{} and its data; `heddle train {}` trains it again.\n# As it was written: {:016x}.\n{}",
                     kWritten, path, fnv1a(keys), keys);
}

bool is_as_written(const std::string& text) {
  if (!text.starts_with(kWritten)) return false;
  const size_t first = text.find('\n'), second = first == std::string::npos ? first : text.find('\n', first + 1);
  return second != std::string::npos &&
         text.substr(first + 1, second - first) ==
             fmt::format("# As it was written: {:016x}.\n", fnv1a(std::string_view(text).substr(second + 1)));
}

Defaults defaults_of(const TrainOptions& o, const std::string& folder, Samples samples, int64_t positions) {
  Defaults d;
  const bool pairs = samples == Samples::pairs, answers = samples == Samples::answers;
  d.name = run_name(model_name(o.config, folder)) + (o.lora ? "-lora" : "") + (pairs ? "-dpo" : "");
  if (const std::string name = name_set(o.set); !name.empty()) d.name = name;
  const int64_t sequence = positions > 0 ? std::min(kSequence, positions) : kSequence;
  const double rate = pairs ? (o.lora ? kAdapterPairRate : kPairRate) : o.lora ? kAdapterRate : kRate;
  const double epochs = answers || pairs ? kSampleEpochs : kTextEpochs;
  const auto key = [&](const char* name, const auto& value) {
    d.keys.emplace_back(name, fmt::format("{}", value));
  };
  const auto text = [&](const char* name, const std::string& value) {
    d.keys.emplace_back(name, config::find_setting(name)->text_of(value));
  };
  text("name", d.name);
  text("data.source", o.data);
  text("data.folder", "data/" + d.name);
  if (answers || pairs) key("data.chat", true);
  if (answers || pairs) text("data.long_samples", "cut");
  text("train.start", folder);
  key("train.epochs", epochs);
  key("train.global_batch", kBatch);
  key("train.microbatch", pairs ? 2 : 1);
  key("train.sequence_length", sequence);
  key("train.learning_rate", rate);
  key("train.min_learning_rate", rate / 10);
  text("train.schedule", "cosine");
  key("train.warmup_steps", kWarmup);
  key("train.sample_tokens", 0);
  if (pairs) text("train.objective", "dpo");
  if (o.lora) {
    key("lora.rank", kRank);
    key("lora.alpha", kAlpha);
    text("lora.targets", "all");
  }
  d.told = fmt::format(
      "{}, {:g} epoch{}, sequences of {}, {} a step, learning rate {:g} by a cosine, warm-up {} steps{}",
      pairs     ? "pairs of answers"
      : answers ? "conversations, the longer ones cut"
                : "text",
      epochs, epochs == 1 ? "" : "s", sequence, kBatch, rate, kWarmup,
      o.lora ? fmt::format(", adapters of rank {} on all linear maps", kRank) : ", all weights trained");
  return d;
}

}  // namespace

std::string released_folder(const std::string& words) {
  std::error_code error;
  if (fs::is_regular_file(words, error)) return "";
  if (fs::is_directory(words, error)) return config::is_released_folder(words) ? words : "";
  const std::optional<formats::HubName> hub = formats::hub_name(words);
  if (!hub || words.ends_with(".toml")) return "";
  const std::string folder = formats::cached_folder(*hub);
  if (folder.empty())
    config_error("train: {} is neither a folder nor in the cache {}; nothing is downloaded: `{}` does it", words,
                 formats::hub_cache_folder(), formats::download_command(*hub));
  if (!fs::exists(fs::path(folder) / "config.json", error) || !has_weights(folder))
    config_error("train: {} lacks config.json or the weights (safetensors): `{}` completes it", folder,
                 formats::download_command(*hub));
  return folder;
}

std::string config_of_released(const TrainOptions& o, const std::string& folder, bool tells) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  if (o.data.empty())
    config_error("train: {} is a model; --data FILE names what it learns, such as --data talk.jsonl", o.config);
  check_tokenizer(o, folder);
  const model::ModelConfig model = config::read_huggingface_config(folder);
  const Defaults d = defaults_of(o, folder, samples_in(o.data, o.set), model.max_position_embeddings);
  const std::string path = "runs/" + d.name + ".toml";
  const std::string text = text_of(path, d);
  std::error_code error;
  const std::string there = fs::exists(path, error) ? read_file(path, kMostBytes) : "";
  // A refused try leaves such a file without a run. It is written anew.
  const bool has_run = fs::exists("runs/" + d.name + "/config.toml", error);
  if (!there.empty() && there != text && (has_run || !is_as_written(there)))
    config_error(
        "train: {} exists and differs: `heddle train {}` trains it as it is; --set name=NAME begins another run",
        path, path);
  if (there != text) {
    fs::create_directories("runs", error);
    write_file(path, text);
  }
  if (tells) {
    say(stderr, "{}: {} parameters, from {}\n", o.config,
        observe::count_text(model::total_parameters(model::shape_of(model, d.name))), folder);
    say(stderr, "by default {}, {}; --set KEY=VALUE changes any, {} holds all\n", d.told,
        name_of(train::resolved_dtype(config::RunConfig())), path);
  }
  return path;
}

}  // namespace heddle::cli
