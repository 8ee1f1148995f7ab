// A diagnosis as text, as JSON, and as one page to attach to an issue.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "check/diagnosis.h"
#include "heddle/observe/terminal/terminal.h"

namespace heddle::check {

std::string report_text(const Dump& dump, const Diagnosis& diagnosis, const observe::Terminal& terminal);
nlohmann::ordered_json report_json(const Dump& dump, const Diagnosis& diagnosis);
std::string report_page(const Dump& dump, const Diagnosis& diagnosis);

}  // namespace heddle::check
