#include "heddle/formats/python_json.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/utf8.h"

namespace heddle::formats {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kEndsWord = " \t\r\n,:]}";

class Parser {
 public:
  Parser(std::string_view text, const PythonJsonLimits& limits) : text_(text), limits_(limits) {
    if (limits.any_bytes) return;
    at_ = valid_utf8_prefix(text);
    if (at_ < text.size()) fail(fmt::format("the byte '{}' is no UTF-8", escaped(text.substr(at_, 1))));
    at_ = 0;
  }

  OrderedJson whole() {
    OrderedJson value = next(1);
    skip_blanks();
    if (at_ < text_.size()) fail(fmt::format("'{}' follows the value", here()));
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { config_error("{}, at byte {}", what, at_ + 1); }
  std::string here() const { return escaped(text_.substr(at_, first_letter(text_.substr(at_)).bytes), 20); }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }
  char peek() {
    skip_blanks();
    if (at_ == text_.size()) fail("it ends too early");
    return text_[at_];
  }

  OrderedJson next(int depth) {
    if (depth > limits_.most_depth) fail(fmt::format("nested more than {} deep", limits_.most_depth));
    switch (peek()) {
      case '{': return object(depth);
      case '[': return list(depth);
      case '"': return string();
      default: return word();
    }
  }

  OrderedJson object(int depth) {
    constexpr size_t kFew = 16;
    OrderedJson::object_t members;
    std::unordered_map<std::string, size_t> places;  // of keys, where there are many
    ++at_;
    if (peek() == '}') return ++at_, OrderedJson(std::move(members));
    while (true) {
      if (peek() != '"') fail(fmt::format("'{}', where a key is expected", here()));
      std::string key = string();
      if (peek() != ':') fail(fmt::format("'{}', where ':' is expected", here()));
      ++at_;
      OrderedJson value = next(depth + 1);
      if (members.size() == kFew && places.empty()) {
        for (size_t i = 0; i < members.size(); ++i) places.emplace(members.data()[i].first, i);
      }
      size_t place = members.size();
      if (places.empty()) {
        for (size_t i = 0; i < members.size() && place == members.size(); ++i) {
          if (members.data()[i].first == key) place = i;
        }
      } else {
        place = places.emplace(key, members.size()).first->second;
      }
      if (place < members.size()) {
        members.data()[place].second = std::move(value);
      } else {
        static_cast<std::vector<OrderedJson::object_t::value_type>&>(members).emplace_back(std::move(key),
                                                                                           std::move(value));
      }
      const char sign = peek();
      if (sign != ',' && sign != '}') fail(fmt::format("'{}', where ',' or '}}' is expected", here()));
      ++at_;
      if (sign == '}') return OrderedJson(std::move(members));
    }
  }

  OrderedJson list(int depth) {
    OrderedJson::array_t items;
    ++at_;
    if (peek() == ']') return ++at_, OrderedJson(std::move(items));
    while (true) {
      items.push_back(next(depth + 1));
      const char sign = peek();
      if (sign != ',' && sign != ']') fail(fmt::format("'{}', where ',' or ']' is expected", here()));
      ++at_;
      if (sign == ']') return OrderedJson(std::move(items));
    }
  }

  std::string string() {
    std::string made;
    ++at_;
    while (true) {
      size_t end = at_;
      while (end < text_.size() && text_[end] != '"' && text_[end] != '\\' &&
             static_cast<unsigned char>(text_[end]) >= 0x20)
        ++end;
      made += text_.substr(at_, end - at_);
      at_ = end;
      if (at_ == text_.size()) fail("a string has no end");
      if (text_[at_] == '"') return ++at_, made;
      if (text_[at_] != '\\') fail(fmt::format("a string holds the control character '{}'", here()));
      ++at_;
      escape(made);
    }
  }

  void escape(std::string& made) {
    static constexpr std::string_view kSigns = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char sign = at_ < text_.size() ? text_[at_] : '\0';
    const size_t known = kSigns.find(sign);
    if (at_ < text_.size() && known != std::string_view::npos) {
      made += kMeant[known];
      ++at_;
      return;
    }
    if (sign != 'u') fail("a string holds a '\\' that begins no escape");
    ++at_;
    uint32_t code = four_digits();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      const size_t before = at_;
      at_ += 2;
      const uint32_t low = four_digits();
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else {
        at_ = before;
      }
    }
    append_utf8(made, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
  }

  uint32_t four_digits() {
    uint32_t code = 0;
    const char* const begin = text_.data() + at_;
    if (text_.size() - at_ < 4) fail("a \\u has fewer than four digits");
    const auto [end, error] = std::from_chars(begin, begin + 4, code, 16);
    if (error != std::errc() || end != begin + 4) fail("a \\u has fewer than four digits");
    at_ += 4;
    return code;
  }

  OrderedJson word() {
    const size_t end = std::min(text_.find_first_of(kEndsWord, at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    OrderedJson value;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (word == "true" || word == "false") {
      value = word == "true";
    } else if (word == "NaN") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (word == "Infinity" || word == "-Infinity") {
      value = word[0] == '-' ? -kInfinity : kInfinity;
    } else if (word != "null") {
      value = number(word);
    }
    at_ = end;
    return value;
  }

  OrderedJson number(std::string_view word) const {
    size_t at = word.starts_with('-') ? 1 : 0;
    const auto digits = [&] {
      const size_t begin = at;
      while (at < word.size() && word[at] >= '0' && word[at] <= '9') ++at;
      return at - begin;
    };
    const size_t whole = at;
    bool good = digits() > 0 && (word[whole] != '0' || at == whole + 1);
    bool integer = true;
    if (at < word.size() && word[at] == '.') {
      ++at;
      integer = false;
      good = digits() > 0 && good;
    }
    if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
      ++at;
      integer = false;
      if (at < word.size() && (word[at] == '+' || word[at] == '-')) ++at;
      good = digits() > 0 && good;
    }
    if (!good || at != word.size()) fail(fmt::format("'{}' is no value", escaped(word, 20)));
    const char *const begin = word.data(), *const end = word.data() + word.size();
    if (integer) {
      int64_t small = 0;
      if (std::from_chars(begin, end, small).ec == std::errc()) return small;
      uint64_t large = 0;
      if (word[0] != '-' && std::from_chars(begin, end, large).ec == std::errc()) return large;
    }
    return std::strtod(std::string(word).c_str(), nullptr);
  }

  std::string_view text_;
  const PythonJsonLimits& limits_;
  size_t at_ = 0;
};

}  // namespace

OrderedJson parse_python_json(std::string_view text, const PythonJsonLimits& limits) {
  return Parser(text, limits).whole();
}

size_t JsonValueEnd::find(std::string_view text, bool all) {
  for (; at_ < text.size(); ++at_) {
    const char sign = text[at_];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (sign == '\\') {
        escaped_ = true;
      } else if (sign == '"') {
        in_string_ = false;
        if (depth_ == 0) return ++at_;
      }
      continue;
    }
    if (sign == '"') {
      in_string_ = true;
    } else if (sign == '{' || sign == '[') {
      ++depth_;
    } else if (depth_ == 0 && at_ > 0 && kEndsWord.find(sign) != std::string_view::npos) {
      return at_;
    } else if ((sign == '}' || sign == ']') && --depth_ <= 0) {
      return ++at_;
    }
  }
  return all && depth_ == 0 && !in_string_ && at_ > 0 ? at_ : std::string_view::npos;
}

}  // namespace heddle::formats
