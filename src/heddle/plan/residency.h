// The places of what lives from step to step: the choice of a plan (plan/choices.h), and a column of a search.
#pragma once

#include <array>
#include <vector>

#include "heddle/base/words.h"
#include "heddle/passes/options/op_group.h"

namespace heddle::plan {

/// The place of master weights and moments.
enum class StateResidency : uint8_t {
  device,
  swap,      // on the host; slices stream through slots on the device
  mapped,    // moments on the host, where the update reads and writes them in place
  host,      // on the host, whose processor updates them; gradients go there, weights come back
  cheapest,  // on the device if they fit, else where the end of a step is shortest (plan/state_cost)
};
constexpr auto words_of(StateResidency) {
  return std::to_array<Word<StateResidency>>({{StateResidency::device, "device"},
                                              {StateResidency::swap, "swap"},
                                              {StateResidency::mapped, "mapped"},
                                              {StateResidency::host, "host"},
                                              {StateResidency::cheapest, "auto"}});
}

/// The form in which the master of a bf16 weight is kept.
enum class MasterForm : uint8_t {
  full,   // fp32, beside the weight
  split,  // the weight itself, and the 16 bits that it lacks
};
constexpr auto words_of(MasterForm) {
  return std::to_array<Word<MasterForm>>({{MasterForm::full, "full"}, {MasterForm::split, "split"}});
}

/// The places of what lives from step to step.
struct Residency {
  StateResidency optimizer = StateResidency::device;
  MasterForm master = MasterForm::full;
  std::vector<passes::OpGroup> weights, gradients;  // which of them lie on the host (passes/host/residency_words)

  bool on_device() const { return optimizer == StateResidency::device && !crosses(); }
  /// True if weights or sums of gradients cross to the device for a microbatch.
  bool crosses() const { return !weights.empty() || !gradients.empty(); }
  bool operator==(const Residency&) const = default;
};

}  // namespace heddle::plan
