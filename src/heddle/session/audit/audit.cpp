#include "heddle/session/audit/audit.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/session/first_state.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/run_data.h"
#include "heddle/train/audit/op_digests.h"
#include "heddle/train/audit/weight_digest.h"
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

void check_range(const RunFolder& folder, const Log& log, int64_t first, int64_t last) {
  const int64_t newest = log.empty() ? 0 : log.rbegin()->first;
  if (first < 1 || last < first || last > newest)
    config_error("--steps {}-{}: {} has steps 1 to {}", first, last, folder.metrics(), newest);
  const bool any = std::any_of(log.lower_bound(first), log.upper_bound(last),
                               [](const auto& step) { return !step.second.weights_digest.empty(); });
  if (!any) config_error("--steps {}-{}: {} has no digest of them", first, last, folder.metrics());
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

Audit audit(const RunFolder& folder, const config::RunConfig& config, int64_t first, int64_t last,
            comm::World* world, const std::function<void(int64_t step)>& progressed) {
  Audit result;
  train::RankExchange ranks(world);
  const Log log = read_log(folder);
  check_range(folder, log, first, last);
  RunData data;
  if (ranks.leads()) data = open_run_data(config);
  ranks.any(false);  // rank 0 has prepared it
  if (!ranks.leads()) data = open_run_data(config);

  std::optional<train::Checkpoint> checkpoint =
      ranks.leads() && std::filesystem::exists(folder.checkpoints())
          ? train::latest_checkpoint(folder.checkpoints(), &result.notes, first - 1)
          : std::nullopt;
  for (std::string& refused : result.notes) refused = "passed over: " + refused;
  const std::string path = ranks.told_by_first(checkpoint ? checkpoint->path() : "");
  if (!checkpoint && !path.empty()) checkpoint.emplace(path, train::Checkpoint::Verify::headings);
  const config::RunConfig whole = with_document_end(config, data);
  train::Trainer trainer(train::trainer_options_of(whole, ranks.rank(), sharing_of(world)), world);
  if (checkpoint) {
    train::load_trainer(*checkpoint, trainer);
  } else {
    begin_from_first_state(whole, trainer);
  }
  result.from = trainer.steps_done();
  check_straight(log, result.from, last);

  train::WeightDigest weights(trainer);
  const train::OpDigestFiles files(folder.ops(), trainer);
  for (int64_t step = result.from + 1; step <= last; ++step) {
    const auto was = log.find(step), before = log.find(step - 1);
    // A run by the clock took its rates from the time that it had trained.
    if (before != log.end() && before->second.trained_s) trainer.set_done({step - 1, *before->second.trained_s});
    const std::optional<train::OpDigests> ops = files.read(step);
    const bool recorded = !ranks.any(!ops);
    std::optional<train::OpRecorder> recorder;
    if (recorded) recorder.emplace(trainer);
    trainer.step(data.train((step - 1) * whole.train.global_batch, whole.train.global_batch));
    AuditedStep& audited = result.steps.emplace_back();
    audited.step = step;
    audited.audited = weights.take();
    if (was != log.end()) audited.recorded = was->second.weights_digest;
    if (ranks.leads() && progressed) progressed(step);
    if (!audited.recorded.empty()) ++result.compared;
    if (!audited.differs()) continue;
    result.ops_recorded = recorded;
    if (recorded) result.first_op = train::first_difference(trainer, *ops, recorder->take());
    break;
  }
  std::erase_if(result.steps, [&](const AuditedStep& step) { return step.step < first && !step.differs(); });
  return result;
}

}  // namespace heddle::session
