// The size from which a message costs the threads that compute less when the copy engine moves it than when they
// do.
#pragma once

namespace heddle::planner {

/// The least bytes, of powers of two, from which the engine pays for what one rank sends another in one call. It
/// pays if the processor time of the calling threads, their waking and their letters with it, is less than by the
/// usual way, with two ranks as threads. 0 where this process has no core for copies.
double engine_from_bytes();

}  // namespace heddle::planner
