#include "heddle/comm/placement/expert_placement.h"

#include "heddle/base/error.h"
#include "heddle/device/host_copies.h"

namespace heddle::comm {

bool is_expert_placement(std::span<const int32_t> position_of_E, int64_t experts) {
  std::vector<char> taken(static_cast<size_t>(experts), 0);
  for (const int32_t position : position_of_E) {
    if (position < 0 || position >= experts || taken[position] != 0) return false;
    taken[position] = 1;
  }
  return std::ssize(position_of_E) == experts;
}

ExpertPlacement::ExpertPlacement(std::vector<int32_t> position_of_E)
    : position_of_E_(std::move(position_of_E)), expert_at_(position_of_E_.size()) {
  HEDDLE_CHECK(is_expert_placement(position_of_E_, std::ssize(position_of_E_)),
               "two of {} experts share a position", position_of_E_.size());
  bool in_order = true;
  for (size_t e = 0; e < position_of_E_.size(); ++e) {
    expert_at_[static_cast<size_t>(position_of_E_[e])] = static_cast<int32_t>(e);
    in_order &= position_of_E_[e] == static_cast<int32_t>(e);
  }
  if (in_order) position_of_E_.clear();
}

ExpertPlacement ExpertPlacement::in(const device::KernelCall& call, size_t operand) {
  if (operand >= call.in.size() || !call.in[operand]) return {};
  const device::TensorView positions = device::HostCopies::on_host(call, call.in[operand]);
  const auto* first = positions.as<const int32_t>();
  return ExpertPlacement(std::vector<int32_t>(first, first + positions.elements()));
}

void ExpertPlacement::name_experts(std::span<int32_t> positions) const {
  for (int32_t& position : positions) {
    if (position >= 0) position = static_cast<int32_t>(expert_at(position));
  }
}

}  // namespace heddle::comm
