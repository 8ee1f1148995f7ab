// A file that is written front to back and tells at once when the disk refuses.
//
// Every failure is a SystemError with errno and the path. Nothing is buffered here: what `write` returned from has
// reached the kernel and survives the end of the process. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

class OutputFile {
 public:
  enum class Open { truncate, append };

  /// Opens (and makes, mode 0644) the file. Throws SystemError.
  OutputFile(std::string path, Open how);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  /// Appends all the bytes, or throws SystemError; after a throw the file may hold a part of them.
  void write(std::string_view bytes);

  /// Like write, but a failure takes back the part that was written, so that the file ends where it did before.
  void write_whole(std::string_view bytes);

  /// Cuts the file to `size_bytes`; the next write goes there.
  void truncate(int64_t size_bytes);

  /// Closes and reports what the file system held back until now. Later calls do nothing.
  void close();

  int64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

/// Replaces `path` by a file with this text: readers see the old one or the new one, never a part. Throws
/// SystemError.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace heddle
