#include "heddle/session/training_run.h"

#include <array>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/session/run/calls.h"
#include "heddle/session/run/introduction.h"
#include "heddle/session/run/prepare.h"
#include "heddle/session/run_data.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

TrainingRun::TrainingRun(config::RunConfig config, bool resume, Telling telling, const RankPlace& place,
                         const ServiceRows& rows)
    : run_(std::make_unique<RunContext>(std::move(config), resume, std::move(telling), place)) {
  prepare_run(*run_, rows);
}

TrainingRun::~TrainingRun() = default;

RunSummary TrainingRun::run() {
  for (const auto& service : run_->services) service->start();
  introduce();
  while (!run_->is_over()) {
    const Wishes wished = asked();
    for (const auto& service : run_->services) service->grant(wished);
    if (wished.stop) break;
    step();
  }
  return summary();
}

// A step does this and what the trainer's controllers do (train::Trainer::step), nothing else.
void TrainingRun::step() {
  train::Trainer& trainer = *run_->trainer;
  const int64_t step = trainer.steps_done() + 1;
  const config::BatchRamp::Place batch = run_->config.data_after(trainer.steps_done());
  for (const auto& service : run_->services) service->before(step);
  const train::Sequences sequences = run_->data->train(batch.consumed, batch.batch);
  train::StepResult result;
  try {
    result = trainer.step(sequences);
  } catch (const Error&) {
    tell_where_it_stood(*run_, step);
    throw;
  }
  StepRecord record{result};
  for (const auto& service : run_->services) service->after(record);
}

// The wishes of all services and ranks, joined.
Wishes TrainingRun::asked() {
  std::array<double, 3> sums{};
  for (const auto& service : run_->services) {
    const Wishes wishes = service->wishes();
    sums[0] += wishes.stop ? 1 : 0;
    sums[1] += wishes.save ? 1 : 0;
    sums[2] += static_cast<double>(wishes.op_times);
  }
  run_->trainer->ranks().sum(sums);
  return {sums[0] > 0, sums[1] > 0, static_cast<int64_t>(sums[2])};
}

void TrainingRun::introduce() {
  if (!run_->leads()) return;
  observe::ProgressOptions options = run_->telling.progress;
  options.first_step = run_->trainer->steps_done();
  options.total_steps = run_->config.train.steps;
  options.total_epochs = run_->config.train.epochs;
  options.first_s = run_->trainer->done().seconds;
  options.total_s = run_->config.length().seconds;
  run_->terminal.begin(options, introduction(*run_));
}

RunSummary TrainingRun::summary() {
  RunSummary& summary = run_->summary;
  summary.interrupted = !run_->is_over();
  summary.steps = run_->trainer->steps_done();
  summary.length_s = run_->config.length().seconds;
  summary.tokens = run_->config.tokens_after(summary.steps);
  summary.text_tokens = run_->data->dataset->train_sequences() * run_->config.train.sequence_length;
  for (const auto& service : run_->services) service->end();
  run_->terminal.finish();
  retire_calls(*run_);
  if (!run_->leads()) return summary;
  run_->look_at_folder();
  for (std::string* path : {&summary.folder, &summary.checkpoint, &summary.report, &summary.trace})
    *path = run_->folder_watch->now(*path);
  return summary;
}

}  // namespace heddle::session
