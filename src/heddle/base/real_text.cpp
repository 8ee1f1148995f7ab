#include "heddle/base/real_text.h"

#include <cerrno>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#if __has_include(<xlocale.h>)
#include <xlocale.h>
#endif

namespace heddle {

namespace {

template <class Real>
concept ReadByLibrary = requires(const char* at, Real& value) {
  std::from_chars(at, at, value);
};

// A template, so that the branch that is not taken need not compile.
template <class Real>
std::from_chars_result read_as(const char* first, const char* last, Real& value) {
  if constexpr (ReadByLibrary<Real>) {
    return std::from_chars(first, last, value);
  } else {
    return read_real_by_c(first, last, value);
  }
}

// Behind "inf", "infinity" or "nan" at the beginning, in letters of either case; else `first`.
const char* past_word(const char* first, const char* last) {
  for (const std::string_view word : {"infinity", "inf", "nan"}) {
    if (static_cast<size_t>(last - first) < word.size()) continue;
    size_t same = 0;
    while (same < word.size() && (first[same] | 0x20) == word[same]) ++same;
    if (same == word.size()) return first + same;
  }
  return first;
}

// Behind the longest number at the beginning; `first` where there is none.
const char* past_real(const char* first, const char* last) {
  const char* at = first != last && *first == '-' ? first + 1 : first;
  const auto digits = [&] {
    const char* const from = at;
    while (at != last && *at >= '0' && *at <= '9') ++at;
    return at - from;
  };
  const char* const begin = at;
  ptrdiff_t count = digits();
  if (at != last && *at == '.') {
    ++at;
    count += digits();
  }
  if (count == 0) {
    const char* const end = past_word(begin, last);
    return end == begin ? first : end;
  }
  const char* const mantissa_end = at;
  if (at != last && (*at == 'e' || *at == 'E')) {
    ++at;
    if (at != last && (*at == '+' || *at == '-')) ++at;
    if (digits() == 0) at = mantissa_end;
  }
  return at;
}

}  // namespace

std::from_chars_result read_real(const char* first, const char* last, double& value) {
  return read_as(first, last, value);
}

std::from_chars_result read_real_by_c(const char* first, const char* last, double& value) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  const char* const end = past_real(first, last);
  if (end == first) return {first, std::errc::invalid_argument};
  const std::string text(first, end);
  errno = 0;
  const double read = strtod_l(text.c_str(), nullptr, plain);
  // Numbers below the least normal one are in range too, although the C library notes them.
  if (errno == ERANGE && (read == 0 || std::isinf(read))) return {end, std::errc::result_out_of_range};
  value = read;
  return {end, std::errc()};
}

}  // namespace heddle
