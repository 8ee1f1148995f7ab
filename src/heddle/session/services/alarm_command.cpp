// Minds the user's program that is run for alarms: takes the ends of those that have ended, and waits for the rest
// at the end of the run.

#include "heddle/session/services/services.h"
#include "heddle/session/slow/alarms.h"

namespace heddle::session {

namespace {

class AlarmCommandService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord&) override { run_.alarms->command().poll(); }
  void end() override { run_.alarms->command().finish(); }
};

}  // namespace

std::unique_ptr<Service> make_alarm_command(RunContext& run) { return std::make_unique<AlarmCommandService>(run); }

}  // namespace heddle::session
