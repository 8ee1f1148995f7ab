// The program `heddle` as a function.
#pragma once

namespace heddle::cli {

/// Runs the command line. Whatever goes wrong becomes one message on standard error and an exit status, never a
/// stack trace. Returns the exit status (base/failure.h).
int run_program(int count, char** arguments) noexcept;

}  // namespace heddle::cli
