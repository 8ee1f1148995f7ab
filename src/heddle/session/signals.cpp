#include "heddle/session/signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "heddle/base/holder.h"

namespace heddle::session {

namespace {

volatile std::sig_atomic_t stop_asked = 0, save_asked = 0;
std::array<volatile std::sig_atomic_t, 65> asked_before{};  // by which signals
volatile std::sig_atomic_t on_terminal = 0, nothing_to_lose = 0;

// A handler may write, and do little else: what it writes lies ready. It may run while the next answer is being put
// down, so there are several places, and which one holds is said last.
struct Answer {
  std::array<char, 256> first{}, second{};
};
constexpr int kSignalPlaces = 8;
std::array<Answer, kSignalPlaces> answers;
std::atomic<int> current{0};
static_assert(std::atomic<int>::is_always_lock_free);

void put(std::array<char, 256>& into, std::string_view text) {
  const size_t size = std::min(text.size(), into.size() - 2);
  std::memcpy(into.data(), text.data(), size);
  into[size] = '\0';
}

void say_in_handler(const char* text) {
  for (size_t left = std::strlen(text); left > 0;) {
    const ssize_t count = ::write(STDERR_FILENO, text, left);
    if (count <= 0) return;
    text += count;
    left -= static_cast<size_t>(count);
  }
}

void tell(const char* what, const std::array<char, 256>& answer) {
  if (answer[0] == '\0') return;
  say_in_handler(on_terminal != 0 ? "\r\x1b[K" : "");
  say_in_handler(what);
  say_in_handler(answer.data());
  say_in_handler("\n");
}

void stop(int number) {
  const int kept = errno;
  const Answer& answer = answers[static_cast<size_t>(current.load())];
  // Signals that come again and again, or by way of a launcher, are not somebody who insists.
  const bool insists = asked_before[number] != 0 && number != SIGUSR2 && number != SIGXCPU && number != SIGALRM;
  if (insists || nothing_to_lose != 0) {
    tell("ended at once: ", answer.second);
    std::signal(number, SIG_DFL);
    std::raise(number);  // comes when this returns
  } else if (stop_asked == 0) {
    tell("stopping: ", answer.first);
  }
  asked_before[number] = 1;
  stop_asked = 1;
  errno = kept;
}

}  // namespace

Signals::Signals() {
  stop_asked = 0;
  save_asked = 0;
  for (volatile std::sig_atomic_t& asked : asked_before) asked = 0;
  on_terminal = ::isatty(STDERR_FILENO) == 1 ? 1 : 0;
  answer("the current work ends first", "nothing more was written");
  if (holder() != nullptr) return;  // it handles signals
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
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) listen(number, stop, 0);
  for (const int number : {SIGUSR2, SIGXCPU, SIGALRM}) listen(number, stop, SA_RESTART);
  listen(
      SIGUSR1, [](int) { save_asked = 1; }, SA_RESTART);
}

Signals::~Signals() {
  for (const auto& [number, before] : before_) sigaction(number, &before, nullptr);
}

Wishes Signals::take() {
  const bool save = save_asked != 0;
  if (save) save_asked = 0;
  return {stop_asked != 0 || asked_to_stop() != Stop::none, save, 0};
}

void Signals::end_at_once(std::string_view why) {
  answer("", why);
  nothing_to_lose = 1;
}

void Signals::answer(std::string_view first, std::string_view second) {
  nothing_to_lose = 0;
  const int next = (current.load() + 1) % kSignalPlaces;
  put(answers[next].first, first);
  put(answers[next].second, second);
  current.store(next);
}

}  // namespace heddle::session
