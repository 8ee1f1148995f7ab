// Writes the operands and results of ops of one step of a run as safetensors: for people who want to see an op's
// input and output.
#pragma once

#include <string>
#include <vector>

#include "heddle/session/audit/rerun.h"

namespace heddle::session {

struct ReplayedOp {
  std::string op;  // its line of the program
  int microbatch = 0;
  std::vector<std::string> tensors;  // names in the file
};

/// Trains the run to `step` again and writes ops of rank `rank` and microbatch `microbatch` to `path`: those whose
/// kind is `name`, or that write a value of that name. An op that runs once a step ignores `microbatch`. A tensor
/// is called VALUE.in, VALUE.out or VALUE.updated behind the op's number: "12.hidden.in". Packed values are left
/// out. All ranks call it together; rank `rank` writes, and all get the list. ConfigError where there is no such
/// op, with the nearest name, or where the host can't read the device's memory.
std::vector<ReplayedOp> replay(const RunFolder& folder, const config::RunConfig& config, int64_t step,
                               const std::string& name, int rank, int microbatch, const std::string& path,
                               comm::World* world);

}  // namespace heddle::session
