// The answer to a PlanRequest as plain numbers: bytes, seconds, tokens a second. `heddle plan` prints it as text or
// JSON, and the Python module returns it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "advisor/answer/plan_request.h"
#include "heddle/observe/terminal/terminal.h"

namespace heddle::advisor {

/// A number with its range; the answer says how many of what was measured fell into such a range.
struct Interval {
  double value = 0, low = 0, high = 0;
};

/// Bytes at the peak of the ranks of one pipeline rank, all alike.
struct RankBytes {
  int pipeline_rank = 0;
  int64_t ranks = 0;
  double peak_bytes = 0;
  bool fits = true;
};

struct NamedBytes {
  std::string name;
  double bytes = 0;
};

/// A trainer, and the words that make it run a plan: flags, or "key=value" of Heddle's configuration.
struct TypedWords {
  std::string program;
  std::vector<std::string> words;
  std::string refusal;  // why it can't run the plan; empty: it can
};

/// One change beside a plan.
struct PlanChange {
  std::string change;      // "tp 2 → 1 (dp 8 → 16)"
  double speed_ratio = 1;  // tokens a second over the plan's
  double peak_bytes = 0;
  bool fits = true;
  std::vector<std::string> add, remove;  // words for the plan's trainer
};

/// The best plan of the whole space beside a script's job or a configuration.
struct BetterPlan {
  std::string layout, schedule;
  std::vector<std::string> changes;  // all that differs
  double speed_ratio = 1, tokens_per_s = 0, peak_bytes = 0;
  std::vector<std::string> add, remove;  // as in PlanChange
};

/// Another job that the answer's job is compared with.
struct BesideJob {
  std::string subject;
  bool fits = true;
  double tokens_per_s = 0, peak_bytes = 0;
};

enum class PlanKind : uint8_t { model, script, config };

struct PlanAnswer {
  PlanKind kind = PlanKind::model;
  std::string subject;  // as asked
  std::string place;    // the script's file and line
  std::string model, device, target;
  int64_t devices = 0, global_batch = 0, sequence = 0, microbatch = 0;
  std::string precision;
  std::vector<std::string> assumed;  // what nobody said: "global batch 1024 (--global-batch)"
  std::vector<std::string> notes;    // what was left out or could not be read

  bool found = false;                            // there is a plan below; else nothing fits
  std::string layout, schedule;                  // "tp 1 cp 1 dp 16 pp 4 ep 8 etp 1 microbatch 2", "interleaved"
  std::string stages;                            // layers by stage, where they differ
  std::string keeping;                           // recomputation and offload: "none", "full", ...
  double parameters = 0, active_parameters = 0;  // of the model without further tokens
  double flops_per_token = 0;                    // training
  Interval step_s, tokens_per_s;                 // of the whole job
  std::string interval_from;                     // how much of what is measured the range holds
  double model_flops_utilization = 0;            // 0: not known
  std::string bound_by, bound_why;
  double memory_bytes = 0;  // usable by a plan on a device
  double peak_bytes = 0;    // of the fullest rank
  bool fits = false;
  bool counted = false;  // bytes counted from the program that would run; else estimated
  std::vector<RankBytes> ranks;
  std::vector<NamedBytes> memory;
  std::vector<PlanChange> changes;  // at most three, each one change, the fastest first
  std::vector<TypedWords> typed;    // of the plan's own trainer first
  std::optional<BetterPlan> better;
  std::optional<BesideJob> beside;

  std::string nearest;         // where nothing fits, the plan that lacks least
  int64_t fewest_devices = 0;  // that train it, where the asked ones do not; 0: not known
  uint64_t searched = 0;       // plans
  double seconds = 0;          // of the answer
  bool stopped = false;        // early

  /// The plan, or what is better than the job, as its trainer's input: a script or a configuration. "" where
  /// nothing fits or nothing is better, for a configuration on this machine, and where the trainer can't run it.
  std::string script;

  double tokens_per_s_per_device() const {
    return devices > 0 ? tokens_per_s.value / static_cast<double>(devices) : 0;
  }
  /// A job that was asked for fits, or a plan for a model was found.
  bool good() const { return found && fits; }
};

/// Functions by which a caller sees the work and ends it early.
struct PlanWatch {
  std::function<bool()> stop;                                        // asked often; true: the best so far
  std::function<void(const std::string& doing, double part)> doing;  // part 0 to 1, or −1: unknown
  std::function<void(const PlanAnswer& so_far)> first;  // once, before a long search for fewer or more devices
};

/// Answers the request. ConfigError in one line for input that can't be read or has no estimate.
PlanAnswer answer_plan(const PlanRequest& request, const PlanWatch& watch = {});

/// Puts another job of the same kind beside the answer, such as the script before a change.
void put_beside(PlanAnswer& answer, const PlanAnswer& other);

/// The answer as `heddle plan --json` prints it.
nlohmann::ordered_json json_of(const PlanAnswer& answer);

/// "256 x H100 are the fewest that train it."
std::string fewest_text(const PlanAnswer& answer);

/// The answer as `heddle plan` prints it.
std::string text_of(const PlanAnswer& answer, const observe::Terminal& terminal);

}  // namespace heddle::advisor
