#include "heddle/data/corpus/dictionary_markup.h"

#include <algorithm>
#include <cctype>

namespace heddle::data {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

constexpr size_t kLongestPronunciation = 120, kLongestSubject = 60, kLongestAccent = 4;

bool is_accented(std::string_view inside) {
  return inside.size() <= kLongestAccent && inside.find_first_of(" .") == std::string_view::npos &&
         std::any_of(inside.begin(), inside.end(), [](char c) { return c >= 'a' && c <= 'z'; });  // else initials
}

// "'e" and the like in brackets are letters: an accent and a letter, a letter and the name of its accent ("aum",
// "add"), or two joined ones ("ae").
std::string letters_of(std::string_view accent) {
  std::string letters;
  for (const char c : accent) {
    if (is_letter(c)) letters += c;
  }
  return letters.size() > 2 ? letters.substr(0, 1) : letters;
}

// Behind the bracket that closes the one at `open`; the end where none does.
size_t behind_bracket(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return text.size();
}

// Behind a pronunciation at `at`, and behind another way to write it that follows in parentheses.
size_t behind_pronunciation(std::string_view text, size_t at) {
  const size_t close = text.find('\\', at + 1);
  if (close == std::string_view::npos || close - at > kLongestPronunciation) return at + 1;
  size_t next = close + 1;
  while (next < text.size() && is_space(text[next])) ++next;
  if (next >= text.size() || text[next] != '(') return close + 1;
  const size_t end = text.find(')', next);
  if (end == std::string_view::npos || end - next > kLongestPronunciation) return close + 1;
  const std::string_view inside = text.substr(next + 1, end - next - 1);
  return inside.find_first_of("[?\"*") != std::string_view::npos || inside.find(' ') == std::string_view::npos
             ? end + 1
             : close + 1;
}

bool is_subject(std::string_view text) {
  return !text.empty() && text.size() <= kLongestSubject &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_space(c) || c == ','; });
}

}  // namespace

std::string dictionary_prose(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '{' || c == '}') {
      ++i;
    } else if (c == '\\') {
      i = behind_pronunciation(text, i);
    } else if (c == '[') {
      const size_t behind = behind_bracket(text, i);
      const std::string_view inside = text.substr(i + 1, behind - i - 2);
      if (is_accented(inside)) out += letters_of(inside);
      i = behind;
    } else if (const size_t end = c == '<' ? text.find('>', i) : std::string_view::npos;
               end != std::string_view::npos && is_subject(text.substr(i + 1, end - i - 1))) {
      i = end + 1;
    } else {
      // What was left out had a space on either side.
      if ((c == ',' || c == ';' || c == '.') && !out.empty() && out.back() == ' ') out.pop_back();
      if (!(is_space(c) && !out.empty() && out.back() == ' ')) out += c == '\n' ? '\n' : c;
      ++i;
    }
  }
  return out;
}

bool is_about_dictionary(std::string_view headword) {
  return headword.starts_with("00-database") || headword.starts_with("00database");
}

}  // namespace heddle::data
