// A table of the cuBLASLt algorithm for each shape, in a file that one run measures and others take.
//
// For a shape the library names up to kMostAlgorithms algorithms, which it thinks quickest first, always the same
// ones for one release on one kind of device. The first multiplies, unless a file says another. A file is taken
// whole by all ranks of a run, or refused by all, so that none adds in another order than the rest.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "heddle/base/dtype.h"

namespace heddle::kernels::cuda {

constexpr int kMostAlgorithms = 8;

/// A product as the library is asked for it: ProductCall (backend.h) without operands.
struct ProductShape {
  Dtype in = Dtype::bf16, out = Dtype::bf16;
  bool a_by_k = false, b_by_k = false;
  int64_t M = 0, N = 0, K = 0, batch = 1;
  auto operator<=>(const ProductShape&) const = default;
  /// "bf16 f32 8192×2816×2048 of 1, rows by k": M×N×K, and which operands lie [K, …].
  std::string text() const;
};

struct AlgorithmTable {
  std::string library;  // release: "13.1.0"
  std::string device;   // "9.0 with 132 multiprocessors"
  std::map<ProductShape, int> chosen;

  /// 0: the library's first.
  int of(const ProductShape& shape) const;
  std::string text() const;
  /// ConfigError, which names `place` and the line, for anything that `text` does not write.
  static AlgorithmTable parse(const std::string& text, const std::string& place);
  /// Reads a file likewise; ConfigError too where it was measured with another library or on another kind of
  /// device.
  static AlgorithmTable read(const std::string& path, const std::string& library, const std::string& device);
};

/// The quickest of the algorithms by their times, in any unit; the first, unless another is quicker by more than
/// 2 %. A time of 0 or less: it did not run.
int quickest(const float* times, int count);

}  // namespace heddle::kernels::cuda
