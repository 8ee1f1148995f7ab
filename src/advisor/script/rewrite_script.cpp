#include "advisor/script/rewrite_script.h"

#include <algorithm>
#include <cctype>

#include "advisor/script/emit.h"
#include "advisor/script/launch_flags.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// From `begin` on, `end` excluded, replaced by `text`.
struct Edit {
  size_t begin = 0, end = 0;
  std::string text;
};

/// Finds the places of flags in the text of a script, as they are written.
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

  // Returns the end of the word that begins here: $(…) and ${…} are whole. A quote that closes around the word, a
  // bracket or the end of a line ends it.
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
std::string edited(std::string_view before, std::vector<Edit> edits) {
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

// Returns the start of the line where the statement of this line begins.
size_t start_of_statement(std::string_view text, int line) {
  size_t at = 0;
  for (int n = 1; n < line && at < text.size(); ++n) at = text.find('\n', at) + 1;
  while (at > 0) {
    std::string_view before = text.substr(0, at - 1);
    while (!before.empty() && (is_blank(before.back()) || before.back() == '\r')) before.remove_suffix(1);
    if (!before.ends_with('\\') && !before.ends_with("&&") && !before.ends_with('|')) break;
    at = before.rfind('\n') + 1;
  }
  return at;
}

std::string flag_text(const Flag& flag, bool quoted) {
  std::string text = flag.name;
  for (const std::string& value : flag.values) text += " " + (quoted ? shell_quoted(value) : value);
  return text;
}

// Returns the place behind the last word before a place: blanks, ends of lines and continuations go before it.
size_t behind_words(std::string_view text, size_t at) {
  while (at > 0 && (is_blank(text[at - 1]) || text[at - 1] == '\n' || text[at - 1] == '\r' ||
                    (text[at - 1] == '\\' && at < text.size() && (text[at] == '\n' || text[at] == '\r'))))
    --at;
  return at;
}

}  // namespace

std::string rewritten(std::string_view text, std::string_view name, const ScriptContext& context,
                      const LaunchScript& script, const Launch& plan) {
  const Launch from = normalized(script.launch), to = normalized(plan);
  const FlagChanges changes = flag_changes(from, to, script.dialect, script.flags);
  std::vector<Edit> edits;
  for (const GivenInPlace& given : script.given)
    edits.push_back({given.begin, given.end, shell_quoted(context.variables.at(given.name))});
  if (changes.added.empty() && changes.removed.empty()) return edited(text, std::move(edits));
  if (!script.end && script.quote == '\0')
    config_error(
        "{}:{}: the command is in a string or another file, accepted: a script that holds it to --emit into", name,
        script.line);
  for (const std::string& flag : changes.removed) {
    std::vector<Edit> places = Places(text).of(flag, script.flags.at(flag).size());
    const bool stays = std::any_of(changes.added.begin(), changes.added.end(),
                                   [&](const Flag& f) { return f.name == flag && !f.values.empty(); });
    if (places.empty() && !stays)
      config_error(
          "{}:{}: {} has to be removed and is not written out in the script, accepted: a script that names it",
          name, script.line, shown(flag));
    edits.insert(edits.end(), places.begin(), places.end());
  }
  // Names the script's trainer, where no other line is left that does.
  std::string block = fmt::format(
      "# The plan of heddle search for {}: the flags that it changes. All other lines are the script's own.\n",
      name_of(script.dialect));
  // Trainers look for it once there are tensor or context ranks; a script that sets it to something else gets what
  // the plan wants.
  const int wanted = connections_of(to, script.dialect);
  const bool needed = to.job.mesh.tp > 1 || to.job.mesh.cp > 1 || wanted > 1 || !script.connections.empty();
  if (needed && script.connections != std::to_string(wanted)) block += connections_line(to, script.dialect);
  if (script.end) {
    block += "HEDDLE_ARGS=(\n";
    for (const Flag& f : changes.added) block += "  " + flag_text(f, true) + "\n";
    const size_t begin = start_of_statement(text, script.line);
    edits.push_back({begin, begin, block + ")\n"});
    // The words of eval are read once more.
    const char* all = script.evaluated ? " \"${HEDDLE_ARGS[@]@Q}\"" : " \"${HEDDLE_ARGS[@]}\"";
    edits.push_back({*script.end, *script.end, all});
    for (const size_t end : script.later_ends) edits.push_back({end, end, all});
  } else {
    // The shell inside reads a double-quoted string with the text in it, a single-quoted one with the variable.
    const bool twice = script.quote == '"';
    block += twice ? "HEDDLE_ARGS=\"" : "export HEDDLE_ARGS=\"";
    for (const Flag& f : changes.added) block += (block.ends_with('"') ? "" : " ") + flag_text(f, twice);
    const size_t begin = start_of_statement(text, script.outer_line), end = behind_words(text, script.string_end);
    edits.push_back({begin, begin, block + "\"\n"});
    edits.push_back({end, end, twice ? " ${HEDDLE_ARGS}" : " $HEDDLE_ARGS"});
  }
  std::string out = edited(text, std::move(edits));
  const LaunchScript again = read_launch_script(out, name, context);
  const std::vector<Flag> said = flags_of(normalized(again.launch), script.dialect),
                          meant = flags_of(to, script.dialect);
  for (size_t i = 0; i < std::max(said.size(), meant.size()); ++i)
    if (i >= said.size() || i >= meant.size() || said[i] != meant[i])
      config_error("{}:{}: {} can't be changed in this script so that it reads as the plan", name, script.line,
                   i < meant.size() ? meant[i].name : said[i].name);
  return out;
}

}  // namespace heddle::advisor
