#include "heddle/data/chat/chat_template.h"

#include <algorithm>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/data/chat/machine.h"
#include "heddle/formats/json_text.h"

namespace heddle::data {

namespace {

namespace fs = std::filesystem;
using Json = ChatTemplate::Json;

constexpr int64_t kMostFileBytes = 16 << 20;
constexpr const char *kKept = "chat_template.json", *kJinja = "chat_template.jinja",
                     *kConfig = "tokenizer_config.json", *kKey = "chat_template";
constexpr const char* kTokens[] = {"bos_token", "eos_token", "pad_token", "unk_token"};

jinja::Value value_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null: return jinja::None();
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer: return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return json.get<double>();
      return json.get<int64_t>();
    case Json::value_t::number_float: return json.get<double>();
    case Json::value_t::string: return json.get<std::string>();
    case Json::value_t::array: {
      jinja::Values items;
      for (const Json& item : json) items.push_back(value_of(item));
      return jinja::Value::list(std::move(items));
    }
    case Json::value_t::object: {
      jinja::Entries entries;
      for (const auto& [key, item] : json.items()) entries.emplace_back(key, value_of(item));
      return jinja::Value::map(std::move(entries));
    }
    default: return jinja::None();
  }
}

// Bytes that both begin with, up to a letter's end.
size_t common(std::string_view a, std::string_view b) {
  auto at = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (at > 0 && at < a.size() && (a[at] & 0xc0) == 0x80) --at;
  return at;
}

Json part(const Json& messages, size_t count) {
  Json some = Json::array();
  for (size_t i = 0; i < count; ++i) some.push_back(messages[i]);
  return some;
}

bool is_answer(const Json& message) { return message.is_object() && message.value("role", "") == "assistant"; }

bool marks(const jinja::Body& body) {
  return std::any_of(body.begin(), body.end(), [](const auto& s) {
    return s->kind == jinja::Statement::Kind::generation || marks(s->body) || marks(s->otherwise) ||
           std::any_of(s->branches.begin(), s->branches.end(), [](const auto& b) { return marks(b.second); });
  });
}

// A token is a text, or an object with its "content".
std::string token_text(const nlohmann::json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("content") && json["content"].is_string())
    return json["content"].get<std::string>();
  return "";
}

void take_tokens(const nlohmann::json& config, ChatTemplate::Files& files) {
  for (const char* name : kTokens) {
    if (!config.contains(name)) continue;
    if (std::string text = token_text(config[name]); !text.empty())
      files.tokens.emplace_back(name, std::move(text));
  }
}

nlohmann::json config_at(const std::string& path) {
  nlohmann::json json = formats::parse_json(read_file(path, kMostFileBytes), path, 64);
  if (!json.is_object()) config_error("{}: no JSON object", path);
  return json;
}

// The template of a configuration: its own, or of several the one named default. "" if there is none.
std::string template_in(const nlohmann::json& config) {
  if (!config.contains(kKey)) return "";
  const nlohmann::json& found = config[kKey];
  if (found.is_string()) return found.get<std::string>();
  for (const nlohmann::json& each : found) {
    if (each.is_object() && each.value("name", nlohmann::json()) == "default" && each.contains("template") &&
        each["template"].is_string())
      return each["template"].get<std::string>();
  }
  return "";
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

ChatTemplate::ChatTemplate(Files files, std::string place)
    : files_(std::move(files)),
      place_(std::move(place)),
      body_(jinja::parse(files_.text, place_)),
      marks_answers_(marks(body_)) {}

SpannedText ChatTemplate::run(const Json& messages, bool generation_prompt, const Json& tools) const {
  std::vector<std::pair<std::string, jinja::Value>> globals;
  globals.emplace_back("messages", value_of(messages));
  globals.emplace_back("tools", value_of(tools));
  globals.emplace_back("documents", jinja::None());
  globals.emplace_back("add_generation_prompt", generation_prompt);
  for (const auto& [name, text] : files_.tokens) globals.emplace_back(name, text);
  jinja::Machine::Rendered made = jinja::Machine(body_, place_, std::move(globals)).run();
  return {std::move(made.text), std::move(made.generated), 0};
}

std::string ChatTemplate::render(const Json& messages, bool generation_prompt, const Json& tools) const {
  return run(messages, generation_prompt, tools).text;
}

SpannedText ChatTemplate::conversation(const Json& messages, size_t first, const Json& tools) const {
  SpannedText whole = run(messages, false, tools);
  if (marks_answers_) {
    size_t before = 0;
    for (size_t i = 0; i < first; ++i) before += is_answer(messages[i]);
    whole.targets.erase(whole.targets.begin(),
                        whole.targets.begin() + static_cast<ptrdiff_t>(std::min(before, whole.targets.size())));
    return whole;
  }
  whole.targets.clear();
  for (size_t i = first; i < messages.size(); ++i) {
    if (!is_answer(messages[i])) continue;
    const Json before = part(messages, i);
    // Some templates refuse a conversation that ends there; what they make of it is then not known.
    std::string prompt, said, with;
    try {
      prompt = run(before, true, tools).text;
      said = run(before, false, tools).text;
      with = i + 1 == messages.size() ? whole.text : run(part(messages, i + 1), false, tools).text;
    } catch (const ConfigError&) {
      ++whole.left_out;
      continue;
    }
    const size_t begin = common(prompt, with);
    if (!whole.text.starts_with(with) || !with.starts_with(said) || begin < said.size() || begin == with.size()) {
      ++whole.left_out;
    } else {
      whole.targets.emplace_back(begin, with.size());
    }
  }
  return whole;
}

std::string ChatTemplate::between_turns() const {
  const std::string answer = "Qanswer0", question = "Qquestion1";  // that no template has
  const auto said = [](const char* role, const std::string& what) {
    return Json{{"role", role}, {"content", what}};
  };
  const std::string text = render({said("user", "Q"), said("assistant", answer), said("user", question)}, false);
  const size_t begin = text.find(answer), end = text.find(question);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return text.substr(begin + answer.size(), end - begin - answer.size());
}

uint64_t ChatTemplate::hash() const {
  uint64_t hash = hash_bytes(files_.text);
  for (const auto& [name, text] : files_.tokens) hash = hash_bytes(text, hash_bytes(name, hash));
  return hash;
}

ChatTemplate load_chat_template(const std::string& path) {
  ChatTemplate::Files files;
  if (path.ends_with(".json")) {
    const nlohmann::json config = config_at(path);
    files.text = template_in(config);
    if (files.text.empty()) config_error("{}: no text under the key \"{}\"", path, kKey);
    take_tokens(config, files);
    return {std::move(files), path};
  }
  files.text = read_file(path, kMostFileBytes);
  const fs::path config = fs::path(path).parent_path() / kConfig;
  if (is_file(config)) take_tokens(config_at(config.string()), files);
  return {std::move(files), path};
}

std::string chat_template_beside(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  for (const char* name : {kKept, kJinja}) {
    if (is_file(folder / name)) return (folder / name).string();
  }
  const fs::path config = folder / kConfig;
  if (!is_file(config)) return "";
  return template_in(config_at(config.string())).empty() ? "" : config.string();
}

void keep_chat_template(const ChatTemplate& chat, const std::string& folder) {
  Json json{{kKey, chat.files().text}};
  for (const auto& [name, text] : chat.files().tokens) json[name] = text;
  write_file((fs::path(folder) / kKept).string(), json.dump(1) + "\n");
}

}  // namespace heddle::data
