// A program that holds Heddle in it, such as a Python interpreter, in place of the program `heddle`.
//
// The holder receives output, progress and training steps, and may ask a call to end early. It keeps the standard
// streams and the handlers of signals: Heddle then writes to none and sets none. One holder at a time; its
// functions may be called by any thread, by several at once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle {

struct Holder {
  /// Takes text for `stdout` (the answer) or `stderr` (warnings, lines of a run). Must not throw.
  std::function<void(std::FILE* to, std::string_view text)> print;
  /// Learns of the work under way and its share that is done, 0 to 1, or negative where that is unknown.
  std::function<void(std::string_view what, double share)> progress;
  /// Learns of a training step as its line of the metrics log. Returns false to end the run after this step.
  std::function<bool(std::string_view line)> step;
};

/// Makes `holder` the holder of this process while it lives. Forgets an earlier wish to stop. `holder` outlives it.
class HeldBy {
 public:
  explicit HeldBy(const Holder& holder);
  ~HeldBy();
  HeldBy(const HeldBy&) = delete;
  HeldBy& operator=(const HeldBy&) = delete;
};

/// The holder; null in the program `heddle`.
const Holder* holder();

/// The wish of a holder: after the step or plan under way, with what was found so far; or as soon as possible.
enum class Stop : uint8_t { none, gently, at_once };
void ask_to_stop(Stop wish);
Stop asked_to_stop();

/// Raised where a holder asked to stop at once.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped") {}
};

/// Throws Stopped if a holder asked to stop at once. Cheap: long work calls it between its parts.
void check_stop();

/// Writes to a descriptor without a buffer, or prints to the holder where it is that of standard error. Never
/// throws.
void write_now(int descriptor, std::string_view text) noexcept;

}  // namespace heddle
