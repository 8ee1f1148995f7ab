// Published claims about training large mixtures of experts, each beside what Heddle computes for its setting: by
// the estimate, by the timing of schedules, or by simulating the step program. Published figures are data with
// their source; ours are computed each time.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace heddle::cli {

struct Claim {
  std::string name;          // "merging"
  std::string what;          // of what over what
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

}  // namespace heddle::cli
