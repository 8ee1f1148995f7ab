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

double number_of(const observe::StepMetrics& step, const char* name) {
  const auto found = step.extra.find(name);
  return found == step.extra.end() ? 0 : found->second;
}

// A run that went back within the steps can't be trained again step by step.
void check_straight(const Log& log, int64_t from, int64_t last) {
  const auto before = log.find(from);
  double gone_back = before == log.end() ? 0 : number_of(before->second, "rolled_back");
  for (auto at = log.upper_bound(from); at != log.end() && at->first <= last; ++at) {
    const double now = number_of(at->second, "rolled_back");
    if (now > gone_back && at->first < last)
      config_error(
          "the run went back to a checkpoint at step {}; steps from {} on can be audited from a checkpoint "
          "behind it",
          at->first, at->first + 1);
    gone_back = now;
  }
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

  std::optional<train::Checkpoint> checkpoint =
      ranks.leads() && std::filesystem::exists(folder.checkpoints())
          ? train::latest_checkpoint(folder.checkpoints(), &notes_, first - 1)
          : std::nullopt;
  for (std::string& refused : notes_) refused = "passed over: " + refused;
  const std::string path = ranks.told_by_first(checkpoint ? checkpoint->path() : "");
  if (!checkpoint && !path.empty()) checkpoint.emplace(path, train::Checkpoint::Verify::headings);
  trainer_ =
      std::make_unique<train::Trainer>(train::trainer_options_of(config_, ranks.rank(), sharing_of(world)), world);
  if (checkpoint) {
    train::load_trainer(*checkpoint, *trainer_);
  } else {
    begin_from_first_state(config_, *trainer_);
  }
  if (config_.plan.objective.of_pairs()) read_references(folder, data_);
  from_ = trainer_->steps_done();
  check_straight(log_, from_, last);
}

std::string Rerun::digest_of(int64_t step) const {
  const auto found = log_.find(step);
  return found == log_.end() ? "" : found->second.weights_digest;
}

void Rerun::step() {
  const int64_t done = trainer_->steps_done();
  // A run by the clock took its rates from the time that it had trained.
  if (const auto before = log_.find(done); before != log_.end() && before->second.trained_s)
    trainer_->set_done({done, *before->second.trained_s});
  const config::BatchRamp::Place place = config_.data_after(done);
  trainer_->step(data_.train(place.consumed, place.batch));
}

}  // namespace heddle::session
