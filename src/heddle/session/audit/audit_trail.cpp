#include "heddle/session/audit/audit_trail.h"

#include <fmt/format.h>

#include <utility>

#include "heddle/base/error.h"
#include "heddle/runtime/executor.h"
#include "heddle/train/audit/replica_check.h"

namespace heddle::session {

namespace {

bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

}  // namespace

AuditTrail::AuditTrail(const config::RunConfig& config, const RunFolder& folder, train::Trainer& trainer,
                       std::function<void(const std::string&)> warn)
    : digest_every_(config.train.digest_every),
      compare_every_(trainer.ranks().size() > 1 ? config.train.compare_copies_every : 0),
      record_ops_(config.train.record_ops),
      trainer_(trainer),
      warn_(std::move(warn)),
      weights_(trainer) {
  if (record_ops_ == 0) return;
  recorder_.emplace(trainer);
  files_.emplace(folder.ops(), trainer);
}

std::string AuditTrail::after(int64_t step, bool saves) {
  if (recorder_) {
    const train::OpDigests made = recorder_->take();
    try {
      files_->write(step, made, record_ops_);
    } catch (const SystemError& error) {
      if (!std::exchange(told_, true)) warn_(fmt::format("{}; training goes on", error.what()));
    }
  }
  if (step != trainer_.steps_done()) return "";  // another has begun since
  if (due(compare_every_, step)) {
    if (const std::string differs = train::differing_replica(trainer_); !differs.empty())
      throw Error(
          fmt::format("step {}: {}: a fault has changed it since the replicas were last alike", step, differs));
  }
  const bool takes = digest_every_ > 0 ? due(digest_every_, step) : trainer_.executor().host_reads() || saves;
  return takes ? weights_.take() : "";
}

}  // namespace heddle::session
