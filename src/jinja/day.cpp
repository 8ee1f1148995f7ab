#include "jinja/day.h"

#include <charconv>
#include <chrono>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "jinja/machine.h"

namespace heddle::jinja {

namespace {

constexpr size_t kMostFormatBytes = 256;

// A number of `digits` digits at `at`, which moves behind it; -1: there is none.
int number(const std::string& text, size_t& at, size_t digits) {
  int value = -1;
  if (at + digits > text.size()) return -1;
  const char* const begin = text.data() + at;
  const auto [end, error] = std::from_chars(begin, begin + digits, value);
  at += digits;
  return error == std::errc() && end == begin + digits ? value : -1;
}

bool skip(const std::string& text, size_t& at, std::string_view any_of) {
  if (at >= text.size() || any_of.find(text[at]) == std::string_view::npos) return false;
  ++at;
  return true;
}

}  // namespace

std::tm parse_day(const std::string& day, const std::string& place) {
  size_t at = 0;
  const int year = number(day, at, 4);
  bool good = skip(day, at, "-");
  const int month = number(day, at, 2);
  good = skip(day, at, "-") && good;
  const int of_month = number(day, at, 2);
  int hour = 0, minute = 0;
  if (at < day.size()) {
    good = skip(day, at, " T") && good;
    hour = number(day, at, 2);
    good = skip(day, at, ":") && good;
    minute = number(day, at, 2);
  }
  using namespace std::chrono;
  const year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                            std::chrono::day(static_cast<unsigned>(of_month))};
  if (!good || at != day.size() || year < 1 || month < 1 || of_month < 1 || !date.ok() || hour < 0 || hour > 23 ||
      minute < 0 || minute > 59)
    config_error("{}: '{}' is no day; accepted are days such as 2025-06-28 or 2025-06-28 14:30", place,
                 escaped(day, 40));
  std::tm tm{};
  tm.tm_year = year - 1900;
  tm.tm_mon = month - 1;
  tm.tm_mday = of_month;
  tm.tm_hour = hour;
  tm.tm_min = minute;
  tm.tm_wday = static_cast<int>(weekday(sys_days(date)).c_encoding());
  tm.tm_yday = static_cast<int>(
      (sys_days(date) - sys_days(year_month_day{date.year(), January, std::chrono::day(1)})).count());
  return tm;
}

Value strftime(const std::string& day, Machine& machine, const Arguments& arguments) {
  std::string format = machine.want_text(arguments.get(0, "format", Value()), "strftime_now");
  if (format.size() > kMostFormatBytes)
    machine.fail(fmt::format("strftime_now: a format of more than {} bytes", kMostFormatBytes));
  for (size_t at = 0; (at = format.find('%', at)) != std::string::npos; at += 2) {
    if (format.compare(at, 2, "%f") == 0) format.replace(at, 2, "000000");  // Python's own
  }
  const std::tm tm = parse_day(day, "the day of strftime_now");
  format += '.';  // a result that is empty looks like a failure
  std::string made(16 * kMostFormatBytes, '\0');
  made.resize(std::strftime(made.data(), made.size(), format.c_str(), &tm));
  if (made.empty()) machine.fail("strftime_now: the day takes too long a text");
  made.pop_back();
  return machine.text(std::move(made));
}

}  // namespace heddle::jinja
