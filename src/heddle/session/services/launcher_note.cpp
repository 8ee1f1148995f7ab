// Warns, after the third step, where mpirun gives its ranks less time to end than a step takes.
#include "heddle/session/notes/launcher_note.h"

#include "heddle/session/services/services.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

namespace {

constexpr int64_t kNotedSteps = 3;

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
