#include "heddle/session/agent/stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/train/saved/segment.h"

namespace heddle::session {

namespace {

constexpr double kGone_s = 5;  // time in which the kernel ends a process
constexpr int64_t kMostLine = 64;

bool is_held(const std::string& lock) { return !train::FileHold::take(lock, train::FileHold::How::shared); }

// "PROGRAM agent RUN ...", as the process was started.
bool is_agent_of(pid_t process, const std::string& run) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", process), std::ios::binary);
  std::string program, command, folder;
  std::getline(file, program, '\0');
  std::getline(file, command, '\0');
  std::getline(file, folder, '\0');
  return command == "agent" && folder == run;
}

}  // namespace

void note_holder(const std::string& lock) {
  const int file = ::open(lock.c_str(), O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return;  // it can't be ended by another one then, which is all
  const std::string text = fmt::format("{}\n", ::getpid());
  (void)!::write(file, text.data(), text.size());
  ::close(file);
}

void end_agent_of(const std::string& folder, const std::string& run) {
  const std::string lock = folder + kAgentLock;
  std::error_code ignored;
  if (!is_memory_here(folder) || !std::filesystem::exists(lock, ignored) || !is_held(lock)) return;
  std::string text;
  try {
    text = read_file(lock, kMostLine);
  } catch (const Error&) {
    return;
  }
  pid_t process = 0;
  std::from_chars(text.data(), text.data() + text.size(), process);
  if (process <= 1 || process == ::getpid() || !is_agent_of(process, run)) return;
  ::kill(process, SIGKILL);
  for (const double until_s = now_s() + kGone_s; is_held(lock) && now_s() < until_s;) ::usleep(10'000);
}

}  // namespace heddle::session
