// Measures this machine by what runs on it: training steps of small models of many sizes, messages of the
// communicator, programs side by side.
#pragma once

#include <functional>
#include <string_view>

#include "heddle/comm/world.h"
#include "heddle/cost/machine_profile.h"

namespace heddle::planner {

/// How busy other programs keep this machine from when it is made.
class OthersWatch {
 public:
  OthersWatch();
  /// Of the time of all cores, so far. Ticks of the system's clock: of less than half a second little is known.
  double share() const;

 private:
  double began_s_, others_s_;
};
/// Measurements beside more than that are taken again where they can be.
inline constexpr double kQuiet = 0.05;

struct MeasureOptions {
  double seconds = 90;  // of the measurement, about
  int threads = 0;      // of a rank that has the machine to itself; 0: every core
  std::function<void(std::string_view what, double share)> progress;
};

cost::MachineProfile measure_machine(const MeasureOptions& options);

/// Times of messages among all ranks of a job, on every rank; all ranks call it together.
std::vector<cost::LinkTime> measure_links(comm::World& world, cost::Link over);

}  // namespace heddle::planner
