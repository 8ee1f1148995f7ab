#include "heddle/device/inputs.h"

#include <cstring>
#include <numeric>

#include "heddle/base/error.h"

namespace heddle::device {

namespace {

template <class Number>
std::vector<std::byte> bytes_of(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

template <class Number>
std::vector<std::byte> default_as(const ir::Input& input) {
  std::vector<Number> numbers(static_cast<size_t>(input.elements()), static_cast<Number>(input.otherwise.number));
  if (input.otherwise.kind == ir::Default::Kind::in_order) std::iota(numbers.begin(), numbers.end(), Number(0));
  return bytes_of(numbers);
}

std::vector<std::byte> default_of(const ir::Input& input) {
  switch (input.dtype) {
    case Dtype::f64: return default_as<double>(input);
    case Dtype::f32: return default_as<float>(input);
    case Dtype::i32: return default_as<int32_t>(input);
    default: internal_error("input '{}' is {}", input.name, ir::text_of(input));
  }
}

}  // namespace

void Inputs::put(std::string_view name, int microbatch, Dtype dtype, std::span<const std::byte> bytes) {
  HEDDLE_CHECK(microbatch >= -1 && microbatch < microbatches_, "input '{}' of microbatch {} of {}", name,
               microbatch, microbatches_);
  auto at = given_.find(name);
  if (at == given_.end()) at = given_.emplace(name, Numbers{dtype, {}}).first;
  at->second.dtype = dtype;
  at->second.of[microbatch].assign(bytes.begin(), bytes.end());
}

void Inputs::forget(std::string_view name) {
  if (const auto at = given_.find(name); at != given_.end()) given_.erase(at);
}

const std::vector<std::byte>* Inputs::find(std::string_view name, int microbatch, Dtype dtype) const {
  const auto at = given_.find(name);
  if (at == given_.end()) return nullptr;
  HEDDLE_CHECK(at->second.dtype == dtype, "input '{}' is given in {}, asked for in {}", name,
               name_of(at->second.dtype), name_of(dtype));
  auto of = at->second.of.find(microbatch);
  if (of == at->second.of.end()) of = at->second.of.find(-1);
  return of == at->second.of.end() ? nullptr : &of->second;
}

RankInputs::RankInputs(const ir::StepProgram& program, int rank) : program_(program) {
  for (const ir::Listing& listing : program.listings) {
    for (const ir::Input& input : listing.inputs) stands_[input.name] = input.given == ir::Given::standing;
  }
  for (const int s : program.listings_of(rank)) {
    for (const ir::Input& input : program.listings[s].inputs) {
      if (input.otherwise.kind != ir::Default::Kind::none) defaults_[s][input.name] = default_of(input);
    }
  }
}

void RankInputs::check(const ir::Input& input, const Inputs::Numbers& numbers, int microbatches) const {
  HEDDLE_CHECK(numbers.dtype == input.dtype, "input '{}' is given in {}, the program takes {}", input.name,
               name_of(numbers.dtype), ir::text_of(input));
  for (const auto& [microbatch, bytes] : numbers.of) {
    HEDDLE_CHECK(std::ssize(bytes) == input.bytes(), "input '{}' is given {} numbers, the program takes {}",
                 input.name, std::ssize(bytes) / size_of(numbers.dtype), ir::text_of(input));
    HEDDLE_CHECK(microbatch < 0 || input.given == ir::Given::microbatch,
                 "input '{}' is given for microbatch {}, the program takes {}", input.name, microbatch,
                 ir::text_of(input));
  }
  for (int m = 0; m < microbatches && !numbers.of.contains(-1); ++m)
    HEDDLE_CHECK(numbers.of.contains(m), "input '{}' is not given for microbatch {}", input.name, m);
}

void RankInputs::stand(Inputs given) {
  for (const auto& [name, numbers] : given.given_) {
    const auto at = stands_.find(name);
    HEDDLE_CHECK(at != stands_.end() && at->second, "the program has no standing input '{}'", name);
  }
  standing_ = std::move(given);
}

void RankInputs::begin(int listing, const Inputs& given) {
  for (const auto& [name, numbers] : given.given_) {
    const auto at = stands_.find(name);
    HEDDLE_CHECK(at != stands_.end(), "the program has no input '{}'", name);
    if (at->second) standing_.given_[name] = numbers;
  }
  given_ = &given;
  for (const ir::Input& input : program_.listings[listing].inputs) {
    const bool stands = input.given == ir::Given::standing;
    const auto& values = stands ? standing_.given_ : given.given_;
    const auto at = values.find(input.name);
    const bool is_given = at != values.end();
    if (is_given) check(input, at->second, given.microbatches());
    HEDDLE_CHECK(is_given || input.otherwise.kind != ir::Default::Kind::none,
                 "input '{}' is not given and has no default: {}", input.name, ir::text_of(input));
  }
}

const std::byte* RankInputs::of(int listing, const ir::Op& load, int microbatch) const {
  const ir::Listing& of = program_.listings[listing];
  const ir::Input* input = of.find_input(load.attributes.word("input"));
  HEDDLE_CHECK(input != nullptr && given_ != nullptr, "'{}' loads no input of a step that runs", load.kind());
  return bytes_of(listing, *input, microbatch).data();
}

const std::vector<std::byte>& RankInputs::bytes_of(int listing, const ir::Input& input, int microbatch) const {
  const Inputs& values = input.given == ir::Given::standing ? standing_ : *given_;
  const std::vector<std::byte>* found = values.find(input.name, microbatch, input.dtype);
  if (found != nullptr) return *found;
  const auto of = defaults_.find(listing);
  HEDDLE_CHECK(of != defaults_.end() && of->second.contains(input.name),
               "input '{}' is not given for microbatch {}", input.name, microbatch);
  return of->second.find(input.name)->second;
}

}  // namespace heddle::device
