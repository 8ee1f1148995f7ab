// Weights that a file holds in few bits, as numbers with factors. The factors lie beside a weight NAME, in tensors
// whose names begin with its own.
//
//   numbers                              factors, one for a block of the matrix
//   NAME of F8_E4M3                      NAME_scale_inv or NAME_scale; a NAME ….weight may have ….scale
//   NAME of U8 or I8, E2M1               the same; a byte holds two numbers, the lower four bits first
//   NAME of I8, whole numbers            the same
//   NAME_packed of U8, E2M1              NAME_scale
//   NAME_packed of I32, whole numbers    NAME_scale; of 4 or 8 bits, the lowest first, less half of their range
//   NAME_blocks of U8, E2M1              NAME_scales; of a stack whose matrices are transposed
//
// E2M1 is a sign, two bits of exponent and one of mantissa (OCP Microscaling Formats 1.0, section 5.3.3). A factor
// of U8 or F8_E8M0 is a power of two. Factors may themselves have one: they are multiplied by NAME_scale_2, or
// divided by NAME_global_scale. Sources: the files of DeepSeek-V3, DeepSeek-V4 and GPT-OSS; compressed-tensors
// 0.20; Transformers 5.24, integrations/finegrained_fp8.py; NVIDIA's Model Optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/formats/released_files.h"

namespace heddle::formats {

class QuantisedTensor {
 public:
  /// Findings about a weight and the tensors beside it.
  struct Findings {
    std::vector<std::string> used;     // names of its tensors
    std::vector<std::string> missing;  // names of tensors that should be there
    std::vector<std::string> wrong;    // tensors that do not fit, with the reason
  };

  /// The weight of that shape, [N, K] or [E, N, K], if the files hold it in few bits; else nothing. It must not be
  /// read where something is missing or wrong.
  static std::optional<QuantisedTensor> find(const ReleasedFiles& files, const std::string& name,
                                             const std::vector<int64_t>& shape, Findings& findings);

  /// True if the file has each matrix of the stack transposed. read() then counts elements of [E, K, N].
  bool is_transposed() const { return transposed_; }
  /// Elements first … first + count − 1, in f32.
  void read(int64_t first, std::span<float> into) const;

 private:
  enum class Numbers : uint8_t { e4m3, e2m1, integers };

  bool take_numbers(const ReleasedFiles& files, const std::string& name, Findings& findings);
  void take_factors(const ReleasedFiles& files, const std::string& name, Findings& findings);
  float factor(int64_t matrix, int64_t row, int64_t column) const;
  float number(int64_t row, int64_t column) const;

  int64_t matrices_ = 1, rows_ = 0, columns_ = 0;
  bool transposed_ = false;
  Numbers numbers_ = Numbers::e4m3;
  int bits_ = 8;  // of a whole number
  const StoredTensor* values_ = nullptr;
  const StoredTensor* factors_ = nullptr;
  int64_t factors_down_ = 1, factors_across_ = 1;  // factors of a matrix
  int64_t block_rows_ = 1, block_columns_ = 1;
  bool one_factor_ = false;  // of the whole tensor
  float factor_of_factors_ = 1;
};

}  // namespace heddle::formats
