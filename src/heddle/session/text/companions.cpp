#include "heddle/session/text/companions.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/chat/chat_template.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/formats/json_text.h"
#include "heddle/session/text/end_of_answer.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMostCompanionBytes = 16 << 20;
constexpr int kMostDepth = 64;
constexpr const char *kSettings = "tokenizer_config.json", *kJinja = "chat_template.jinja",
                     *kKept = "chat_template.json", *kGeneration = "generation_config.json",
                     *kModel = "config.json", *kTemplate = "chat_template", *kMap = "special_tokens_map.json",
                     *kEnd = "eos_token_id";
constexpr const char* kOfTokenizer[] = {kSettings, kMap, kJinja, kKept};
constexpr const char* kSpecial[] = {"bos_token_id", kEnd, "pad_token_id"};

bool holds(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::is_regular_file(folder / name, error);
}

std::string text_in(const fs::path& folder, const char* name) {
  return read_file((folder / name).string(), kMostCompanionBytes);
}

json json_in(const fs::path& folder, const char* name) {
  json found = formats::parse_json(text_in(folder, name), (folder / name).string(), kMostDepth);
  if (!found.is_object()) config_error("{}: no JSON object", (folder / name).string());
  return found;
}

std::string text_of(const json& settings) { return settings.dump(2) + "\n"; }

// A broken file is refused here, not when the trained weights leave with it.
void keep(const fs::path& from, const fs::path& run, const char* name) {
  if (!holds(from, name) || holds(run, name)) return;
  if (std::string_view(name).ends_with(".json")) json_in(from, name);
  write_file((run / name).string(), text_in(from, name));
}

void keep_generation(const fs::path& from, const fs::path& run) {
  keep(from, run, kGeneration);
  if (holds(run, kGeneration) || !holds(from, kModel)) return;
  json said = json::object();
  const json model = json_in(from, kModel);
  for (const char* name : kSpecial) {
    if (model.contains(name) && !model[name].is_null()) said[name] = model[name];
  }
  if (!said.empty()) write_file((run / kGeneration).string(), text_of(said));
}

void keep_of_tokenizer(const fs::path& from, const fs::path& run) {
  for (const char* name : kOfTokenizer) keep(from, run, name);
}

// The folder of a model's companions: its own, or that of the run whose checkpoint it is.
fs::path folder_of(const std::string& model) {
  fs::path folder = fs::absolute(model);
  if (!fs::is_directory(folder) || !folder.has_filename()) folder = folder.parent_path();
  return holds(folder, "state.json") ? folder.parent_path().parent_path() : folder;
}

bool has_tokenizer(const fs::path& folder, const std::string& tokenizer) {
  const std::string beside = data::tokenizer_in(folder.string());
  return !beside.empty() &&
         read_file(beside, data::kMostTokenizerBytes) == read_file(tokenizer, data::kMostTokenizerBytes);
}

/// A file's name with its text.
using File = std::pair<std::string, std::string>;

// The settings of a tokenizer that came without.
json settings_of(const data::Tokenizer& tokenizer, const data::ChatTemplate* chat, int64_t most_tokens) {
  json settings{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"model_max_length", most_tokens}};
  for (const data::AddedToken& added : tokenizer.spec().added) {
    if (added.id == tokenizer.end_of_text()) settings["eos_token"] = added.content;
  }
  if (chat != nullptr) {
    for (const auto& [name, text] : chat->files().tokens) settings[name] = text;
  }
  return settings;
}

void add_of_tokenizer(const fs::path& run, const data::Tokenizer* tokenizer, const data::ChatTemplate* chat,
                      int64_t most_tokens, std::vector<File>& files) {
  // One template is a file of its own; two stand in the settings.
  const bool two = chat != nullptr && !chat->files().for_tools.empty();
  if (holds(run, kSettings)) {
    json settings = chat != nullptr ? json_in(run, kSettings) : json::object();
    const bool other = settings.erase(kTemplate) > 0;  // the run's own takes its place
    if (two) settings[kTemplate] = data::templates_json(chat->files());
    files.emplace_back(kSettings, other || two ? text_of(settings) : text_in(run, kSettings));
  } else if (tokenizer != nullptr) {
    json settings = settings_of(*tokenizer, chat, most_tokens);
    if (two) settings[kTemplate] = data::templates_json(chat->files());
    files.emplace_back(kSettings, text_of(settings));
  }
  if (holds(run, kMap)) files.emplace_back(kMap, text_in(run, kMap));
  if (chat != nullptr) {
    if (!two) files.emplace_back(kJinja, chat->files().text);
  } else if (holds(run, kJinja)) {
    files.emplace_back(kJinja, text_in(run, kJinja));
  }
}

// The special tokens that end an answer of the template.
std::vector<data::TokenId> ends_of_turns(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer) {
  std::vector<data::TokenId> ids;
  for (const std::string& end : ends_of_answers(chat, tokenizer)) {
    for (const data::AddedToken& added : tokenizer.spec().added) {
      if (added.content == end) ids.push_back(added.id);
    }
  }
  return ids;
}

// One id, or a list of several.
std::vector<int64_t> ids_of(const json& settings, const char* name) {
  std::vector<int64_t> ids;
  if (!settings.contains(name)) return ids;
  const json& said = settings[name];
  for (const json& id : said.is_array() ? said : json::array({said})) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

void add_generation(const fs::path& run, const data::Tokenizer* tokenizer, const data::ChatTemplate* chat,
                    train::Release& release) {
  const bool own = holds(run, kGeneration);
  const int64_t end = tokenizer != nullptr ? tokenizer->end_of_text() : -1;
  json settings = own ? json_in(run, kGeneration) : json{{"do_sample", true}, {"temperature", 0.8}};
  std::vector<int64_t> ends = ids_of(settings, kEnd);
  const bool said = !ends.empty();
  if (!said && end >= 0) ends.push_back(end);
  if (!own && !ends.empty()) settings[kEnd] = ends[0];
  bool changed = !own;
  if (chat != nullptr && tokenizer != nullptr) {
    for (const data::TokenId turn : ends_of_turns(*chat, *tokenizer)) {
      if (std::find(ends.begin(), ends.end(), turn) != ends.end()) continue;
      ends.push_back(turn);
      settings[kEnd] = ends;
      changed = true;
    }
  }
  if (own || tokenizer != nullptr)
    release.files.emplace_back(kGeneration, changed ? text_of(settings) : text_in(run, kGeneration));
  for (const char* name : kSpecial) {
    std::vector<int64_t> ids = name == kEnd ? ends : ids_of(settings, name);
    if (!ids.empty()) release.special.emplace_back(name, std::move(ids));
  }
}

}  // namespace

void keep_companions(const std::string& from, const std::string& run) {
  keep_of_tokenizer(from, run);
  keep_generation(from, run);
}

void keep_companions(const std::string& start, const std::string& tokenizer, const std::string& run) {
  const fs::path weights = start.empty() ? fs::path() : folder_of(start);
  if (!tokenizer.empty()) {
    const fs::path beside = folder_of(tokenizer);
    if (holds(beside, kSettings) || holds(beside, kJinja)) {
      keep_of_tokenizer(beside, run);
    } else if (!weights.empty() && has_tokenizer(weights, tokenizer)) {
      keep_of_tokenizer(weights, run);
    }
  }
  if (!weights.empty() && !tokenizer.empty() && has_tokenizer(weights, tokenizer)) keep_generation(weights, run);
}

void add_companions(const std::string& run, int64_t most_tokens, train::Release& release) {
  release.tokenizer = data::tokenizer_in(run);
  std::optional<data::Tokenizer> tokenizer;
  if (!release.tokenizer.empty()) tokenizer.emplace(data::read_tokenizer(release.tokenizer), release.tokenizer);
  std::optional<data::ChatTemplate> chat;
  if (holds(run, kKept)) chat = data::load_chat_template((fs::path(run) / kKept).string());
  const data::Tokenizer* with = tokenizer ? &*tokenizer : nullptr;
  const data::ChatTemplate* talks = chat ? &*chat : nullptr;
  add_of_tokenizer(run, with, talks, most_tokens, release.files);
  add_generation(run, with, talks, release);
}

}  // namespace heddle::session
