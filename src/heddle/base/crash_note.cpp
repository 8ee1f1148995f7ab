#include "heddle/base/crash_note.h"

#include <unistd.h>

#include <atomic>

#include "heddle/base/holder.h"

namespace heddle {

namespace {

thread_local const CrashNote* innermost_note = nullptr;
// The notes of the thread that made CrashNotes.
std::atomic<const CrashNote* const*> listening_thread{nullptr};
// A fault may be that the thread's own stack is full.
alignas(64) std::array<char, 64 << 10> handler_stack;

const char* name_of_signal(int number) {
  switch (number) {
    case SIGSEGV: return "SIGSEGV (an address that is not there)";
    case SIGFPE: return "SIGFPE (arithmetic)";
    case SIGILL: return "SIGILL (an instruction that this processor does not have)";
    default: return "SIGABRT (given up)";
  }
}

}  // namespace

// A handler may write, and do little else.
struct CrashLine {
  static void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
      if (count <= 0) return;
      text.remove_prefix(static_cast<size_t>(count));
    }
  }
  static void write(const CrashNote& note) {
    for (const std::string_view text : {note.doing_, note.with_, note.of_}) {
      if (text.empty()) continue;
      write(" ");
      write(text);
    }
    if (note.outer_ == nullptr) return;
    write(", while");
    write(*note.outer_);
  }
  static void end(int number) {
    write("\nheddle: signal ");
    write(name_of_signal(number));
    const CrashNote* note = innermost_note;
    const auto* thread = listening_thread.load();
    if (note == nullptr && thread != nullptr) note = *thread;
    if (note != nullptr) {
      write(" while");
      write(*note);
    }
    write("\n");
    std::signal(number, SIG_DFL);
    std::raise(number);  // comes when this returns
  }
};

CrashNote::CrashNote(std::string_view doing, std::string_view with, std::string_view of)
    : doing_(doing), with_(with), of_(of), outer_(innermost_note) {
  innermost_note = this;
}

CrashNote::~CrashNote() { innermost_note = outer_; }

CrashNotes::CrashNotes() {
  if (holder() != nullptr) return;  // it handles signals
  listens_ = true;
  listening_thread = &innermost_note;
  stack_t stack{};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  sigaltstack(&stack, &stack_before_);
  struct sigaction action {};
  action.sa_handler = CrashLine::end;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kNumbers.size(); ++i) sigaction(kNumbers[i], &action, &before_[i]);
}

CrashNotes::~CrashNotes() {
  if (!listens_) return;
  for (size_t i = 0; i < kNumbers.size(); ++i) sigaction(kNumbers[i], &before_[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
  listening_thread = nullptr;
}

}  // namespace heddle
