// The question that `heddle plan` and the Python module ask: what a job takes, whether it fits, how fast it is, and
// which changes gain most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::advisor {

struct PlanRequest {
  /// A published model by name ("Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B") or a folder with a config.json. Or a launch
  /// script of Megatron-LM or MindSpeed, a configuration of Heddle (.toml), or "-": a script on the standard input.
  std::string subject;
  /// An accelerator by name or a TOML file. Empty: H100 for a model, the usual one for a script; for a
  /// configuration of the host backend this machine.
  std::string cluster;
  int64_t devices = 0;            // 0: as the script or configuration says; of a model the fewest that train it
  int64_t global_batch = 0;       // sequences a step; 0: as it says, else kUsualTokens a step
  int64_t sequence = 0;           // tokens; 0: as it says, else 4096
  std::string precision;          // of a model's matrix products; empty: bf16
  std::string memory;             // of a device, such as "80GiB"; empty: what software leaves of the accelerator's
  std::optional<double> routing;  // relative deviation of the experts' loads, of a model; none: 0.13
  std::optional<double> imbalance;  // rows of the fullest expert rank over the mean, of a script; none: 1
  std::string target;  // the trainer: heddle, megatron or mindspeed; empty: the script's, else the device's usual
  std::string calibration;       // file of scalars; empty: the built-in ones
  std::vector<std::string> set;  // of a script its variables NAME=VALUE, of a configuration its keys KEY=VALUE
  int threads = 0;               // of the search; 0: one a core
};

/// Tokens of a step of a model without a global batch: a multiple of the devices, and at least so many.
inline constexpr int64_t kUsualTokens = int64_t{4} << 20;

}  // namespace heddle::advisor
