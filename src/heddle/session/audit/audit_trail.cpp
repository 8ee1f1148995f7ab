#include "heddle/session/audit/audit_trail.h"

#include <fmt/format.h>

#include <utility>

#include "heddle/base/error.h"

namespace heddle::session {

AuditTrail::AuditTrail(const config::RunConfig& config, const RunFolder& folder, train::Trainer& trainer,
                       std::function<void(const std::string&)> warn)
    : digest_every_(config.train.digest_every),
      record_ops_(config.train.record_ops),
      trainer_(trainer),
      warn_(std::move(warn)),
      weights_(trainer),
      files_(folder.ops(), trainer) {
  if (record_ops_ == 0) return;
  if (config.plan.parallel.ahead_of_norm)
    config_error("train.record_ops: with parallel.ahead_of_norm the ops of two steps run at the same time");
  recorder_.emplace(trainer);
}

bool AuditTrail::is_due(int64_t step) const { return digest_every_ > 0 && step % digest_every_ == 0; }

std::string AuditTrail::after(int64_t step, bool saves) {
  if (recorder_) {
    const train::OpDigests made = recorder_->take();
    try {
      files_.write(step, made, record_ops_);
    } catch (const SystemError& error) {
      if (!std::exchange(told_, true)) warn_(fmt::format("{}; training goes on", error.what()));
    }
  }
  if (step != trainer_.steps_done()) return "";  // another has begun since
  const bool takes = digest_every_ > 0 ? is_due(step) : trainer_.executor().host_reads() || saves;
  return takes ? weights_.take() : "";
}

}  // namespace heddle::session
