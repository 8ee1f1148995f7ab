// Records of a run for its audit: digests of its weights, step by step. Where asked to, also digests of the results
// of each op in the last steps.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "heddle/config/run_config.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/audit/op_digests.h"
#include "heddle/train/audit/weight_digest.h"

namespace heddle::session {

class AuditTrail {
 public:
  /// The trainer must outlive it. `warn` is called the first time that the disk refuses.
  AuditTrail(const config::RunConfig& config, const RunFolder& folder, train::Trainer& trainer,
             std::function<void(const std::string&)> warn);

  /// Before a step: ops that ran since the last one are none of it.
  void before() {
    if (recorder_) recorder_->take();
  }
  /// After a step's result, on all ranks together: the digest of the weights, "" where none is taken. `saves`: a
  /// checkpoint is written now. Error where copies of a weight differ.
  std::string after(int64_t step, bool saves);

 private:
  int64_t digest_every_, compare_every_, record_ops_;
  train::Trainer& trainer_;
  std::function<void(const std::string&)> warn_;
  train::WeightDigest weights_;
  std::optional<train::OpRecorder> recorder_;
  std::optional<train::OpDigestFiles> files_;
  bool told_ = false;
};

}  // namespace heddle::session
