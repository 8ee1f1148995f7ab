#include "heddle/train/saved/saved_tensor.h"

#include <cstring>
#include <map>

#include "heddle/base/error.h"

namespace heddle::train {

int64_t SavedTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

void SavedTensor::read(int64_t first, int64_t count, Dtype to, void* into) const {
  HEDDLE_CHECK(first >= 0 && count >= 0 && first <= elements() - count, "elements {}+{} of '{}', which has {}",
               first, count, formats::printable(name), elements());
  for (const Part& part : parts) {
    each_run(part.runs, first, first + count, [&](int64_t local, int64_t whole, int64_t n) {
      const formats::StoredTensor stored{name, type, {}, part.with(local, n)};
      stored.read(local, n, to, static_cast<std::byte*>(into) + (whole - first) * size_of(to));
    });
  }
}

void SavedTensor::copy(int64_t first, int64_t count, void* into) const {
  HEDDLE_CHECK(first >= 0 && count >= 0 && first <= elements() - count, "elements {}+{} of '{}', which has {}",
               first, count, formats::printable(name), elements());
  const int64_t size = formats::size_of(type);
  for (const Part& part : parts) {
    each_run(part.runs, first, first + count, [&](int64_t local, int64_t whole, int64_t n) {
      std::memcpy(static_cast<std::byte*>(into) + (whole - first) * size, part.with(local, n).data() + local * size,
                  static_cast<size_t>(n * size));
    });
  }
}

std::vector<std::span<const uint8_t>> SavedTensor::pieces() const {
  const int64_t size = formats::size_of(type);
  std::map<int64_t, std::span<const uint8_t>> by_place;
  for (const Part& part : parts) {
    each_run(part.runs, 0, elements(), [&](int64_t local, int64_t whole, int64_t n) {
      by_place[whole] =
          part.with(local, n).subspan(static_cast<size_t>(local * size), static_cast<size_t>(n * size));
    });
  }
  std::vector<std::span<const uint8_t>> pieces;
  for (const auto& [whole, bytes] : by_place) pieces.push_back(bytes);
  return pieces;
}

}  // namespace heddle::train
