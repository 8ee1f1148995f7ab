// Where the experts of a layer live: an expert's home is its holder times the places of one, plus its place there.
// What comm/placement works out, it works out by homes, so that an owner is a home divided by the places of a
// holder; what tokens and the text say goes by experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/device/batch.h"
#include "heddle/device/kernel_call.h"

namespace heddle::comm {

/// Whether each of so many experts has a home of its own.
bool is_homes(std::span<const int32_t> home_of_E, int64_t experts);

class Homes {
 public:
  /// Every expert at the home of its number.
  Homes() = default;
  /// InternalError unless each has a home of its own.
  explicit Homes(std::vector<int32_t> home_of_E);
  /// Of the layer of the call's op, as its batch has them.
  static Homes now(const device::KernelCall& call);

  bool in_order() const { return home_of_E_.empty(); }
  int64_t of(int64_t expert) const { return in_order() ? expert : home_of_E_[static_cast<size_t>(expert)]; }
  int64_t expert_at(int64_t home) const { return in_order() ? home : expert_at_[static_cast<size_t>(home)]; }
  /// Rows of numbers, one an expert, that go by homes then.
  template <class T>
  std::vector<T> by_home(std::span<const T> by_expert, int64_t experts) const {
    std::vector<T> made(by_expert.begin(), by_expert.end());
    for (size_t i = 0; !in_order() && i < made.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / experts, home = static_cast<int64_t>(i) % experts;
      made[i] = by_expert[static_cast<size_t>(row * experts + expert_at(home))];
    }
    return made;
  }
  /// Homes become experts, or experts homes; −1 stays.
  void name_experts(std::span<int32_t> homes) const;
  void name_homes(std::span<int32_t> experts) const;

 private:
  std::vector<int32_t> home_of_E_, expert_at_;
};

}  // namespace heddle::comm
