#include "heddle/session/eval/task.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/utf8.h"
#include "heddle/formats/json_text.h"
#include "heddle/formats/python_json.h"

namespace heddle::session {

namespace {

using TaskJson = nlohmann::ordered_json;  // arguments stand in the order of the choices

constexpr int64_t kMostTaskBytes = int64_t{1} << 30;
constexpr int kMostNesting = 32;
constexpr size_t kMostChoices = 256;

/// The first of these keys that is there; null: none.
const TaskJson* find(const TaskJson& json, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto at = json.find(name);
    if (at != json.end()) return &*at;
  }
  return nullptr;
}

const std::string& string_in(const TaskJson& json, const std::string& place, const char* what) {
  if (!json.is_string()) config_error("{}: {} is {}, a string is expected", place, what, formats::shown(json));
  return json.get_ref<const std::string&>();
}

std::vector<TaskItem::Choice> of_arguments(const TaskJson& arguments, const std::string& place) {
  std::vector<TaskItem::Choice> choices;
  for (const TaskJson& each : arguments) {  // an object's values
    const TaskJson* context = each.is_array() && each.size() == 2 ? &each[0] : find(each, {"arg_0"});
    const TaskJson* continuation = each.is_array() && each.size() == 2 ? &each[1] : find(each, {"arg_1"});
    if (context == nullptr || continuation == nullptr)
      config_error("{}: an argument is {}, a context and a continuation are expected", place, formats::shown(each));
    const std::string& text = string_in(*continuation, place, "a continuation");
    choices.push_back({string_in(*context, place, "a context"), text, characters_of(text)});
  }
  return choices;
}

std::vector<TaskItem::Choice> of_choices(const TaskJson& context, const TaskJson& list, const std::string& place) {
  const std::string& before = string_in(context, place, "the context");
  const TaskJson* texts = list.is_object() ? find(list, {"text"}) : &list;
  if (texts == nullptr || !texts->is_array())
    config_error("{}: the choices are {}, a list is expected", place, formats::shown(list));
  std::vector<TaskItem::Choice> choices;
  for (const TaskJson& each : *texts) {
    const std::string& text = string_in(each, place, "a choice");
    const bool own = text.starts_with(' ');  // a blank of the choice's own counts
    choices.push_back({before, own ? text : " " + text, characters_of(text) + own});
  }
  return choices;
}

// Finds the right choice by its number, its letter or label, or its text.
std::optional<size_t> right_one(const TaskJson& gold, const std::vector<TaskItem::Choice>& choices,
                                const TaskJson* labels) {
  if (gold.is_number_integer()) return gold.get<int64_t>() < 0 ? choices.size() : gold.get<size_t>();
  if (!gold.is_string()) return std::nullopt;
  const std::string& word = gold.get_ref<const std::string&>();
  if (labels != nullptr && labels->is_array()) {
    for (size_t i = 0; i < labels->size(); ++i)
      if ((*labels)[i] == gold) return i;
  }
  for (size_t i = 0; i < choices.size(); ++i)
    if (choices[i].continuation == word || choices[i].continuation == " " + word) return i;
  if (word.size() == 1 && word[0] >= 'A' && word[0] <= 'Z') return static_cast<size_t>(word[0] - 'A');
  if (!word.empty() && word.size() <= 3 && word.find_first_not_of("0123456789") == std::string::npos)
    return static_cast<size_t>(std::stoi(word));
  return std::nullopt;
}

TaskJson parsed(std::string_view line, const std::string& place) {
  try {
    return formats::parse_python_json(line, {.most_depth = kMostNesting});
  } catch (const ConfigError& error) {
    config_error("{}: not JSON: {}", place, error.what());
  }
}

TaskItem item_of(const TaskJson& json, const std::string& place) {
  if (!json.is_object()) config_error("{}: {}, an object is expected", place, formats::shown(json));
  TaskItem item;
  const TaskJson* list = find(json, {"choices", "endings", "options"});
  if (const TaskJson* arguments = find(json, {"arguments"}); arguments != nullptr && arguments->is_structured()) {
    item.choices = of_arguments(*arguments, place);
  } else {
    const TaskJson* context = find(json, {"query", "question", "context", "ctx", "prompt"});
    if (context == nullptr) config_error("{}: no context (query, question, context, ctx or prompt)", place);
    if (list == nullptr) config_error("{}: no choices (choices, endings or options)", place);
    item.choices = of_choices(*context, *list, place);
  }
  if (item.choices.size() < 2 || item.choices.size() > kMostChoices)
    config_error("{}: {} choices, 2 to {} are accepted", place, item.choices.size(), kMostChoices);
  for (const TaskItem::Choice& choice : item.choices) {
    if (choice.continuation.empty()) config_error("{}: an empty choice", place);
    if (!is_valid_utf8(choice.context) || !is_valid_utf8(choice.continuation))
      config_error("{}: a text that is no UTF-8", place);
  }
  const TaskJson* gold = find(json, {"gold", "target", "label", "answer", "answerKey"});
  if (gold == nullptr) config_error("{}: no right choice (gold, target, label, answer or answerKey)", place);
  const TaskJson* labels = list != nullptr && list->is_object() ? find(*list, {"label"}) : nullptr;
  const std::optional<size_t> right = right_one(*gold, item.choices, labels);
  if (!right || *right >= item.choices.size())
    config_error("{}: the right choice is {}, of {} choices", place, formats::shown(*gold), item.choices.size());
  item.gold = *right;
  return item;
}

}  // namespace

size_t characters_of(std::string_view continuation) {
  if (continuation.starts_with(' ')) continuation.remove_prefix(1);
  return static_cast<size_t>(
      std::count_if(continuation.begin(), continuation.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

Task parse_task(std::string_view text, const std::string& place, int64_t most) {
  Task task{.name = std::filesystem::path(place).stem().string(), .items = {}};
  int64_t number = 0;
  while (!text.empty() && (most == 0 || std::ssize(task.items) < most)) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string at = fmt::format("{}:{}", place, number);
    task.items.push_back(item_of(parsed(line, at), at));
  }
  if (task.items.empty()) config_error("{}: no line holds an item", place);
  return task;
}

Task read_task(const std::string& path, int64_t most) {
  return parse_task(read_file(path, kMostTaskBytes), path, most);
}

}  // namespace heddle::session
