// Counts and numbers as people type them: 500M, 1.5e9, 4Ki, 1,000,000.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

/// A whole number, with K, M, G or B, T for powers of 1000 and Ki, Mi, Gi, Ti for powers of 1024, in any case;
/// "1.5e9" and "2.5M" too, as long as they are whole. Digits may stand in groups, 1_000 or 1,000. Nothing where it
/// is no such number or beyond 64 bits.
std::optional<int64_t> count_of(std::string_view text);

/// A finite number with a point and an exponent, or a count as above.
std::optional<double> number_of(std::string_view text);

}  // namespace heddle
