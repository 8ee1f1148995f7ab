#include "heddle/train/saved/read_state.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/ops/moment_byte.h"
#include "heddle/train/audit/digest_sums.h"

namespace heddle::train {

namespace {

using formats::StoredType;

constexpr int64_t kPiece = 2048;  // elements at a time
using StateNumbers = std::array<float, kPiece>;

bool is_first_moment(std::string_view name) { return name.starts_with("m."); }

template <class To>
void put(const StateNumbers& numbers, int64_t count, void* into, int64_t at) {
  std::copy_n(numbers.begin(), count, static_cast<To*>(into) + at);
}

}  // namespace

bool reads_from(StoredType saved, std::string_view tensor, Dtype dtype) {
  if (saved == formats::stored_type(dtype)) return true;
  if (!stands_beside_weight(tensor) || dtype == Dtype::f64) return false;
  return saved == StoredType::f32 || saved == StoredType::bf16 ||
         (saved == StoredType::u8 && is_first_moment(tensor));
}

void read_state(const Checkpoint& from, const StateTensor& tensor, int64_t first, int64_t count, void* into) {
  const SavedTensor& saved = from.at(tensor.name);
  const bool bytes = saved.type == StoredType::u8;
  if (!is_first_moment(tensor.name) || bytes == (tensor.dtype == Dtype::u8))
    return saved.read(first, count, tensor.dtype, into);
  const SavedTensor& second = from.at("v." + tensor.parameter->name);
  if (second.shape != saved.shape) {
    config_error("{}: '{}' and '{}' differ in shape", from.path(), formats::printable(saved.name),
                 formats::printable(second.name));
  }
  StateNumbers m, v;
  std::array<uint8_t, kPiece> packed;
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t some = std::min(kPiece, count - at);
    second.read(first + at, some, Dtype::f32, v.data());
    if (!bytes) {
      saved.read(first + at, some, Dtype::f32, m.data());
      for (int64_t i = 0; i < some; ++i)
        static_cast<uint8_t*>(into)[at + i] = fp8::byte_of_moment(m[i], bf16(v[i]));
      continue;
    }
    saved.read(first + at, some, Dtype::u8, packed.data());
    for (int64_t i = 0; i < some; ++i) m[i] = fp8::moment_of_byte(packed[i], v[i]);
    switch (tensor.dtype) {
      case Dtype::f64: put<double>(m, some, into, at); break;
      case Dtype::bf16: put<bf16>(m, some, into, at); break;
      default: put<float>(m, some, into, at); break;
    }
  }
}

}  // namespace heddle::train
