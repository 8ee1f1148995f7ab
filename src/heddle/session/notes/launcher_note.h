// What may become of a run when its launcher is asked to end.
#pragma once

#include <string>

namespace heddle::session {

/// Where mpirun started this process and gives its ranks less time than a step of `step_s` needs; else "".
std::string launcher_note(double step_s);

}  // namespace heddle::session
