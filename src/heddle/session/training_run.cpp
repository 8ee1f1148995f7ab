#include "heddle/session/training_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <numeric>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/calls/standing.h"
#include "heddle/ir/print.h"
#include "heddle/observe/units.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/notes/data_notes.h"
#include "heddle/session/notes/launcher_note.h"
#include "heddle/session/notes/outlier_notes.h"
#include "heddle/session/notes/start_notes.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/ranks/layer_copies.h"
#include "heddle/session/ranks/rank_rows.h"
#include "heddle/session/ranks/standing_lines.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/text/companions.h"
#include "heddle/session/text/continue_text.h"
#include "heddle/train/agreement.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::session {

namespace {

// How long a rank waits for one that is alive and does not come: while rank 0 prepares data or writes, as long as
// that may take; between plain steps many times what such a step has taken, for then it hangs.
constexpr double kPreparing_s = 1800, kLeastPatience_s = 60, kStepsOfPatience = 20;

// In what order the blocks of a program run their ops: its text says nothing of how weaving has arranged them.
std::string order_of_ops(const ir::StepProgram& program) {
  std::string order;
  for (const ir::Block& block : program.blocks) {
    for (const ir::Step& step : block.steps) order += fmt::format("{} {}\n", step.slot, step.op);
    order += '\n';
  }
  return order;
}

bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// Wishes as numbers that ranks add up.
constexpr size_t kWishes = 3;
std::array<double, kWishes> numbers_of(const Wishes& w) {
  return {w.stop ? 1.0 : 0.0, w.save ? 1.0 : 0.0, static_cast<double>(w.op_times)};
}
Wishes wishes_of(const std::array<double, kWishes>& sums) {
  return {sums[0] > 0, sums[1] > 0, static_cast<int64_t>(sums[2])};
}

}  // namespace

TrainingRun::TrainingRun(config::RunConfig config, bool resume, Telling telling, const RankPlace& place)
    : config_(std::move(config)),
      telling_(telling),
      place_(place),
      checkpoint_every_(config_.train.checkpoint_every),
      frequency_(config_.train.mtbf_hours * 3600) {
  const int rank = place.world != nullptr ? place.world->rank() : 0;
  if (rank == 0) open_data();  // what can be wrong with the input shows before memory is taken
  train::TrainerOptions options = options_that_fit(rank);
  if (config_.plan.snapshot_every > 0)
    options.snapshots = place_of_snapshots(place.world, resume ? path_of_existing_run(config_) : "");
  trainer_ = std::make_unique<train::Trainer>(options, place.world);
  predicted_ = runtime::predict_memory(trainer_->lowered().program, rank, config_.device.backend,
                                       options.memory_bytes, 1, options.memory_limit_bytes);
  std::array<double, 1> all_ready{0};
  trainer_->ranks().sum(all_ready);
  if (!leads()) open_data();  // rank 0 has prepared it
  agree_on_data();
  open_folder(resume);
  if (resume) {
    restore();
  } else {
    begin_anew();
  }
  publish_calls();  // not before it is known that there is something to do
  begin_logs(resume);
  begin_snapshots();
  audit_trail_ =
      std::make_unique<AuditTrail>(config_, folder_, *trainer_, [this](const std::string& text) { warn(text); });
  rank_watch_ =
      std::make_unique<RankWatch>(*trainer_, place_.world, sharing_of(place_.world), config_.train.op_times_steps);
  if (leads())
    alarm_command_ = std::make_unique<AlarmCommand>(config_.train.alarm_command,
                                                    [this](const std::string& line) { warn(line); });
  summary_.folder = folder_.path;
  summary_.first_step = trainer_->steps_done();
  share_peak();
}

// Where one rank has no room for its part, rank 0 says so, and what would help.
train::TrainerOptions TrainingRun::options_that_fit(int rank) {
  train::TrainerOptions options;
  std::string unfit;
  const train::Sharing sharing = sharing_of(place_.world);
  try {
    options = train::trainer_options_of(config_, rank, sharing);
  } catch (const train::DoesNotFit& error) {
    unfit = error.what();
  }
  train::RankExchange ranks(place_.world);
  for (const std::string& why : ranks.share(unfit)) {
    if (why.empty()) continue;
    if (ranks.leads()) throw train::DoesNotFit(place_.remedy ? fmt::format("{}\n{}", why, place_.remedy()) : why);
    ranks.told_by_first("");  // rank 0 ends all
  }
  return options;
}

void TrainingRun::open_data() {
  data_ = open_run_data(config_);
  if (!data_.tokenizer.empty()) tokenizer_.emplace(data_.tokenizer_files.spec, data_.tokenizer);
  data_identity_ = identity_of(data_, config_);
}

// The text of the program too: ranks whose processors or builds differ may have written another.
void TrainingRun::agree_on_data() {
  if (trainer_->ranks().size() == 1) return;
  const ir::StepProgram& program = trainer_->lowered().program;
  train::Told told{{"the step's program", fmt::format("{:016x}", hash_bytes(ir::text_of(program)))},
                   {"the order of the program's ops", fmt::format("{:016x}", hash_bytes(order_of_ops(program)))}};
  for (const auto& [name, value] : data_identity_) told.emplace_back("data: " + name, value);
  train::agree(trainer_->ranks(), told);
}

void TrainingRun::open_folder(bool resume) {
  if (leads()) {
    HeldFolder held = resume ? existing_run_folder(config_) : new_run_folder(config_);
    folder_ = std::move(held.folder);
    lock_.emplace(std::move(held.lock));
    for (const std::string& warning : held.warnings) warn(warning);
  }
  folder_.path = trainer_->ranks().told_by_first(folder_.path);
}

// Beside the pages of what ranks wait for lies the text of the ops that the pages name by number.
void TrainingRun::publish_calls() {
  if (place_.calls == nullptr) return;
  std::string failure;
  if (leads()) {
    try {
      if (!own_fence()) clear_standing(folder_);  // else the supervisor has, before it started us
      write_program_lines(folder_, trainer_->lowered().program);
    } catch (const SystemError& error) {
      failure = error.what();
    }
  }
  failure = trainer_->ranks().told_by_first(failure);
  if (failure.empty()) {
    try {
      place_.calls->publish(comm::page_path(folder_.ranks(), trainer_->ranks().rank()));
    } catch (const SystemError& error) {
      failure = error.what();
    }
  }
  if (leads() && !failure.empty()) warn(failure + "; nobody will see for whom ranks wait");
}

void TrainingRun::warn(const std::string& text) {
  if (progress_) {
    progress_->warning(terminal_text(text));
  } else {
    warnings_.push_back(text);  // to be told with the introduction
  }
}

void TrainingRun::begin_logs(bool resume) {
  if (!leads()) return;
  for (const std::string& note : data_notes(config_, *data_.dataset)) warn(note);
  if (telling_.trace && config_.train.trace_step == 0) warn("--trace: train.trace_step is 0, so no step is traced");
  write_file(folder_.config(), config::toml_of(config_));  // from here on the folder holds a run
  keep_companions(config_.train.start, data_.tokenizer, folder_.path);
  if (!data_.tokenizer.empty()) data::keep_tokenizer(data_.tokenizer_files, folder_.path);
  if (data_.chat_template) data::keep_chat_template(*data_.chat_template, folder_.path);
  logs_ = std::make_unique<RunLogs>(folder_, [this](const std::string& text) { warn(text); });
  if (resume) {
    logs_->resume(trainer_->steps_done() + 1);
  } else {
    logs_->begin();
  }
  tell_others(resume);
}

void TrainingRun::tell_others(bool resume) {
  if (!telling_.mlflow.empty()) {
    const observe::MlflowRun::Names names{config_.name, folder_.path, config::setting_texts(config_)};
    mlflow_ = std::make_unique<observe::MlflowRun>(telling_.mlflow, names, resume);
    logs_->also_to("mlflow", [this](const observe::StepMetrics& metrics) { mlflow_->add(metrics); });
  }
  if (!telling_.prometheus.empty()) {
    prometheus_ = std::make_unique<observe::PrometheusPort>(telling_.prometheus, config_.name);
    logs_->also_to("prometheus", [this](const observe::StepMetrics& metrics) { prometheus_->set(metrics); });
  }
}

TrainingRun::~TrainingRun() = default;

// What a signal is answered with while something is done.
void TrainingRun::answer_signals(const std::string& doing) const {
  if (!leads()) return;
  const int64_t done = trainer_->steps_done();
  std::string lost = "no step was done, nothing is lost";
  if (saved_step_ == done) {
    lost = fmt::format("the checkpoint of step {} holds all that was done", done);
  } else if (saved_step_ >= 0) {
    lost =
        fmt::format("what came after the checkpoint of step {} is lost; --resume goes on from there", saved_step_);
  } else if (done > 0) {
    lost = fmt::format("the state is not saved: no checkpoint was written yet, {} steps are lost", done);
  }
  Signals::answer(fmt::format("waiting for {}, then for a checkpoint; asked again it ends at once, and {}", doing,
                              saved_step_ == done ? "the step under way is lost" : lost),
                  lost);
}

void TrainingRun::trace(int64_t step, int64_t began_ns, double step_s) {
  trainer_->executor().set_trace(false);
  const std::vector<RankSpans> spans = take_spans(*trainer_, began_ns);
  trainer_->executor().walk().watcher = nullptr;
  memory_ = memory_views(*trainer_, *memory_log_, spans, fullest_rank_, step);
  memory_log_.reset();
  if (!leads()) return;
  for (const RankSpans& rank : spans) {
    for (const device::Span& span : rank.of_stream[ir::StreamTable::compute]) {
      compute_share_ += static_cast<double>(span.end_ns - span.start_ns) * 1e-9 / step_s;
    }
  }
  compute_share_ /= static_cast<double>(spans.size());
  traced_ = trace_of(trainer_->lowered(), spans, step);
  pipeline_ = pipeline_views(*trainer_, spans);
  if (!telling_.trace || !logs_->write_trace(traced_->timeline)) return;
  summary_.trace = folder_.trace();
  progress_->line(fmt::format("trace of step {}: {}; open it at https://ui.perfetto.dev", step, folder_.trace()));
}

// What the first steps take, beside what was said when the plan was made.
void TrainingRun::compare_with_plan(double step_s) {
  constexpr size_t kSteps = 5;
  if (place_.foretold_s <= 0 || steps_run_ < 2 || first_steps_s_.size() == kSteps) return;
  first_steps_s_.push_back(step_s);
  summary_.foretold_s = place_.foretold_s;
  summary_.first_steps_s = median(first_steps_s_);
  if (first_steps_s_.size() < kSteps || !leads()) return;
  progress_->line(fmt::format("a step: {} foretold, {} measured: the forecast was {:+.1f} % off",
                              observe::duration_text(summary_.foretold_s),
                              observe::duration_text(summary_.first_steps_s),
                              100 * (summary_.foretold_s / summary_.first_steps_s - 1)));
  if (!place_.learn) return;
  const FirstSteps seen{summary_.first_steps_s, compute_share_ * summary_.first_steps_s};
  logs_->attempt("profile", [&] {
    for (const std::string& line : place_.learn(seen)) progress_->line(line);
  });
}

// What any rank was asked, for all of them.
Wishes TrainingRun::wishes() {
  if (wished_) return *std::exchange(wished_, std::nullopt);
  std::array<double, kWishes> asked = numbers_of(own_wishes());
  trainer_->ranks().sum(asked);
  return wishes_of(asked);
}

void TrainingRun::warn_of_launcher(double step_s) {
  if (!leads() || place_.threads) return;
  if (const std::string note = launcher_note(step_s); !note.empty()) progress_->warning(note);
}

// Experts' rows come in other numbers than foretold: an arena that had to grow for them is told once, as it does.
void TrainingRun::compare_with_arena(const train::StepResult& result) {
  const bool first = grown_bytes_ == 0 && result.grown_bytes > 0;
  grown_bytes_ = std::max(grown_bytes_, result.grown_bytes);
  if (!first || !leads()) return;
  const std::string whose =
      trainer_->ranks().size() > 1 ? fmt::format("rank {}'s arena", result.grown_rank) : "the arena";
  progress_->line(fmt::format("step {}: {} has grown by {} beyond its forecast, of at most {}", result.step, whose,
                              observe::bytes_text(static_cast<double>(result.grown_bytes)),
                              observe::bytes_text(static_cast<double>(trainer_->options().memory_limit_bytes))));
}

// Whether something is done with what a step leaves.
bool TrainingRun::is_due(int64_t step) const {
  const config::RunConfig::Train& train = config_.train;
  return due(train.eval_every, step) || due(checkpoint_every_, step) || audit_trail_->is_due(step) || is_over();
}

// Whether it was nothing but a step.
bool TrainingRun::step() {
  const config::BatchRamp::Place place = config_.data_after(trainer_->steps_done());
  const int64_t number = trainer_->steps_done() + 1;
  if (place_.calls != nullptr) place_.calls->at_step(number);
  const bool traced = config_.train.trace_step > 0 &&
                      (number == summary_.first_step + config_.train.trace_step ||
                       (number == config_.train.steps && number < summary_.first_step + config_.train.trace_step));
  answer_signals(step_s_ == 0 ? fmt::format("step {}", number)
                              : fmt::format("step {} (a step takes {})", number, observe::duration_text(step_s_)));
  const bool timed = !traced && rank_watch_->times_ops(number);
  if (traced || timed) {
    if (const auto before = trainer_->settle()) record(*before);
  }
  if (timed) rank_watch_->before_step();
  if (traced) {
    trainer_->executor().set_trace(true);
    trainer_->executor().walk().watcher =
        &memory_log_.emplace(trainer_->lowered().program, trainer_->ranks().rank());
  }
  if (traced) trainer_->ranks().any(false);  // all begin together: the start is where their clocks meet
  const int64_t began_ns = now_ns();
  const auto sequences = data_.train(place.consumed, place.batch);
  const bool ahead = config_.plan.parallel.ahead_of_norm;
  std::array<double, kWishes> asked{};
  if (ahead) asked = numbers_of(own_wishes());
  const auto run = [&](const auto& what) {
    try {
      return what();
    } catch (const Error&) {
      const std::string stood = leads() && config_.plan.mesh.pp > 1 ? trainer_->executor().stood_at() : "";
      if (!stood.empty()) progress_->line(fmt::format("step {}: rank 0 stood at {}", number, stood));
      if (leads() && place_.calls != nullptr) {
        for (const std::string& line : standing_lines(folder_, place_.calls->page().generation))
          progress_->line(line);
      }
      throw;
    }
  };
  audit_trail_->before();
  // Under parallel.ahead_of_norm this may be told of the step before, and what ranks wish with it.
  std::optional<train::StepResult> result = run([&] { return trainer_->advance(sequences, asked); });
  if (ahead) {
    if (!result) trainer_->ranks().sum(asked);
    wished_ = wishes_of(asked);
  }
  const bool settles = ahead && (traced || timed || is_due(number));
  if (settles) {
    if (result) record(*result);
    result = run([&] { return trainer_->settle(); });
  }
  if (timed) rank_watch_->after_step();
  if (traced) trace(number, began_ns, result->seconds);
  return (!result || record(*result)) && !settles && !traced;
}

// What is told of a step, and what is done with what it leaves. Whether that was nothing.
bool TrainingRun::record(const train::StepResult& result) {
  const int64_t number = result.step;
  observe::StepMetrics metrics;
  metrics.step = number;
  metrics.wall_time_s = wall_time_s();
  metrics.lm_loss = result.loss();
  if (config_.model.sequence_aux_loss_alpha > 0) metrics.auxiliary_loss = result.sequence_aux_loss();
  if (const std::vector<double> depths = result.depth_losses(); !depths.empty()) {
    metrics.mtp_loss = std::accumulate(depths.begin(), depths.end(), 0.0) / static_cast<double>(depths.size());
  }
  metrics.learning_rate = result.learning_rate;
  metrics.gradient_norm = result.gradient_norm();
  metrics.step_s = step_s_ = result.seconds;
  metrics.trained_s = trainer_->done().seconds;
  metrics.tokens = static_cast<double>(config_.tokens_after(number));
  metrics.tokens_per_s = static_cast<double>(result.tokens) / result.seconds;
  metrics.flops_per_s = result.flops / result.seconds;
  const std::vector<train::StepResult::Load> loads = result.loads();
  if (!loads.empty()) metrics.expert_imbalance = result.imbalance();
  if (!loads.empty() && config_.model.topk_bias) metrics.extra["bias_update_rate"] = result.bias_rate;
  for (const auto& [layer, share] : result.dropped())
    metrics.extra[fmt::format("dropped_share.layer_{}", layer)] = share;
  if (const auto fullest = config_.plan.parallel.exchange.copies() > 0 ? fullest_rank(result, trainer_->mesh())
                                                                       : std::optional<FullestRank>()) {
    metrics.extra["fullest_rank_routed"] = fullest->routed;
    metrics.extra["fullest_rank_with_copies"] = fullest->computed;
  }
  for (const auto& [layer, rows_E] : loads) metrics.expert_loads_LE.emplace_back(rows_E.begin(), rows_E.end());
  metrics.copies_L = layer_copies(result, trainer_->lowered(), trainer_->mesh());
  observe::add_copies(metrics);
  if (result.moves) {
    const train::MoveFigures& moves = *result.moves;
    metrics.extra["experts_moved"] = static_cast<double>(moves.experts);
    metrics.extra["experts_moved_bytes"] = moves.bytes;
    metrics.extra["moves_made"] = static_cast<double>(moves.moved);
    metrics.extra["moves_even"] = static_cast<double>(moves.even);
    metrics.extra["moves_not_worth"] = static_cast<double>(moves.not_worth);
  }
  if (config_.train.batch_ramp) metrics.extra["batch"] = static_cast<double>(config_.data_after(number - 1).batch);
  for (const train::Reading& reading : result.statistics) {
    const std::string metric(reading.kind->metric);
    if (!metric.empty()) metrics.extra[metric] = result.total(*reading.kind);
  }
  if (config_.plan.parallel.ahead_of_norm) {
    summary_.updates_ahead += result.attempted ? 1 : 0;
    summary_.updates_taken_back += result.taken_back ? 1 : 0;
    metrics.extra["updates_ahead_of_norm"] = static_cast<double>(summary_.updates_ahead);
    metrics.extra["updates_taken_back"] = static_cast<double>(summary_.updates_taken_back);
  }
  const bool goes_back = config_.plan.update.skips_outliers() && mind_outliers(result, metrics);
  metrics.arena_live_peak_bytes = static_cast<double>(result.peak_live_bytes);
  metrics.arena_reserved_peak_bytes = static_cast<double>(result.reserved_bytes);
  compare_with_arena(result);
  if (result.grown_bytes > 0)
    metrics.extra["arena_beyond_forecast_bytes"] = static_cast<double>(result.grown_bytes);
  watch_ranks(result, metrics);
  ++steps_run_;
  compare_with_plan(result.seconds);
  const bool saves = due(checkpoint_every_, number);
  mind_frequency(result);
  metrics.weights_digest = audit_trail_->after(number, saves || is_over());
  if (!metrics.weights_digest.empty()) {
    summary_.weights_digest = metrics.weights_digest;
    digest_step_ = number;
  }
  const bool looks = due(config_.train.eval_every, number) ||
                     (config_.train.eval_every > 0 && is_over() && number == trainer_->steps_done());
  if (looks) {
    look(metrics);
  } else if (!observe::have_layers(number, loads.empty() ? 0 : loads.size() * loads[0].rows_E.size())) {
    observe::drop_layers(metrics);
  }
  if (frequency_.chooses()) {
    metrics.extra["checkpoint_every"] = static_cast<double>(checkpoint_every_);
    metrics.extra["snapshot_every"] = static_cast<double>(trainer_->options().plan.snapshot_every);
  }
  if (leads()) {
    if (constexpr double kLook_s = 1; now_s() - fence_seen_s_ > kLook_s) {
      check_fence(folder_.metrics());
      fence_seen_s_ = now_s();
    }
    if (const auto note = epoch_note(config_, *data_.dataset, number)) warn(*note);
    logs_->add(metrics);
    progress_->update(metrics);
  }
  if (saves) checkpoint();
  if (looks) report();
  return !looks && !saves && !goes_back;
}

// The first of those skipped in a row is told, all are counted. Whether there were so many that the run has gone
// back.
bool TrainingRun::mind_outliers(const train::StepResult& result, observe::StepMetrics& metrics) {
  const int64_t in_a_row = trainer_->outliers().in_a_row, most = config_.train.roll_back_after;
  if (in_a_row == 1 && leads()) warn(outlier_note(result));
  const bool goes_back = most > 0 && in_a_row > 0 && in_a_row % most == 0;
  if (goes_back) {
    answer_signals("the way back");
    if (place_.world != nullptr) place_.world->set_patience(kPreparing_s);
    const std::optional<int64_t> to = go_back(folder_, *trainer_);
    const std::string why = fmt::format("step {}: {} left out in a row", result.step, in_a_row);
    if (leads() && to)
      warn(fmt::format("{}: back to the checkpoint of step {}, on with the data behind", why, *to));
    if (leads() && !to) warn(fmt::format("{}, and no checkpoint to go back to from before them", why));
  }
  summary_.skipped = trainer_->outliers().skipped;
  summary_.gone_back = trainer_->outliers().gone_back;
  metrics.extra["skipped_steps"] = static_cast<double>(summary_.skipped);
  metrics.extra["rolled_back"] = static_cast<double>(summary_.gone_back);
  return goes_back;
}

RunSummary TrainingRun::run() {
  began_s_ = now_s();
  began_unix_s_ = wall_time_s();
  if (leads()) {
    observe::ProgressOptions options = telling_.progress;
    options.first_step = trainer_->steps_done();
    options.total_steps = config_.train.steps;
    options.first_s = trainer_->done().seconds;
    options.total_s = config_.length().seconds;
    progress_ = std::make_unique<observe::Progress>(options, 2);
    introduce();
  }
  double longest_s = 0;  // of the plain steps
  for (int64_t done = 0; !is_over(); ++done) {
    const Wishes wished = wishes();
    if (wished.save && saved_step_ != trainer_->steps_done()) {
      if (const auto before = trainer_->settle()) record(*before);
      save();
    }
    if (wished.stop) break;
    if (wished.op_times > 0) rank_watch_->time_ops(wished.op_times);
    const double began_s = now_s();
    const bool plain = step() && !wished.save;
    if (plain && done > 0) longest_s = std::max(longest_s, now_s() - began_s);
    if (place_.world == nullptr) continue;
    place_.world->set_patience(plain && done > 1 ? std::max(kLeastPatience_s, kStepsOfPatience * longest_s)
                                                 : kPreparing_s);
    if (done == 2) warn_of_launcher(longest_s);
  }
  if (const auto last = trainer_->settle()) record(*last);
  tell(rank_watch_->rest());
  if (place_.world != nullptr) place_.world->set_patience(kPreparing_s);
  summary_.interrupted = !is_over();
  if (saved_step_ != trainer_->steps_done()) save();
  if (trainer_->snapshots() != nullptr) {
    trainer_->snapshots()->remove();  // the disk has all
    forget_memory(folder_, trainer_->options().snapshots, trainer_->ranks());
  }
  answer_signals("the report");
  summary_.steps = trainer_->steps_done();
  summary_.length_s = config_.length().seconds;
  summary_.tokens = config_.tokens_after(summary_.steps);
  summary_.text_tokens = data_.dataset->train_sequences() * config_.train.sequence_length;
  report();
  if (mlflow_) logs_->attempt("mlflow", [&] { mlflow_->finish(!summary_.interrupted); });
  if (leads()) {
    alarm_command_->finish();
    progress_->finish();
  }
  if (place_.calls != nullptr) {
    place_.calls->ended(comm::RankState::done);
    if (leads()) remove_program_lines(folder_);
  }
  return summary_;
}

}  // namespace heddle::session
