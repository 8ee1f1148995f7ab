// Errors of the engine as errors of the shared library.
#pragma once

#include <new>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/holder.h"
#include "python/core/core.h"

namespace heddle::core {

/// Returns what `body` returns. Throws Failure for whatever it throws.
template <class Body>
auto guarded(const Body& body) {
  try {
    return body();
  } catch (const Stopped& error) {
    throw Failure(Failure::Kind::stopped, error.what());
  } catch (const ConfigError& error) {
    throw Failure(Failure::Kind::input, escaped_lines(error.what()));
  } catch (const InternalError& error) {
    throw Failure(Failure::Kind::bug, "this is a bug of Heddle: " + escaped_lines(error.what()));
  } catch (const std::bad_alloc&) {
    throw Failure(Failure::Kind::memory, "out of memory on the host");
  } catch (const std::exception& error) {
    throw Failure(Failure::Kind::system, escaped_lines(error.what()));
  }
}

}  // namespace heddle::core
