#include "heddle/train/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::train {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) config_error("cannot open {}: {}", path, std::strerror(errno));
  struct stat status;
  const bool known = ::fstat(file, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(file);
    config_error("{} is not a plain file", path);
  }
  size_bytes_ = status.st_size;
  void* mapped = nullptr;
  if (size_bytes_ > 0) mapped = ::mmap(nullptr, static_cast<size_t>(size_bytes_), PROT_READ, MAP_SHARED, file, 0);
  const int code = errno;
  ::close(file);
  if (mapped == MAP_FAILED) throw SystemError(code, fmt::format("cannot map {}: {}", path, std::strerror(code)));
  data_ = static_cast<const uint8_t*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_bytes_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

}  // namespace heddle::train
