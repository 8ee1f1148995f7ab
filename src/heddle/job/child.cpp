#include "heddle/job/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"

namespace heddle::job {

namespace {

constexpr size_t kMostLineBytes = 1 << 16;  // longer ones are told in parts

// The parent of each process, of all that may be seen.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> of;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return of;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    pid_t process = 0;
    const auto [at, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || at != name.data() + name.size()) continue;
    std::ifstream file("/proc/" + std::string(name) + "/stat");
    std::string text;
    std::getline(file, text);
    const size_t behind = text.rfind(')');  // a name may hold anything
    if (behind == text.npos) continue;
    std::istringstream rest(text.substr(behind + 1));
    char state = 0;
    pid_t parent = 0;
    if (rest >> state >> parent && state != 'Z') of[process] = parent;
  }
  ::closedir(folder);
  return of;
}

std::vector<pid_t> descendants() {
  const std::map<pid_t, pid_t> of = parents();
  const pid_t self = ::getpid();
  std::vector<pid_t> found;
  for (const auto& [process, parent] : of) {
    pid_t at = parent;
    for (int depth = 0; depth < 64 && at != self && at > 1; ++depth) {
      const auto next = of.find(at);
      at = next == of.end() ? 0 : next->second;
    }
    if (at == self) found.push_back(process);
  }
  return found;
}

int opened(int ends[2]) {
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError(errno, "no pipe for a program's output");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return ends[0];
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void end_descendants() {
  constexpr double kMost_s = 10;
  for (const double until_s = now_s() + kMost_s; now_s() < until_s;) {
    const std::vector<pid_t> left = descendants();
    // All stand still first: one that is about to start another would be a step ahead.
    for (const pid_t process : left) ::kill(process, SIGSTOP);
    for (const pid_t process : left) ::kill(process, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (left.empty()) return;
    ::usleep(10'000);
  }
}

Child::Child(const std::vector<std::string>& words, const Environment& environment, Line out, Line error) {
  out_.told = std::move(out);
  error_.told = std::move(error);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int out_ends[2], error_ends[2], failed[2];
  out_.file = opened(out_ends);
  error_.file = opened(error_ends);
  opened(failed);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ < 0) throw SystemError(errno, fmt::format("cannot start {}: {}", words[0], std::strerror(errno)));
  if (process_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    std::signal(SIGPIPE, SIG_DFL);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, 0);
    ::dup2(out_ends[1], 1);
    ::dup2(error_ends[1], 2);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execvp(arguments[0], arguments.data());
    const int code = errno;
    (void)!::write(failed[1], &code, sizeof code);
    ::_exit(127);
  }
  ::setpgid(process_, process_);  // whichever of the two comes first
  ::close(out_ends[1]);
  ::close(error_ends[1]);
  ::close(failed[1]);
  ::fcntl(failed[0], F_SETFL, 0);
  int code = 0;
  const bool told = ::read(failed[0], &code, sizeof code) == sizeof code;
  ::close(failed[0]);
  if (!told) return;
  ::waitpid(process_, nullptr, 0);
  ::close(out_.file);
  ::close(error_.file);
  throw SystemError(code, fmt::format("cannot start {}: {}", words[0], std::strerror(code)));
}

Child::~Child() {
  kill();
  for (const Pipe* pipe : {&out_, &error_}) {
    if (pipe->file >= 0) ::close(pipe->file);
  }
}

void Child::take(Pipe& pipe) {
  std::array<char, 65536> bytes;
  while (pipe.file >= 0) {
    const ssize_t size = ::read(pipe.file, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return;
    if (size == 0) {
      ::close(std::exchange(pipe.file, -1));
      if (!pipe.held.empty()) pipe.told(std::exchange(pipe.held, {}));
      return;
    }
    pipe.held.append(bytes.data(), static_cast<size_t>(size));
    for (size_t end = pipe.held.find('\n'); end != pipe.held.npos; end = pipe.held.find('\n')) {
      pipe.told(pipe.held.substr(0, end));
      pipe.held.erase(0, end + 1);
    }
    if (pipe.held.size() > kMostLineBytes) pipe.told(std::exchange(pipe.held, {}));
  }
}

std::optional<int> Child::poll(double seconds) {
  if (status_) return status_;
  std::array<pollfd, 2> files{{{out_.file, POLLIN, 0}, {error_.file, POLLIN, 0}}};  // −1 is passed over
  ::poll(files.data(), files.size(), static_cast<int>(std::max(0.0, seconds) * 1e3));
  take(out_);
  take(error_);
  int status = 0;
  if (::waitpid(process_, &status, WNOHANG) == process_) {
    take(out_);  // what it said last
    take(error_);
    status_ = status_of(status);
  }
  return status_;
}

void Child::signal(int number) const {
  if (!status_) ::kill(process_, number);
}

void Child::kill() {
  if (process_ < 0) return;
  ::kill(-process_, SIGKILL);
  int status = 0;
  if (!status_ && ::waitpid(process_, &status, 0) == process_) status_ = status_of(status);
}

Ran run_for(const std::vector<std::string>& words, const Environment& environment, double seconds) {
  Ran ran;
  try {
    Child child(
        words, environment, [&ran](const std::string& line) { ran.out += line + '\n'; },
        [&ran](const std::string& line) { ran.error += line + '\n'; });
    for (const double until_s = now_s() + seconds; !ran.status && now_s() < until_s;) ran.status = child.poll(0.05);
  } catch (const SystemError& error) {
    ran.error = error.what();
  }
  return ran;
}

}  // namespace heddle::job
