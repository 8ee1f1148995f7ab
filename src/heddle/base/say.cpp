#include "heddle/base/say.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/base/holder.h"

namespace heddle {

namespace {
std::atomic<int> why_unheard{0};  // of the answer's first part that could not be written
}

void say_text(std::FILE* to, std::string_view text) noexcept {
  if (const Holder* held = holder()) return held->print(to, text);
  int none = 0;
  if (std::fwrite(text.data(), 1, text.size(), to) < text.size() && to == stdout)
    why_unheard.compare_exchange_strong(none, errno);
}

void check_heard() {
  if (holder() != nullptr) return;
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  const int first = why_unheard, code = first != 0 ? first : errno;
  throw SystemError(code, fmt::format("the output could not be written{}{}", code != 0 ? ": " : "",
                                      code != 0 ? std::strerror(code) : ""));
}

void forget_unheard() noexcept {
  if (holder() != nullptr) return;
  (void)std::fflush(stdout);
  ::__fpurge(stdout);
  std::clearerr(stdout);
  why_unheard = 0;
}

void outlive_readers() {
  // A function that does nothing, not SIG_IGN, which programs that are started would inherit.
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  ::sigaction(SIGPIPE, &nothing, nullptr);
  ::sigaction(SIGXFSZ, &nothing, nullptr);
  for (int stream = 0; stream <= 2; ++stream) {
    // Opened to be read: writing fails, as it does where nothing is open.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", O_RDONLY);
  }
}

}  // namespace heddle
