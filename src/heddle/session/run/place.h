// Inputs of a run beside its configuration: the place of this rank among the others, and what the user wants to
// see.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/observe/progress.h"

namespace heddle::comm {
class CallLog;
class World;
}  // namespace heddle::comm

namespace heddle::session {

/// Durations of the first steps, as rank 0 sees them.
struct FirstSteps {
  double step_s = 0;     // median
  double compute_s = 0;  // the compute streams' busy time, mean of the ranks; 0: no step of them was traced
};

/// The place of one rank in a run. The pointers must outlive the run.
struct RankPlace {
  comm::World* world = nullptr;    // null: the only rank
  comm::CallLog* calls = nullptr;  // the log of what the rank waits for; null: none
  bool threads = false;            // the ranks are threads of this process
  double predicted_s = 0;          // predicted duration of a step; 0: there is no prediction
  /// On rank 0, called once with what the first steps took; returns lines for the log.
  std::function<std::vector<std::string>(const FirstSteps&)> learn;
  /// On rank 0, called where the plan does not fit; returns one line that says what would.
  std::function<std::string()> remedy;
};

/// Output that the user wants to see. The run itself fills in its length and how far it is.
struct Telling {
  bool trace = false;      // also write the traced step for Perfetto
  std::string mlflow;      // an MLflow folder that also gets the figures; "": none
  std::string prometheus;  // the address that serves the last step's figures; "": none
  observe::ProgressOptions progress;
};

}  // namespace heddle::session
