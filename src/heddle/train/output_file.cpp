#include "heddle/train/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "heddle/base/error.h"

namespace heddle::train {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  static std::atomic<int> count{0};
  temporary_ = fmt::format("{}.{}.{}.part", path_, getpid(), count++);
  buffer_.reserve(kBufferBytes);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) {
    const int code = errno;
    throw SystemError(code, fmt::format("cannot create {}: {}", path_, std::strerror(code)));
  }
}

OutputFile::~OutputFile() {
  if (file_ >= 0) {
    ::close(file_);
    ::unlink(temporary_.c_str());
  }
}

void OutputFile::fail(const char* doing, int code) {
  throw SystemError(code, fmt::format("cannot {} {}: {} ({} bytes were accepted before)", doing, path_,
                                      std::strerror(code), written_bytes_ - static_cast<int64_t>(buffer_.size())));
}

void OutputFile::write(const void* data, size_t size_bytes) {
  HEDDLE_CHECK(file_ >= 0, "write to {} after commit", path_);
  const char* bytes = static_cast<const char*>(data);
  while (size_bytes > 0) {
    if (buffer_.size() == kBufferBytes) flush();
    const size_t part = std::min(size_bytes, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes, bytes + part);
    bytes += part;
    size_bytes -= part;
    written_bytes_ += static_cast<int64_t>(part);
  }
}

void OutputFile::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t now = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (now < 0) {
      if (errno == EINTR) continue;
      const int code = errno;
      buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(done));
      fail("write", code);
    }
    done += static_cast<size_t>(now);
  }
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  if (::fsync(file_) != 0) fail("flush to disk", errno);
}

void OutputFile::commit() {
  HEDDLE_CHECK(file_ >= 0, "{} committed twice", path_);
  sync();
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary_.c_str());
    fail("finish", code);
  }
  // The rename itself is durable only once the folder is; not every file system allows it, so this is best effort.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int folder_file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_file >= 0) {
    (void)::fsync(folder_file);
    ::close(folder_file);
  }
}

void write_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

std::string read_file(const std::string& path, int64_t most_bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) config_error("cannot open {}: {}", path, std::strerror(errno));
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } closer{file};
  struct stat status;
  if (::fstat(file, &status) != 0) {
    const int code = errno;
    throw SystemError(code, fmt::format("cannot read {}: {}", path, std::strerror(code)));
  }
  if (!S_ISREG(status.st_mode)) config_error("{} is not a plain file", path);
  if (status.st_size > most_bytes) {
    config_error("{} has {} bytes, at most {} are read", path, static_cast<int64_t>(status.st_size), most_bytes);
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t now = ::read(file, text.data() + done, text.size() - done);
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

}  // namespace heddle::train
