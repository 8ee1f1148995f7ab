// A file that appears whole or not at all: written beside its place under a temporary name, then renamed.
//
// Every write, the flush to disk, and the rename are checked; a failure raises SystemError with the file's name and
// errno's text, the temporary file goes away, and what stood at the path before still stands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::train {

class OutputFile {
 public:
  /// Opens a temporary file beside `path`. SystemError if that fails.
  explicit OutputFile(std::string path);
  /// Removes the temporary file unless committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, size_t size_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  template <class T>
  void write_number(T value) {
    write(&value, sizeof value);
  }
  /// Hands what is buffered to the system and waits until it is on disk. The file stays temporary.
  void sync();
  /// Syncs, closes, and renames to the path. Nothing may be written after.
  void commit();

  int64_t written_bytes() const { return written_bytes_; }
  const std::string& path() const { return path_; }

 private:
  void flush();
  [[noreturn]] void fail(const char* doing, int code);

  std::string path_, temporary_;
  std::vector<char> buffer_;
  int64_t written_bytes_ = 0;
  int file_ = -1;
};

/// Writes the whole text as the file, atomically.
void write_file(const std::string& path, std::string_view text);

/// Reads a whole file. ConfigError if it is missing or larger than `most_bytes`, SystemError if a read fails.
std::string read_file(const std::string& path, int64_t most_bytes);

}  // namespace heddle::train
