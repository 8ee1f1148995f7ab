#include "heddle/job/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

constexpr size_t kMostLineBytes = 1 << 16;  // longer ones are passed on in parts
constexpr double kEnds_s = 2;               // in which a program ends by its signal

struct Process {
  pid_t parent = 0;
  bool ended = false;  // and waited for by its parent
};

// All that may be seen.
std::map<pid_t, Process> processes() {
  std::map<pid_t, Process> of;
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
    if (rest >> state >> parent) of[process] = {parent, state == 'Z'};
  }
  ::closedir(folder);
  return of;
}

// Descendants of this process and not of one of these: those that live, and its own children that have ended.
struct Descendants {
  std::vector<pid_t> living, ended;
};
Descendants descendants(const std::vector<pid_t>& spared) {
  const std::map<pid_t, Process> of = processes();
  const pid_t self = ::getpid();
  const auto spares = [&](pid_t one) { return std::find(spared.begin(), spared.end(), one) != spared.end(); };
  Descendants found;
  for (const auto& [process, is] : of) {
    if (spares(process)) continue;
    if (is.ended) {
      if (is.parent == self) found.ended.push_back(process);
      continue;
    }
    pid_t at = is.parent;
    for (int depth = 0; depth < 64 && at != self && at > 1 && !spares(at); ++depth) {
      const auto next = of.find(at);
      at = next == of.end() ? 0 : next->second.parent;
    }
    if (at == self) found.living.push_back(process);
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

void end_descendants(const std::vector<pid_t>& spared) {
  constexpr double kMost_s = 10;
  for (const double until_s = now_s() + kMost_s; now_s() < until_s;) {
    const Descendants left = descendants(spared);
    // All stand still first: one that is about to start another would be a step ahead.
    for (const pid_t process : left.living) ::kill(process, SIGSTOP);
    for (const pid_t process : left.living) ::kill(process, SIGKILL);
    for (const pid_t process : left.ended) ::waitpid(process, nullptr, WNOHANG);
    if (left.living.empty()) return;
    ::usleep(10'000);
  }
}

Child::Child(const std::vector<std::string>& words, const Environment& environment, Line out, Line error,
             int end_signal, Input input)
    : end_signal_(end_signal) {
  out_.pass_on = std::move(out);
  error_.pass_on = std::move(error);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int out_ends[2], error_ends[2], failed[2], in_ends[2] = {-1, -1};
  out_.file = opened(out_ends);
  error_.file = opened(error_ends);
  opened(failed);
  const bool reports_end = input == Input::lines;
  if (reports_end) {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in_ends) != 0)
      throw SystemError(errno, "no pipe for a program's input");
    input_ = in_ends[1];
  }
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ < 0) throw SystemError(errno, fmt::format("cannot start {}: {}", words[0], std::strerror(errno)));
  if (process_ == 0) {
    if (!reports_end) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    std::signal(SIGPIPE, SIG_DFL);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(reports_end ? in_ends[0] : nothing, 0);
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
  if (in_ends[0] >= 0) ::close(in_ends[0]);
  ::fcntl(failed[0], F_SETFL, 0);
  int code = 0;
  const bool failed_to_start = ::read(failed[0], &code, sizeof code) == sizeof code;
  ::close(failed[0]);
  if (!failed_to_start) return;
  ::waitpid(process_, nullptr, 0);
  ::close(out_.file);
  ::close(error_.file);
  end_input();
  throw SystemError(code, fmt::format("cannot start {}: {}", words[0], std::strerror(code)));
}

Child::~Child() {
  kill();
  end_input();
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
      if (!pipe.held.empty()) pipe.pass_on(std::exchange(pipe.held, {}));
      return;
    }
    pipe.held.append(bytes.data(), static_cast<size_t>(size));
    for (size_t end = pipe.held.find('\n'); end != pipe.held.npos; end = pipe.held.find('\n')) {
      pipe.pass_on(pipe.held.substr(0, end));
      pipe.held.erase(0, end + 1);
    }
    if (pipe.held.size() > kMostLineBytes) pipe.pass_on(std::exchange(pipe.held, {}));
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
    take(out_);  // its last words
    take(error_);
    status_ = status_of(status);
  }
  return status_;
}

void Child::tell(const std::string& line) {
  const std::string text = line + '\n';
  if (input_ >= 0 && ::send(input_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != std::ssize(text))
    end_input();
}

void Child::end_input() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
}

void Child::signal(int number) const {
  if (!status_) ::kill(process_, number);
}

// A launcher that can't end what it has started, because it stands still or a node is away, is killed. A process of
// its group outlives it and does the rest (srun's "shepherd").
void Child::end_by_signal() {
  const auto within = [](const auto& is_over) {
    for (const double until_s = now_s() + kEnds_s; now_s() < until_s; ::usleep(2'000)) {
      if (is_over()) return true;
    }
    return false;
  };
  int status = 0;
  ::kill(process_, end_signal_);
  if (!within([&] { return ::waitpid(process_, &status, WNOHANG) == process_; })) {
    ::kill(process_, SIGKILL);
    if (::waitpid(process_, &status, 0) != process_) return;
    (void)within([&] { return ::kill(-process_, 0) != 0; });
  }
  status_ = status_of(status);
}

void Child::kill() {
  if (process_ < 0) return;
  if (end_signal_ != 0 && !status_) end_by_signal();
  ::kill(-process_, SIGKILL);
  int status = 0;
  if (!status_ && ::waitpid(process_, &status, 0) == process_) status_ = status_of(status);
}

Ran run_for(const std::vector<std::string>& words, const Environment& environment, int end_signal, double seconds) {
  Ran ran;
  try {
    Child child(
        words, environment, [&ran](const std::string& line) { ran.out += line + '\n'; },
        [&ran](const std::string& line) { ran.error += line + '\n'; }, end_signal);
    for (const double until_s = now_s() + seconds; !ran.status && now_s() < until_s;) ran.status = child.poll(0.05);
  } catch (const SystemError& error) {
    ran.error = error.what();
  }
  return ran;
}

}  // namespace heddle::job
