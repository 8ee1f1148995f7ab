// Warns, after the third step, where mpirun gives its ranks less time to end than a step takes.
#include <cmath>
#include <cstdlib>

#include "heddle/observe/units.h"
#include "heddle/session/services/services.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

namespace {

constexpr int64_t kNotedSteps = 3;

// Open MPI's mpirun kills its ranks soon after Ctrl-C or SIGTERM: too soon for a step that lasts longer.
std::string launcher_note(double step_s) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return "";
  const char* set = std::getenv("OMPI_MCA_odls_base_sigkill_timeout");
  const double leaves_s = set != nullptr ? std::atof(set) : 1;
  if (2 * step_s < leaves_s) return "";
  return fmt::format(
      "mpirun kills its ranks {:.0f} s after Ctrl-C, a step takes {}: what is done since the last "
      "checkpoint would "
      "be lost. End the run with `pkill -USR2 mpirun`, or start it with --mca odls_base_sigkill_timeout {:.0f}",
      leaves_s, observe::duration_text(step_s), std::ceil(10 + 3 * step_s));
}

class LauncherNote final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    if (++steps_ != kNotedSteps) return;
    if (const std::string note = launcher_note(record.result.seconds); !note.empty()) run_.warn(note);
  }

 private:
  int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Service> make_launcher_note(RunContext& run) { return std::make_unique<LauncherNote>(run); }

}  // namespace heddle::session
