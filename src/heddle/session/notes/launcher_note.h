// A note on what may happen to a run when its launcher is asked to end.
#pragma once

#include <string>

namespace heddle::session {

/// The note, where mpirun started this process and gives its ranks less time than a step of `step_s` needs; else
/// "".
std::string launcher_note(double step_s);

}  // namespace heddle::session
