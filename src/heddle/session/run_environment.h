// Records where, when and how a run was made, for readers of its report.
#pragma once

#include <string>

namespace heddle::session {

std::string host_name();
/// The command line of this process, quoted as a shell wants it.
std::string command_text();
/// The program's version, and the commit that it was built from where that is known.
std::string version_text();
/// The processor's name and the cores that this process may use.
std::string processor_text();

}  // namespace heddle::session
