// The text of calibration.csv, put into the program by the build.
#pragma once

#include <string_view>

namespace heddle::search {

extern const std::string_view kBuiltInCalibration;

}  // namespace heddle::search
