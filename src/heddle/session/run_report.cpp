// What a run tells of itself: as it begins, and when it looks back, its figures and its report.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/clock.h"
#include "heddle/device/host/paced_time.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"
#include "heddle/session/pairs/references.h"
#include "heddle/session/run_environment.h"
#include "heddle/session/text/continue_text.h"
#include "heddle/session/training_run.h"

namespace heddle::session {

namespace {

using Json = nlohmann::json;

// Where a tensor's bytes don't follow from its type and shape.
std::string layout_of(const ir::Value& value, int64_t live_bytes) {
  if (value.layout == ir::Layout::packed) return "packed";
  int64_t bytes = size_of(value.dtype);
  for (const ir::Dim& dim : value.shape) {
    if (!dim.is_static()) return "as many rows as arrive";
    bytes *= dim.count;
  }
  return bytes == live_bytes ? "" : "padded";
}

std::string shape_of(const ir::Listing& listing, const ir::Value& value) {
  std::string text;
  for (const ir::Dim& dim : value.shape) {
    if (!text.empty()) text += " x ";
    if (dim.is_static() || dim.count > 1) text += fmt::format("{}", dim.count);
    if (!dim.is_static())
      text += fmt::format("{}rows of {}", dim.count > 1 ? " x " : "", listing.value(dim.rows_of).name);
  }
  return text;
}

}  // namespace

void TrainingRun::measure_heldout(observe::StepMetrics& metrics) {
  const int64_t count = config_.train.eval_sequences;
  if (config_.plan.objective.of_pairs()) {
    const train::Preference found = look_at_pairs(count, *trainer_, data_);
    if (found.pairs == 0) return;
    metrics.held_out_loss = found.loss;
    metrics.extra["held_out_reward_margin"] = found.margin;
    metrics.extra["held_out_reward_accuracy"] = found.accuracy;
    return;
  }
  const train::Sequences heldout = data_.heldout(count);
  if (!heldout.empty()) metrics.held_out_loss = trainer_->evaluate(heldout);
}

void TrainingRun::look(observe::StepMetrics& metrics) {
  answer_signals("the look at the held-out text");
  std::string line = fmt::format("step {}", metrics.step);
  measure_heldout(metrics);
  if (metrics.held_out_loss) line += fmt::format(": held-out loss {}", observe::loss_text(*metrics.held_out_loss));
  if (leads()) progress_->line(line);
  if (!tokenizer_ || config_.train.sample_tokens == 0) return;
  observe::SampleText sample{config_.train.sample_prompt, "", metrics.step};
  sample.continuation = continue_text(*trainer_, *tokenizer_, sample.prompt,
                                      {.tokens = config_.train.sample_tokens,
                                       .sampling = {.temperature = config_.train.sample_temperature},
                                       .seed = static_cast<uint64_t>(config_.seed)});
  if (!leads()) return;
  std::string shown = terminal_text(sample.prompt + sample.continuation);
  std::replace(shown.begin(), shown.end(), '\n', ' ');
  progress_->line("  " + observe::cut_to_width(shown, std::max(20, observe::terminal_columns(2) - 2)));
  samples_.push_back(std::move(sample));
}

void TrainingRun::introduce() {
  const model::ParameterCount count = trainer_->parameter_count();
  progress_->line(fmt::format("{}: {} parameters, {} active a token, {} on {} thread{}", config_.name,
                              observe::count_text(static_cast<double>(count.total)),
                              observe::count_text(static_cast<double>(count.active)),
                              name_of(trainer_->options().plan.dtype), trainer_->options().threads,
                              trainer_->options().threads == 1 ? "" : "s"));
  const plan::Degrees& mesh = trainer_->options().plan.mesh;
  if (mesh.ranks() > 1) {
    progress_->line(fmt::format("{}, {}; a step: {} x {} sequences each", plan::text_of(mesh),
                                place_.threads ? "as threads" : "under MPI", config_.microbatches(),
                                config_.train.microbatch));
  }
  if (const runtime::CopyEngine* copies = trainer_->copies(); copies != nullptr && copies->asked())
    progress_->line("copy engine: " + copies->selection_text());
  progress_->line(fmt::format("data: {} tokens, {} sequences to train on, {} held out",
                              observe::count_text(static_cast<double>(data_.dataset->tokens())),
                              observe::grouped_text(data_.dataset->train_sequences()),
                              observe::grouped_text(data_.dataset->heldout_sequences())));
  progress_->line(fmt::format("memory: {} to be reserved{}; a step: {} tokens, {}",
                              observe::bytes_text(predicted_reserved_bytes_),
                              mesh.ranks() > 1 ? " by a rank at most" : "",
                              observe::grouped_text(config_.train.global_batch * config_.train.sequence_length),
                              observe::count_text(trainer_->flops_per_step(), "FLOP")));
  progress_->line(
      fmt::format("run folder: {}{}", folder_.path,
                  summary_.first_step > 0 ? fmt::format(", going on after step {}", summary_.first_step) : ""));
  if (summary_.first_step == 0 && !config_.train.start.empty())
    progress_->line(fmt::format("begins from the weights of {}, moments {}", config_.train.start,
                                heddle::word_of(config_.train.start_moments)));
  if (prometheus_) progress_->line(fmt::format("figures for Prometheus: port {}, /metrics", prometheus_->port()));
  for (const std::string& warning : warnings_) progress_->warning(terminal_text(warning));
}

// Which rank holds most is known to all; what it holds, that rank tells the first one.
void TrainingRun::share_peak() {
  train::RankExchange& ranks = trainer_->ranks();
  std::vector<double> reserved(static_cast<size_t>(ranks.size()), 0);
  reserved[static_cast<size_t>(ranks.rank())] = static_cast<double>(predicted_.reserved_bytes);
  ranks.sum(reserved);
  const auto most = std::max_element(reserved.begin(), reserved.end());
  fullest_rank_ = static_cast<int>(most - reserved.begin());
  predicted_reserved_bytes_ = *most;
  Json told = Json::array();
  if (ranks.rank() == fullest_rank_) {
    for (const ir::Walk::Live& live : predicted_.at_peak) {
      const ir::Listing& listing = trainer_->lowered().program.listings[static_cast<size_t>(live.listing)];
      const ir::ValueId id = listing.find(live.name);
      Json tensor{live.name, "", "", ir::name_of(live.role), live.bytes, ""};
      if (id != ir::none) {
        const ir::Value& value = listing.value(id);
        tensor = {live.name,  name_of(value.dtype),        shape_of(listing, value), ir::name_of(live.role),
                  live.bytes, layout_of(value, live.bytes)};
      }
      told.push_back(std::move(tensor));
    }
  }
  const std::vector<std::string> all = ranks.share(told.dump());
  if (!leads()) return;
  for (const Json& t : Json::parse(all[static_cast<size_t>(fullest_rank_)])) {
    peak_tensors_.push_back({t[0].get<std::string>(), t[1].get<std::string>(), t[2].get<std::string>(),
                             t[3].get<std::string>(), t[4].get<double>(), t[5].get<std::string>()});
  }
}

observe::RunFigures TrainingRun::figures() const {
  observe::RunFigures f = observe::figures_of(logs_->history());
  f.trained_s = trainer_->done().seconds;
  f.elapsed_s = now_s() - began_s_;
  f.predicted_reserved_bytes = predicted_reserved_bytes_;
  if (grown_bytes_ > 0) f.grown_bytes = static_cast<double>(grown_bytes_);
  return f;
}

observe::ReportData TrainingRun::report_data() const {
  observe::ReportData d;
  d.run_name = config_.name;
  d.figures = summary_.figures;
  const std::string host = host_name();
  d.subtitle = fmt::format("{}, {} on {}: {}", observe::date_text(began_unix_s_),
                           observe::duration_text(*d.figures.elapsed_s), host, folder_.path);
  const model::ParameterCount count = trainer_->parameter_count();
  const int size = trainer_->ranks().size();
  d.model = {
      {"parameters", observe::count_text(static_cast<double>(count.total))},
      {"active a token", observe::count_text(static_cast<double>(count.active))},
      {"layers", fmt::format("{}", config_.model.num_hidden_layers)},
      {"experts", fmt::format("{} of {}", config_.model.num_experts_per_tok, config_.model.n_routed_experts)},
      {"type", std::string(name_of(trainer_->options().plan.dtype))}};
  if (size > 1) d.model.emplace_back("layout", plan::text_of(trainer_->options().plan.mesh));
  d.steps = logs_->history();
  if (data_.prepared) d.unigram_entropy = data_.prepared->unigram_nats_per_token;
  if (size > 1) d.fullest = "of the fullest rank";
  for (int64_t layer = 0; layer < config_.model.num_hidden_layers + config_.model.num_nextn_predict_layers;
       ++layer) {
    if (config_.model.is_moe(layer)) d.expert_layers.push_back(fmt::format("layer {}", layer));
  }
  d.ranks = rank_watch_->speeds();
  d.peak_tensors = peak_tensors_;
  if (size > 1) d.peak_of = fmt::format("rank {}", fullest_rank_);
  if (traced_) {
    d.memory = memory_;
    d.timeline = traced_->timeline;
    d.timeline_title = fmt::format("step {}", traced_->step);
    d.pipeline = pipeline_;
  }
  d.samples = samples_;
  d.configuration = config::setting_texts(config_);
  const auto number = [](int64_t n) { return observe::grouped_text(n); };
  d.environment = {
      {"began", observe::date_text(began_unix_s_)},
      {"written", observe::date_text()},
      {"duration", fmt::format("{}, in steps {}", observe::duration_text(*d.figures.elapsed_s),
                               observe::duration_text(*d.figures.trained_s))},
      {"steps", summary_.first_step > 0 ? fmt::format("{}, of them {} before it went on", number(d.figures.step),
                                                      number(summary_.first_step))
                                        : number(d.figures.step)},
      {"tokens", fmt::format("{} trained on; a step has {}", number(config_.tokens_after(trainer_->steps_done())),
                             number(config_.train.global_batch * config_.train.sequence_length))},
      {"data", config_.data.source},
      {"text", fmt::format("{} tokens, {} sequences of {} to train on, {} held out",
                           number(data_.dataset->tokens()), number(data_.dataset->train_sequences()),
                           number(config_.train.sequence_length), number(data_.dataset->heldout_sequences()))},
      {"ranks",
       size == 1 ? "1" : fmt::format("{}, {}", size, place_.threads ? "threads of one process" : "processes")},
      {"threads a rank", fmt::format("{}", trainer_->options().threads)},
      {"backend", config_.device.backend},
      {"host", host},
      {"processor", fmt::format("{}, {} cores for this process", processor_text(), device::allowed_cores())},
      {"heddle", version_text()},
      {"command", command_text()},
      {"folder", folder_.path}};
  if (d.figures.grown_bytes)
    d.environment.emplace_back("arena beyond its forecast", observe::bytes_text(*d.figures.grown_bytes));
  if (const runtime::CopyEngine* copies = trainer_->copies(); copies != nullptr && copies->asked())
    d.environment.emplace_back("copy engine, rank 0", copies->text());
  if (config_.plan.parallel.ahead_of_norm) {
    d.environment.emplace_back(
        "updates ahead of the norm",
        fmt::format("{}, of them {} taken back", summary_.updates_ahead, summary_.updates_taken_back));
  }
  if (config_.plan.update.skips_outliers()) {
    d.environment.emplace_back("steps left out as outliers",
                               fmt::format("{}, rolled back {} times", summary_.skipped, summary_.gone_back));
  }
  if (summary_.first_steps_s > 0) {
    d.environment.emplace_back("step foretold", observe::duration_text(summary_.foretold_s));
    d.environment.emplace_back("forecast off by",
                               fmt::format("{:+.1f} %", 100 * (summary_.foretold_s / summary_.first_steps_s - 1)));
  }
  return d;
}

void TrainingRun::report() {
  if (!leads()) return;
  summary_.figures = figures();
  summary_.report = logs_->write_report(report_data()) ? folder_.report() : "";
}

}  // namespace heddle::session
