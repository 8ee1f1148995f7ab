#include "heddle/base/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {
namespace {

constexpr const char* kLockName = ".lock";
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr int kAttempts = 3;

std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'?'};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> time{};
  std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return fmt::format("process {} on host {}, since {}", ::getpid(), host.data(), time.data());
}

std::string line_in(int file) {
  std::array<char, 400> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  const std::string_view all(text.data(), static_cast<size_t>(std::max<ssize_t>(0, size)));
  const size_t end = all.find('\n');
  std::string line(all.substr(0, end == all.npos ? 0 : end));
  // Anyone may have written it.
  for (char& c : line) c = c >= ' ' && c <= '~' ? c : '?';
  return line;
}

// The holder's line; it writes that just after it has taken the lock.
std::string holder_in(int file) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (std::string line = line_in(file); !line.empty()) return line;
    std::this_thread::sleep_for(kPause);
  }
  return "another process";
}

}  // namespace

std::optional<FolderLock> FolderLock::take(const std::string& folder, std::string& holder) {
  PinnedFolder pinned(folder);
  const std::string path = folder + '/' + kLockName;
  constexpr int kHow = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int file = ::openat(pinned.descriptor(), kLockName, kHow, 0644);
  if (file < 0) {
    const int code = errno;
    throw SystemError(code, fmt::format("cannot lock {}: {}: {}", folder, path,
                                        code == ELOOP ? "it is a symbolic link" : std::strerror(code)));
  }
  int code = ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  // Whoever only asks for the holder has it for a moment.
  for (int attempt = 0; code == EWOULDBLOCK && attempt < kAttempts; ++attempt) {
    std::this_thread::sleep_for(kPause);
    code = ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  }
  if (code == EWOULDBLOCK) {
    holder = holder_in(file);
    ::close(file);
    return std::nullopt;
  }
  if (code == ENOSYS || code == EOPNOTSUPP || code == ENOLCK || code == EINVAL)
    return FolderLock(std::move(pinned), file, false);
  if (code != 0) {
    ::close(file);
    throw SystemError(code, fmt::format("cannot lock {}: {}", folder, std::strerror(code)));
  }
  // Only for people: a disk without room for a line has a lock all the same.
  const std::string line = this_process() + '\n';
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, line.data(), line.size(), 0) < 0) errno = 0;
  return FolderLock(std::move(pinned), file, true);
}

FolderLock FolderLock::wait(const std::string& folder,
                            const std::function<void(const std::string& holder)>& waiting) {
  for (bool told = false;; told = true) {
    std::string holder;
    if (std::optional<FolderLock> lock = take(folder, holder)) return std::move(*lock);
    if (!told) waiting(holder);
    std::this_thread::sleep_for(kPause);
  }
}

std::string FolderLock::holder_of(const std::string& folder) {
  const int file =
      ::open(held_path(folder + '/' + kLockName).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return "";
  // A holder that was killed leaves its line, and its lock is gone. A shared lock that is refused needs no right to
  // write; one that is given goes with the descriptor.
  const bool held = ::flock(file, LOCK_SH | LOCK_NB) != 0;
  std::string line = held ? line_in(file) : "";
  ::close(file);
  return line;
}

FolderLock::~FolderLock() {
  if (file_ < 0) return;
  if (locked_ && ::ftruncate(file_, 0) != 0) errno = 0;  // then it names one that has ended, and no more
  ::close(file_);
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : folder_(std::move(other.folder_)), file_(std::exchange(other.file_, -1)), locked_(other.locked_) {}

}  // namespace heddle
