#include "heddle/observe/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace heddle::observe {
namespace {

// `scale` moves up once more when rounding to one decimal would print the base itself (1023.97 KiB is 1.0 MiB).
template <size_t N>
std::string scaled(double number, double base, const std::array<const char*, N>& prefixes, std::string_view unit) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  size_t scale = 0;
  while (scale + 1 < N && std::abs(number) >= base - (scale == 0 ? 0.5 : 0.05)) {
    number /= base;
    ++scale;
  }
  const bool whole = scale == 0 && number == std::round(number);
  const std::string suffix = fmt::format("{}{}", prefixes[scale], unit);
  return fmt::format("{:.{}f}{}{}", number, whole ? 0 : 1, suffix.empty() ? "" : " ", suffix);
}

}  // namespace

std::string bytes_text(double bytes) {
  static constexpr std::array<const char*, 7> prefixes = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  return scaled(bytes, 1024, prefixes, "B");
}

std::string count_text(double count, std::string_view unit) {
  static constexpr std::array<const char*, 7> prefixes = {"", "K", "M", "G", "T", "P", "E"};
  return scaled(count, 1000, prefixes, unit);
}

std::string duration_text(double seconds) {
  if (std::isnan(seconds)) return "nan";
  if (std::isinf(seconds)) return seconds > 0 ? "inf" : "-inf";
  if (seconds < 0) return fmt::format("-{}", duration_text(-seconds));
  if (seconds == 0) return "0 s";
  if (seconds < 999.5e-9) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 999.95e-6) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 999.95e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e15) return fmt::format("{:.1e} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string grouped_text(long long number) {
  const std::string digits = fmt::format("{}", number < 0 ? -static_cast<unsigned long long>(number) : number);
  std::string text = number < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string number_text(double number, int digits) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  if (number == 0) return "0";
  const double size = std::abs(number);
  if (size < 1e-3 || size >= 1e6) {
    std::string text = fmt::format("{:.{}e}", number, digits - 1);
    const size_t exponent = text.find('e');
    size_t end = exponent;
    if (text.find('.') < exponent) {
      while (text[end - 1] == '0') --end;
      if (text[end - 1] == '.') --end;
    }
    return text.substr(0, end) + text.substr(exponent);
  }
  // Rounding may carry into one more digit before the point (9.9996): one decimal fewer would be asked for there,
  // which trimming hides.
  const int before_point = static_cast<int>(std::floor(std::log10(size))) + 1;
  std::string text = fmt::format("{:.{}f}", number, std::max(0, digits - before_point));
  if (text.find('.') != text.npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace heddle::observe
