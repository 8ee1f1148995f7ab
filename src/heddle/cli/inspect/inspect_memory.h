// The memory of a configuration's step drawn: in the terminal, as numbers, as a page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/observe/terminal/terminal.h"
#include "heddle/planner/rank_memory.h"
#include "heddle/simulate/memory_log.h"

namespace heddle::cli {

class InspectedMemory {
 public:
  /// Computes the memory of that rank's training step, at nominal rates.
  InspectedMemory(const config::RunConfig& config, const plan::Plan& plan, const plan::Lowered& lowered,
                  const planner::RankMemory& rank);

  void print(const observe::Terminal& terminal) const;
  nlohmann::ordered_json json() const;
  void write_page(const std::string& path, double capacity_bytes) const;

 private:
  std::string name_, of_;
  planner::RankMemory rank_;
  std::vector<simulate::MemoryCurve> curves_;
};

}  // namespace heddle::cli
