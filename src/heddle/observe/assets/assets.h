// Files of this folder that CMake puts into the program.
#pragma once

#include <string_view>

namespace heddle::observe {

/// report.js: tooltips over the charts, and the canvas of the lanes with zoom. It reads only the JSON beside each
/// figure, asks nothing of the network, and writes text by textContent, never as markup.
extern const std::string_view kReportScript;
/// report.css: the look of the page, light and dark. Charts use its variables: --c0 to --c10 tell curves apart
/// (chosen to differ in lightness too). --p0 to --p5 are the phases, --h0 to --h10 the heat map's shades.
extern const std::string_view kReportStyle;
/// schedule.css: the look of a schedule's SVG. Plain classes: many viewers know no CSS variables, and those that
/// know no media queries show the light scheme.
extern const std::string_view kScheduleStyle;

}  // namespace heddle::observe
