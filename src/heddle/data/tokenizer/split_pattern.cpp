#define PCRE2_CODE_UNIT_WIDTH 8
#include "heddle/data/tokenizer/split_pattern.h"

#include <pcre2.h>

#include "heddle/base/error.h"

namespace heddle::data {
namespace {

constexpr size_t kMostPatternBytes = 64 * 1024;
constexpr uint32_t kMostMatchSteps = 50'000'000;
constexpr uint32_t kMostHeapKib = 256 * 1024;

std::string message(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return fmt::format("error {}", code);
  return reinterpret_cast<const char*>(text);
}

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// The pattern with "sc:" before each name that \p and \P know as a script.
std::string with_scripts(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    out += pattern[i];
    if (pattern[i] != '\\' || i + 1 == pattern.size()) continue;
    out += pattern[++i];
    const size_t end = pattern.find('}', i);
    if ((pattern[i] != 'p' && pattern[i] != 'P') || pattern.substr(i + 1, 1) != "{" ||
        end == std::string_view::npos) {
      continue;
    }
    std::string_view name = pattern.substr(i + 2, end - i - 2);
    const bool inverted = name.starts_with('^');
    if (inverted) name.remove_prefix(1);
    const bool script = name.size() > 2 && compiles(fmt::format("\\p{{sc:{}}}", name));
    out += fmt::format("{{{}{}{}}}", inverted ? "^" : "", script ? "sc:" : "", name);
    i = end;
  }
  return out;
}

// A class whose inner classes only add to it, without their brackets; another as it is.
std::string without_inner_classes(const std::string& whole) {
  std::string flat = "[";
  for (size_t i = 1; i + 1 < whole.size(); ++i) {
    const char c = whole[i], before = whole[i - 1], next = whole[i + 1];
    if (c == '\\') {
      flat += whole.substr(i++, 2);
    } else if (c == '[' || c == ']') {
      if (before == '-' || next == '-' || next == '^' || next == ':') return whole;
    } else {
      if (c == '&' && next == '&') return whole;
      flat += c;
    }
  }
  return flat + "]";
}

}  // namespace

SplitPattern::Scratch::Scratch()
    : match_(pcre2_match_data_create(1, nullptr)), limits_(pcre2_match_context_create(nullptr)) {
  HEDDLE_CHECK(match_ != nullptr && limits_ != nullptr, "out of memory for regular expressions");
  pcre2_set_match_limit(limits_, kMostMatchSteps);
  pcre2_set_heap_limit(limits_, kMostHeapKib);
}

SplitPattern::Scratch::~Scratch() {
  pcre2_match_data_free(match_);
  pcre2_match_context_free(limits_);
}

void SplitPattern::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

SplitPattern::SplitPattern(const std::string& pattern, const std::string& place) : place_(place) {
  if (pattern.size() > kMostPatternBytes) {
    config_error("{}: the pattern has {} bytes, at most {} are accepted", place, pattern.size(), kMostPatternBytes);
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY, &error, &offset,
                            nullptr));
  if (!code_) config_error("{}: not a regular expression: {} at byte {}", place, message(error), offset);
  fast_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

std::string SplitPattern::translated(std::string_view given) {
  const std::string pattern = with_scripts(given);
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      out += pattern.substr(i++, 2);
      continue;
    }
    if (pattern[i] != '[') {
      out += pattern[i];
      continue;
    }
    // From one class to the end of the one within it, if that is all there is: [left&&[right]].
    size_t inner = std::string_view::npos, end = i + 1;
    int depth = 1;
    bool simple = true;
    for (; end < pattern.size() && depth > 0; ++end) {
      if (pattern[end] == '\\') {
        ++end;
      } else if (pattern[end] == '[') {
        simple &=
            depth == 1 && inner == std::string_view::npos && end >= i + 3 && pattern.compare(end - 2, 2, "&&") == 0;
        inner = end;
        ++depth;
      } else if (pattern[end] == ']') {
        --depth;
        simple &= depth == 0 || pattern.substr(end + 1, 1) == "]";
      }
    }
    if (depth == 0 && simple && inner != std::string_view::npos) {
      const std::string left = pattern.substr(i, inner - 2 - i), right = pattern.substr(inner, end - 1 - inner);
      out += right.starts_with("[^") ? fmt::format("(?:(?![{}){}])", right.substr(2), left)
                                     : fmt::format("(?:(?={}){}])", right, left);
    } else {
      const std::string whole = pattern.substr(i, end - i);
      out += depth == 0 ? without_inner_classes(whole) : whole;
    }
    i = end - 1;
  }
  return out;
}

std::string SplitPattern::differs_from_oniguruma(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\') {
      const bool letter = (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z');
      if (letter && std::string_view("pPsSdDrntf").find(next) == std::string_view::npos) {
        return fmt::format("\\{} may mean other characters here", next);
      }
      ++i;
    } else if (in_class) {
      if (c == '[') return "a class within a class";
      if (c == '&' && next == '&') return "an intersection of classes";
      if (c == ']') in_class = false;
    } else if (c == '[') {
      in_class = true;
      if (next == '^') ++i;
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') return "a class that begins with ']'";
    } else if (c == '^' || c == '$') {
      return fmt::format("'{}', there the {} of a line,", c, c == '^' ? "beginning" : "end");
    } else if (c == '(' && next == '*') {
      return "a verb (*...)";
    }
  }
  return "";
}

std::string SplitPattern::literally(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80) != 0;
    if (!plain) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

bool SplitPattern::may_be_empty() const {
  uint32_t empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  return empty != 0;
}

bool SplitPattern::find(std::string_view subject, size_t start, Scratch& scratch, size_t& begin,
                        size_t& end) const {
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (fast_) {
    found = pcre2_jit_match(code_.get(), text, subject.size(), start, PCRE2_NO_UTF_CHECK, scratch.match_,
                            scratch.limits_);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
    found = pcre2_match(code_.get(), text, subject.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch.match_,
                        scratch.limits_);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) config_error("{}: the pattern can't be matched: {}", place_, message(found));
  const PCRE2_SIZE* at = pcre2_get_ovector_pointer(scratch.match_);
  if (at[0] < start || at[1] < at[0] || at[1] > subject.size()) {
    config_error("{}: the pattern's match begins before its search does (\\K in a look-around?)", place_);
  }
  begin = at[0];
  end = at[1];
  return true;
}

bool SplitPattern::Matches::next(size_t& begin, size_t& end) {
  while (from_ < subject_.size()) {
    if (!pattern_.find(subject_, from_, scratch_, begin, end)) {
      from_ = subject_.size();
      return false;
    }
    if (begin == end && last_end_ == end) {
      ++from_;
      while (from_ < subject_.size() && (subject_[from_] & 0xc0) == 0x80) ++from_;
      continue;
    }
    from_ = last_end_ = end;
    return true;
  }
  return false;
}

std::string pattern_library_text() {
  char version[64] = "?";  // the library asks for at most 24
  uint32_t jit = 0;
  pcre2_config(PCRE2_CONFIG_VERSION, version);
  pcre2_config(PCRE2_CONFIG_JIT, &jit);
  return fmt::format("{}{}", version, jit != 0 ? "" : ", without its compiler: tokenizing is slow");
}

}  // namespace heddle::data
