// The files of a released model as the whole parameters that Heddle has. They are checked once, then read range by
// range, so that nobody holds more than the range that he wants.
//
// Weights in few bits are read as the products of their numbers and factors (formats/quantised.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/formats/quantised.h"
#include "heddle/formats/released_files.h"
#include "heddle/train/released_model.h"

namespace heddle::train {

class ReleasedSource {
 public:
  /// `path`: a folder with model.safetensors or model.safetensors.index.json, or one file. Of `parameters` the
  /// tensors' pieces are not looked at. ConfigError when a tensor is missing or has another shape, or when a tensor
  /// of the files goes nowhere; the message lists the first of each. Repeated copies of the embedding and the head
  /// (tied models, prediction modules) are checked to be copies. Tensors without elements may be there.
  ReleasedSource(const std::string& path, const std::vector<ParameterTensor>& parameters);

  /// Elements first … first + count − 1 of the index-th parameter, converted to `to`.
  void read(size_t parameter, int64_t first, int64_t count, Dtype to, void* into) const;

 private:
  /// ConfigError where a row of a table of experts has others than there are, or one twice.
  void check_table(size_t index, const ParameterTensor& table) const;
  struct Part {                           // one released tensor's place in a parameter
    const formats::StoredTensor* values;  // null where it is in few bits
    std::optional<formats::QuantisedTensor> quantised;
    config::ReleasedPlace place;
    int64_t columns, first, count;
    bool whole_numbers;  // which may be stored as such
  };
  static void read(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into);
  static void read_stacked(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into);
  static void read_whole_numbers(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into);
  static void read_quantised(const Part& part, int64_t first, int64_t count, Dtype to, uint8_t* into);

  formats::ReleasedFiles files_;
  std::vector<std::vector<Part>> parts_;  // parts of each parameter, in the order of their elements
};

}  // namespace heddle::train
