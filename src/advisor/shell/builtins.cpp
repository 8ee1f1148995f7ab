#include "advisor/shell/builtins.h"

#include <algorithm>
#include <array>

#include "advisor/shell/conditions.h"
#include "advisor/shell/expansion.h"
#include "advisor/shell/output.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor::shell {

namespace {

Truth set_arguments(State& state, const Values& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes == words.end()) return Truth::yes;
  state.arguments.assign(dashes + 1, words.end());
  state.arguments_known = true;
  return Truth::yes;
}

Truth shift(State& state, const Values& words, int line) {
  int64_t by = 1;
  if (words.size() > 1) by = number_of(state, words[1], line).value.value_or(0);
  if (by < 0 || by > static_cast<int64_t>(state.arguments.size())) return Truth::no;
  state.arguments.erase(state.arguments.begin(), state.arguments.begin() + by);
  return Truth::yes;
}

// NAME, or NAME[index] of a list.
void unset(State& state, const std::string& word, int line) {
  if (state.is_given(word)) return;
  state.variables.erase(word);
  const size_t bracket = word.find('[');
  if (bracket == std::string::npos || !word.ends_with(']')) return;
  const auto list = state.variables.find(word.substr(0, bracket));
  const Number at = number_of(state, word.substr(bracket + 1, word.size() - bracket - 2), line);
  if (list == state.variables.end() || !at.value) return;
  Values& values = list->second;
  const int64_t size = std::ssize(values), i = *at.value < 0 ? *at.value + size : *at.value;
  if (i >= 0 && i < size) values.erase(values.begin() + i);
}

// read and mapfile from a here-document or a here-string; what they get from elsewhere is not known.
Truth read_names(State& state, const Node& n, const Values& words) {
  const bool lines = words.front() != "read";
  std::string list;
  Values names;
  bool whole = false;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("-")) {
      names.push_back(word);
    } else if (i + 1 < words.size() && std::string_view("adnptu").find(word.back()) != std::string_view::npos &&
               !(lines && word == "-t")) {
      ++i;
      if (word.back() == 'a') list = words[i];
      whole |= word.back() == 'd';
    }
  }
  if (lines && !names.empty()) list = names.back();
  if (!list.empty()) names = {list};
  std::erase_if(names, [](const std::string& name) { return !is_known(name) || !starts_name(name.c_str()[0]); });
  std::string text = n.heredocs.empty()
                         ? state.unknown(fmt::format("line {}: what `{}` gets", n.line, words.front()))
                         : document_of(state, n.heredocs.back());
  if (!is_known(text) && !whole) {  // how it would be cut is not known
    for (const std::string& name : names) state.assign(name, {first_mark(text)});
    return Truth::unknown;
  }
  if (lines) {
    Values values;
    for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
      end = std::min(text.find('\n', at), text.size());
      values.push_back(text.substr(at, end - at));
    }
    state.assign(list, std::move(values));
    return Truth::yes;
  }
  std::string separators = state.separators();
  for (const Assignment& a : n.assignments)
    if (a.name == "IFS") separators = text_of(state, a.value);
  if (!whole) text = text.substr(0, text.find('\n'));
  Values fields = fields_of(text, separators, list.empty() ? std::max<size_t>(names.size(), 1) : SIZE_MAX);
  if (!list.empty()) {
    state.assign(list, std::move(fields));
    return Truth::yes;
  }
  fields.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) state.assign(names[i], {fields[i]});
  return whole ? Truth::unknown : Truth::yes;
}

}  // namespace

std::optional<Truth> run_builtin(State& state, const Node& n, const Values& words) {
  static constexpr std::array kNothing{"echo",  "printf", "mkdir",  "pushd", "popd",  "ulimit", "true", ":",
                                       "sleep", "rm",     "cp",     "touch", "chmod", "trap",   "wait", "cat",
                                       "pwd",   "cd",     "module", "shopt", "ln",    "umask"};
  const std::string& name = words.front();
  if (name == "set") return set_arguments(state, words);
  if (name == "printf" && words.size() > 3 && words[1] == "-v") {
    state.assign(words[2], {printed(state, words[3], Values(words.begin() + 4, words.end()), n.line)});
    return Truth::yes;
  }
  if (std::find(kNothing.begin(), kNothing.end(), name) != kNothing.end()) return Truth::yes;
  if (name == "false") return Truth::no;
  if (name == "test" || name == "[")
    return truth_of_words(
        state, Values(words.begin() + 1, words.end() - (name == "[" && words.back() == "]" ? 1 : 0)), n.line);
  if (name == "shift") return shift(state, words, n.line);
  if (name == "unset") {
    for (size_t i = 1; i < words.size(); ++i) unset(state, words[i], n.line);
    return Truth::yes;
  }
  if (name == "read" || name == "mapfile" || name == "readarray") return read_names(state, n, words);
  if (name == "let") {
    for (size_t i = 1; i < words.size(); ++i) number_of(state, words[i], n.line);
    return Truth::yes;
  }
  return std::nullopt;
}

}  // namespace heddle::advisor::shell
