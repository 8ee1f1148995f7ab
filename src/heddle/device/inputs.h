// The inputs of a step: what the host gives, by name, and what `load` ops read of it (ir/inputs.h).
#pragma once

#include <cstddef>
#include <map>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/ir/program.h"

namespace heddle::device {

/// The inputs given for one step. Plain data: checked against the program's inputs when the step begins
/// (RankInputs).
class Inputs {
 public:
  explicit Inputs(int microbatches = 0) : microbatches_(microbatches) {}

  /// Microbatches of the step.
  int microbatches() const { return microbatches_; }

  /// Gives the numbers of an input, the same for all microbatches, or of one microbatch. Given again, the last
  /// numbers count. Numbers are int32_t, float or double, in any contiguous range.
  template <std::ranges::contiguous_range Range>
  void set(std::string_view name, const Range& numbers) {
    using Number = std::remove_cv_t<std::ranges::range_value_t<Range>>;
    put(name, -1, dtype_of<Number>, std::as_bytes(std::span<const Number>(numbers)));
  }
  template <std::ranges::contiguous_range Range>
  void set(std::string_view name, int microbatch, const Range& numbers) {
    using Number = std::remove_cv_t<std::ranges::range_value_t<Range>>;
    put(name, microbatch, dtype_of<Number>, std::as_bytes(std::span<const Number>(numbers)));
  }

  /// Takes back what was given of an input, if anything was.
  void forget(std::string_view name);

  /// The numbers given, of a microbatch where they were given for each; empty where nothing was. InternalError if
  /// they were given in another type.
  template <class Number>
  std::span<const Number> get(std::string_view name, int microbatch = -1) const {
    const std::vector<std::byte>* bytes = find(name, microbatch, dtype_of<Number>);
    if (bytes == nullptr) return {};
    return {reinterpret_cast<const Number*>(bytes->data()), bytes->size() / sizeof(Number)};
  }

 private:
  friend class RankInputs;
  struct Numbers {
    Dtype dtype = Dtype::f32;
    std::map<int, std::vector<std::byte>> of;  // by microbatch; -1: of all
  };
  void put(std::string_view name, int microbatch, Dtype dtype, std::span<const std::byte> bytes);
  const std::vector<std::byte>* find(std::string_view name, int microbatch, Dtype dtype) const;

  int microbatches_;
  std::map<std::string, Numbers, std::less<>> given_;
};

/// The inputs of a rank's listings, step by step: what is given for the step, what still stands of steps before, or
/// the default.
class RankInputs {
 public:
  RankInputs(const ir::StepProgram& program, int rank);

  /// Replaces all that stands. InternalError where the program has no standing input of a name. Between steps.
  void stand(Inputs given);
  /// Begins a step of a listing. `given` must last until the step has ended; what it gives of standing inputs is
  /// copied, and stands for all steps to come, of any listing. InternalError, naming the input, where the program
  /// has no such input, where type or size differ, or where the listing takes one that nobody gives and that has no
  /// default.
  void begin(int listing, const Inputs& given);
  /// The bytes that an op loads, for a microbatch (-1: once a step); valid until the step has ended.
  const std::byte* of(int listing, const ir::Op& load, int microbatch) const;

 private:
  void check(const ir::Input& input, const Inputs::Numbers& numbers, int microbatches) const;
  const std::vector<std::byte>& bytes_of(int listing, const ir::Input& input, int microbatch) const;

  const ir::StepProgram& program_;
  std::map<std::string, bool, std::less<>> stands_;  // of each name in the whole program
  std::map<int, std::map<std::string, std::vector<std::byte>, std::less<>>> defaults_;  // by listing of the rank
  Inputs standing_;
  const Inputs* given_ = nullptr;
};

}  // namespace heddle::device
