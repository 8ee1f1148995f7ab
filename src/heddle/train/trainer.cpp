#include "heddle/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "heddle/backends/backend.h"
#include "heddle/comm/device_world.h"
#include "heddle/config/exact_layout.h"
#include "heddle/model/loss_scale.h"
#include "heddle/train/step/batch.h"
#include "heddle/train/step/not_finite.h"
#include "heddle/train/step/numbers.h"
#include "heddle/train/trainer_checkpoint.h"

namespace heddle::train {

namespace {

std::vector<int> nodes_of(const comm::World* world) {
  std::vector<int> nodes;
  for (int r = 0; world != nullptr && r < world->size(); ++r) nodes.push_back(world->node_of(r));
  return nodes;
}

TrainerOptions completed(TrainerOptions options) {
  options.plan = as_trained(std::move(options.plan), options.backend);
  return options;
}

RankWork work_of(const device::StreamTimes& times) {
  RankWork work;
  const auto seconds = [&](ir::Phase phase) {
    return static_cast<double>(times.steady[static_cast<size_t>(phase)].ns) * 1e-9;
  };
  work.forward_s = seconds(ir::Phase::F);
  work.backward_s = seconds(ir::Phase::I) + seconds(ir::Phase::W);
  work.update_s = seconds(ir::Phase::begin) + seconds(ir::Phase::check) + seconds(ir::Phase::end);
  for (const device::Work& by_rows : times.by_rows) {
    work.experts_s += static_cast<double>(by_rows.ns) * 1e-9;
    work.expert_rows += static_cast<double>(by_rows.rows);
  }
  return work;
}

}  // namespace

plan::Plan as_trained(plan::Plan plan, const std::string& backend) {
  plan.evaluates = true;
  plan.predicts = true;
  plan.packed_bytes = backends::named(backend).packed_bytes;
  plan.launches_cost = !backends::named(backend).shares_memory;
  return plan;
}

Trainer::Trainer(TrainerOptions options, comm::World* world)
    : options_(completed(std::move(options))),
      mesh_(options_.plan.mesh),
      lowered_(plan::lower(options_.model, options_.plan)),
      statistics_(lowered_, lowered_.program.first_listing[static_cast<size_t>(ir::Purpose::train)],
                  options_.plan.mesh.pp),
      ranks_(world),
      attempts_(options_.plan.update.clip_norm),
      outliers_(options_.plan.update, options_.outlier_window) {
  if (world != nullptr) {
    const bool shares_memory = backends::named(options_.backend).shares_memory;
    copies_ = std::make_unique<runtime::CopyEngine>(options_.plan.device, shares_memory, *world);
  }
  runtime::ExecutorOptions executor;
  executor.rank = ranks_.rank();
  executor.backend = options_.backend;
  device_ = backends::named(options_.backend).open(world == nullptr ? device::Seat{} : comm::seat_in(*world));
  device_->set_graphs(options_.plan.device.graphs);
  executor.device = device_.get();
  executor.threads = options_.threads;
  executor.capacity_bytes = options_.memory_bytes;
  executor.limit_bytes = options_.memory_limit_bytes;
  if (world != nullptr) {
    if (!device_->shares_memory()) device_world_ = copies_->over(comm::device_world(*world));
    communicators_ = std::make_unique<runtime::MeshCommunicators>(device_world_ ? *device_world_ : copies_->world(),
                                                                  lowered_.program, mesh_);
    executor.communicators = communicators_->by_channel();
  } else if (mesh_.ranks() > 1) {
    config_error("mesh: {} ranks are needed, one is running", mesh_.ranks());
  }
  if (options_.plan.exact_sums) {
    const std::string why = config::why_not_exact(options_.model, options_.plan.mesh, nodes_of(world));
    if (!why.empty()) config_error("train.exact_sums does not hold with {}", why);
  }
  executor.place = mesh_.at(ranks_.rank());
  if (options_.plan.snapshot_every > 0) {
    snapshots_ = std::make_unique<Snapshots>(options_.snapshots, ranks_.rank(), ranks_.size());
    executor.shared_file = snapshots_->data_file();
  }
  expert_moves_ = ExpertMoves(options_.model, options_.plan, lowered_, mesh_, nodes_of(world));
  executor_ = std::make_unique<runtime::Executor>(lowered_.program, executor);
  if (snapshots_) snapshots_->bind(lowered_, *executor_, mesh_);
  count_model();
}

void Trainer::count_model() {
  plan::Plan one = options_.plan.on_one_rank();
  one.microbatches = 1;
  one.evaluates = one.predicts = false;
  const plan::Lowered lowered = plan::lower(options_.model, one);
  const ir::Listing& listing = lowered.program.listings[0];
  for (const ir::Op& op : listing.ops) {
    const double times = ir::once_a_step(op.phase) ? 1 : options_.plan.microbatches * options_.plan.mesh.dp;
    flops_per_step_ += times * op.def->cost(listing, op, ir::FixedRows()).flops;
  }
  parameter_count_ = model::count_parameters(options_.model, lowered.parameters[0], listing);
}

Trainer::~Trainer() = default;

void Trainer::initialise() {
  train::initialise(options_.model, lowered_, *executor_, options_.seed, mesh_, ranks_.rank());
  done_ = {};
  outliers_.set_history({});
  expert_history_ = {};
  homes_ = {};
  base_ = {"", fmt::format("seed {}", options_.seed)};
}

int Trainer::listing() const { return lowered_.program.listing_of(ranks_.rank(), ir::Purpose::train); }

std::vector<StateTensor> Trainer::state() {
  check_settled();
  return state_tensors(lowered_, *executor_, mesh_, ranks_.rank());
}

std::vector<model::Extent> Trainer::held_extents(const StateTensor& tensor) const {
  return train::held_extents(tensor, lowered_, mesh_, ranks_.rank(), homes_);
}

std::vector<model::Extent> Trainer::owned_extents(const StateTensor& tensor) const {
  return train::owned_extents(tensor, lowered_, mesh_, ranks_.rank(), homes_);
}

void Trainer::set_homes(const ExpertHomes& homes) {
  const int ep = options_.plan.mesh.ep;
  const bool moves = options_.plan.parallel.exchange.migrates() && ep > 1 && !is_adapted();
  homes_ = moves && homes.holders == ep ? homes : ExpertHomes();
}

int64_t Trainer::sequence_tokens() const { return train::sequence_tokens(options_.model, options_.plan); }

int64_t Trainer::sequences_per_step() const {
  return options_.plan.microbatches * options_.plan.sequences * options_.plan.mesh.dp;
}

int Trainer::microbatches_of(int64_t sequences) const {
  const plan::Plan& plan = options_.plan;
  const int64_t each = plan.sequences * plan.mesh.dp;
  const auto microbatches = static_cast<int>(sequences / each);
  const std::vector<int>& fewer = plan.fewer_microbatches;
  const bool known =
      microbatches == plan.microbatches || std::find(fewer.begin(), fewer.end(), microbatches) != fewer.end();
  HEDDLE_CHECK(known && sequences % each == 0, "a step takes {} sequences, {} given", sequences_per_step(),
               sequences);
  return microbatches;
}

device::Batch Trainer::batch_of(const Sequences& sequences, int microbatches) const {
  device::Batch batch =
      train::batch_of(sequences, microbatches, options_.model, options_.plan, mesh_.at(ranks_.rank()));
  batch.homes = homes_.layers;
  return batch;
}

StepResult Trainer::step(const Sequences& sequences) {
  check_settled();
  const std::optional<StepResult> result = advance(sequences);
  return result ? *result : *settle();
}

std::optional<StepResult> Trainer::advance(const Sequences& sequences, std::span<double> told) {
  const int microbatches = microbatches_of(std::ssize(sequences.tokens));
  running_ = std::make_unique<Run>();
  Run* const run = running_.get();
  run->batch = batch_of(sequences, microbatches);
  run->sequences = std::ssize(sequences.tokens);
  run->step = done_.steps + 1;
  set_rates(run->batch);
  const auto start = std::chrono::steady_clock::now();
  (void)executor_->take_compute_times();  // of what ran since the last step
  if (!runs_ahead()) {
    const bool copies = begin_snapshot();
    choose_moves(*run);
    executor_->run_step(run->batch);
    take_moves(*run);
    if (copies) snapshots_->end();
    measure(*run, start);
    StepResult result = gather_result(*run);
    ++done_.steps;
    return result;
  }
  run->batch.guessed = open_ && open_->batch.attempts;
  run->batch.attempts = attempts_.may() || options_.always_attempts;
  executor_->start_step(run->batch);
  // All of this rank's step is on its way: nobody's streams wait while the ranks talk.
  std::optional<StepResult> before;
  if (const std::unique_ptr<Run> open = std::move(open_)) {
    look_back(*open);
    before = gather_result(*open, told);
  }
  executor_->finish_step();
  measure(*run, start);
  open_ = std::move(running_);
  ++done_.steps;
  return before;
}

std::optional<StepResult> Trainer::settle() {
  if (!open_) return std::nullopt;
  device::Batch batch;
  batch.guessed = open_->batch.attempts;
  executor_->run_step(batch, ir::Purpose::settle);
  const std::unique_ptr<Run> run = std::move(open_);
  look_back(*run);
  return gather_result(*run);
}

void Trainer::choose_moves(Run& run) const {
  std::optional<ExpertMoves::Next> next = expert_moves_.at(run.step, expert_history_, homes_);
  if (!next) return;
  run.moves = next->figures;
  run.batch.next_homes = std::move(next->homes);
}

void Trainer::take_moves(const Run& run) {
  for (const auto& [layer, homes] : run.batch.next_homes) homes_.layers[layer] = homes;
  if (!homes_.layers.empty()) homes_.holders = options_.plan.mesh.ep;
}

// Every rank comes to the same answer: it follows from the step, or from what all were told.
bool Trainer::begin_snapshot() {
  const int64_t every = options_.plan.snapshot_every;
  if (!snapshots_ || (!snapshot_asked_ && (done_.steps == 0 || done_.steps % every != 0))) return false;
  SnapshotNote note = snapshot_note_ ? snapshot_note_() : SnapshotNote();
  note.state = state_of_trainer(std::move(note.state), *this);
  return snapshots_->begin(*executor_, ranks_, std::exchange(snapshot_asked_, false), std::move(note));
}

void Trainer::check_settled() const { HEDDLE_CHECK(!open_, "step {} is not settled", open_->step); }

void Trainer::measure(Run& run, std::chrono::steady_clock::time_point start) const {
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.row = statistics_.row(*executor_, listing());
  const ir::Storage& storage = executor_->walk().storage();
  run.figures = {run.seconds, storage.peak_live_bytes(), storage.reserved_bytes(), storage.grown_bytes(),
                 work_of(executor_->take_compute_times())};
}

void Trainer::look_back(Run& run) {
  const std::vector<ir::Op>& ops = lowered_.program.listings[static_cast<size_t>(listing())].ops;
  const auto check =
      std::find_if(ops.begin(), ops.end(), [](const ir::Op& op) { return !op.def->decides.empty(); });
  HEDDLE_CHECK(check != ops.end(), "nothing looks back at step {}", run.step);
  run.taken_back = executor_->walk().counted(listing(), check->result("failed")) > 0;
  const device::TensorView norm = executor_->view(listing(), check->updated("before"));
  statistics_.set(run.row, listing(), model::kGradientNorm, number(norm, 0));
}

void Trainer::set_rates(device::Batch& batch) const {
  const passes::Optimizer& update = options_.plan.update;
  const auto t = static_cast<double>(done_.steps + 1 - outliers().left_out);
  batch.hyper = {options_.learning_rate.at(options_.length, done_), 1 - std::pow(update.beta1, t),
                 1 - std::pow(update.beta2, t)};
  batch.seed = options_.seed;
  batch.step = done_.steps + 1;
  batch.bias_rate = config::bias_rate_at(options_.model, options_.learning_rate, options_.length, done_);
  batch.expert_rows = expert_history_.uneven_rows();
  const StepLimits limits = outliers_.limits();
  const double scale = batch.scales[model::kScaleNextToken];
  batch.limits = {limits.norm, scale > 0 ? limits.loss / scale : std::numeric_limits<double>::infinity()};
}

StepResult Trainer::gather_result(Run& run, std::span<double> told) {
  std::vector<double> row = run.row;
  const size_t own = row.size();
  append(row, run.figures, ranks_.rank(), ranks_.size());
  const size_t with_figures = row.size();
  row.insert(row.end(), told.begin(), told.end());
  ranks_.sum(row);
  StepResult result;
  result.step = run.step;
  result.statistics = statistics_.read(std::span(row).first(own), run.batch, mesh_.ranks());
  take_figures(result, std::span(row).subspan(own, with_figures - own));
  std::copy(row.begin() + static_cast<std::ptrdiff_t>(with_figures), row.end(), told.begin());
  result.learning_rate = run.batch.hyper[0];
  result.bias_rate = run.batch.bias_rate;
  result.tokens = run.sequences * options_.plan.sequence_length;
  result.flops = flops_per_step_ * static_cast<double>(run.sequences) / static_cast<double>(sequences_per_step());
  result.attempted = run.batch.attempts;
  result.taken_back = run.taken_back;
  result.limits = outliers_.limits();
  result.skipped = result.total(model::kSkipped) > 0;
  result.homes = {options_.plan.mesh.ep, run.batch.homes};
  result.moves = run.moves;
  // From sums that are the same on all ranks: all of them go on, or all of them look for the cause.
  const bool finite = std::isfinite(result.loss()) && std::isfinite(result.gradient_norm());
  if (!finite && !result.skipped) {
    executor_->finish_step();
    run.batch.guessed = run.batch.attempts = false;
    run.batch.homes = homes_.layers;  // experts that moved are there when it is done again
    run.batch.next_homes.clear();
    const std::string found = first_not_finite(*executor_, lowered_, ranks_, run.batch);
    throw Error(fmt::format("step {}: loss {}, gradient norm {}: the first value that is not finite is {}",
                            run.step, result.loss(), result.gradient_norm(), found));
  }
  done_.seconds += result.seconds;  // that of the slowest rank: the same bits on all
  if (options_.plan.update.skips_outliers()) {
    // This rank's own norm, which is every rank's: a mean over them is rounded once more.
    const double norm = number(statistic(ir::Purpose::train, model::kGradientNorm), 0);
    outliers_.learn(norm, result.loss(), result.skipped);
  }
  const model::Dispatcher& exchange = options_.plan.parallel.exchange;
  if (exchange.recalls() || exchange.migrates())
    expert_history_.learn(result.loads(), options_.plan.mesh.ep, homes_);
  attempts_.learn(result.gradient_norm(), result.attempted, result.taken_back);
  return result;
}

double Trainer::evaluate(const Sequences& sequences) {
  check_settled();
  const plan::Degrees& mesh = options_.plan.mesh;
  const auto each = static_cast<size_t>(options_.plan.sequences * mesh.dp);
  std::array<double, 1> sum{0};
  double labels = 0;
  for (size_t first = 0; first < sequences.size(); first += each) {
    const size_t count = std::min(each, sequences.size() - first);
    const device::Batch batch = batch_of(sequences.part(first, count), 1);
    executor_->run_step(batch, ir::Purpose::evaluate);
    const device::TensorView loss = statistic(ir::Purpose::evaluate, model::kNextTokenLoss);
    if (loss) sum[0] += number(loss, 0);
    const double scale = batch.scales[model::kScaleNextToken];
    if (scale > 0) labels += 1 / scale;
  }
  ranks_.sum(sum);
  return labels > 0 ? sum[0] / labels : 0;
}

std::vector<double> Trainer::score(const Sequences& sequences) {
  const int dp = options_.plan.mesh.dp;
  HEDDLE_CHECK(options_.plan.sequences == 1 && std::ssize(sequences.tokens) <= dp,
               "{} sequences to score on {} copies", sequences.size(), dp);
  const device::Batch batch = batch_of(sequences, 1);
  const auto own = static_cast<size_t>(mesh_.at(ranks_.rank()).at(ir::Axis::dp));
  executor_->run_step(batch, ir::Purpose::evaluate);
  std::vector<double> sums(static_cast<size_t>(dp), 0);
  const device::TensorView loss = statistic(ir::Purpose::evaluate, model::kNextTokenLoss);
  if (loss) sums[own] = number(loss, 0);
  ranks_.sum(sums);
  sums.resize(sequences.size());
  return sums;
}

std::vector<double> Trainer::sequence_losses(const Sequences& sequences) {
  check_settled();
  const plan::Degrees& mesh = options_.plan.mesh;
  const auto own = static_cast<size_t>(mesh_.at(ranks_.rank()).at(ir::Axis::dp) * options_.plan.sequences);
  const auto each = static_cast<size_t>(options_.plan.sequences * mesh.dp);
  std::vector<double> all;
  for (size_t first = 0; first < sequences.size(); first += each) {
    const size_t count = std::min(each, sequences.size() - first);
    executor_->run_step(batch_of(sequences.part(first, count), 1), ir::Purpose::evaluate);
    std::vector<double> sums(each, 0);
    const device::TensorView held = statistic(ir::Purpose::evaluate, model::kSequenceLoss);
    for (int64_t b = 0; held && b < held.elements(); ++b) sums[own + static_cast<size_t>(b)] = number(held, b);
    ranks_.sum(sums);
    all.insert(all.end(), sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

device::TensorView Trainer::statistic(ir::Purpose purpose, const model::StatisticKind& kind) const {
  const int listing = lowered_.program.listing_of(ranks_.rank(), purpose);
  const ir::ValueId id = model::value_of(lowered_.statistics[static_cast<size_t>(listing)], kind);
  return id == ir::none ? device::TensorView() : executor_->view(listing, id);
}

std::vector<float> Trainer::next_logits(std::span<const int32_t> tokens) {
  check_settled();
  const int64_t length = options_.plan.sequence_length;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= length, "{} tokens, 1 to {} fit", tokens.size(), length);
  device::Batch batch;
  batch.homes = homes_.layers;
  std::vector<int32_t>& row = batch.microbatches.emplace_back().tokens;
  row.assign(tokens.begin(), tokens.end());
  row.resize(static_cast<size_t>(length) + 1, -1);
  batch.scales.assign(model::kScaleDepth, 0);
  executor_->run_step(batch, ir::Purpose::predict);
  // Each column is taken from the one rank of the first copy that holds the token's position and this part of the
  // vocabulary.
  std::vector<double> all(static_cast<size_t>(options_.model.vocab_size), 0);
  const ir::Coordinates& place = mesh_.at(ranks_.rank());
  const int cp = place.of(ir::Axis::cp);
  const device::TensorView logits = statistic(ir::Purpose::predict, model::kLogits);
  if (logits && place.at(ir::Axis::dp) == 0) {
    const int64_t part = logits.dim(1);
    for (int64_t j = 0; j < logits.dim(0); ++j) {
      if (ir::position(j, length, place.at(ir::Axis::cp), cp) != std::ssize(tokens) - 1) continue;
      for (int64_t v = 0; v < part; ++v) {
        all[static_cast<size_t>(place.at(ir::Axis::tp) * part + v)] = number(logits, j * part + v);
      }
    }
  }
  ranks_.sum(all);
  return {all.begin(), all.end()};
}

void Trainer::run_cached(ir::Purpose purpose, std::vector<int32_t> tokens, std::vector<int32_t> places) {
  HEDDLE_CHECK(options_.plan.cached_sequences > 0, "this trainer has no cache");
  device::Batch batch;
  batch.homes = homes_.layers;
  batch.microbatches.emplace_back().tokens = std::move(tokens);
  batch.places = std::move(places);
  batch.scales.assign(model::kScaleDepth, 0);
  executor_->run_step(batch, purpose);
}

std::vector<float> Trainer::cached_logits(ir::Purpose purpose, int64_t row) const {
  const device::TensorView logits = statistic(purpose, model::kLogits);
  const int64_t count = logits.dim(1);
  std::vector<float> all(static_cast<size_t>(count));
  for (int64_t v = 0; v < count; ++v)
    all[static_cast<size_t>(v)] = static_cast<float>(number(logits, row * count + v));
  return all;
}

std::vector<float> Trainer::prefill(int64_t sequence, std::span<const int32_t> tokens) {
  const int64_t length = options_.plan.sequence_length;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= length, "{} tokens, 1 to {} fit", tokens.size(), length);
  HEDDLE_CHECK(sequence >= 0 && sequence < options_.plan.cached_sequences, "no sequence {} in the cache", sequence);
  std::vector<int32_t> row(tokens.begin(), tokens.end()), places(static_cast<size_t>(length), -1);
  row.resize(static_cast<size_t>(length) + 1, -1);
  std::iota(places.begin(), places.begin() + std::ssize(tokens), static_cast<int32_t>(sequence * length));
  run_cached(ir::Purpose::prefill, std::move(row), std::move(places));
  return cached_logits(ir::Purpose::prefill, 0);
}

std::vector<std::vector<float>> Trainer::decode(std::span<const Placed> tokens) {
  const int64_t length = options_.plan.sequence_length, rows = options_.plan.cached_sequences;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= rows, "{} tokens, 1 to {} fit", tokens.size(), rows);
  std::vector<int32_t> ids(static_cast<size_t>(2 * rows), -1),
      places(static_cast<size_t>(rows), -1);  // id and label
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Placed& at = tokens[t];
    HEDDLE_CHECK(at.sequence >= 0 && at.sequence < rows && at.position >= 0 && at.position < length,
                 "no place for position {} of sequence {} in the cache", at.position, at.sequence);
    ids[2 * t] = at.token;
    places[t] = static_cast<int32_t>(at.sequence * length + at.position);
  }
  run_cached(ir::Purpose::decode, std::move(ids), std::move(places));
  std::vector<std::vector<float>> logits;
  for (size_t t = 0; t < tokens.size(); ++t)
    logits.push_back(cached_logits(ir::Purpose::decode, static_cast<int64_t>(t)));
  return logits;
}

}  // namespace heddle::train
