#include "bench/support/stops.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "heddle/base/clock.h"

namespace heddle::bench {
namespace {

constexpr int kLimitStatus = 124;

std::mutex g_mutex;
std::string g_so_far;  // under g_mutex
int g_wake[2] = {-1, -1};
std::atomic<double> g_limit_s = 0;  // 0: none

void on_signal(int number) {
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = write(g_wake[1], &byte, 1);
}

/// Programs that this one runs: they would go on, and keep the machine busy.
void stop_children() {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) kill(child, SIGTERM);
  }
}

/// The ranks of one bench say it once.
bool speaks() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr || std::string(rank) == "0";
}

[[noreturn]] void stop(const std::string& program, const std::string& why, int status) {
  const std::lock_guard lock(g_mutex);
  if (speaks()) {
    fmt::print(
        stderr, "{}: stopped {}, before its end; {}\n", program, why,
        g_so_far.empty() ? "what it has printed is all that it has measured" : "what it has measured until then:");
  }
  // A row that is still in the buffer, unless another thread is amid printing; and nothing is printed from now on.
  if (ftrylockfile(stdout) == 0) fflush_unlocked(stdout);
  if (!g_so_far.empty()) {  // past stdio, whose lock another thread may hold
    if (g_so_far.back() != '\n') g_so_far += '\n';
    for (size_t at = 0; at < g_so_far.size();) {
      const ssize_t written = write(STDOUT_FILENO, g_so_far.data() + at, g_so_far.size() - at);
      if (written <= 0) break;
      at += static_cast<size_t>(written);
    }
  }
  stop_children();
  _exit(status);
}

void watch(const std::string& program) {
  const double start = now_s();
  for (;;) {
    const double limit = g_limit_s, passed = now_s() - start;
    if (limit > 0 && passed >= limit)
      stop(program, fmt::format("at --limit, after {:.0f} s", passed), kLimitStatus);
    const double wait_s = limit > 0 ? std::min(limit - passed, 60.0) : 60.0;
    pollfd wake{g_wake[0], POLLIN, 0};
    if (poll(&wake, 1, static_cast<int>(wait_s * 1000) + 1) <= 0) continue;
    unsigned char byte = 0;
    if (read(g_wake[0], &byte, 1) != 1 || byte == 0) continue;
    stop(program, fmt::format("by {} after {:.0f} s", byte == SIGINT ? "SIGINT" : "SIGTERM", now_s() - start),
         128 + byte);
  }
}

}  // namespace

void so_far(std::string text) {
  const std::lock_guard lock(g_mutex);
  g_so_far = std::move(text);
}

void watch_for_stops(std::string program) {
  // Rows that are printed one by one are out when they are printed, into a pipe or a file, too.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (pipe(g_wake) != 0) return;
  std::thread(watch, std::move(program)).detach();
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, on_signal);
}

void limit_to(double seconds) {
  g_limit_s = seconds;
  on_signal(0);  // the watcher reckons anew
}

}  // namespace heddle::bench
