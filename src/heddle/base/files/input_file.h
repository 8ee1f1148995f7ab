// A plain file read piece by piece, at any position and from any thread.
//
// Unlike a mapping it reports a file that another program cuts short while it is in use. The read fails, with one
// true line, instead of the process by SIGBUS. A file that is replaced by renaming stays readable as it was.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

class InputFile {
 public:
  /// ConfigError and SystemError as open_to_read.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  /// Bytes [offset, offset + size) as they lie in the file. SystemError if the file no longer has them or the read
  /// fails.
  void read(int64_t offset, void* into, int64_t size_bytes) const;

  /// The size as it was when opened.
  int64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
  int64_t size_bytes_ = 0;
};

}  // namespace heddle
