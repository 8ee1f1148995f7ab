// memory.budget as a share of the device's memory, "80%": in bytes, before anything is chosen by it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

/// "memory.budget=BYTES" where the configuration has a share, else nothing. It is a share of what an arena may take
/// without a budget (train::memory_limit_of). That is device.memory_bytes where it is set, else the memory of a
/// device that has its own, else the rank's part of the machine's, by `sharing`. `tell` gets one line about it.
std::vector<std::string> share_settings(const config::RunConfig& config, const train::Sharing& sharing,
                                        const std::function<void(const std::string& line)>& tell);

}  // namespace heddle::planner
