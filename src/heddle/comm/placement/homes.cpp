#include "heddle/comm/placement/homes.h"

#include "heddle/base/error.h"

namespace heddle::comm {

bool is_homes(std::span<const int32_t> home_of_E, int64_t experts) {
  std::vector<char> taken(static_cast<size_t>(experts), 0);
  for (const int32_t home : home_of_E) {
    if (home < 0 || home >= experts || taken[static_cast<size_t>(home)] != 0) return false;
    taken[static_cast<size_t>(home)] = 1;
  }
  return std::ssize(home_of_E) == experts;
}

Homes::Homes(std::vector<int32_t> home_of_E) : home_of_E_(std::move(home_of_E)), expert_at_(home_of_E_.size()) {
  HEDDLE_CHECK(is_homes(home_of_E_, std::ssize(home_of_E_)), "two of {} experts share a home", home_of_E_.size());
  for (size_t e = 0; e < home_of_E_.size(); ++e)
    expert_at_[static_cast<size_t>(home_of_E_[e])] = static_cast<int32_t>(e);
}

Homes Homes::now(const device::KernelCall& call) {
  if (call.batch == nullptr) return {};
  const auto at = call.batch->homes.find(call.op->layer);
  if (at == call.batch->homes.end()) return {};
  HEDDLE_CHECK(std::ssize(at->second) == call.op->attributes.integer_or("experts", std::ssize(at->second)),
               "layer {}: the homes of {} experts are known, of {} expected", call.op->layer, at->second.size(),
               call.op->attributes.integer("experts"));
  return Homes(at->second);
}

void Homes::name_experts(std::span<int32_t> homes) const {
  for (int32_t& home : homes) {
    if (home >= 0) home = static_cast<int32_t>(expert_at(home));
  }
}

void Homes::name_homes(std::span<int32_t> experts) const {
  for (int32_t& expert : experts) {
    if (expert >= 0) expert = static_cast<int32_t>(of(expert));
  }
}

}  // namespace heddle::comm
