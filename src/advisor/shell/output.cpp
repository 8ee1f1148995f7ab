#include "advisor/shell/output.h"

#include "advisor/shell/expansion.h"

namespace heddle::advisor::shell {

namespace {

constexpr int64_t kMostNumbers = 10000;

std::string lines_joined(const Values& words, size_t first) {
  std::string text;
  for (size_t i = first; i < words.size(); ++i) text += (i > first ? " " : "") + words[i];
  return text;
}

// dirname, basename and their kin take an option or two before the path.
std::string last_word(const Values& words) { return words.size() < 2 ? "" : words.back(); }

std::optional<std::string> numbers(State& state, const Values& words, int line) {
  if (words.size() < 2 || words.size() > 4) return std::nullopt;
  int64_t part[3] = {1, 1, 1};
  for (size_t i = 1; i < words.size(); ++i) {
    const Number n = is_known(words[i]) ? number_of(state, words[i], line) : Number{};
    if (!n.value) return std::nullopt;
    part[i - 1] = *n.value;
  }
  const int64_t first = words.size() == 2 ? 1 : part[0], step = words.size() == 4 ? part[1] : 1,
                last = words.size() == 2   ? part[0]
                       : words.size() == 3 ? part[1]
                                           : part[2];
  if (step <= 0 || last - first > kMostNumbers || first < -kMostNumbers || last > (int64_t{1} << 40))
    return std::nullopt;
  std::string text;
  for (int64_t n = first; n <= last; n += step) text += (text.empty() ? "" : "\n") + std::to_string(n);
  return text;
}

std::optional<std::string> of_command(State& state, const Node& n, std::string& folder) {
  for (const Assignment& a : n.assignments) {
    if (!n.words.empty() || a.name != "IFS" || a.list) return std::nullopt;
    state.assign(a.name, {text_of(state, a.value)});
  }
  Values words;
  for (const Word& word : n.words)
    for (std::string& value : words_of(state, word)) words.push_back(std::move(value));
  if (words.empty()) return "";
  const std::string& name = words.front();
  if (name == "echo") {
    size_t first = 1;
    while (first < words.size() && (words[first] == "-n" || words[first] == "-e" || words[first] == "-ne")) ++first;
    return lines_joined(words, first) + "\n";
  }
  if (name == "printf" && words.size() == 3 && (words[1] == "%s" || words[1] == "%d" || words[1] == "%s\\n"))
    return words[2];
  if (name == "cat" && words.size() == 1 && n.heredocs.size() == 1) {
    const Heredoc& h = n.heredocs.front();
    return h.expands ? text_between_quotes(state, h.body, h.line) : std::string(h.body);
  }
  if (name == "seq") return numbers(state, words, n.line);
  if (name == "true" || name == ":" || name == "set") return "";
  if (name == "cd") {
    folder = last_word(words);
    return "";
  }
  if (name == "pwd") return folder.empty() ? std::nullopt : std::optional(folder);
  if (words.size() < 2) return std::nullopt;
  if (name == "dirname") return folder_of(last_word(words));
  if (name == "realpath" || (name == "readlink" && words[1].starts_with("-"))) return last_word(words);
  if (name == "basename" && words.size() == 2 && is_known(words[1])) {
    std::string path = words[1];
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path.substr(path.rfind('/') + 1);
  }
  return std::nullopt;
}

}  // namespace

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return is_known(path) ? "." : path;
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::optional<std::string> output_of(State& state, const Node& n, std::string& folder) {
  if (n.kind == Node::Kind::command) return of_command(state, n, folder);
  if (n.kind != Node::Kind::list) return std::nullopt;
  std::string all;
  for (size_t i = 0; i < n.children.size(); ++i) {
    if (n.before[i] == '|') return all;  // the command before it succeeds
    std::optional<std::string> one = output_of(state, *n.children[i], folder);
    if (!one) return std::nullopt;
    all += *one;
  }
  while (all.ends_with('\n')) all.pop_back();
  return all;
}

std::string command_name(const Node& n) {
  if (n.kind == Node::Kind::command) return n.words.empty() ? "" : std::string(n.words.front().text.substr(0, 40));
  for (const NodePointer& child : n.children)
    if (std::string name = command_name(*child); !name.empty()) return name;
  return "";
}

}  // namespace heddle::advisor::shell
