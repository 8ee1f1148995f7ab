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

// dirname, realpath and their kin take an option or two before the path.
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

}  // namespace

std::string printed(State& state, const std::string& format, const Values& values, int line) {
  const std::string text = without_escapes(format);
  const auto unknown = [&] { return state.unknown(fmt::format("line {}: what printf makes", line)); };
  std::string out;
  size_t next = 0;
  do {  // once more where values are left
    const size_t before = next;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '%' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const size_t first = ++i;
      while (i < text.size() && std::string_view("-0123456789").find(text[i]) != std::string_view::npos) ++i;
      const std::string_view form = std::string_view(text).substr(first, i - first);
      const char kind = i < text.size() ? text[i] : ' ';
      if (kind == '%') {
        out += '%';
        continue;
      }
      const std::string value = next < values.size() ? values[next++] : "";
      if ((kind != 's' && kind != 'd') || form.size() > 3 || (!form.empty() && !is_known(value))) return unknown();
      const bool left = form.starts_with("-"), zeros = form.starts_with("0") && kind == 'd';
      size_t width = 0;
      for (const char c : form)
        if (c != '-') width = width * 10 + static_cast<size_t>(c - '0');
      const std::string fill(width > value.size() ? width - value.size() : 0, zeros ? '0' : ' ');
      out += left ? value + fill : fill + value;
    }
    state.spend(line, out.size());
    if (next == before) break;
  } while (next < values.size());
  return out;
}

std::optional<std::string> printed_by(State& state, const Node& n, const Values& words, const std::string& folder) {
  const std::string& name = words.front();
  if (name == "echo") {
    size_t first = 1;
    while (first < words.size() && (words[first] == "-n" || words[first] == "-e" || words[first] == "-ne")) ++first;
    return lines_joined(words, first) + "\n";
  }
  if (name == "printf" && words.size() > 1 && words[1] != "-v")
    return printed(state, words[1], Values(words.begin() + 2, words.end()), n.line);
  if (name == "cat" && words.size() == 1 && n.heredocs.size() == 1) return document_of(state, n.heredocs.front());
  if (name == "seq") return numbers(state, words, n.line);
  if (name == "expr") {
    const Number number = number_of(state, lines_joined(words, 1), n.line);
    return number.value ? std::optional(std::to_string(*number.value)) : std::nullopt;
  }
  if (name == "pwd") return folder.empty() ? std::nullopt : std::optional(folder);
  if (words.size() < 2) return std::nullopt;
  if (name == "dirname") return folder_of(last_word(words));
  if (name == "realpath" || (name == "readlink" && words[1].starts_with("-"))) return last_word(words);
  if (name == "basename" && words.size() <= 3 && is_known(words[1]) && is_known(words.back())) {
    std::string path = words[1];
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    path = path.substr(path.rfind('/') + 1);
    if (words.size() == 3 && path.ends_with(words[2]) && path != words[2])
      path.resize(path.size() - words[2].size());
    return path;
  }
  return std::nullopt;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return is_known(path) ? "." : path;
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace heddle::advisor::shell
