// The texts of calibration.csv and memory_calibration.csv, put into the program by the build.
#pragma once

#include <string_view>

namespace heddle::advisor {

extern const std::string_view kBuiltInCalibration;
extern const std::string_view kBuiltInMemoryCalibration;

}  // namespace heddle::advisor
