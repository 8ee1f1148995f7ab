// The subcommands of `heddle`, each a function of its options. They write to standard output, throw what went
// wrong, and return the exit status; command_line.cpp turns arguments into options, main.cpp errors into messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/base/exit_status.h"

namespace heddle::cli {

struct TrainOptions {
  std::string config;
  std::vector<std::string> set;  // key=value
  int64_t steps = 0;             // 0: as configured
  double minutes = 0;            // 0: as configured
  int64_t ranks = 0;             // 0: as configured, or as many as the launcher has started
  std::string mode;              // auto, save-memory, overlap: the plan is chosen; empty: as configured
  std::string profile;           // for that; empty: the one that `heddle profile` keeps
  bool resume = false;
  bool trace = false;
  bool json = false;
};
int train(const TrainOptions& options);

struct GenerateOptions {
  std::string run;  // folder
  std::vector<std::string> set;
  std::string prompt = "The ";
  int64_t tokens = 128;
  double temperature = 0.8;
  int64_t seed = 1;
  bool json = false;
};
int generate(const GenerateOptions& options);

struct InspectOptions {
  std::string config;
  std::vector<std::string> set;  // key=value
  bool program = false;
  bool json = false;
  std::string model;  // a published model by name, in place of a configuration
};
int inspect(const InspectOptions& options);
int inspect_shape(const InspectOptions& options);

struct DoctorOptions {
  bool json = false;
};
int doctor(const DoctorOptions& options);

struct ExplainOptions {
  std::string key;  // empty: all keys
  bool json = false;
};
int explain(const ExplainOptions& options);

struct DataOptions {
  std::string source;
  std::string out;
  int64_t vocabulary = 8192;
  bool json = false;
};
int data(const DataOptions& options);

struct PredictOptions {
  std::string points;
  std::string out;          // empty: only the statistics
  std::string calibration;  // empty: the built-in one
  std::string calibrate;    // where to write the scalars that `points` give; empty: nowhere
  std::string held_out;     // "", "rows" or "models"
  bool json = false;
};
int predict(const PredictOptions& options);

struct ProfileOptions {
  std::string config;  // its own ops are added to the profile; empty: the machine is measured
  std::vector<std::string> set;
  std::string out;  // empty: the user's cache folder
  double seconds = 90;
  bool json = false;
};
int profile(const ProfileOptions& options);

struct SimulateOptions {
  std::string config;
  std::vector<std::string> set;
  std::string profile;               // empty: the one that `heddle profile` keeps
  int64_t ranks = 0;                 // 0: as configured
  int64_t hosts = 1;                 // over which they are spread
  std::string routing = "balanced";  // or the relative deviation of the experts' shares, or a run's metrics
  double jitter = 0;                 // relative deviation of each op's time
  int64_t draws = 0;                 // 0: one, or 20 where something is drawn
  int64_t seed = 1;
  std::string trace;  // file
  bool json = false;
};
int simulate(const SimulateOptions& options);

struct ClaimsOptions {
  std::string name;  // empty: all
  bool json = false;
};
int print_claims(const ClaimsOptions& options);

struct SearchOptions {
  std::string model;    // by name, or a folder with config.json
  std::string from;     // instead: a launch script of Megatron-LM or MindSpeed
  std::string cluster;  // an accelerator by name, or a TOML file; with --from empty: as usual for the script
  int64_t devices = 0, global_batch = 0, sequence = 0;  // 0: as the script says
  std::string precision = "bf16";
  std::string memory;       // of a device, such as 80GiB; empty: what its software leaves of the accelerator's
  double routing = 0.13;    // relative deviation of the experts' loads
  std::string calibration;  // file; empty: the built-in one
  std::vector<std::string> restrict;
  int64_t top = 5, short_list = 300;
  int64_t threads = 0;           // 0: one a core
  double imbalance = 1;          // of the script's job: rows of the fullest expert rank over the mean
  std::vector<std::string> set;  // variables of the script, NAME=VALUE
  std::string explain;           // HTML file
  std::string emit;              // heddle, megatron or mindspeed
  std::string out;               // what --emit writes; empty: standard output
  bool json = false;
};
/// The best plans for a model on a cluster, or what a script's job would do and what near it would be better.
int search_plans(const SearchOptions& options);
int search_from(const SearchOptions& options);

struct ScheduleOptions {
  std::string name;  // of a schedule, or a file with its text; empty: lists the names
  bool all = false;  // a table of all schedules
  int64_t ranks = 0, microbatches = 0;
  int64_t chunks = 0, group = 0;     // 0: as usual for the schedule
  std::string times = "1,1,1";       // F,I,W,FB,COMM of all layers of a rank
  double all_to_all = 0;             // of all layers of a rank, exposed in F and again in I unless in a pair
  std::string layout;                // empty: equal stages
  std::string memory = "0.57,0.43";  // kept until I, and until W, of all layers of a rank
  int64_t buffers = 0;               // 0: as many as it takes
  std::string cap;                   // of synthesis: room of each rank, in the unit of memory
  double effort = 1;                 // of synthesis
  std::string svg;                   // file
  bool text = false;
  bool json = false;
};
int schedule(const ScheduleOptions& options);

/// Parses the arguments, runs the subcommand and returns the exit status. Throws what the subcommand throws.
int run_command_line(int count, char** arguments);

}  // namespace heddle::cli
