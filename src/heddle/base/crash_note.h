// Notes of a thread's work. A signal of the process's own fault (SIGSEGV, SIGFPE, SIGILL, SIGABRT) prints them
// before it ends the process. A library's fault has no other message.
#pragma once

#include <array>
#include <csignal>
#include <string_view>

namespace heddle {

/// While one lives, its thread is at this, within what it was at before. The texts must outlive it.
class CrashNote {
 public:
  explicit CrashNote(std::string_view doing, std::string_view with = {}, std::string_view of = {});
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;
  /// Goes on to the next.
  void now_of(std::string_view of) { of_ = of; }

 private:
  friend struct CrashLine;
  std::string_view doing_, with_, of_;
  const CrashNote* outer_;
};

/// While one lives, such a signal prints what its thread is at, or the thread that made this where it has said
/// nothing. The signal then ends the process as it would have. One at a time; none where another program holds
/// Heddle.
class CrashNotes {
 public:
  CrashNotes();
  ~CrashNotes();
  CrashNotes(const CrashNotes&) = delete;
  CrashNotes& operator=(const CrashNotes&) = delete;

 private:
  static constexpr std::array<int, 4> kNumbers{SIGSEGV, SIGFPE, SIGILL, SIGABRT};
  std::array<struct sigaction, kNumbers.size()> before_{};
  stack_t stack_before_{};
  bool listens_ = false;
};

}  // namespace heddle
