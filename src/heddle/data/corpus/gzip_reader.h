// Files that may be gzipped, read piece by piece or whole. What doesn't begin as gzip is passed through.
#pragma once

#include <cstdint>
#include <string>

struct gzFile_s;

namespace heddle::data {

class GzipReader {
 public:
  /// ConfigError if the file can't be opened.
  explicit GzipReader(const std::string& path);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Reads up to `size` bytes; 0 at the end. ConfigError if the file is damaged or cut short.
  size_t read(char* data, size_t size);
  /// How many bytes of the file itself have been taken.
  int64_t consumed_bytes() const;

 private:
  std::string path_;
  gzFile_s* file_;
};

/// The whole content. ConfigError if it has more than `most_bytes`.
std::string read_possibly_gzipped(const std::string& path, int64_t most_bytes);

/// Mixes a file's path, size and time of change into `before`.
uint64_t fingerprint_of(const std::string& path, uint64_t before);

}  // namespace heddle::data
