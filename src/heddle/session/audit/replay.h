// The operands and results of ops of one step of a run, as safetensors: for people who want to see what an op was
// given and what it made of it.
#pragma once

#include <string>
#include <vector>

#include "heddle/session/audit/rerun.h"

namespace heddle::session {

struct ReplayedOp {
  std::string op;  // its line of the program
  int microbatch = 0;
  std::vector<std::string> tensors;  // by name in the file
};

/// Trains the run to `step` again and writes, of rank `rank` and microbatch `microbatch` (of ops that run once a
/// step: whatever it is), the ops whose kind is `name`, or that write a value of that name, to `path`. A tensor is
/// called VALUE.in, VALUE.out or VALUE.updated behind the op's number: "12.hidden.in". What is packed is left out.
/// All ranks call it together; rank `rank` writes, and all know what. ConfigError where there is no such op, with
/// the nearest name, or where the host can't read the device's memory.
std::vector<ReplayedOp> replay(const RunFolder& folder, const config::RunConfig& config, int64_t step,
                               const std::string& name, int rank, int microbatch, const std::string& path,
                               comm::World* world);

}  // namespace heddle::session
