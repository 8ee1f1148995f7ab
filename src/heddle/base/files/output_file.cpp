#include "heddle/base/files/output_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/open_file.h"
#include "heddle/base/files/pinned_folder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kRandomDigits = 16;
constexpr std::string_view kTemporaryEnd = ".part";

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

uint64_t random_number() {
  uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) throw SystemError(errno, fmt::format("no random numbers: {}", std::strerror(errno)));
  }
  return number;
}

// A rename would replace a device, a pipe or a link to one by a plain file. A link into /proc, such as /dev/stdout,
// leads to the process' own stream.
void check_replaceable(const std::string& path) {
  struct stat at = {};
  std::error_code no_link;
  const bool is_stream = fs::read_symlink(held_path(path), no_link).string().starts_with("/proc/");
  if (is_stream || (::stat(held_path(path).c_str(), &at) == 0 && !S_ISREG(at.st_mode)))
    throw SystemError(EINVAL, fmt::format("cannot write {}: no plain file", path));
}

}  // namespace

std::string temporary_beside(const std::string& path) {
  const fs::path at(path);
  const std::string name = fmt::format(".{}.{:016x}{}", at.filename().string(), random_number(), kTemporaryEnd);
  return (at.parent_path() / name).string();
}

bool is_temporary(std::string_view name) {
  constexpr size_t kEnd = 1 + kRandomDigits + kTemporaryEnd.size();
  if (name.size() <= 1 + kEnd || name[0] != '.' || !name.ends_with(kTemporaryEnd)) return false;
  const std::string_view end = name.substr(name.size() - kEnd);
  return end[0] == '.' && std::all_of(end.begin() + 1, end.begin() + 1 + kRandomDigits,
                                      [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

void remove_temporaries(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (fs::directory_iterator at(held_path(folder), ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (is_temporary(at->path().filename().string())) left.push_back(at->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, ignored);
}

OutputFile::OutputFile(std::string path, Open how, Access access, Flush flush)
    : path_(std::move(path)), to_disk_(flush == Flush::to_disk) {
  const mode_t mode = access == Access::owner ? 0600 : 0644;
  constexpr int kAlways = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  if (how == Open::replace) {
    check_replaceable(path_);
    temporary_ = temporary_beside(path_);
    file_ = ::open(held_path(temporary_).c_str(), kAlways | O_EXCL, mode);
    if (file_ < 0) fail("create", errno);
    buffer_.reserve(kBufferBytes);
    return;
  }
  // O_NONBLOCK: a named pipe without a reader is refused, not waited for.
  file_ = ::open(held_path(path_).c_str(), kAlways | O_NONBLOCK | (how == Open::begin ? O_TRUNC : 0), mode);
  if (file_ < 0) {
    const int code = errno;
    if (code == ELOOP) throw SystemError(code, fmt::format("cannot open {}: it is a symbolic link", path_));
    fail("open", code);
  }
  if (how == Open::begin) return;
  const off_t end = ::lseek(file_, 0, SEEK_END);
  if (end < 0) {
    const int code = errno;
    ::close(std::exchange(file_, -1));
    fail("find the end of", code);
  }
  size_bytes_ = end;
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  ::close(file_);
  if (!temporary_.empty()) ::unlink(held_path(temporary_).c_str());
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      to_disk_(other.to_disk_),
      file_(std::exchange(other.file_, -1)),
      buffer_(std::move(other.buffer_)),
      size_bytes_(other.size_bytes_) {}

void OutputFile::fail(const char* doing, int code) const {
  const int64_t accepted = size_bytes_ - static_cast<int64_t>(buffer_.size());
  throw SystemError(code,
                    fmt::format("cannot {} {}: {}{}", doing, path_, disk_error(path_, code),
                                accepted > 0 ? fmt::format(" ({} bytes were accepted before)", accepted) : ""));
}

// Passes bytes to the system. What it took of the buffer is gone from there, whatever happens.
void OutputFile::put(const char* bytes, size_t size_bytes) {
  while (size_bytes > 0) {
    const ssize_t now = ::write(file_, bytes, size_bytes);
    if (now < 0) {
      if (errno == EINTR) continue;
      fail(temporary_.empty() ? "write to" : "write", errno);
    }
    bytes += now;
    size_bytes -= static_cast<size_t>(now);
    if (temporary_.empty()) size_bytes_ += now;
  }
}

void OutputFile::write(const void* data, size_t size_bytes) {
  HEDDLE_CHECK(file_ >= 0, "write to {} after it was closed", path_);
  const char* bytes = static_cast<const char*>(data);
  if (temporary_.empty()) return put(bytes, size_bytes);
  while (size_bytes > 0) {
    if (buffer_.size() == kBufferBytes) flush();
    const size_t part = std::min(size_bytes, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes, bytes + part);
    bytes += part;
    size_bytes -= part;
    size_bytes_ += static_cast<int64_t>(part);
  }
}

void OutputFile::write_whole(std::string_view bytes) {
  HEDDLE_CHECK(temporary_.empty(), "{} appears whole anyway", path_);
  const int64_t before_bytes = size_bytes_;
  try {
    write(bytes);
  } catch (const SystemError&) {
    // The first error is the one worth telling; a device that can't be cut (a pipe) simply keeps the part.
    if (::ftruncate(file_, before_bytes) == 0 && ::lseek(file_, before_bytes, SEEK_SET) >= 0) {
      size_bytes_ = before_bytes;
    }
    throw;
  }
}

void OutputFile::truncate(int64_t size_bytes) {
  HEDDLE_CHECK(file_ >= 0 && temporary_.empty(), "truncate of {}", path_);
  if (::ftruncate(file_, size_bytes) != 0) fail("shorten", errno);
  if (::lseek(file_, size_bytes, SEEK_SET) < 0) fail("find the end of", errno);
  size_bytes_ = size_bytes;
}

void OutputFile::flush() {
  put(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  if (::fsync(file_) != 0) fail("flush to disk", errno);
}

void OutputFile::commit() {
  HEDDLE_CHECK(file_ >= 0 && !temporary_.empty(), "{} committed twice, or written at its place", path_);
  if (to_disk_) {
    sync();
  } else {
    flush();
  }
  check_fence(path_);
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0 || ::rename(held_path(temporary_).c_str(), held_path(path_).c_str()) != 0) {
    const int code = errno;
    ::unlink(held_path(temporary_).c_str());
    fail("finish", code);
  }
  if (to_disk_) flush_folder(folder_of(path_));
}

void OutputFile::close() {
  HEDDLE_CHECK(temporary_.empty(), "{} is to be committed", path_);
  // On Linux the descriptor is gone even when close reports EINTR.
  if (file_ >= 0 && ::close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail("close", errno);
}

void write_file(const std::string& path, std::string_view text, OutputFile::Flush flush) {
  OutputFile file(path, OutputFile::Open::replace, OutputFile::Access::all, flush);
  file.write(text);
  file.commit();
}

void flush_folder(const std::string& path) {
  const int folder = ::open(held_path(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int code = folder < 0 ? errno : 0;
  if (folder >= 0) {
    if (::fsync(folder) != 0) code = errno;
    ::close(folder);
  }
  // Any other is a file system that has no such thing, or a folder that may be written but not read.
  if (code != EIO && code != ENOSPC && code != EDQUOT && code != ENOENT) return;
  throw SystemError(code, fmt::format("cannot flush to disk {}: {}", path, disk_error(path, code)));
}

void drop_cached(const std::string& path) {
  const OpenedFile opened = open_to_read(path);
  (void)::posix_fadvise(opened.descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(opened.descriptor);
}

std::string read_file(const std::string& path, int64_t most_bytes) {
  const OpenedFile opened = open_to_read(path);
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } closer{opened.descriptor};
  if (opened.size_bytes > most_bytes)
    config_error("{} has {} bytes, at most {} are read", path, opened.size_bytes, most_bytes);
  std::string text(static_cast<size_t>(opened.size_bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t now = ::read(opened.descriptor, text.data() + done, text.size() - done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) {
      const int code = errno;
      throw SystemError(code, fmt::format("cannot read {}: {}", path, std::strerror(code)));
    }
    if (now == 0) break;  // it shrank meanwhile
    done += static_cast<size_t>(now);
  }
  text.resize(done);
  return text;
}

}  // namespace heddle
