// Files that may be packed by gzip or zstd, read piece by piece or whole. Their first bytes say which; what begins
// as neither is passed through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace heddle::data {

class PackedReader {
 public:
  /// ConfigError if the file can't be opened.
  explicit PackedReader(const std::string& path);
  ~PackedReader();
  PackedReader(const PackedReader&) = delete;
  PackedReader& operator=(const PackedReader&) = delete;

  /// Reads up to `size` bytes; 0 at the end. ConfigError if the file is damaged or cut short.
  size_t read(char* data, size_t size);
  /// Bytes of the file itself that have been taken.
  int64_t consumed_bytes() const;

  /// One form of packing.
  class Form {
   public:
    virtual ~Form() = default;
    virtual size_t read(char* data, size_t size) = 0;
    virtual int64_t consumed_bytes() const = 0;
  };

 private:
  std::unique_ptr<Form> form_;
};

/// The name without the ending that says how it is packed: .gz or .zst.
std::string without_packing(const std::string& name);

/// Mixes a file's path, size and time of change into `before`.
uint64_t fingerprint_of(const std::string& path, uint64_t before);

}  // namespace heddle::data
