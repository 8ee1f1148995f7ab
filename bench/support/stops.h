// A bench that is stopped before its end, by SIGINT, SIGTERM or --limit, says so first and prints what it has
// measured until then.
#pragma once

#include <string>

namespace heddle::bench {

/// What is printed on standard output if the bench is stopped from now on: its figures so far, in the form in which
/// it prints all of them at its end. A bench that prints as it measures needs it only for what closes its text. Of
/// any thread.
void so_far(std::string text);

/// Begins to watch for signals and for the end of --limit; called by the main of every bench. Children that run
/// when it is stopped are stopped, too. The exit status is 128 and the signal's number, or 124 at the limit.
void watch_for_stops(std::string program);
/// Seconds from the beginning on.
void limit_to(double seconds);

}  // namespace heddle::bench
