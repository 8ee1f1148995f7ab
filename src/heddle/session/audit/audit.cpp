#include "heddle/session/audit/audit.h"

#include <optional>

#include "heddle/base/error.h"
#include "heddle/session/audit/rerun.h"
#include "heddle/train/audit/op_digests.h"
#include "heddle/train/audit/weight_digest.h"

namespace heddle::session {

Audit audit(const RunFolder& folder, const config::RunConfig& config, int64_t first, int64_t last,
            comm::World* world, const std::function<void(int64_t step)>& progressed) {
  Rerun rerun(folder, config, first, last, world);
  bool any = false;
  for (int64_t step = first; step <= last; ++step) any = any || !rerun.digest_of(step).empty();
  if (!any) config_error("{}: no digest of steps {} to {}", folder.metrics(), first, last);
  train::Trainer& trainer = rerun.trainer();
  Audit result;
  result.from = rerun.from();
  result.trusts = rerun.trusts();
  result.trusted_by = rerun.trusted_by();
  result.notes = rerun.notes();
  train::WeightDigest weights(trainer);
  const train::OpDigestFiles files(folder.ops(), trainer);
  for (int64_t step = result.from + 1; step <= last; ++step) {
    const std::optional<train::OpDigests> ops = files.read(step);
    const bool recorded = !trainer.ranks().any(!ops);
    std::optional<train::OpRecorder> recorder;
    if (recorded) recorder.emplace(trainer);
    rerun.step();
    AuditedStep audited{step, rerun.digest_of(step), weights.take()};
    if (progressed) progressed(step);
    if (!audited.recorded.empty()) ++result.compared;
    if (step >= first || audited.differs()) result.steps.push_back(audited);
    if (!audited.differs()) continue;
    result.ops_recorded = recorded;
    if (recorded) result.first_op = train::first_difference(trainer, *ops, recorder->take());
    break;
  }
  return result;
}

}  // namespace heddle::session
