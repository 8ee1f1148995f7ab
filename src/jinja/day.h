// The day that a template gets: fixed, so that the same conversation is the same text on every day.
#pragma once

#include <ctime>
#include <string>

namespace heddle::jinja {

/// The day where nobody names another.
inline constexpr const char* kChatDate = "2025-01-01";

/// "2025-06-28", or with a time "2025-06-28 14:30"; ConfigError, beginning with `place`, for what is no day.
std::tm parse_day(const std::string& day, const std::string& place);

}  // namespace heddle::jinja
