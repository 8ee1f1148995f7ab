// The safetensors format: eight bytes of header length (little-endian), a JSON header naming each tensor's type,
// shape and byte range, then the bytes of all tensors. Source: https://github.com/huggingface/safetensors,
// "Format".
//
// A file is hostile: nothing in it is believed before it is checked, and the memory that reading takes is bounded
// by the size of the file. A file is written whole or not at all (see output_file.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/files/mapped_file.h"
#include "heddle/base/files/output_file.h"
#include "heddle/formats/logical_tensor.h"

namespace heddle::formats {

/// The element types that are read. Those of Dtype are also written. F8_E4M3 has a sign, four bits of exponent and
/// three of mantissa, no infinity, and one NaN of each sign (Micikevicius et al., arXiv 2209.05433). F8_E8M0 is a
/// power of two, from 2^−127 on; its last value is NaN (OCP Microscaling Formats 1.0, section 5.4.1).
enum class StoredType : uint8_t { f64, f32, f16, bf16, i64, i32, u8, f8_e4m3, f8_e8m0, i8 };
std::string_view name_of(StoredType type);  // "F64", as in the file
StoredType stored_type(Dtype dtype);
int64_t size_of(StoredType type);

/// A tensor of an open file. `bytes` may lie at any address.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;

  int64_t elements() const { return static_cast<int64_t>(bytes.size()) / size_of(type); }
  /// Elements first … first + count − 1, converted: widened exactly, narrowed to nearest even. Floats only.
  void read(int64_t first, int64_t count, Dtype to, void* into) const;
};

class SafetensorsFile {
 public:
  /// Maps the file and checks its header. ConfigError naming the file and the tensor. Errors are a header longer
  /// than 100 MB or than the file, not JSON, an unknown type, or a name given twice. So are a shape that does not
  /// give the number of bytes, and ranges that leave the file, overlap, or leave bytes to nobody.
  explicit SafetensorsFile(const std::string& path);

  /// Tensors in the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null when there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  /// ConfigError, with the nearest name, when there is none of that name.
  const StoredTensor& at(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }
  int64_t size_bytes() const { return file_.size_bytes(); }
  /// Header length and header: every byte before the tensors.
  std::span<const uint8_t> header() const { return header_; }

 private:
  MappedFile file_;
  std::span<const uint8_t> header_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// The header's entry of a tensor to be written.
struct TensorHeading {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  int64_t size_bytes() const;
};

/// Wider types first, then by name: every tensor is then aligned to its element.
void sort_for_file(std::vector<TensorHeading>& headings);

/// Writes a file tensor by tensor, holding none of them. SystemError when the disk says no; what stood at the path
/// before then still stands.
class SafetensorsWriter {
 public:
  /// Headings in file order.
  SafetensorsWriter(const std::string& path, const std::vector<TensorHeading>& headings,
                    const std::map<std::string, std::string>& metadata = {});
  /// The next bytes of the tensors, one tensor after another.
  void write(const void* data, size_t size_bytes);
  /// InternalError unless every byte promised was written. The file then stands at its path, flushed to disk.
  void commit();

  const std::string& header() const { return header_; }

 private:
  OutputFile file_;
  std::string header_;
  int64_t promised_bytes_ = 0;
};

/// A name from outside as it may stand in a one-line message (base/escaped.h), cut after 100 bytes.
std::string printable(std::string_view name);

}  // namespace heddle::formats
