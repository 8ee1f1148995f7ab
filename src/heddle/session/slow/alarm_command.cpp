#include "heddle/session/slow/alarm_command.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sstream>
#include <thread>

#include "heddle/base/clock.h"

extern char** environ;

namespace heddle::session {

namespace {

constexpr size_t kMostAtOnce = 8;

// A file in memory: a program holds nobody up, whether it reads it or not.
int file_with(const std::string& text) {
  const int file = ::memfd_create("alarm", MFD_CLOEXEC);
  if (file < 0) return -1;
  if (::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::lseek(file, 0, SEEK_SET) == 0)
    return file;
  ::close(file);
  return -1;
}

}  // namespace

AlarmCommand::AlarmCommand(const std::string& command, Warn warn, double limit_s)
    : warn_(std::move(warn)), limit_s_(limit_s) {
  std::istringstream words(command);
  for (std::string word; words >> word;) words_.push_back(word);
}

AlarmCommand::~AlarmCommand() {
  for (const Started& one : started_) {
    ::kill(-one.process, SIGKILL);
    ::waitpid(one.process, nullptr, 0);
  }
}

void AlarmCommand::warn(const std::string& what) {
  if (!told_) warn_(fmt::format("train.alarm_command: {} {}; training goes on", words_[0], what));
  told_ = true;
}

void AlarmCommand::run(const std::string& text) {
  if (words_.empty()) return;
  poll();
  if (started_.size() >= kMostAtOnce) return warn(fmt::format("runs {} times already", started_.size()));
  const int file = file_with(text);
  if (file < 0) return warn(fmt::format("was not started: {}", std::strerror(errno)));
  std::vector<char*> arguments;
  for (std::string& word : words_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, file, STDIN_FILENO);
  // Its output goes to standard error: `--json` has the standard output for itself.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t usual;
  sigemptyset(&usual);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) sigaddset(&usual, number);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);  // a group of its own: Ctrl-C is the run's to answer
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  pid_t process = -1;
  const int code = ::posix_spawnp(&process, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(file);
  if (code != 0) return warn(fmt::format("can't be started: {}", std::strerror(code)));
  started_.push_back({process, now_s() + limit_s_});
}

void AlarmCommand::poll() {
  std::erase_if(started_, [&](const Started& one) {
    int status = 0;
    const pid_t ended = ::waitpid(one.process, &status, WNOHANG);
    if (ended == 0 && now_s() < one.until_s) return false;
    if (ended == 0) {
      ::kill(-one.process, SIGKILL);
      ::waitpid(one.process, &status, 0);
      warn(fmt::format("was ended after {:.3g} s", limit_s_));
    } else if (ended == one.process && status != 0) {
      warn(WIFEXITED(status) ? fmt::format("ended with status {}", WEXITSTATUS(status))
                             : fmt::format("was ended by signal {}", WTERMSIG(status)));
    }
    return true;
  });
}

void AlarmCommand::finish() {
  for (poll(); !started_.empty(); poll()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace heddle::session
