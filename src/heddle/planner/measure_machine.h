// Measures this machine by what runs on it: training steps of small models of many sizes, messages of the
// communicator, programs side by side.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "heddle/comm/world.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/train/trainer.h"

namespace heddle::planner {

/// The load of other programs on this machine, from when it is made.
class OthersWatch {
 public:
  OthersWatch();
  /// Share of the time of all cores, so far. Ticks of the system's clock: under half a second little is known.
  double share() const;

 private:
  double began_s_, others_s_;
};
/// Measurements beside more than that are taken again where they can be.
inline constexpr double kQuiet = 0.05;

struct MeasureOptions {
  double seconds = 90;  // length of the measurement, about
  int threads = 0;      // threads of a rank that has the machine to itself; 0: every core
  std::string backend = "host";
  std::function<void(std::string_view what, double share)> progress;  // `what` lasts
};

/// Measures the processor, or the device of a backend that has memory of its own (device/measure_device).
cost::MachineProfile measure_machine(const MeasureOptions& options);

/// A model of two or three layers and its batch, of sizes drawn evenly in their logarithms, of at most so many
/// FLOPs a step. `wide`: times the widths, rows and vocabularies of the processor's.
train::TrainerOptions draw_program(uint64_t number, Dtype dtype, int threads, double most_flops = 2.5e10,
                                   int64_t wide = 1);
/// Sets the machine's name and today's date.
void name_machine(cost::MachineProfile& profile);

/// Times of messages among all ranks of a job, on every rank, between the memories that a backend has; all ranks
/// call it together.
std::vector<cost::LinkTime> measure_links(comm::World& world, cost::Link over, std::string_view backend = "host");

}  // namespace heddle::planner
