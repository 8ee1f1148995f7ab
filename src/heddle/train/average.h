// The mean of a run's newest checkpoints, as a checkpoint of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::train {

/// Writes into the folder `to` a checkpoint of the newest step in the folder `from`. Its weights and balancing
/// biases are the means of the `count` newest whole ones (summed in f64, the oldest first, rounded once). Its
/// moments and all else are the newest's. Returns the steps that went into it, the oldest first; `refused` as of
/// latest_checkpoint. ConfigError where there are not so many. Holds no tensor as a whole.
std::vector<int64_t> save_average(const std::string& from, int64_t count, const std::string& to,
                                  std::vector<std::string>* refused = nullptr);

}  // namespace heddle::train
