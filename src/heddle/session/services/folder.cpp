// Checks, once a second, that the run may still write into its folder. A job that was started again has a higher
// generation, and a folder may be renamed or removed.
#include "heddle/base/clock.h"
#include "heddle/base/files/fence.h"
#include "heddle/session/services/services.h"

namespace heddle::session {

namespace {

constexpr double kFolderCheck_s = 1;

class FolderService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord&) override {
    if (now_s() - checked_s_ <= kFolderCheck_s) return;
    check_fence(run_.folder.metrics());
    run_.look_at_folder();
    checked_s_ = now_s();
  }

 private:
  double checked_s_ = 0;
};

}  // namespace

std::unique_ptr<Service> make_folder(RunContext& run) { return std::make_unique<FolderService>(run); }

}  // namespace heddle::session
