// Steps of a run taken again as they were taken: from its newest checkpoint before them, or from its beginning, on
// the same sequences and with the same rates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/comm/world.h"
#include "heddle/config/run_config.h"
#include "heddle/observe/step_metrics.h"
#include "heddle/session/run_data.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

class Rerun {
 public:
  /// Before step `first` at the latest. `config`: the run's own, in its layout or another. All ranks make one
  /// together. ConfigError where the run has no steps `first` to `last`, or can't be trained to them again from
  /// what it has kept.
  Rerun(const RunFolder& folder, const config::RunConfig& config, int64_t first, int64_t last, comm::World* world);

  train::Trainer& trainer() { return *trainer_; }
  /// The checkpoint's step; 0: the run's beginning.
  int64_t from() const { return from_; }
  /// The path of that checkpoint, and the evidence for it in a few words; "": the run's beginning.
  const std::string& trusts() const { return trusts_; }
  const std::string& trusted_by() const { return trusted_by_; }
  /// Checkpoints that were passed over on the way; rank 0's.
  const std::vector<std::string>& notes() const { return notes_; }
  /// The digest that the run took after a step; "" where it took none.
  std::string digest_of(int64_t step) const;
  /// The next one.
  void step();

 private:
  bool load_newest_before(int64_t first, const RunFolder& folder);

  config::RunConfig config_;
  std::map<int64_t, observe::StepMetrics> log_;
  RunData data_;
  std::unique_ptr<train::Trainer> trainer_;
  int64_t from_ = 0;
  std::string trusts_, trusted_by_;
  std::vector<std::string> notes_;
};

}  // namespace heddle::session
