// Digests of weights and ops, for those who audit the run (audit/audit_trail.h).
#include "heddle/session/audit/audit_trail.h"
#include "heddle/session/services/services.h"

namespace heddle::session {

namespace {

class AuditService final : public Service {
 public:
  using Service::Service;

  void start() override {
    trail_.emplace(run_.config, run_.folder, *run_.trainer, [this](const std::string& text) { run_.warn(text); });
  }

  void before(int64_t) override { trail_->before(); }

  void after(StepRecord& record) override {
    record.metrics.weights_digest = trail_->after(record.result.step, record.saves || run_.is_over());
    if (record.metrics.weights_digest.empty()) return;
    run_.summary.weights_digest = record.metrics.weights_digest;
    run_.keeping.digest_step = record.result.step;
  }

 private:
  std::optional<AuditTrail> trail_;
};

}  // namespace

std::unique_ptr<Service> make_audit(RunContext& run) { return std::make_unique<AuditService>(run); }

}  // namespace heddle::session
