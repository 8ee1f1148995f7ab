// The program's output. Nobody may be there to read it: a full disk behind a log, a pipe that was closed. Printing
// therefore never throws and never ends anything; a run goes on unheard. A command whose answer is what it prints
// asks afterwards whether it was heard (main does for all of them).
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

namespace heddle {

/// Prints to `stdout` or `stderr`, as far as it goes.
void say_text(std::FILE* to, std::string_view text) noexcept;

template <class... Args>
void say(std::FILE* to, fmt::format_string<Args...> form, Args&&... args) noexcept {
  try {
    say_text(to, fmt::format(form, std::forward<Args>(args)...));
  } catch (...) {  // no memory for the text
    say_text(to, "heddle: out of memory on the host\n");
  }
}

/// The answer: to standard output.
template <class... Args>
void say(fmt::format_string<Args...> form, Args&&... args) noexcept {
  say(stdout, form, std::forward<Args>(args)...);
}

/// Hands on what is buffered. SystemError where anything of the answer could not be written until now: for commands
/// that print as long as somebody reads.
void check_heard();

/// For commands that do something else than answer: hands on what is buffered, and what nobody took is forgotten.
void forget_unheard() noexcept;

/// For a program as it begins. A reader that is gone does not end it (SIGPIPE; programs that it starts have the
/// usual way). A limit on file sizes fails the write (SIGXFSZ). No file that is opened later takes the number of a
/// standard stream that is closed.
void outlive_readers();

}  // namespace heddle
