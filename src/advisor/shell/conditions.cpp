#include "advisor/shell/conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "advisor/shell/expansion.h"
#include "advisor/shell/pattern.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor::shell {

namespace {

Truth truth(bool yes) { return yes ? Truth::yes : Truth::no; }
Truth both(Truth a, Truth b) {
  if (a == Truth::no || b == Truth::no) return Truth::no;
  return a == Truth::yes ? b : a;
}
Truth either(Truth a, Truth b) { return negation(both(negation(a), negation(b))); }

bool is_one_of(const std::string& word, std::string_view list) {
  return !word.empty() && word.find(' ') == std::string::npos &&
         (" " + std::string(list) + " ").find(" " + word + " ") != std::string::npos;
}
bool is_unary(const std::string& w) {
  return is_one_of(w, "-z -n -v -a -b -c -d -e -f -g -h -k -o -p -r -s -t -u -w -x -G -L -N -O -S");
}
bool is_binary(const std::string& w) { return is_one_of(w, "= == != =~ < > -eq -ne -lt -le -gt -ge -nt -ot -ef"); }

struct Operand {
  std::string text;     // expanded
  std::string pattern;  // on the right side of == and !=
};

class Condition {
 public:
  Condition(State& state, std::vector<Operand> operands, int line, bool doubled)
      : state_(state), all_(std::move(operands)), line_(line), doubled_(doubled) {}

  Truth whole() {
    if (all_.empty()) return Truth::no;
    const Truth t = any();
    return at_ == all_.size() ? t : Truth::unknown;
  }

 private:
  bool at(std::string_view word) const { return at_ < all_.size() && all_[at_].text == word; }
  bool takes(std::string_view word) {
    if (!at(word)) return false;
    ++at_;
    return true;
  }

  Truth any() {
    Truth t = every();
    while (takes(doubled_ ? "||" : "-o")) t = either(t, every());
    return t;
  }
  Truth every() {
    Truth t = one();
    while (takes(doubled_ ? "&&" : "-a")) t = both(t, one());
    return t;
  }

  // A value as conditions take it: variables that are not set are empty, and that is said.
  std::string value(const std::string& text) {
    if (is_known(text) || !is_certain(text)) return text;
    std::string reason = state_.reason(first_mark(text));
    reason = reason.substr(0, reason.rfind(" is not set"));
    if (const size_t colon = reason.find(": "); colon != std::string::npos) reason = reason.substr(colon + 2);
    state_.taken_as_empty.insert(reason);
    return without_unset(text);
  }

  Truth one() {
    const Deeper deeper(state_, line_);
    const size_t left = all_.size() - at_;
    if (left == 0) return Truth::no;
    // As in a shell: a binary operator in the middle comes before a leading one.
    if (left >= 3 && is_binary(all_[at_ + 1].text)) return comparison();
    if (takes("!")) return negation(one());
    if (takes("(")) {
      const Truth t = any();
      return takes(")") ? t : Truth::unknown;
    }
    if (left >= 2 && is_unary(all_[at_].text)) {
      const std::string op = all_[at_].text, text = all_[at_ + 1].text;
      at_ += 2;
      if (op == "-v") return truth(state_.find(text) != nullptr);
      if (op != "-z" && op != "-n") {  // a test of a file
        state_.doubt = fmt::format("line {}: what {} {} finds", line_, op, is_known(text) ? shown(text) : "a file");
        return Truth::unknown;
      }
      return op == "-z" ? negation(filled(text)) : filled(text);
    }
    return filled(all_[at_++].text);
  }

  Truth filled(const std::string& text) {
    const std::string v = value(text);
    if (is_known(v)) return truth(!v.empty());
    if (!is_all_unknown(v)) return Truth::yes;
    state_.doubt = state_.reason(first_mark(v));
    return Truth::unknown;
  }

  Truth comparison() {
    const std::string a = value(all_[at_].text), op = all_[at_ + 1].text, b = value(all_[at_ + 2].text);
    const std::string& pattern = all_[at_ + 2].pattern;
    at_ += 3;
    state_.doubt = state_.reason(first_mark(is_known(a) ? b : a));
    if (!is_known(a) || !is_known(b)) return Truth::unknown;
    if (op.size() == 3 && op[0] == '-') {
      if (is_one_of(op, "-nt -ot -ef")) return Truth::unknown;
      const Number x = number_of(state_, a, line_), y = number_of(state_, b, line_);
      if (a.empty() || b.empty()) return Truth::no;  // an error in a shell
      if (!x.value || !y.value) return Truth::unknown;
      return truth(op == "-eq"   ? *x.value == *y.value
                   : op == "-ne" ? *x.value != *y.value
                   : op == "-lt" ? *x.value < *y.value
                   : op == "-le" ? *x.value <= *y.value
                   : op == "-gt" ? *x.value > *y.value
                                 : *x.value >= *y.value);
    }
    if (op == "<") return truth(a < b);
    if (op == ">") return truth(a > b);
    if (op == "=~") return Truth::unknown;
    bool same = a == b;
    if (doubled_) {
      const std::optional<bool> fits = matches(without_unset(pattern), a);
      if (!fits) return Truth::unknown;
      same = *fits;
    }
    return truth(same == (op != "!="));
  }

  State& state_;
  std::vector<Operand> all_;
  size_t at_ = 0;
  int line_;
  bool doubled_;
};

// The words and operators of [[ … ]] as they stand.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at < text.size();) {
    if (is_blank(text[at]) || text[at] == '\n') {
      ++at;
      continue;
    }
    if (text.substr(at).starts_with("\\\n")) {
      at += 2;
      continue;
    }
    size_t end = at;
    if (text.substr(at).starts_with("&&") || text.substr(at).starts_with("||")) {
      end = at + 2;
    } else if (std::string_view("()<>&|").find(text[at]) != std::string_view::npos) {
      end = at + 1;
    } else {
      // A pattern or expression behind =~ may hold brackets; it ends at a blank.
      const bool loose = !parts.empty() && parts.back() == "=~";
      while (end < text.size() && !is_blank(text[end]) && text[end] != '\n' &&
             (loose || std::string_view("()<>&|").find(text[end]) == std::string_view::npos)) {
        const char d = text[end++];
        size_t next = end;
        if (d == '\\') {
          next = end + 1;
        } else if (d == '\'' || d == '"' || d == '`') {
          next = behind_quote(text, end, d);
        } else if (d == '$' && end < text.size() && (text[end] == '(' || text[end] == '{')) {
          next = behind_close(text, end + 1, text[end], text[end] == '(' ? ')' : '}');
        }
        end = std::min(next, text.size());
      }
    }
    if (end == at) ++end;
    parts.push_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

}  // namespace

Truth truth_of_words(State& state, const Values& words, int line) {
  std::vector<Operand> operands;
  for (const std::string& word : words) operands.push_back({word, word});
  return Condition(state, std::move(operands), line, false).whole();
}

Truth truth_of_text(State& state, std::string_view text, int line) {
  static constexpr std::array kOperators{"&&", "||", "(", ")", "!", "<", ">"};
  std::vector<Operand> operands;
  for (const std::string_view part : parts_of(text)) {
    const Word word{part, line};
    if (std::find(kOperators.begin(), kOperators.end(), part) != kOperators.end()) {
      operands.push_back({std::string(part), std::string(part)});
    } else if (operands.size() >= 1 && is_one_of(operands.back().text, "= == !=")) {
      operands.push_back({text_of(state, word), pattern_of(state, word)});
    } else {
      std::string expanded = text_of(state, word);
      operands.push_back({expanded, std::move(expanded)});
    }
  }
  return Condition(state, std::move(operands), line, true).whole();
}

}  // namespace heddle::advisor::shell
