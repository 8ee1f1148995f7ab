#include "heddle/plan/setting.h"

#include <algorithm>
#include <charconv>

#include "heddle/base/error.h"

namespace heddle::plan {

namespace {

// A TOML basic string.
std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The shortest decimal that reads back as the same double; TOML wants a point or an exponent.
std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string_view name_of(MathsClass maths) {
  switch (maths) {
    case MathsClass::bitwise: return "bitwise";
    case MathsClass::reassociates: return "reassociates";
    case MathsClass::changes_maths: return "changes_maths";
  }
  return "?";
}

std::string_view promise_of(MathsClass maths) {
  switch (maths) {
    case MathsClass::bitwise: return "loss and gradients keep the same bits";
    case MathsClass::reassociates: return "the same sums, rounded at other places";
    case MathsClass::changes_maths: return "trains another function or in other numbers";
  }
  return "?";
}

std::string text_of(const Value& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return number(*d);
  return std::get<std::string>(value);
}

bool Row::takes(const std::string& word) const {
  if (words.empty() || std::find(words.begin(), words.end(), word) != words.end()) return true;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return numbers && error == std::errc() && end == word.data() + word.size() &&
         static_cast<double>(number) >= least && static_cast<double>(number) <= most;
}

std::string Row::accepted() const {
  if (kind == Kind::list) return fmt::format("a list of {}", fmt::join(words, ", "));
  if (numbers) return fmt::format("{} or an integer from {} to {}", fmt::join(words, ", "), least, most);
  if (!words.empty()) return fmt::format("{}", fmt::join(words, ", "));
  const auto range = [&](std::string_view what) {
    const bool bounded = most < (kind == Kind::number ? 1e6 : 1e9) && most < kAny;
    if (bounded) return fmt::format("{} from {} to {}", what, least == kTiny ? 0 : least, most);
    if (least == kTiny) return fmt::format("{} above 0", what);
    return fmt::format("{} of {} or more", what, least);
  };
  switch (kind) {
    case Kind::boolean: return "true or false";
    case Kind::integer: return range("an integer");
    case Kind::number: return range("a number");
    case Kind::bytes: return "a size such as \"4GiB\", or bytes";
    case Kind::bytes_or_share: return "a size such as \"60GiB\", bytes, or a share above 0% up to 100%";
    case Kind::word: return "a text";
    case Kind::list: break;
  }
  return "?";
}

std::string Row::text_of(const Value& value) const {
  const auto* word = std::get_if<std::string>(&value);
  return word != nullptr ? toml_string(*word) : plan::text_of(value);
}

std::vector<Value> Row::tried_values() const {
  if (as_switch && !as_switch->tried.empty()) return as_switch->tried;
  if (kind == Kind::boolean) return words.empty() ? std::vector<Value>{true, false} : std::vector<Value>{true};
  if (kind == Kind::integer) {
    std::vector<Value> values;
    for (double n = least; n <= most && n < least + 3; ++n) values.emplace_back(static_cast<int64_t>(n));
    return values;
  }
  HEDDLE_CHECK(!words.empty(), "the row of {} must say what is tried", key);
  return {words.begin(), words.end()};
}

std::vector<Value> Row::planned_values() const {
  HEDDLE_CHECK(as_switch && as_switch->planned, "the row of {} says nothing to a planner", key);
  return as_switch->planned->values.empty() ? tried_values() : as_switch->planned->values;
}

}  // namespace heddle::plan
