// Chooses the algorithm of cuBLASLt that multiplies a shape in this process.
//
// HEDDLE_CUBLASLT_ALGORITHMS names a file of algorithms.h that is taken. HEDDLE_CUBLASLT_MEASURE names one that is
// written: each shape's algorithms are timed on the device, once, where it first overwrites its result. Such a run
// multiplies with the library's first throughout, so its numbers are those of a run without a file.
#pragma once

#include <functional>
#include <mutex>

#include "heddle/kernels/cuda/cublaslt/algorithms.h"

namespace heddle::kernels::cuda {

class AlgorithmChoice {
 public:
  /// The environment's choice, for the library and the device of this process. ConfigError for a file that is not
  /// fit.
  static AlgorithmChoice& here();
  /// "" names no file.
  AlgorithmChoice(const std::string& take, std::string measure, std::string library, std::string device);

  /// ConfigError where the file says one beyond the `found` that the library names.
  int of(const ProductShape& shape, int found) const;
  /// Times the algorithms of a shape that was not measured, if any are asked for. run(i) puts the product by the
  /// i-th of `found` on the stream. It returns false where the library refuses. Not while the stream is being
  /// recorded.
  void measure(const ProductShape& shape, int found, const std::function<bool(int)>& run, void* stream);

 private:
  AlgorithmTable table_;
  std::string taken_, measured_;  // files
  std::mutex mutex_;
};

}  // namespace heddle::kernels::cuda
