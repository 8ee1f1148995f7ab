#include "heddle/search/launch/rewrite_script.h"

#include <algorithm>
#include <cctype>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/search/launch/emit.h"
#include "heddle/search/launch/launch_flags.h"

namespace heddle::search {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// From `begin` on, `end` excluded, replaced by `text`.
struct Edit {
  size_t begin = 0, end = 0;
  std::string text;
};

/// Where flags stand in the text of a script, as they are written.
class Places {
 public:
  explicit Places(std::string_view text) : text_(text) {}

  /// Each place of the flag with up to so many values.
  std::vector<Edit> of(const std::string& name, size_t values) const {
    std::vector<Edit> found;
    for (size_t at = text_.find("--"); at != std::string_view::npos; at = text_.find("--", at + 1)) {
      if (at > 0 && std::string_view(" \t\n\"'(=").find(text_[at - 1]) == std::string_view::npos) continue;
      if (in_comment(at)) continue;
      size_t end = at;
      while (end < text_.size() && (std::isalnum(byte(end)) != 0 || text_[end] == '-' || text_[end] == '_')) ++end;
      std::string spelt(text_.substr(at, end - at));
      std::replace(spelt.begin(), spelt.end(), '_', '-');
      if (spelt != name) continue;
      if (end < text_.size() && text_[end] == '=') {
        end = word_end(end);
      } else {
        for (size_t n = 0; n < values; ++n) {
          size_t next = end;
          while (next < text_.size() && is_blank(text_[next])) ++next;
          const size_t after = word_end(next);
          if (next == end || after == next || text_.substr(next, 2) == "--") break;
          end = after;
        }
      }
      found.push_back({at, end, ""});
    }
    return found;
  }

 private:
  unsigned char byte(size_t at) const { return static_cast<unsigned char>(text_[at]); }

  bool in_comment(size_t at) const {
    size_t line = at;
    while (line > 0 && text_[line - 1] != '\n') --line;
    for (size_t i = line; i < at; ++i)
      if (text_[i] == '#' && (i == line || is_blank(text_[i - 1]))) return true;
    return false;
  }

  // Of the word that begins here: $(…) and ${…} whole; a quote that closes around the word, a bracket or the end of
  // a line ends it.
  size_t word_end(size_t at) const {
    int depth = 0;
    const bool opens = at < text_.size() && (text_[at] == '"' || text_[at] == '\'');
    const char quote = opens ? text_[at] : '\0';
    if (opens) {
      const size_t close = text_.find(quote, at + 1);
      const size_t line = text_.find('\n', at);
      // A quote with nothing of the same line behind it closes what stands around.
      return close == std::string_view::npos || close > line ? at : close + 1;
    }
    for (; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '{' || c == '(') ++depth;
      if ((c == '}' || c == ')') && depth-- == 0) break;
      if (depth > 0) continue;
      if (is_blank(c) || c == '\n' || c == '"' || c == '\'' || c == ';' || c == '|' || c == '&') break;
      if (c == '\\' && at + 1 < text_.size() && text_[at + 1] == '\n') break;
    }
    return at;
  }

  std::string_view text_;
};

// Lines of which nothing is left, or nothing but a continuation, go.
std::string without_empty(std::string_view before, std::vector<Edit> edits) {
  std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
  std::string out;
  size_t at = 0;
  for (size_t i = 0; i < edits.size(); ++i) {
    const Edit& edit = edits[i];
    if (edit.begin < at) continue;  // two names for one place
    out += before.substr(at, edit.begin - at);
    out += edit.text;
    at = edit.end;
    if (!edit.text.empty()) continue;
    size_t line = out.size();
    while (line > 0 && is_blank(out[line - 1])) --line;
    size_t next = at;
    while (next < before.size() && is_blank(before[next])) ++next;
    const bool more = i + 1 < edits.size() && edits[i + 1].begin < std::min(before.find('\n', at), before.size());
    const bool starts = line == 0 || out[line - 1] == '\n';
    if (!starts) {
      if (next < before.size() && before[next] == '\n' && !more) out.resize(line);
      at = next > at && line < out.size() ? next : at;  // one blank between words is enough
      continue;
    }
    if (more) {
      at = next;
      continue;
    }
    if (before.substr(next, 2) == "\\\n") ++next;
    if (next < before.size() && before[next] == '\n') {
      out.resize(line);
      at = next + 1;
    }
  }
  return out += before.substr(at);
}

size_t start_of_line(std::string_view text, int line) {
  size_t at = 0;
  for (int n = 1; n < line && at < text.size(); ++n) at = text.find('\n', at) + 1;
  return at;
}

}  // namespace

std::string rewritten(std::string_view text, std::string_view name, const ScriptContext& context,
                      const LaunchScript& script, const Launch& plan) {
  const Launch from = normalized(script.launch), to = normalized(plan);
  const FlagChanges changes = flag_changes(from, to, script.dialect, script.flags);
  if (changes.added.empty() && changes.removed.empty()) return std::string(text);
  std::vector<Edit> edits;
  for (const std::string& flag : changes.removed) {
    std::vector<Edit> places = Places(text).of(flag, script.flags.at(flag).size());
    const bool stays = std::any_of(changes.added.begin(), changes.added.end(),
                                   [&](const Flag& f) { return f.name == flag && !f.values.empty(); });
    if (places.empty() && !stays)
      config_error(
          "{}:{}: {} would have to go and is not written out in the script, accepted: a script that names it", name,
          script.line, shown(flag));
    edits.insert(edits.end(), places.begin(), places.end());
  }
  std::string block = "# The plan of heddle search: what it has otherwise. All other lines are the script's own.\n";
  block += connections_line(to, script.dialect) == connections_line(from, script.dialect)
               ? ""
               : connections_line(to, script.dialect);
  block += "HEDDLE_ARGS=(\n";
  for (const Flag& f : changes.added) {
    block += "  " + f.name;
    for (const std::string& v : f.values) block += " " + shell_quoted(v);
    block += "\n";
  }
  const size_t begin = start_of_line(text, script.line);
  edits.push_back({begin, begin, block + ")\n"});
  edits.push_back({script.end, script.end, " \"${HEDDLE_ARGS[@]}\""});
  std::string out = without_empty(text, std::move(edits));
  const LaunchScript again = read_launch_script(out, name, context);
  const std::vector<Flag> said = flags_of(normalized(again.launch), script.dialect),
                          meant = flags_of(to, script.dialect);
  for (size_t i = 0; i < std::max(said.size(), meant.size()); ++i)
    if (i >= said.size() || i >= meant.size() || said[i] != meant[i])
      config_error("{}:{}: {} can't be changed in this script so that it reads as the plan", name, script.line,
                   i < meant.size() ? meant[i].name : said[i].name);
  return out;
}

}  // namespace heddle::search
