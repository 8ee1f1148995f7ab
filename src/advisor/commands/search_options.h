// Options of `heddle search`, for a model on a cluster or for a script's job. They also name the files that it
// writes besides its table: the explanation as a page, the best plan as another program's input.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heddle/search/explain.h"

namespace heddle::cli {

struct SearchOptions {
  std::string model;    // by name, or a folder with config.json
  std::string from;     // instead: a launch script of Megatron-LM or MindSpeed
  std::string cluster;  // an accelerator by name, or a TOML file; with --from empty: as usual for the script
  int64_t devices = 0, global_batch = 0, sequence = 0;  // 0: as the script says
  std::string precision = "bf16";
  std::string memory;       // a device's, such as 80GiB; empty: what its software leaves of the accelerator's
  double routing = 0.13;    // relative deviation of the experts' loads
  std::string calibration;  // file; empty: the built-in one
  std::vector<std::string> restrict;
  int64_t top = 5, short_list = 300;
  int64_t threads = 0;           // 0: one a core
  double imbalance = 1;          // the script's job's: rows of the fullest expert rank over the mean
  std::vector<std::string> set;  // variables of the script, NAME=VALUE
  std::string explain;           // HTML file
  std::string emit;              // heddle, megatron or mindspeed
  std::string out;               // file of --emit; empty: standard output
  bool heddle = false;           // Heddle itself trains, also where it has no backend
  bool fewest = false;           // devices on which the model trains, `devices` at most
  bool json = false;
};

/// With `from`: estimates that script's job, and finds a better one near it. Returns the exit status.
int search_from(const SearchOptions& options);

/// ConfigError for --out without --emit.
void check_plan_files(const SearchOptions& options);

/// Writes --explain and --out, and returns what --emit asks for: the first plan that the target can run.
/// ConfigError with the first one's refusal where there is none.
/// `own` says a plan in the script that was read, where it is for the same trainer.
std::string write_plan_files(const SearchOptions& options, const std::vector<search::Explanation>& plans,
                             const std::function<std::string(const search::Launch&)>& own = {});

}  // namespace heddle::cli
