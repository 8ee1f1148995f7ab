#include "advisor/shell/expansion.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "advisor/shell/braces.h"
#include "advisor/shell/pattern.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor::shell {

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c != 'n' && c != 't' && c != '\\' && c != '\'' && c != '"') out += '\\';
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  return out;
}

namespace {

bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

std::string joined(State& state, int line, const Values& values) {
  std::string all;
  for (const std::string& v : values) {
    if (&v != &values.front()) all += ' ';
    all += v;
    state.spend(line, v.size());
  }
  return all;
}

// One text, from front to back.
class Expansion {
 public:
  Expansion(State& state, std::string_view text, int line) : state_(state), text_(text), line_(line) {
    state_.step(line, text.size() + 1);
  }

  /// The values it expands to, cut at blanks or not.
  Values run(bool cuts, bool quoted, bool pattern) {
    const Deeper deeper(state_, line_);
    cuts_ = cuts, pattern_ = pattern;
    if (!quoted && text_.starts_with("~") && (text_.size() == 1 || text_[1] == '/')) {
      ++at_;
      append(state_.unset("HOME", line_));
    }
    while (at_ < text_.size()) piece(quoted);
    close();
    return std::move(done_);
  }

 private:
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char ahead(size_t n = 1) const { return at_ + n < text_.size() ? text_[at_ + n] : '\0'; }
  char take() {
    if (text_[at_] == '\n') ++line_;
    return text_[at_++];
  }
  std::string_view taken_to(size_t end) {
    const std::string_view part = text_.substr(at_, end - at_);
    line_ += static_cast<int>(std::count(part.begin(), part.end(), '\n'));
    at_ = end;
    return part;
  }

  void append(const std::string& text, bool literal = false) {
    state_.spend(line_, text.size());
    for (const char c : text) {
      if (literal && pattern_ && std::string_view("*?[\\").find(c) != std::string_view::npos) part_ += '\\';
      part_ += c;
    }
    open_ = true;
  }
  // Returns a list as one word: the first character of IFS stands between its values.
  std::string as_one(const Values& values) {
    const Values* ifs = values.size() > 1 ? state_.find("IFS") : nullptr;
    if (ifs == nullptr || ifs->empty() || ifs->front().empty() || !is_known(ifs->front()))
      return joined(state_, line_, values);
    std::string all;
    for (const std::string& value : values) {
      if (&value != &values.front()) all += ifs->front()[0];
      all += value;
    }
    state_.spend(line_, all.size());
    return all;
  }
  // A value that was not quoted: cut at separators, where words are. Of those that are no blanks each ends a word.
  void append_split(const Values& values) {
    if (!cuts_) return append(joined(state_, line_, values));
    const std::string separators = state_.separators();
    for (const std::string& value : values) {
      if (&value != &values.front()) close();
      for (const char c : value) {
        if (separators.find(c) == std::string::npos) {
          append(std::string(1, c));
        } else {
          open_ |= !is_blank(c) && c != '\n';
          close();
        }
      }
    }
  }
  void append_quoted(const Values& values, bool apart) {
    open_ = open_ || !apart || !values.empty();
    if (!apart || !cuts_) return append(apart ? joined(state_, line_, values) : as_one(values), true);
    for (const std::string& value : values) {
      if (&value != &values.front()) close();
      append(value, true);
    }
  }
  void close() {
    if (!open_) return;
    done_.push_back(std::move(part_));
    state_.spend(line_, 16);  // as many words as there may be
    part_.clear();
    open_ = false;
  }

  std::string inner(std::string_view text) { return text_between_quotes(state_, text, line_); }

  // Expands what stands behind an operator of ${…}: quotes go, all else as between double quotes.
  std::string operand(std::string_view text, bool pattern = false) {
    Expansion e(state_, text, line_);
    const Values values = e.run(false, false, pattern);
    return joined(state_, line_, values);
  }

  std::string not_followed(std::string_view text) {
    return state_.unknown(fmt::format("line {}: ${{{}}}", line_, shown(text)));
  }

  // `text` is what stands in ${…}.
  void parameter(std::string_view text, bool quoted) {
    const Deeper deeper(state_, line_);
    std::string_view rest = text;
    const bool length = rest.size() > 1 && rest[0] == '#', indirect = rest.size() > 1 && rest[0] == '!';
    if (length || indirect) rest.remove_prefix(1);
    size_t n = 0;
    while (n < rest.size() && is_name(rest[n])) ++n;
    if (n > 0 && digit(rest[0])) {
      n = 0;
      while (n < rest.size() && digit(rest[n])) ++n;
    }
    if (n == 0 && !rest.empty() && std::string_view("@*#?$!-").find(rest[0]) != std::string_view::npos) n = 1;
    std::string name(rest.substr(0, n));
    rest.remove_prefix(n);
    if (name.empty()) {
      const std::string mark = not_followed(text);
      return quoted ? append_quoted({mark}, false) : append_split({mark});
    }
    bool apart = name == "@", set = true;
    bool whole_list = apart || name == "*";
    Values values = special(name, set);
    if (indirect && rest.empty()) {
      const std::string target = values.empty() ? "" : values.front();
      if (is_known(target) && !target.empty()) {
        values = special(target, set);
        name = target;
      } else {
        values = {not_followed(text)};
      }
    }
    if (rest.starts_with("[")) {
      const size_t end = behind_close(rest, 1, '[', ']');
      const std::string_view index = rest.substr(1, end == std::string_view::npos ? end : end - 2);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end);
      whole_list = index == "@" || index == "*";
      apart = index == "@";
      if (indirect || whole_list) {  // with !: indices and keys
        // A list that is not there has no elements: no mark stands for them.
        if (state_.find(name) == nullptr) values.clear();
        for (size_t i = 0; indirect && i < values.size(); ++i) values[i] = std::to_string(i);
        for (std::string& value : list_of_elements(name, indirect)) values.push_back(std::move(value));
        set |= !values.empty();
      } else {
        values = element(name, index, values, set);
      }
    } else if (values.size() > 1 && !whole_list) {
      values.resize(1);
    }
    if (length && name != "#") {
      const bool elements = whole_list;
      std::string size;
      if (elements) {
        size = std::to_string(values.size());
      } else {
        const std::string value = values.empty() ? "" : values.front();
        size = is_known(value) ? std::to_string(value.size()) : is_certain(value) ? "0" : first_mark(value);
      }
      return quoted ? append_quoted({size}, false) : append_split({size});
    }
    if (whole_list && rest.starts_with(":") && rest.size() > 1 &&
        std::string_view("-=+?").find(rest[1]) == std::string_view::npos) {
      values = part_of_list(name == "@" || name == "*", values, rest.substr(1), text);
    } else if (!rest.empty()) {
      values = changed(name, rest, std::move(values), set, text);
    }
    if (whole_list && !set && rest.empty()) values.clear();
    quoted ? append_quoted(values, apart) : append_split(values);
  }

  // Returns the values of a name, or a mark where it is not set.
  Values special(const std::string& name, bool& set) {
    set = true;
    if (name == "@" || name == "*") return state_.arguments;
    if (name == "#") return {std::to_string(state_.arguments.size())};
    if (name == "0") return {state_.name};
    if (name == "?" || name == "$" || name == "!" || name == "-")
      return {state_.unknown(fmt::format("line {}: ${}", line_, name))};
    if (digit(name[0]) && state_.find(name) == nullptr) {
      const std::optional<int64_t> at = whole_number(name);
      if (at && *at >= 1 && static_cast<size_t>(*at) <= state_.arguments.size())
        return {state_.arguments[static_cast<size_t>(*at) - 1]};
      set = false;
      if (state_.arguments_known) return {};
      state_.used.insert(name);
      return {state_.unset(name, line_)};
    }
    state_.used.insert(name);
    const Values* found = state_.find(name);
    set = found != nullptr;
    if (set) return *found;
    return state_.value_of(name, line_);
  }

  Values list_of_elements(const std::string& name, bool keys = false) const {
    Values values;
    const std::string beginning = name + "[";
    for (auto it = state_.variables.lower_bound(beginning);
         it != state_.variables.end() && it->first.starts_with(beginning); ++it) {
      if (keys) values.push_back(it->first.substr(beginning.size(), it->first.size() - beginning.size() - 1));
      for (size_t i = 0; !keys && i < it->second.size(); ++i) values.push_back(it->second[i]);
    }
    return values;
  }

  Values element(const std::string& name, std::string_view index, const Values& values, bool& set) {
    const std::string key = inner(index);
    if (const Values* found = state_.find(element_name(name, key)); found != nullptr) {
      set = true;
      return *found;
    }
    if (name == "BASH_SOURCE") {
      set = true;
      return {state_.source};
    }
    if (!set) return values;
    const Number at = number_of(state_, key, line_);
    if (!at.value) return {at.unknown.empty() ? not_followed(name) : at.unknown};
    const auto size = static_cast<int64_t>(values.size());
    const int64_t i = *at.value < 0 ? *at.value + size : *at.value;
    set = i >= 0 && i < size;
    if (set) return {values[i]};
    return {};
  }

  bool is_empty(const Values& values) const {
    return values.empty() || (values.size() == 1 && is_certain(values[0]) && without_unset(values[0]).empty());
  }

  // Behind the name: :-default, %pattern, /a/b, :offset:length, ^^, …
  Values changed(const std::string& name, std::string_view rest, Values values, bool set, std::string_view text) {
    const bool colon = rest.starts_with(":");
    const std::string_view op = colon ? rest.substr(1) : rest;
    // An unset name's mark inside a value is as empty as the name.
    const bool unset = !set || (colon && is_empty(values));
    const char c = op.empty() ? '\0' : op[0];
    if (c == '-' || c == '=') {
      if (!unset) return values;
      Values other{operand(op.substr(1))};
      if (c == '=') state_.assign(name, other);
      return other;
    }
    if (c == '+') return unset ? Values{""} : Values{operand(op.substr(1))};
    if (c == '?') return values;
    for (std::string& value : values) {
      if (!is_known(value)) continue;  // a mark stays one
      std::optional<std::string> made;
      if (colon) {
        made = slice(value, op);
      } else if (c == '#' || c == '%') {
        const std::string_view sign = op.substr(0, op.size() > 1 && op[1] == c ? 2 : 1);
        const std::string pattern = operand(op.substr(sign.size()), true);
        if (is_known(pattern)) made = without(value, sign, pattern);
      } else if (c == '/') {
        made = substitute(value, op.substr(1));
      } else if (c == '^' || c == ',') {
        made = value;
        const size_t end = op.size() > 1 && op[1] == c ? made->size() : std::min<size_t>(1, made->size());
        for (size_t i = 0; i < end; ++i) {
          const auto letter = static_cast<unsigned char>((*made)[i]);
          (*made)[i] = static_cast<char>(c == '^' ? std::toupper(letter) : std::tolower(letter));
        }
      } else if (c == '@') {
        made = value;
        if (op == "@Q") {  // as a shell would have to be given it
          made = "'";
          for (const char each : value) made->append(each == '\'' ? "'\\''" : std::string(1, each));
          *made += "'";
        }
      }
      if (made) state_.spend(line_, made->size());
      value = made ? *made : not_followed(text);
    }
    return values;
  }

  // The beginning and the end that OFFSET:LENGTH means among so many; nullopt where they are not known.
  std::optional<std::pair<size_t, size_t>> range(std::string_view op, size_t of) {
    const size_t colon = op.find(':');
    const Number first = number_of(state_, inner(op.substr(0, colon)), line_);
    if (!first.value) return std::nullopt;
    const auto size = static_cast<int64_t>(of);
    const int64_t from = *first.value < 0 ? *first.value + size : *first.value;
    if (from < 0 || from > size) return std::pair<size_t, size_t>();
    int64_t to = size;
    if (colon != std::string_view::npos) {
      const Number length = number_of(state_, inner(op.substr(colon + 1)), line_);
      if (!length.value) return std::nullopt;
      to = *length.value < 0 ? size + *length.value
                             : std::min(size, *length.value > size ? size : from + *length.value);
    }
    return std::pair(static_cast<size_t>(from), static_cast<size_t>(std::max(from, to)));
  }
  std::optional<std::string> slice(const std::string& value, std::string_view op) {
    const auto part = range(op, value.size());
    return part ? std::optional(value.substr(part->first, part->second - part->first)) : std::nullopt;
  }
  // The first argument has number 1: before it stands the script's name.
  Values part_of_list(bool arguments, Values values, std::string_view op, std::string_view text) {
    if (arguments) values.insert(values.begin(), state_.name);
    const auto part = range(op, values.size());
    if (!part) return {not_followed(text)};
    return {values.begin() + static_cast<std::ptrdiff_t>(part->first),
            values.begin() + static_cast<std::ptrdiff_t>(part->second)};
  }

  std::optional<std::string> substitute(const std::string& value, std::string_view op) {
    const bool all = op.starts_with("/");
    if (all) op.remove_prefix(1);
    size_t slash = 0;
    while (slash < op.size() && op[slash] != '/') slash += op[slash] == '\\' ? 2 : 1;
    slash = std::min(slash, op.size());
    const std::string pattern = operand(op.substr(0, slash), true),
                      with = slash < op.size() ? operand(op.substr(slash + 1)) : "";
    if (!is_known(pattern)) return std::nullopt;
    if (!all && (op.starts_with("#") || op.starts_with("%"))) {  // at the beginning, at the end
      const std::optional<std::string> rest = without(value, op.substr(0, 1), std::string_view(pattern).substr(1));
      if (!rest || (*rest == value && pattern.size() > 1)) return rest;
      return op[0] == '#' ? with + *rest : *rest + with;
    }
    return replaced(value, all, pattern, with);
  }

  void dollar(bool quoted) {
    take();
    if (now() == '(' && ahead() == '(') {
      const size_t end = behind_close(text_, at_ + 2, '(', ')');
      if (end != std::string_view::npos && end < text_.size() && text_[end] == ')') {
        const std::string_view text = text_.substr(at_ + 2, end - 3 - at_);
        const Number n = number_of(state_, inner(text), line_);
        taken_to(end + 1);
        if (n.value) return append(std::to_string(*n.value));
        return append(n.unknown.empty()
                          ? state_.unknown(fmt::format("line {}: $(({})) is no arithmetic that can be read", line_,
                                                       shown(text)))
                          : n.unknown);
      }
    }
    if (now() == '(') {
      const int line = line_;
      take();
      const size_t end = behind_close(text_, at_, '(', ')');
      if (end == std::string_view::npos) state_.fail(line, "'(' is never closed");
      return output(text_.substr(at_, end - 1 - at_), line, end, quoted);
    }
    if (now() == '{') {
      take();
      const size_t end = behind_close(text_, at_, '{', '}');
      if (end == std::string_view::npos) state_.fail(line_, "'{' is never closed");
      const std::string_view text = taken_to(end);
      return parameter(text.substr(0, text.size() - 1), quoted);
    }
    if (now() == '\'' && !quoted) {  // $'…'
      take();
      return single_quoted(true);
    }
    const size_t first = at_;
    if (starts_name(now())) {
      while (is_name(now())) take();
    } else if (at_ < text_.size() &&
               (digit(now()) || std::string_view("@*#?$!-").find(now()) != std::string_view::npos)) {
      take();
    } else {
      return append("$", true);
    }
    parameter(text_.substr(first, at_ - first), quoted);
  }

  void output(std::string_view command, int line, size_t end, bool quoted) {
    const std::string text = state_.output_of ? state_.output_of(command, line) : "";
    taken_to(end);
    quoted ? append_quoted({text}, false) : append_split({text});
  }

  void single_quoted(bool escapes = false) {
    open_ = true;
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) state_.fail(line_, "a quote is opened and never closed");
    const std::string text(taken_to(end));
    append(escapes ? without_escapes(text) : text, true);
    take();
  }

  void piece(bool quoted) {
    const char c = now();
    if (c == '\\' && (ahead() == '\n' || (ahead() == '\r' && ahead(2) == '\n'))) {
      take();
      if (now() == '\r') take();
      take();
      return;
    }
    if (c == '$') return dollar(quoted);
    if (c == '`') {
      const int line = line_;
      take();
      const size_t end = behind_quote(text_, at_, '`');
      if (end == std::string_view::npos) state_.fail(line, "a quote is opened and never closed");
      return output(text_.substr(at_, end - 1 - at_), line, end, quoted);
    }
    if (c == '\\') {
      take();
      if (at_ >= text_.size()) return append("\\", true);
      const char next = take();
      // Between double quotes a backslash stands for itself before most characters.
      if (quoted && next != '"' && next != '\\' && next != '$' && next != '`') append("\\", true);
      return append(std::string(1, next), true);
    }
    if (!quoted && c == '\'') {
      take();
      return single_quoted();
    }
    if (!quoted && c == '"') {
      const int line = line_;
      take();
      // "" is a word; "$@" and "${list[@]}" of nothing are none.
      open_ = open_ || now() == '"';
      while (now() != '"') {
        if (at_ >= text_.size()) state_.fail(line, "a quote is opened and never closed");
        piece(true);
      }
      take();
      return;
    }
    append(std::string(1, take()), quoted);
  }

  State& state_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool cuts_ = true, pattern_ = false;
  Values done_;
  std::string part_;
  bool open_ = false;  // `part_` is a word: "" is one, nothing isn't
};

}  // namespace

Values words_of(State& state, const Word& word) {
  if (word.text.find('{') == std::string_view::npos)
    return Expansion(state, word.text, word.line).run(true, false, false);
  Values words;
  for (const std::string& each : braced(word.text)) {
    state.spend(word.line, each.size() + 16);
    for (std::string& value : Expansion(state, each, word.line).run(true, false, false))
      words.push_back(std::move(value));
  }
  return words;
}

std::string document_of(State& state, const Heredoc& h) {
  if (h.is_string) return text_of(state, Word{h.body, h.line}) + "\n";
  return h.expands ? text_between_quotes(state, h.body, h.line) : std::string(h.body);
}

Values fields_of(std::string_view text, std::string_view separators, size_t most) {
  const auto blank = [&](char c) {
    return (is_blank(c) || c == '\n') && separators.find(c) != std::string_view::npos;
  };
  const auto trim = [&] {
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  };
  Values fields;
  for (trim(); !text.empty(); trim()) {
    size_t end = fields.size() + 1 < most ? text.find_first_of(separators) : std::string_view::npos;
    fields.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    while (end < text.size() && blank(text[end])) ++end;
    if (end < text.size() && separators.find(text[end]) != std::string_view::npos) ++end;
    text.remove_prefix(end);
  }
  return fields;
}

std::string text_of(State& state, const Word& word) {
  return joined(state, word.line, Expansion(state, word.text, word.line).run(false, false, false));
}

std::string pattern_of(State& state, const Word& word) {
  return joined(state, word.line, Expansion(state, word.text, word.line).run(false, false, true));
}

std::string text_between_quotes(State& state, std::string_view text, int line) {
  return joined(state, line, Expansion(state, text, line).run(false, true, false));
}

std::string element_name(const std::string& list, const std::string& key) { return list + "[" + key + "]"; }

Number number_of(State& state, std::string_view text, int line) {
  const Deeper deeper(state, line);
  Names names;
  names.value = [&](const std::string& name) -> Number {
    std::string value;
    if (const size_t bracket = name.find('['); bracket != std::string::npos && state.find(name) == nullptr) {
      value = text_between_quotes(state, "${" + name + "}", line);
    } else {
      const Values values = state.value_of(name, line);
      if (!values.empty()) value = values.front();
    }
    if (!is_known(value)) return {std::nullopt, first_mark(value)};
    if (value.empty()) return {0, ""};
    if (const std::optional<int64_t> n = whole_number(value)) return {n, ""};
    return {std::nullopt,
            state.unknown(fmt::format("line {}: {} is '{}', no whole number", line, shown(name), shown(value)))};
  };
  names.assign = [&](const std::string& name, const Number& n) {
    const std::string value =
        n.value ? std::to_string(*n.value)
                : (n.unknown.empty() ? state.unknown(fmt::format("line {}: {}", line, shown(name))) : n.unknown);
    state.assign(name, {value});
  };
  return arithmetic(text, names);
}

}  // namespace heddle::advisor::shell
