// Options of `heddle schedule`, and their meaning for ranks and their stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"

namespace heddle::cli {

struct ScheduleOptions {
  std::string name;                     // a schedule's name, or its file; empty: lists the names
  bool all = false;                     // a table of all schedules
  int64_t ranks = 0, microbatches = 0;  // 0: kUsualRanks, and twice as many microbatches as ranks
  int64_t chunks = 0, group = 0;        // 0: as usual for the schedule
  std::string times = "1,1,1";          // F,I,W,FB,COMM of all layers of a rank
  double all_to_all = 0;                // for all layers of a rank, exposed in F and again in I unless in a pair
  std::string layout;                   // empty: equal stages
  std::string memory = "0.57,0.43";     // kept until I, and until W, of all layers of a rank
  int64_t buffers = 0;                  // 0: as many as it takes
  std::string cap;                      // for synthesis: room of each rank, in the unit of memory
  double effort = 1;                    // for synthesis
  std::string svg;                      // file
  bool text = false;
  bool json = false;
};

/// Durations and bytes of all layers of one rank.
struct Given {
  schedule::StageTimes rank;
  double pair = 0;  // duration of a fused pair
  double hop = 0;
  schedule::StageBytes bytes;
};

struct OfStages {
  schedule::Times times;
  std::vector<schedule::StageBytes> bytes;
};

/// "1,2.5" after `flag`: `least` to `most` numbers of at least 0. ConfigError for others.
std::vector<double> numbers_of(const char* flag, const std::string& text, size_t least, size_t most);
/// Returns what the options give. ConfigError where no op lasts.
Given given_by(const ScheduleOptions& options);
/// Each stage's part of what its rank takes. ConfigError for a layout without layers.
OfStages of_stages(const schedule::Placement& placement, const Given& given, const ScheduleOptions& options);
/// ConfigError for sizes beyond bounds.
schedule::GeneratorOptions generator_options(const ScheduleOptions& options, const Given& given);

}  // namespace heddle::cli
