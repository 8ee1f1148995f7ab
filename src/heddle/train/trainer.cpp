#include "heddle/train/trainer.h"

#include <cmath>
#include <utility>

#include "heddle/backends/backend.h"
#include "heddle/base/error.h"
#include "heddle/comm/device_world.h"
#include "heddle/comm/threads/only_rank.h"
#include "heddle/config/exact_layout.h"
#include "heddle/device/inputs.h"
#include "heddle/runtime/copy_engine.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/mesh_communicators.h"
#include "heddle/runtime/microbatch.h"
#include "heddle/train/controllers/expert_migration.h"
#include "heddle/train/parameters.h"
#include "heddle/train/saved/snapshots.h"
#include "heddle/train/step/batch.h"
#include "heddle/train/step/not_finite.h"
#include "heddle/train/step/numbers.h"
#include "heddle/train/step/rank_figures.h"
#include "heddle/train/step/statistics.h"
#include "heddle/train/step/step_work.h"
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

}  // namespace

plan::Plan as_trained(plan::Plan plan, const std::string& backend) {
  plan.evaluates = true;
  plan.predicts = true;
  plan.packed_bytes = backends::named(backend).packed_bytes;
  plan.launches_cost = !backends::named(backend).shares_memory;
  const auto turns = backends::named(backend).turns_weights;
  plan.turns_weights = turns != nullptr && turns();
  return plan;
}

Trainer::Trainer(TrainerOptions options, comm::World* world)
    : options_(completed(std::move(options))),
      mesh_(options_.plan.mesh),
      lowered_(plan::lower(options_.model, options_.plan)),
      statistics_(std::make_unique<StepStatistics>(
          lowered_, lowered_.program.first_listing[static_cast<size_t>(ir::Purpose::train)],
          options_.plan.mesh.pp)),
      ranks_(world),
      controllers_(std::make_unique<Controllers>()) {
  if (world != nullptr) {
    const bool shares_memory = backends::named(options_.backend).shares_memory;
    copy_engine_ = std::make_unique<runtime::CopyEngine>(options_.plan.device, shares_memory, *world);
  }
  runtime::ExecutorOptions executor;
  executor.rank = ranks_.rank();
  executor.backend = options_.backend;
  const device::Seat seat = world == nullptr ? device::Seat{} : comm::seat_in(*world);
  device_ =
      options_.device && options_.seat == seat ? options_.device : backends::named(options_.backend).open(seat);
  device_->set_graphs(options_.plan.device.graphs);
  executor.device = device_.get();
  executor.threads = options_.threads;
  executor.capacity_bytes = options_.memory_bytes;
  executor.limit_bytes = options_.memory_limit_bytes;
  if (world != nullptr) {
    if (!device_->shares_memory()) device_world_ = copy_engine_->over(comm::device_world(*world));
    communicators_ = std::make_unique<runtime::MeshCommunicators>(
        device_world_ ? *device_world_ : copy_engine_->world(), lowered_.program, mesh_);
    executor.communicators = communicators_->by_channel();
  } else if (mesh_.ranks() > 1) {
    config_error("mesh: {} ranks are needed, one is running", mesh_.ranks());
  } else if (comm::communicates(lowered_.program)) {
    device_world_ = comm::only_rank(device_->shares_memory());
    communicators_ = std::make_unique<runtime::MeshCommunicators>(*device_world_, lowered_.program, mesh_);
    executor.communicators = communicators_->by_channel();
  }
  if (options_.plan.exact_sums) {
    const std::string why = config::why_not_exact(options_.model, options_.plan.mesh, nodes_of(world));
    if (!why.empty()) config_error("train.exact_sums does not hold with {}", why);
  }
  executor.place = mesh_.at(ranks_.rank());
  std::unique_ptr<Snapshots> snapshots;  // the executor makes these copies
  if (options_.plan.snapshot_every > 0) {
    snapshots = std::make_unique<Snapshots>(options_.snapshots, ranks_.rank(), ranks_.size());
    executor.shared_file = snapshots->data_file();
  }
  executor_ = std::make_unique<runtime::Executor>(lowered_.program, executor);
  if (snapshots) snapshots->bind(lowered_, *executor_, mesh_);
  controllers_->make(
      {.options = options_,
       .lowered = lowered_,
       .mesh = mesh_,
       .node_of = nodes_of(world),
       .ranks = ranks_,
       .executor = *executor_,
       .snapshots = std::move(snapshots),
       .state_of_now = [this](CheckpointState state) { return state_of_trainer(std::move(state), *this); },
       .others = *controllers_});
  work_ = std::make_unique<StepWork>(step_work(options_.model, options_.plan));
}

Trainer::~Trainer() = default;

void Trainer::initialise() {
  train::initialise(options_.model, lowered_, *executor_, options_.seed, mesh_, ranks_.rank());
  done_ = {};
  controllers_->restore({});
  base_ = {"", fmt::format("seed {}", options_.seed)};
}

std::vector<StateTensor> Trainer::state() { return state_tensors(lowered_, *executor_, mesh_, ranks_.rank()); }

std::vector<model::Extent> Trainer::held_extents(const StateTensor& tensor) const {
  return train::held_extents(tensor, lowered_, mesh_, ranks_.rank(), placements_in(*controllers_));
}

std::vector<model::Extent> Trainer::owned_extents(const StateTensor& tensor) const {
  return train::owned_extents(tensor, lowered_, mesh_, ranks_.rank(), placements_in(*controllers_));
}

void Trainer::weights_changed() { executor_->make_weights(); }

int64_t Trainer::sequence_tokens() const { return train::sequence_tokens(options_.model, options_.plan); }

int64_t Trainer::sequences_per_step() const {
  return options_.plan.microbatches * options_.plan.sequences * options_.plan.mesh.dp;
}

std::map<std::string, comm::Traffic> Trainer::traffic() const {
  return communicators_ ? communicators_->traffic() : std::map<std::string, comm::Traffic>{};
}

StepResult Trainer::step(const Sequences& sequences) {
  const std::vector<double> scales = scales_of(sequences, options_.model, options_.plan);
  device::Inputs inputs = batch_of(sequences, microbatches_of(std::ssize(sequences.tokens), options_.plan),
                                   options_.model, options_.plan, executor_->listing(), executor_->place());
  if (lowered_.program.takes("drawn_key"))
    inputs.set("drawn_key", runtime::drawn_key(options_.seed, done_.steps + 1));
  const auto start = std::chrono::steady_clock::now();
  (void)executor_->take_compute_times();  // clears those of what ran since the last step
  controllers_->before({done_, scales}, inputs);
  executor_->run_step(inputs);
  controllers_->ran(inputs);
  StepResult result = gather(scales, start);
  result.tokens = std::ssize(sequences.tokens) * options_.plan.sequence_length;
  result.flops =
      work_->flops * static_cast<double>(sequences.tokens.size()) / static_cast<double>(sequences_per_step());
  for (const Reading& reading : result.statistics) {
    const model::Dispatcher& exchange = options_.plan.parallel.exchange;
    if (reading.kind != &model::kBeyond || reading.values.at(0) == 0 || exchange.second_round) continue;
    config_error(
        "step {}: more rows of experts of layer {} came to a rank than moe.room_factor = {} has room for: set it "
        "higher, or moe.second_round to true, which takes them in the same step",
        result.step, reading.of, exchange.room_factor);
  }
  if (options_.model.n_routed_experts > 0)
    result.figures.set(observe::figures::kHostStalls, static_cast<double>(executor_->host_stalls()));
  // The sums are the same on all ranks: all of them go on, or all of them look for the cause.
  const bool finite = std::isfinite(result.loss()) && std::isfinite(result.gradient_norm());
  if (!finite && !result.is_skipped()) {
    const std::string found = first_not_finite(*executor_, lowered_, ranks_, inputs);
    throw Error(fmt::format("step {}: loss {}, gradient norm {}: the first value that is not finite is {}",
                            result.step, result.loss(), result.gradient_norm(), found));
  }
  done_.seconds += result.seconds;  // the slowest rank's: the same bits on all
  const device::TensorView norm = statistic(ir::Purpose::train, model::kGradientNorm);
  controllers_->after({result, norm ? number(norm, 0) : result.gradient_norm()}, result.figures);
  ++done_.steps;
  if (options_.agree_every > 0 && done_.steps % options_.agree_every == 0) controllers_->agree(ranks_);
  return result;
}

StepResult Trainer::gather(std::span<const double> scales, std::chrono::steady_clock::time_point start) {
  RankFigures figures;
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int listing = lowered_.program.listing_of(ranks_.rank(), ir::Purpose::train);
  std::vector<double> row = statistics_->row(*executor_, listing);
  figures.max_logit = statistics_->largest(*executor_, listing);
  const size_t own = row.size();
  const ir::Storage& storage = executor_->walk().storage();
  figures.peak_live_bytes = storage.peak_live_bytes();
  figures.reserved_bytes = storage.reserved_bytes();
  figures.grown_bytes = storage.grown_bytes();
  figures.work = work_of(executor_->take_compute_times());
  append(row, figures, ranks_.rank(), ranks_.size());
  ranks_.sum(row);
  StepResult result;
  result.step = done_.steps + 1;
  result.statistics = statistics_->read(std::span(row).first(own), scales, mesh_.ranks());
  take_figures(result, std::span(row).subspan(own));
  return result;
}

device::TensorView Trainer::statistic(ir::Purpose purpose, const model::StatisticKind& kind) const {
  const int listing = lowered_.program.listing_of(ranks_.rank(), purpose);
  const ir::ValueId id = model::value_of(lowered_.statistics[static_cast<size_t>(listing)], kind);
  return id == ir::none ? device::TensorView() : executor_->view(listing, id);
}

}  // namespace heddle::train
