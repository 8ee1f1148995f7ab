#include "heddle/data/samples/turns.h"

#include <algorithm>
#include <array>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/formats/python_json.h"

namespace heddle::data {

namespace {

using Json = Turns::Json;

constexpr const char* kCall = "function_call";

// Speakers in ShareGPT's words, and those of its kin.
constexpr std::array<std::pair<std::string_view, const char*>, 17> kSpeakers{{{"human", "user"},
                                                                              {"user", "user"},
                                                                              {"gpt", "assistant"},
                                                                              {"assistant", "assistant"},
                                                                              {"chatgpt", "assistant"},
                                                                              {"bing", "assistant"},
                                                                              {"bard", "assistant"},
                                                                              {"model", "assistant"},
                                                                              {"bot", "assistant"},
                                                                              {kCall, kCall},
                                                                              {"tool_call", kCall},
                                                                              {"system", "system"},
                                                                              {"developer", "developer"},
                                                                              {"observation", "tool"},
                                                                              {"function_response", "tool"},
                                                                              {"tool_response", "tool"},
                                                                              {"tool", "tool"}}};

std::string shown(const Json& json) {
  return escaped(json.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

const Json* member(const Json& message, const char* key) {
  const auto at = message.find(key);
  return at == message.end() || at->is_null() ? nullptr : &*at;
}

// A call of a function as templates know calls: {"name": …, "arguments": …}.
Json tool_call(const Json& call, const std::string& place) {
  const Json* name = call.is_object() ? member(call, "name") : nullptr;
  if (name == nullptr || !name->is_string())
    config_error("{}: a call is {}, an object with \"name\" and \"arguments\" is expected", place, shown(call));
  Json arguments = call.contains("arguments") ? call["arguments"] : Json::object();
  if (arguments.is_string()) {
    try {
      Json parsed = formats::parse_python_json(arguments.get_ref<const std::string&>());
      if (parsed.is_object()) arguments = std::move(parsed);
    } catch (const ConfigError&) {
      // as it is: a text
    }
  }
  return {{"type", "function"}, {"function", {{"name", *name}, {"arguments", std::move(arguments)}}}};
}

Json parsed_text(const Json& json, const std::string& place) {
  if (!json.is_string()) return json;
  try {
    return formats::parse_python_json(json.get_ref<const std::string&>());
  } catch (const ConfigError& error) {
    config_error("{}: a text that is no JSON: {}", place, error.what());
  }
}

// The calls of one of ShareGPT's turns, which holds one call or a list of them, as JSON text or as it is.
Json calls_of(const Json& value, const std::string& place) {
  const Json calls = parsed_text(value, place);
  Json made = Json::array();
  for (const Json& call : calls.is_array() ? calls : Json::array({calls})) made.push_back(tool_call(call, place));
  return made;
}

// LLaMA-Factory's parts hold texts, thoughts and calls by "value": made into those that others have.
void take_values(Json& message, const std::string& place) {
  const Json* content = member(message, "content");
  if (content == nullptr || !content->is_array()) return;
  Json parts = Json::array(), calls = Json::array();
  std::string thoughts;
  for (const Json& part : *content) {
    const Json *type = part.is_object() ? member(part, "type") : nullptr,
               *value = part.is_object() ? member(part, "value") : nullptr;
    if (type == nullptr || value == nullptr || !value->is_string()) {
      parts.push_back(part);
    } else if (*type == "reasoning") {
      thoughts += value->get_ref<const std::string&>();
    } else if (*type == "tool_call") {
      for (Json& call : calls_of(*value, place)) calls.push_back(std::move(call));
    } else if (*type == "text") {
      parts.push_back({{"type", "text"}, {"text", *value}});
    } else {
      parts.push_back(part);
    }
  }
  message["content"] = parts.empty() ? Json("") : std::move(parts);
  if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
}

// A content as the template takes it.
Json content_of(const Json& content, std::string_view role, bool parts, const std::string& place) {
  if ((content.is_object() || content.is_number() || content.is_boolean()) && role != "tool")
    config_error("{}: the content is {}, a text or a list of parts is expected", place, shown(content));
  if (!content.is_array()) return content;
  std::string joined;
  for (const Json& part : content) {
    if (part.is_string()) {
      joined += part.get_ref<const std::string&>();
      continue;
    }
    const Json* type = part.is_object() ? member(part, "type") : nullptr;
    if (type == nullptr && role == "tool") return content;  // a tool's result
    const Json* text = part.is_object() ? member(part, "text") : nullptr;
    if (type == nullptr || *type != "text" || text == nullptr || !text->is_string())
      config_error("{}: a part of the content is {}; parts of type \"text\" with a \"text\" are read", place,
                   type == nullptr ? shown(part) : fmt::format("of type {}", shown(*type)));
    joined += text->get_ref<const std::string&>();
  }
  if (parts) return content;
  return joined;
}

// True if the message says that it is not learnt, by one of the words for it, which are taken out.
bool take_silence(Json& message, std::string_view role, const std::string& place) {
  bool silent = false;
  for (const char* key : {"weight", "loss_weight"}) {
    const Json* weight = member(message, key);
    if (weight == nullptr) continue;
    if (!weight->is_number() || (*weight != 0 && *weight != 1))
      config_error("{}: \"{}\" is {}: of a message 0 and 1 are accepted (data.weight_key weighs whole samples)",
                   place, key, shown(*weight));
    silent = silent || *weight == 0;
  }
  for (const char* key : {"train", "training", "loss"}) {
    const Json* learns = member(message, key);
    if (learns == nullptr) continue;
    if (!learns->is_boolean() && *learns != 0 && *learns != 1)
      config_error("{}: \"{}\" is {}: true and false are accepted", place, key, shown(*learns));
    const bool wanted = learns->is_boolean() ? learns->get<bool>() : *learns == 1;
    if (wanted && role != "assistant")
      config_error("{}: \"{}\" is true of a turn of {}: only answers of the assistant are learnt", place, key,
                   escaped(role, 40));
    silent = silent || !wanted;
  }
  if (member(message, "train_detail") != nullptr)
    config_error("{}: \"train_detail\": parts of a turn cannot be chosen; \"train\" goes for all of it", place);
  for (const char* key : {"weight", "loss_weight", "train", "training", "loss"}) message.erase(key);
  return silent;
}

// One of ShareGPT's turns, or one that has both words, in the form of messages.
Json as_message(const Json& turn, const std::string& place) {
  if (turn.contains("role") && turn["role"].is_string()) {
    Json message = turn;
    const std::string role = turn["role"].get<std::string>();
    if (role == "human") message["role"] = "user";
    if (role == "gpt") message["role"] = "assistant";
    if (!message.contains("content") && message.contains("value")) {
      message["content"] = message["value"];
      message.erase("value");
    }
    return message;
  }
  const std::string from = turn["from"].get<std::string>();
  const auto* speaker =
      std::find_if(kSpeakers.begin(), kSpeakers.end(), [&](const auto& s) { return s.first == from; });
  if (speaker == kSpeakers.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, role] : kSpeakers) names.push_back(name);
    config_error("{}: \"from\" is '{}', accepted are {}", place, escaped(from, 40), fmt::join(names, ", "));
  }
  const char* key = turn.contains("value") ? "value" : "content";
  const Json value = turn.contains(key) ? turn[key] : Json();
  Json message{{"role", speaker->second}, {"content", value}};
  if (std::string_view(speaker->second) == kCall) {
    message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", calls_of(value, place)}};
  }
  for (const auto& [name, more] : turn.items()) {
    if (name != "from" && name != key) message[name] = more;
  }
  return message;
}

}  // namespace

void Turns::add(const Turns& more) {
  for (const Json& message : more.messages) messages.push_back(message);
  silent.insert(silent.end(), more.silent.begin(), more.silent.end());
}

void Turns::add(std::string_view role, Json content) {
  messages.push_back({{"role", role}, {"content", std::move(content)}});
  silent.push_back(false);
}

bool Turns::any_silent() const {
  return std::any_of(silent.begin(), silent.end(), [](bool s) { return s; });
}

bool are_turns(const Json& json) {
  const auto is_turn = [](const Json& turn) {
    return turn.is_object() && ((turn.contains("role") && turn["role"].is_string()) ||
                                (turn.contains("from") && turn["from"].is_string()));
  };
  if (json.is_object()) return is_turn(json);
  return json.is_array() && !json.empty() && std::all_of(json.begin(), json.end(), is_turn);
}

Turns read_turns(const Json& json, const std::string& key, const std::vector<std::string>& takes_parts) {
  Turns turns;
  const Json list = json.is_object() ? Json::array({json}) : json;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", escaped(key, 40), i);
    Json message = as_message(list[i], place);
    const std::string role = message["role"].get<std::string>();
    turns.silent.push_back(take_silence(message, role, place));
    take_values(message, place);
    if (message.contains("content")) {
      const bool parts = std::find(takes_parts.begin(), takes_parts.end(), role) != takes_parts.end();
      message["content"] = content_of(message["content"], role, parts, place);
    }
    if (const Json* call = member(message, kCall)) {
      message["tool_calls"] = Json::array({tool_call(*call, place)});
      message.erase(kCall);
    }
    turns.messages.push_back(std::move(message));
  }
  return turns;
}

Json read_tools(const Json& json, const std::string& key, bool functions) {
  const std::string place = fmt::format("\"{}\"", escaped(key, 40));
  if (json.is_string() && json.get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos)
    return nullptr;
  Json tools = parsed_text(json, place);
  if (tools.is_object()) tools = Json::array({std::move(tools)});
  if (tools.is_null() || (tools.is_array() && tools.empty())) return nullptr;
  if (!tools.is_array()) config_error("{}: {}, a list of tools is expected", place, shown(tools));
  for (Json& tool : tools) {
    if (tool.is_string()) tool = parsed_text(tool, place);
    if (!tool.is_object()) config_error("{}: a tool is {}, an object is expected", place, shown(tool));
    if (functions) tool = {{"type", "function"}, {"function", Json(tool)}};
  }
  return tools;
}

}  // namespace heddle::data
