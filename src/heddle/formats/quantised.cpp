#include "heddle/formats/quantised.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "heddle/base/error.h"

namespace heddle::formats {

namespace {

constexpr int64_t kBlock = 128;  // rows and columns that share a factor, where the last block is smaller

constexpr std::array<float, 16> kE2m1{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                      -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

const std::array<float, 256>& e4m3() {
  static const auto table = [] {
    std::array<uint8_t, 256> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
    std::array<float, 256> numbers{};
    StoredTensor{"", StoredType::f8_e4m3, {256}, bytes}.read(0, 256, Dtype::f32, numbers.data());
    return numbers;
  }();
  return table;
}

std::string misfit(const StoredTensor& tensor, const std::string& expected) {
  return fmt::format("{} of {} [{}] instead of {}", printable(tensor.name), name_of(tensor.type),
                     fmt::join(tensor.shape, ", "), expected);
}

/// Rows, or columns, that share a factor, where `size` of them have so many; 0: that can't be.
int64_t block_of(int64_t size, int64_t factors) {
  if (factors == (size + kBlock - 1) / kBlock && factors > 1) return kBlock;
  return factors > 0 && size % factors == 0 ? size / factors : 0;
}

}  // namespace

std::optional<QuantisedTensor> QuantisedTensor::find(const ReleasedFiles& files, const std::string& name,
                                                     const std::vector<int64_t>& shape, Findings& findings) {
  QuantisedTensor found;
  if (shape.size() == 2 || shape.size() == 3) {
    found.matrices_ = shape.size() == 3 ? shape[0] : 1;
    found.rows_ = shape[shape.size() - 2];
    found.columns_ = shape.back();
  }
  if (!found.take_numbers(files, name, findings)) return std::nullopt;
  if (shape.size() != 2 && shape.size() != 3) {
    findings.wrong.push_back(misfit(*found.values_, "a matrix or a stack of them"));
    return found;
  }
  found.take_factors(files, name, findings);
  return found;
}

bool QuantisedTensor::take_numbers(const ReleasedFiles& files, const std::string& name, Findings& findings) {
  const auto of = [&](const char* suffix) { return files.find(name + suffix); };
  std::string expected;
  bool bytes = false;
  if (values_ = of(""); values_ != nullptr) {
    const bool small = values_->type == StoredType::u8 || values_->type == StoredType::i8;
    if (values_->type != StoredType::f8_e4m3 && !small) return false;
    if (small) numbers_ = Numbers::e2m1;
    if (values_->type == StoredType::i8 && !values_->shape.empty() && values_->shape.back() == columns_)
      numbers_ = Numbers::integers;
    bytes = true;
  } else if (values_ = of("_packed"); values_ != nullptr) {
    numbers_ = values_->type == StoredType::i32 ? Numbers::integers : Numbers::e2m1;
    bytes = values_->type == StoredType::u8;
    if (numbers_ == Numbers::integers && !values_->shape.empty()) {
      bits_ = values_->shape.back() == (columns_ + 7) / 8 ? 4 : 8;
      bytes = true;
    }
  } else if (values_ = of("_blocks"); values_ != nullptr) {
    numbers_ = Numbers::e2m1;
    bytes = values_->type == StoredType::u8;
    transposed_ = true;
    std::swap(rows_, columns_);
  } else {
    return false;
  }
  findings.used.push_back(values_->name);
  std::vector<int64_t> shape;
  if (matrices_ > 1 || values_->shape.size() > 2) shape.push_back(matrices_);
  shape.push_back(rows_);
  if (transposed_) {  // blocks of 32 numbers
    shape.insert(shape.end(), {columns_ / 32, 16});
  } else if (numbers_ == Numbers::e2m1) {
    shape.push_back(columns_ / 2);
  } else if (values_->type == StoredType::i32) {
    shape.push_back((columns_ * bits_ + 31) / 32);
  } else {
    shape.push_back(columns_);
  }
  const bool whole = numbers_ != Numbers::e2m1 || columns_ % (transposed_ ? 32 : 2) == 0;
  if (!bytes || !whole || values_->shape != shape)
    findings.wrong.push_back(misfit(*values_, fmt::format("[{}] of numbers in few bits", fmt::join(shape, ", "))));
  return true;
}

void QuantisedTensor::take_factors(const ReleasedFiles& files, const std::string& name, Findings& findings) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> names{name + "_scale_inv", name + "_scale", name + "_scales"};
  if (name.ends_with(kWeight)) names.push_back(name.substr(0, name.size() - kWeight.size()) + ".scale");
  for (const std::string& each : names) {
    if (factors_ == nullptr) factors_ = files.find(each);
  }
  if (factors_ == nullptr) {
    findings.missing.push_back(names[numbers_ == Numbers::e4m3 ? 0 : transposed_ ? 2 : 1]);
    return;
  }
  findings.used.push_back(factors_->name);
  one_factor_ = factors_->elements() == 1;
  const std::vector<int64_t>& shape = factors_->shape;
  const size_t dims = matrices_ > 1 || values_->shape.size() > 2 ? 3 : 2;
  bool fits = one_factor_;
  if (!one_factor_ && shape.size() == dims && (dims == 2 || shape[0] == matrices_)) {
    factors_down_ = shape[dims - 2];
    factors_across_ = shape[dims - 1];
    block_rows_ = block_of(rows_, factors_down_);
    block_columns_ = block_of(columns_, factors_across_);
    fits = block_rows_ > 0 && block_columns_ > 0;
  }
  const StoredType type = factors_->type;
  const bool whole_number = type == StoredType::i64 || type == StoredType::i32 || type == StoredType::i8;
  if (!fits || whole_number)
    findings.wrong.push_back(misfit(*factors_, fmt::format("factors of blocks of [{}, {}]", rows_, columns_)));

  const auto one = [&](const char* suffix, float none) {
    const StoredTensor* tensor = files.find(name + suffix);
    if (tensor == nullptr) return none;
    findings.used.push_back(tensor->name);
    float value = none;
    if (tensor->elements() == 1 && tensor->type == StoredType::f32) {
      tensor->read(0, 1, Dtype::f32, &value);
    } else {
      findings.wrong.push_back(misfit(*tensor, "one number of F32"));
    }
    return value;
  };
  factor_of_factors_ = one("_scale_2", 1) / one("_global_scale", 1);
  if (files.find(name + "_zero_point") != nullptr)
    findings.wrong.push_back(
        fmt::format("{}_zero_point: whole numbers are read without zero points", printable(name)));
  if (const StoredTensor* told = files.find(name + "_shape"); told != nullptr) {
    findings.used.push_back(told->name);
    std::vector<int64_t> numbers(static_cast<size_t>(told->elements()));
    if (told->type == StoredType::i64) {
      told->read(0, told->elements(), Dtype::i64, numbers.data());
    } else if (told->type == StoredType::i32) {
      std::vector<int32_t> narrow(numbers.size());
      told->read(0, told->elements(), Dtype::i32, narrow.data());
      std::copy(narrow.begin(), narrow.end(), numbers.begin());
    }
    if (numbers != std::vector<int64_t>{rows_, columns_}) {
      findings.wrong.push_back(fmt::format("{} says [{}] instead of [{}, {}]", printable(told->name),
                                           fmt::join(numbers, ", "), rows_, columns_));
    }
  }
}

float QuantisedTensor::factor(int64_t matrix, int64_t row, int64_t column) const {
  const int64_t at =
      one_factor_ ? 0 : (matrix * factors_down_ + row / block_rows_) * factors_across_ + column / block_columns_;
  float value = 0;
  if (factors_->type == StoredType::u8) {
    StoredTensor{factors_->name, StoredType::f8_e8m0, {}, factors_->bytes}.read(at, 1, Dtype::f32, &value);
  } else {
    factors_->read(at, 1, Dtype::f32, &value);
  }
  return value * factor_of_factors_;
}

float QuantisedTensor::number(int64_t row, int64_t column) const {
  const uint8_t* bytes = values_->bytes.data();
  if (numbers_ == Numbers::e4m3) return e4m3()[bytes[row * columns_ + column]];
  if (numbers_ == Numbers::e2m1) {
    const int64_t at = row * columns_ + column;
    return kE2m1[bytes[at / 2] >> (at % 2 * 4) & 15];
  }
  if (values_->type == StoredType::i8)
    return static_cast<float>(static_cast<int8_t>(bytes[row * columns_ + column]));
  // A row is whole words of 32 bits, the lowest byte first.
  const int64_t pitch = values_->shape.back() * 4;
  const uint8_t byte = bytes[row * pitch + column * bits_ / 8];
  return bits_ == 8 ? static_cast<float>(byte) - 128 : static_cast<float>(byte >> (column % 2 * 4) & 15) - 8;
}

void QuantisedTensor::read(int64_t first, std::span<float> into) const {
  HEDDLE_CHECK(first >= 0 && first <= matrices_ * rows_ * columns_ - std::ssize(into),
               "elements {}+{} of '{}', which has {}", first, into.size(), printable(values_->name),
               matrices_ * rows_ * columns_);
  while (!into.empty()) {  // numbers that share a factor and a row
    const int64_t row = first / columns_, column = first % columns_;
    const int64_t block = one_factor_ ? columns_ : block_columns_;
    const int64_t run = std::min(std::ssize(into), std::min(columns_, (column / block + 1) * block) - column);
    const float scale = factor(row / rows_, row % rows_, column);
    for (int64_t i = 0; i < run; ++i) into[static_cast<size_t>(i)] = number(row, column + i) * scale;
    into = into.subspan(static_cast<size_t>(run));
    first += run;
  }
}

}  // namespace heddle::formats
