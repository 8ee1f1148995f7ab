// A tensor as a checkpoint holds it: whole, or in parts that several ranks have written, wherever those lie.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "heddle/formats/safetensors.h"
#include "heddle/train/saved/runs.h"

namespace heddle::train {

struct SavedTensor {
  struct Part {
    std::vector<Runs> runs;
    std::span<const uint8_t> bytes;  // may lie at any address
    /// Fetches a tensor that lies elsewhere: so many elements from `first` on come, and it returns the bytes of
    /// all, of which these are there now.
    std::function<std::span<const uint8_t>(int64_t first, int64_t count)> fetch{};

    std::span<const uint8_t> with(int64_t first, int64_t count) const {
      return fetch ? fetch(first, count) : bytes;
    }
  };
  std::string name;
  formats::StoredType type = formats::StoredType::f32;
  std::vector<int64_t> shape;  // shape of the whole tensor
  std::vector<Part> parts;     // parts that cover it

  int64_t elements() const;
  /// Elements first … first + count − 1, converted as formats::StoredTensor::read does.
  void read(int64_t first, int64_t count, Dtype to, void* into) const;
  /// Reads them as they are.
  void copy(int64_t first, int64_t count, void* into) const;
  /// Its bytes in the order of its elements.
  std::vector<std::span<const uint8_t>> pieces() const;
};

}  // namespace heddle::train
