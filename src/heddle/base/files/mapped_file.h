// A file's bytes in memory, read-only, loaded by the system as they are touched.
//
// Sizes are checked against the file as it was when opened. A file that another process cuts short afterwards ends
// the program at the next touch of what is gone. It prints one line on standard error that names the file, and
// exits with status 1.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

class MappedFile {
 public:
  /// ConfigError and SystemError as open_to_read; SystemError if it can't be mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const uint8_t* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace heddle
