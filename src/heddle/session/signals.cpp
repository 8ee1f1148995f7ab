#include "heddle/session/signals.h"

namespace heddle::session {

namespace {
volatile std::sig_atomic_t stop_asked = 0, save_asked = 0;
}  // namespace

Signals::Signals() {
  stop_asked = 0;
  save_asked = 0;
  const auto listen = [&](int number, void (*handler)(int), int flags) {
    struct sigaction action {
    }, before{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) return;
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(number, &action, &before);
    before_.emplace_back(number, before);
  };
  const auto stop = [](int) { stop_asked = 1; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) listen(number, stop, static_cast<int>(SA_RESETHAND));
  listen(SIGUSR2, stop, SA_RESTART);
  listen(
      SIGUSR1, [](int) { save_asked = 1; }, SA_RESTART);
  listen(SIGPIPE, SIG_IGN, 0);
}

Signals::~Signals() {
  for (const auto& [number, before] : before_) sigaction(number, &before, nullptr);
}

Wishes Signals::take() {
  const bool save = save_asked != 0;
  if (save) save_asked = 0;
  return {stop_asked != 0, save};
}

}  // namespace heddle::session
