// What a run leaves behind for those who audit it: digests of its weights, step by step, and, where it is asked to,
// of what each op of the last steps has made.
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
  /// The trainer must outlive it. ConfigError where the ops of this run's steps can't be told apart. `warn` is told
  /// the first time that the disk refuses.
  AuditTrail(const config::RunConfig& config, const RunFolder& folder, train::Trainer& trainer,
             std::function<void(const std::string&)> warn);

  /// Whether weights are to be looked at after a step, so that it must be settled.
  bool is_due(int64_t step) const;
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
