// Numbers as people read them: 1.2 GiB, 3.4 M, 250 us, 1:02:03.
//
// A scaled number has one decimal; a number that needs no scale and is whole has none. NaN is "nan", infinity
// "inf".
#pragma once

#include <string>
#include <string_view>

namespace heddle::observe {

/// 512 B, 1.2 GiB: powers of 1024.
std::string bytes_text(double bytes);

/// 950, 3.4 M, 671.0 G: powers of 1000. With a unit: count_text(2.1e12, "FLOP/s") is "2.1 TFLOP/s".
std::string count_text(double count, std::string_view unit = "");

/// 250 us, 3.4 ms, 1.2 s; from one minute on as 1:02 and 1:02:03, from one day on as 3d 04:05.
std::string duration_text(double seconds);

/// 1234567 as 1,234,567, wherever it is printed; count_of reads it back.
std::string grouped_text(long long number);

/// Up to `digits` significant digits, no trailing zeros: 3.214, 0.00022 as 2.2e-04.
std::string number_text(double number, int digits = 4);

}  // namespace heddle::observe
