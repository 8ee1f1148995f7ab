// Where what persists lies, and what that costs: the state of the optimizer on the device or the host, masters
// whole or split, weights and gradients on the device or the host.
//
// What a home of the state costs comes from the table that the planner chooses by (plan/state_cost), read off
// Heddle's own lowered text (LoweredBlocks::residencies); other software has the one residency that says nothing.
#pragma once

#include <string>
#include <vector>

#include "heddle/plan/choices.h"

namespace heddle::search {

struct Residency {
  plan::StateHome optimizer = plan::StateHome::device;
  plan::MasterForm master = plan::MasterForm::full;
  bool weights = false, gradients = false;  // on the host
  // Of a parameter whose state a rank has, beside whole masters and moments on the device:
  double away_bytes = 0;  // less on the device
  double host_bytes = 0;  // on the host
  double end_s = 0;       // longer that the end of a step takes

  bool on_device() const { return optimizer == plan::StateHome::device && !weights && !gradients; }
  /// What of weights and sums of gradients crosses to the device for a microbatch.
  bool crosses() const { return weights || gradients; }
  bool operator==(const Residency&) const = default;
};

/// "swap, split masters, weights on the host"; "" where all is as usual.
std::string text_of(const Residency& residency);

/// The words of each that may be; none: any.
struct ResidencyWords {
  std::vector<std::string> optimizer, master;   // of memory.optimizer but auto, of memory.master
  std::vector<std::string> weights, gradients;  // "device", "host"

  bool unrestricted() const { return optimizer.empty() && master.empty() && weights.empty() && gradients.empty(); }
  bool allow(const Residency& residency) const;
};

/// Of all residencies those that are worth trying, in the order in which they are tried: the usual one, then what
/// costs least. Of those that leave weights and gradients alike, one that frees no more for more time is left out.
std::vector<Residency> worth_trying(const std::vector<Residency>& all, const ResidencyWords& words);

}  // namespace heddle::search
