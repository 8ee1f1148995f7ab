#include "heddle/observe/terminal/doing.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/holder.h"

namespace heddle::observe {

namespace {

void write_to_error(std::string_view text) { write_now(STDERR_FILENO, text); }

void tell_holder(std::string_view what, double share) {
  if (const Holder* held = holder(); held != nullptr && held->progress) held->progress(what, share);
  check_stop();
}

std::string passed_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Doing::Doing(std::string what) : Doing(std::move(what), describe_terminal(STDERR_FILENO), write_to_error, {}) {}

Doing::Doing(std::string what, const Terminal& terminal, Write write, const DoingPace& pace)
    : terminal_(terminal), write_(std::move(write)), pace_(pace), what_(std::move(what)), began_s_(now_s()) {
  tell_holder(what_, share_);
  if (holder() != nullptr) return;
  drawer_ = std::thread([this] {
    sigset_t all;  // signals go to the threads that they are meant for
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    draw_until_ended();
  });
}

Doing::~Doing() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (drawer_.joinable()) drawer_.join();
  if (shown_ && terminal_.interactive) write_(kClearLine);
}

void Doing::now(std::string_view what, double share) {
  {
    const std::lock_guard lock(mutex_);
    if (what_ != what) what_ = what;
    take_share(share);
  }
  tell_holder(what, share);
}

void Doing::now(double share) {
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    take_share(share);
    if (holder() != nullptr) what = what_;
  }
  tell_holder(what, share);
}

// A share that falls is of something else.
void Doing::take_share(double share) {
  if (share_ < 0 || share < share_) {
    first_share_ = share;
    first_share_s_ = now_s();
  }
  share_ = share;
}

std::string Doing::line() const {
  constexpr double kTelling = 0.02, kTelling_s = 2;  // less says nothing about the rest
  const double now = now_s(), risen = share_ - first_share_, took_s = now - first_share_s_;
  const std::string share = share_ < 0 ? "" : fmt::format("{:.0f} %, ", 100 * std::min(1.0, share_));
  const bool foreseen = share_ < 1 && risen >= kTelling && took_s >= kTelling_s;
  const std::string rest =
      foreseen ? fmt::format(", about {} left", passed_text((1 - share_) / risen * took_s)) : "";
  return fmt::format("{}: {}{}{}", what_, share, passed_text(now - began_s_), rest);
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
