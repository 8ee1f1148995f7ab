#include "heddle/base/files/input_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/files/open_file.h"

namespace heddle {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  const OpenedFile opened = open_to_read(path_);
  file_ = opened.descriptor;
  size_bytes_ = opened.size_bytes;
}

InputFile::~InputFile() {
  if (file_ >= 0) ::close(file_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_bytes_(other.size_bytes_) {}

void InputFile::read(int64_t offset, void* into, int64_t size_bytes) const {
  HEDDLE_CHECK(offset >= 0 && size_bytes >= 0 && offset <= size_bytes_ - size_bytes,
               "bytes {} + {} of {}, which has {}", offset, size_bytes, path_, size_bytes_);
  auto* to = static_cast<uint8_t*>(into);
  while (size_bytes > 0) {
    const ssize_t got = ::pread(file_, to, static_cast<size_t>(size_bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int code = errno;
      throw SystemError(code, fmt::format("cannot read {}: {}", path_, std::strerror(code)));
    }
    if (got == 0) {
      throw SystemError(EIO,
                        fmt::format("{}: cut short while in use: it ends before byte {}, it had {} when it was "
                                    "opened",
                                    path_, offset + 1, size_bytes_));
    }
    to += got;
    offset += got;
    size_bytes -= got;
  }
}

}  // namespace heddle
