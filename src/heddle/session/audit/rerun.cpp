#include "heddle/session/audit/rerun.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/session/first_state.h"
#include "heddle/session/pairs/references.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::session {

namespace {

using Log = std::map<int64_t, observe::StepMetrics>;

Log read_log(const RunFolder& folder) {
  Log log;
  for (observe::StepMetrics& step : observe::read_metrics(folder.metrics(), observe::BrokenLines::skip).steps)
    log.emplace(step.step, std::move(step));
  return log;
}

// A run that went back within the steps can't be trained again step by step.
void check_straight(const Log& log, int64_t from, int64_t last) {
  const auto before = log.find(from);
  double rolled_back_to = before == log.end() ? 0 : before->second.get(observe::figures::kRolledBack, 0);
  for (auto at = log.upper_bound(from); at != log.end() && at->first <= last; ++at) {
    const double now = at->second.get(observe::figures::kRolledBack, 0);
    if (now > rolled_back_to && at->first < last)
      config_error(
          "the run returned to a checkpoint at step {}; steps from {} on can be audited from a later checkpoint",
          at->first, at->first + 1);
    rolled_back_to = now;
  }
}

// Returns the evidence for a checkpoint that was loaded, and what is not known of it.
std::string reasons_to_trust(const train::Checkpoint& checkpoint, const std::string& logged) {
  const train::CheckpointState& state = checkpoint.state();
  const bool by_state = !state.weights_digest.empty(),
             by_log = !logged.empty() && (!by_state || logged == state.weights_digest);
  return fmt::format("its weights {}, its moments {}",
                     by_state && by_log ? "have the digest in it and in the run's log"
                     : by_state         ? "have the digest in it"
                     : by_log           ? "have the digest in the run's log"
                                        : "by their checksums alone: no digest of them is known",
                     state.moments_digest.empty() ? "by their checksums alone: no digest of them is known"
                                                  : "have the digest in it");
}

}  // namespace

Rerun::Rerun(const RunFolder& folder, const config::RunConfig& config, int64_t first, int64_t last,
             comm::World* world)
    : log_(read_log(folder)) {
  const int64_t newest = log_.empty() ? 0 : log_.rbegin()->first;
  if (first < 1 || last < first || last > newest)
    config_error("{}: {} has steps 1 to {}",
                 first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last),
                 folder.metrics(), newest);
  train::RankExchange ranks(world);
  if (ranks.leads()) data_ = open_run_data(config);
  ranks.any(false);  // rank 0 has prepared it
  if (!ranks.leads()) data_ = open_run_data(config);
  config_ = config;
  config_.plan.snapshot_every = 0;  // nobody goes on from it
  if (config_.train.epochs > 0) config_.train.steps = config_.steps_of_epochs(data_.dataset->train_sequences());

  trainer_ =
      std::make_unique<train::Trainer>(train::trainer_options_of(config_, ranks.rank(), sharing_of(world)), world);
  if (!load_newest_before(first, folder)) begin_from_first_state(config_, *trainer_);
  if (config_.plan.objective.of_pairs()) read_references(folder, data_);
  from_ = trainer_->steps_done();
  check_straight(log_, from_, last);
}

// Loads the newest checkpoint that is what the run knows of it. Returns whether there is one.
bool Rerun::load_newest_before(int64_t first, const RunFolder& folder) {
  train::RankExchange& ranks = trainer_->ranks();
  for (int64_t last_step = first - 1;;) {
    std::vector<std::string> refused;
    std::optional<train::Checkpoint> checkpoint =
        ranks.leads() && std::filesystem::exists(folder.checkpoints())
            ? train::latest_checkpoint(folder.checkpoints(), &refused, last_step)
            : std::nullopt;
    for (const std::string& reason : refused) notes_.push_back("passed over: " + reason);
    const std::string path = ranks.from_first_rank(checkpoint ? checkpoint->path() : "");
    if (path.empty()) return false;
    if (!checkpoint) checkpoint.emplace(path, train::Checkpoint::Verify::headings);
    train::load_trainer(*checkpoint, *trainer_);
    const int64_t step = checkpoint->state().step;
    const std::string logged = digest_of(step), wrong = digest_mismatch(*checkpoint, logged, *trainer_);
    if (wrong.empty()) {
      if (std::string note = other_log_note(*checkpoint, logged); !note.empty()) notes_.push_back(std::move(note));
      trusts_ = checkpoint->path();
      trusted_by_ = reasons_to_trust(*checkpoint, logged);
      return true;
    }
    notes_.push_back("passed over: " + wrong);
    last_step = step - 1;
  }
}

std::string Rerun::digest_of(int64_t step) const {
  const auto found = log_.find(step);
  return found == log_.end() ? "" : found->second.weights_digest;
}

void Rerun::step() {
  const int64_t done = trainer_->steps_done();
  // A run by the clock took its rates from the time that it had trained.
  if (const auto before = log_.find(done);
      before != log_.end() && before->second.has(observe::figures::kTrainedSeconds))
    trainer_->set_done({done, before->second.get(observe::figures::kTrainedSeconds, 0)});
  const config::BatchRamp::Place place = config_.data_after(done);
  trainer_->step(data_.train(place.consumed, place.batch));
}

}  // namespace heddle::session
