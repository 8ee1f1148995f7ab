// The place of what persists, and its cost: optimizer state on the device or the host, masters whole or split,
// weights and gradients on the device or the host.
//
// The cost of a home of the state comes from the table that the planner chooses by (plan/state_cost), read off
// Heddle's own lowered program (LoweredBlocks::residencies). Other software has the one residency that says
// nothing.
#pragma once

#include <string>
#include <vector>

#include "heddle/plan/residency.h"

namespace heddle::search {

/// A residency, and what it costs for a parameter whose state a rank has, beside whole masters and moments on the
/// device.
struct PricedResidency : plan::Residency {
  double away_bytes = 0;  // less on the device
  double host_bytes = 0;  // on the host
  double end_s = 0;       // longer that the end of a step takes
  bool operator==(const PricedResidency&) const = default;
};

/// The words of memory.weights and memory.gradients for all of them, or for none.
std::vector<passes::OpGroup> on_host(bool all);

/// "swap, split masters, weights on the host"; "" where all is as usual.
std::string text_of(const plan::Residency& residency);

/// The words of each that may be; none: any.
struct ResidencyWords {
  std::vector<std::string> optimizer, master;   // words of memory.optimizer but auto, of memory.master
  std::vector<std::string> weights, gradients;  // "device", "host"

  bool unrestricted() const { return optimizer.empty() && master.empty() && weights.empty() && gradients.empty(); }
  bool allow(const plan::Residency& residency) const;
};

/// Residencies that are worth trying, in the order in which they are tried: the usual one, then by cost. Among
/// those that leave weights and gradients alike, one that frees no more for more time is left out.
std::vector<PricedResidency> worth_trying(const std::vector<PricedResidency>& all, const ResidencyWords& words);

}  // namespace heddle::search
