// Numbers with a fraction, read from text, whatever the locale.
#pragma once

#include <charconv>

namespace heddle {

/// std::from_chars of a `double`; by the C library where the C++ library has none (libc++ before 20).
std::from_chars_result read_real(const char* first, const char* last, double& value);

/// Reads what read_real reads, by the C library. "nan" is read without characters in parentheses.
std::from_chars_result read_real_by_c(const char* first, const char* last, double& value);

}  // namespace heddle
