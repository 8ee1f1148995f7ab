#include "heddle/data/chat/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/formats/json_text.h"
#include "heddle/formats/python_json.h"
#include "jinja/day.h"

namespace heddle::data {

namespace {

namespace fs = std::filesystem;
using Json = ChatTemplate::Json;

constexpr int64_t kMostTemplateBytes = 16 << 20;
constexpr const char* kBlanksAndCommas = " \t\r\n,";
constexpr const char *kKept = "chat_template.json", *kJinja = "chat_template.jinja",
                     *kConfig = "tokenizer_config.json", *kTokensMap = "special_tokens_map.json",
                     *kNamedTokens = "extra_special_tokens", *kMoreTemplates = "additional_chat_templates",
                     *kTemplateKey = "chat_template", *kDefault = "default", *kForTools = "tool_use",
                     *kArguments = "chat_arguments", *kDay = "chat_date";
constexpr std::string_view kTokenKey = "_token";

jinja::Value value_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null: return jinja::None();
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer: return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return json.get<uint64_t>();
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

// Messages as Transformers gives them to templates: without what is null, and with thoughts under each of their
// names.
jinja::Value messages_of(const Json& messages) {
  if (!messages.is_array()) return value_of(messages);
  jinja::Values all;
  for (const Json& message : messages) {
    if (!message.is_object()) {
      all.push_back(value_of(message));
      continue;
    }
    Json plain = Json::object();
    const Json* thoughts = nullptr;
    for (const char* name : kThoughts) {
      const auto at = message.find(name);
      if (thoughts == nullptr && at != message.end() && !at->is_null()) thoughts = &*at;
    }
    if (thoughts != nullptr) plain["thinking"] = *thoughts;
    for (const auto& [key, value] : message.items()) {
      if (!value.is_null()) plain[key] = value;
    }
    if (thoughts != nullptr) plain[kThoughts[0]] = *thoughts;
    all.push_back(value_of(plain));
  }
  return jinja::Value::list(std::move(all));
}

bool has_marks(const jinja::Body& body) {
  return std::any_of(body.begin(), body.end(), [](const auto& s) {
    return s->kind == jinja::Statement::Kind::generation || has_marks(s->body) || has_marks(s->otherwise) ||
           std::any_of(s->branches.begin(), s->branches.end(), [](const auto& b) { return has_marks(b.second); });
  });
}

// A token is a text, or an object with its "content".
std::string token_text(const nlohmann::json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("content") && json["content"].is_string())
    return json["content"].get<std::string>();
  return "";
}

// All tokens that have a name; the later of two with one name counts.
void take_tokens(const nlohmann::json& config, ChatTemplate::Files& files) {
  const auto take = [&](const std::string& name, const nlohmann::json& token) {
    if (std::string text = token_text(token); !text.empty()) files.tokens.emplace_back(name, std::move(text));
  };
  for (const auto& [name, token] : config.items()) {
    if (name.ends_with(kTokenKey)) take(name, token);
  }
  if (!config.contains(kNamedTokens) || !config[kNamedTokens].is_object()) return;
  for (const auto& [name, token] : config[kNamedTokens].items()) take(name, token);
}

// Takes the arguments and the day that are kept beside a template.
void take_told(const nlohmann::json& config, const std::string& path, ChatTemplate::Files& files) {
  if (config.contains(kArguments)) {
    if (!config[kArguments].is_object()) config_error("{}: \"{}\" is no JSON object", path, kArguments);
    files.arguments = Json::parse(config[kArguments].dump());
  }
  if (!config.contains(kDay)) return;
  if (!config[kDay].is_string()) config_error("{}: \"{}\" is no text", path, kDay);
  files.day = config[kDay].get<std::string>();
}

nlohmann::json config_at(const std::string& path) {
  nlohmann::json json = formats::parse_json(read_file(path, kMostTemplateBytes), path, 64);
  if (!json.is_object()) config_error("{}: no JSON object", path);
  return json;
}

// The template of a configuration: its own, or of several the one with this name. "" if there is none.
std::string template_in(const nlohmann::json& config, std::string_view name = kDefault) {
  if (!config.contains(kTemplateKey)) return "";
  const nlohmann::json& found = config[kTemplateKey];
  if (found.is_string()) return name == kDefault ? found.get<std::string>() : "";
  for (const nlohmann::json& each : found) {
    if (each.is_object() && each.value("name", nlohmann::json()) == name && each.contains("template") &&
        each["template"].is_string())
      return each["template"].get<std::string>();
  }
  return "";
}

// true, false, null and numbers are such, also as Python writes them; quotes around a text are none of it.
Json told_value(const std::string& word) {
  if (word == "True") return true;
  if (word == "False") return false;
  if (word == "None") return nullptr;
  Json value = Json::parse(word, nullptr, false);
  if (value.is_discarded() || value.is_structured()) return word;
  return value;
}

bool is_regular(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Older folders keep the tokens in a file of their own.
void take_tokens_map(const nlohmann::json& config, const fs::path& folder, ChatTemplate::Files& files) {
  const fs::path map = folder / kTokensMap;
  if (!config.contains("added_tokens_decoder") && is_regular(map)) take_tokens(config_at(map.string()), files);
}

}  // namespace

struct ChatTemplate::Lazy {
  std::once_flag once;
  TurnMarks marks;
};

ChatTemplate::ChatTemplate(Files files, std::string place)
    : files_(std::move(files)),
      place_(std::move(place)),
      body_(jinja::parse(files_.text, place_)),
      marks_answers_(has_marks(body_)),
      lazy_(std::make_shared<Lazy>()) {
  if (!files_.day.empty()) jinja::parse_day(files_.day, place_ + ": the day");
  if (files_.for_tools.empty()) return;
  Files tools = files_;
  tools.text = std::exchange(tools.for_tools, "");
  for_tools_ = std::make_shared<const ChatTemplate>(std::move(tools), fmt::format("{} ({})", place_, kForTools));
}

ChatTemplate::Rendered ChatTemplate::run(const Json& messages, bool generation_prompt, const Json& tools,
                                         const Json& more) const {
  const jinja::Value list = messages_of(messages);
  // The later of two with one name counts.
  std::vector<std::pair<std::string, jinja::Value>> globals;
  globals.emplace_back("documents", jinja::None());
  for (const auto& [name, text] : files_.tokens) globals.emplace_back(name, text);
  for (const Json* told : {&files_.arguments, &more}) {
    if (!told->is_object()) continue;
    for (const auto& [name, value] : told->items()) globals.emplace_back(name, value_of(value));
  }
  globals.emplace_back("messages", list);
  globals.emplace_back("tools", value_of(tools));
  globals.emplace_back("add_generation_prompt", generation_prompt);
  const std::string day = files_.day.empty() ? jinja::kChatDate : files_.day;
  jinja::Machine machine(body_, place_, std::move(globals));
  machine.set_day(day, !files_.day.empty());
  if (list.is_list()) machine.watch(list);
  return machine.run();
}

std::string ChatTemplate::render(const Json& messages, bool generation_prompt, const Json& tools) const {
  return of(tools).run(messages, generation_prompt, tools).text;
}

const ChatTemplate& ChatTemplate::of(const Json& tools) const {
  return for_tools_ == nullptr || tools.is_null() ? *this : *for_tools_;
}

const TurnMarks& ChatTemplate::marks() const {
  std::call_once(lazy_->once, [&] { lazy_->marks = find_marks(); });
  return lazy_->marks;
}

std::string ChatTemplate::day() const {
  const std::string name(jinja::kDay);
  const std::string text = files_.text + files_.for_tools;
  if (text.find(name) == std::string::npos) return "";
  if (!files_.day.empty()) return files_.day;
  return text.find(name + " is defined") == std::string::npos ? jinja::kChatDate : "";
}

uint64_t ChatTemplate::hash() const {
  uint64_t hash = hash_bytes(files_.text);
  if (!files_.for_tools.empty()) hash = hash_bytes(files_.for_tools, hash);
  // In whichever order they were written.
  std::map<std::string_view, std::string_view> tokens;
  for (const auto& [name, text] : files_.tokens) tokens[name] = text;
  for (const auto& [name, text] : tokens) hash = hash_bytes(text, hash_bytes(name, hash));
  if (!files_.arguments.empty()) hash = hash_bytes(nlohmann::json::parse(files_.arguments.dump()).dump(), hash);
  if (!files_.day.empty()) hash = hash_bytes(files_.day, hash);
  return hash;
}

ChatTemplate load_chat_template(const std::string& path) {
  ChatTemplate::Files files;
  const fs::path folder = fs::path(path).parent_path();
  const bool kept = fs::path(path).filename() == kKept;
  if (path.ends_with(".json")) {
    const nlohmann::json config = config_at(path);
    files.text = template_in(config);
    if (files.text.empty()) config_error("{}: no text under the key \"{}\"", path, kTemplateKey);
    files.for_tools = template_in(config, kForTools);
    take_tokens(config, files);
    if (kept) take_told(config, path, files);
    if (!kept) take_tokens_map(config, folder, files);
  } else {
    files.text = read_file(path, kMostTemplateBytes);
    const fs::path for_tools = folder / kMoreTemplates / fmt::format("{}.jinja", kForTools);
    if (fs::path(path).filename() == kJinja && is_regular(for_tools))
      files.for_tools = read_file(for_tools.string(), kMostTemplateBytes);
  }
  // Models of pictures have a chat_template.json too, with the template alone.
  if (const fs::path beside = folder / kConfig; files.tokens.empty() && is_regular(beside)) {
    const nlohmann::json config = config_at(beside.string());
    take_tokens(config, files);
    take_tokens_map(config, folder, files);
  }
  return {std::move(files), path};
}

std::string chat_template_beside(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  for (const char* name : {kKept, kJinja}) {
    if (is_regular(folder / name)) return (folder / name).string();
  }
  const fs::path config = folder / kConfig;
  if (!is_regular(config)) return "";
  return template_in(config_at(config.string())).empty() ? "" : config.string();
}

ChatTemplate::Json parse_chat_arguments(const std::string& text, const std::string& place) {
  Json told = Json::object();
  const size_t first = text.find_first_not_of(kBlanksAndCommas);
  if (first == std::string::npos) return told;
  if (text[first] == '{') {
    try {
      told = formats::parse_python_json(text);
    } catch (const ConfigError& error) {
      config_error("{}: not JSON: {}", place, error.what());
    }
  } else {
    for (size_t at = first; at != std::string::npos; at = text.find_first_not_of(kBlanksAndCommas, at)) {
      const size_t end = std::min(text.find_first_of(kBlanksAndCommas, at), text.size());
      const std::string word = text.substr(at, end - at);
      const size_t sign = word.find('=');
      if (sign == 0 || sign == std::string::npos)
        config_error("{}: '{}': NAME=VALUE is expected, or all as a JSON object", place, escaped(word, 60));
      told[word.substr(0, sign)] = told_value(word.substr(sign + 1));
      at = end;
    }
  }
  for (const auto& [name, value] : told.items()) {
    if (name == "messages" || name == "tools" || name == "add_generation_prompt")
      config_error("{}: '{}' comes from the samples and cannot be set", place, name);
  }
  return told;
}

ChatTemplate with_told(ChatTemplate chat, const std::string& arguments, const std::string& day) {
  if (arguments.empty() && day.empty()) return chat;
  ChatTemplate::Files files = chat.files();
  if (!arguments.empty()) files.arguments = parse_chat_arguments(arguments, "data.chat_arguments");
  if (!day.empty()) {
    jinja::parse_day(day, "data.chat_date");
    files.day = day;
  }
  return {std::move(files), chat.place()};
}

Json templates_json(const ChatTemplate::Files& files) {
  if (files.for_tools.empty()) return files.text;
  return Json::array(
      {{{"name", kDefault}, {"template", files.text}}, {{"name", kForTools}, {"template", files.for_tools}}});
}

void keep_chat_template(const ChatTemplate& chat, const std::string& folder) {
  const ChatTemplate::Files& files = chat.files();
  Json json{{kTemplateKey, templates_json(files)}};
  for (const auto& [name, text] : files.tokens)
    (name.ends_with(kTokenKey) ? json : json[kNamedTokens])[name] = text;
  if (!files.arguments.empty()) json[kArguments] = files.arguments;
  if (!files.day.empty()) json[kDay] = files.day;
  write_file((fs::path(folder) / kKept).string(), json.dump(1) + "\n");
}

}  // namespace heddle::data
