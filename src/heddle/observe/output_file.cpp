#include "heddle/observe/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {
namespace {

[[noreturn]] void raise(const char* what, const std::string& path, int code) {
  throw SystemError(code, fmt::format("cannot {} {}: {}", what, path, std::strerror(code)));
}

}  // namespace

OutputFile::OutputFile(std::string path, Open how) : path_(std::move(path)) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (how == Open::truncate ? O_TRUNC : 0);
  descriptor_ = ::open(path_.c_str(), flags, 0644);
  if (descriptor_ < 0) raise("open", path_, errno);
  if (how == Open::append) {
    const off_t end = ::lseek(descriptor_, 0, SEEK_END);
    if (end < 0) {
      const int code = errno;
      ::close(descriptor_);
      raise("find the end of", path_, code);
    }
    size_bytes_ = end;
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

void OutputFile::write(std::string_view bytes) {
  HEDDLE_CHECK(descriptor_ >= 0, "write to {} after it was closed", path_);
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      raise("write to", path_, errno);
    }
    size_bytes_ += count;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void OutputFile::write_whole(std::string_view bytes) {
  const int64_t before_bytes = size_bytes_;
  try {
    write(bytes);
  } catch (const SystemError&) {
    // The first error is the one worth telling; a device that can't be cut (a pipe) simply keeps the part.
    if (::ftruncate(descriptor_, before_bytes) == 0 && ::lseek(descriptor_, before_bytes, SEEK_SET) >= 0) {
      size_bytes_ = before_bytes;
    }
    throw;
  }
}

void OutputFile::truncate(int64_t size_bytes) {
  HEDDLE_CHECK(descriptor_ >= 0, "truncate of {} after it was closed", path_);
  if (::ftruncate(descriptor_, size_bytes) != 0) raise("shorten", path_, errno);
  if (::lseek(descriptor_, size_bytes, SEEK_SET) < 0) raise("find the end of", path_, errno);
  size_bytes_ = size_bytes;
}

void OutputFile::close() {
  if (descriptor_ < 0) return;
  // On Linux the descriptor is gone even when close reports EINTR.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) raise("close", path_, errno);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  const std::string partial = fmt::format("{}.partial.{}", path, ::getpid());
  try {
    OutputFile file(partial, OutputFile::Open::truncate);
    file.write(text);
    file.close();
    if (std::rename(partial.c_str(), path.c_str()) != 0) raise("put in place", path, errno);
  } catch (...) {
    std::remove(partial.c_str());
    throw;
  }
}

}  // namespace heddle
