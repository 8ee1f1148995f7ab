#include "heddle/observe/terminal/doing.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "heddle/base/clock.h"

namespace heddle::observe {

namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

void write_to_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Doing::Doing(std::string what) : Doing(std::move(what), describe_terminal(STDERR_FILENO), write_to_error, {}) {}

Doing::Doing(std::string what, const Terminal& terminal, Write write, const DoingPace& pace)
    : terminal_(terminal),
      write_(std::move(write)),
      pace_(pace),
      what_(std::move(what)),
      began_s_(now_s()),
      drawer_([this] {
        sigset_t all;  // signals go to the threads that they are meant for
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        draw_until_ended();
      }) {}

Doing::~Doing() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  drawer_.join();
  if (shown_ && terminal_.interactive) write_(kClearLine);
}

void Doing::now(std::string_view what, double share) {
  const std::lock_guard lock(mutex_);
  if (what_ != what) what_ = what;
  share_ = share;
}

void Doing::now(double share) {
  const std::lock_guard lock(mutex_);
  share_ = share;
}

std::string Doing::line() const {
  const std::string share = share_ < 0 ? "" : fmt::format("{:.0f} %, ", 100 * std::min(1.0, share_));
  return fmt::format("{}: {}{}", what_, share, clock_text(now_s() - began_s_));
}

void Doing::draw_until_ended() {
  std::unique_lock lock(mutex_);
  double wait_s = terminal_.interactive ? pace_.first_s : pace_.line_first_s;
  while (!ended_.wait_for(lock, std::chrono::duration<double>(wait_s), [this] { return end_; })) {
    write_(terminal_.interactive ? fmt::format("{}{}", kClearLine, line()) : line() + "\n");
    shown_ = true;
    wait_s = terminal_.interactive ? pace_.every_s : pace_.line_every_s;
  }
}

}  // namespace heddle::observe
