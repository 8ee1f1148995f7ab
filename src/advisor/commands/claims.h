// Published claims about training large mixtures of experts, each beside what Heddle computes for its setting: by
// the estimate, by the timing of schedules, or by simulating the step program. Published figures are data with
// their source; ours are computed each time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heddle::cli {

struct Claim {
  std::string name;          // "merging"
  std::string what;          // ratio of what over what
  std::string setting;       // model, devices, layout: ours where the source doesn't say, and then marked "(ours)"
  double low = 0, high = 0;  // published gain as a part: 0.15 is +15 %
  std::string source;
  std::string by;  // estimate, schedule, program
  std::function<double()> ours;
};

const std::vector<Claim>& claims();

/// Gain of the step program with `key` (of the plan) on over off, on one stage of DeepSeek-V3-wide layers.
double gain_of_list_reuse();
double gain_of_weaving();

/// Ranks that share experts, what their devices and links do, and rows (a source's, of a microbatch) whose fullest
/// rank has so many times the mean.
struct CopiesOfHotExperts {
  int64_t ranks = 1, ranks_on_node = 1, experts = 1, hidden = 1, width = 1, rows = 1;
  int64_t replicas = 2;                                                    // slots of a rank for them
  double flops_per_s = 0, within_bytes_per_s = 0, across_bytes_per_s = 0;  // a rank's; a node's
  double imbalance = 1;
};
/// Imbalance that copies leave, by the choice that a run makes (comm/placement); mean of drawn loads.
double imbalance_with_replicas(const CopiesOfHotExperts& of);

}  // namespace heddle::cli
