#include "heddle/formats/json_text.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::formats {

namespace {

using PlainJson = nlohmann::json;

// The library tells what it was reading; the words are ours.
struct Reason {
  const char* theirs;
  const char* ours;
};
constexpr Reason kExpected[] = {
    {"parsing object key", "a key in double quotes is expected"},
    {"parsing object separator", "':' is expected between a key and its value"},
    {"parsing object", "',' or '}' is expected"},
    {"parsing array", "',' or ']' is expected"},
};
constexpr Reason kBroken[] = {
    {"invalid string", "a string must be UTF-8 with \\ escapes as JSON has them and end with a double quote"},
    {"invalid number", "a number must be written as JSON has it (no leading zeros, digits after the point)"},
    {"invalid comment", "JSON has no comments"},
};

template <size_t n>
const char* ours(const std::string& what, const Reason (&reasons)[n]) {
  for (const Reason& each : reasons) {
    if (what.find(each.theirs) != std::string::npos) return each.ours;
  }
  return nullptr;
}

// The text that the parser stumbled at when it had read `text[last]`: a word or number whole, else the one sign.
std::string found_at(std::string_view text, size_t last, bool in_string) {
  if (last >= text.size()) return "the end of the text";
  const auto of_word = [&](size_t at) {
    const char c = text[at];
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '+' || c == '-';
  };
  size_t first = last, end = last + 1;
  if (!in_string) {
    while (first > 0 && of_word(first - 1)) --first;
    if (first < last && !of_word(last)) end = last;  // the sign after a broken word
    while (of_word(end - 1) && end < text.size() && of_word(end)) ++end;
  }
  return fmt::format("'{}'", escaped(text.substr(first, end - first), 40));
}

[[noreturn]] void refuse(std::string_view text, const std::string& place, const std::string& what, size_t byte) {
  // The library counts bytes from 1, the one at which it gave up included; at the end it counts one more.
  const size_t last = std::min(byte == 0 ? 0 : byte - 1, text.size());
  // The words of a file that was never meant as JSON are nobody's business: its path may come from a stranger.
  if (const size_t first = text.find_first_not_of(" \t\r\n");
      first != std::string_view::npos && std::string_view("{[\"").find(text[first]) == std::string_view::npos)
    config_error("{}: not JSON: it begins with neither '{{' nor '['", place);
  const std::string_view before = text.substr(0, last);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const bool in_string = what.find("invalid string") != std::string::npos;
  const char* expected = last < text.size() ? ours(what, kBroken) : nullptr;
  if (expected == nullptr) expected = ours(what, kExpected);
  if (expected == nullptr) {
    const bool after_the_value = what.find("; expected end of input") != std::string::npos;
    expected = after_the_value ? "nothing may follow the value" : "a value is expected";
  }
  config_error("{}:{}:{}: not JSON: found {}, {}", place, line, last - begin + 1, found_at(text, last, in_string),
               expected);
}

}  // namespace

PlainJson parse_json(std::string_view text, const std::string& place, int most_depth) {
  const auto watch = [&](int depth, PlainJson::parse_event_t, PlainJson&) {
    if (depth > most_depth) config_error("{}: nested deeper than {}", place, most_depth);
    return true;
  };
  try {
    return PlainJson::parse(text.begin(), text.end(), watch);
  } catch (const PlainJson::parse_error& error) {
    refuse(text, place, error.what(), error.byte);
  } catch (const PlainJson::exception&) {  // of a number
    config_error("{}: not JSON that can be held: a number is too large", place);
  }
}

std::string shown(const PlainJson& value) {
  return escaped(value.dump(-1, ' ', true, PlainJson::error_handler_t::replace), 100);
}

}  // namespace heddle::formats
