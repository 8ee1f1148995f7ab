// The look of the report: one style sheet, light and dark.
#pragma once

#include <string_view>

namespace heddle::observe {

std::string_view report_style();

}  // namespace heddle::observe
