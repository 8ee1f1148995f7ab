// The homes of a layer's experts: an expert's home is its holder times the places of one, plus its place there.
// What comm/placement computes is by homes, so that an owner is a home divided by the places of a holder. Tokens
// and the listing name experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/device/kernel_call.h"

namespace heddle::comm {

/// True if each of so many experts has a home of its own.
bool is_expert_placement(std::span<const int32_t> position_of_E, int64_t experts);

class ExpertPlacement {
 public:
  /// Every expert at the home of its number.
  ExpertPlacement() = default;
  /// InternalError unless each has a home of its own.
  explicit ExpertPlacement(std::vector<int32_t> position_of_E);
  /// The homes in an operand of the call; every expert at the home of its number where it is absent.
  static ExpertPlacement in(const device::KernelCall& call, size_t operand);

  bool in_order() const { return position_of_E_.empty(); }
  int64_t of(int64_t expert) const { return in_order() ? expert : position_of_E_[expert]; }
  int64_t expert_at(int64_t position) const { return in_order() ? position : expert_at_[position]; }
  /// Rows of numbers, one an expert, that go by homes then.
  template <class T>
  std::vector<T> by_position(std::span<const T> by_expert, int64_t experts) const {
    std::vector<T> made(by_expert.begin(), by_expert.end());
    for (size_t i = 0; !in_order() && i < made.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / experts, position = static_cast<int64_t>(i) % experts;
      made[i] = by_expert[static_cast<size_t>(row * experts + expert_at(position))];
    }
    return made;
  }
  /// Homes become experts; −1 stays.
  void name_experts(std::span<int32_t> positions) const;

 private:
  std::vector<int32_t> position_of_E_, expert_at_;
};

}  // namespace heddle::comm
