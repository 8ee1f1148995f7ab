// A model in training, as one of its ranks sees it: its step program with the state it works on, one step at a
// time. Controllers (train/controllers) hold what is remembered from step to step.
//
// Every rank of the world makes a trainer of the same options and makes the same calls on it, with the same
// sequences. Those of a step are the whole batch, of which global microbatch m·dp + d is data rank d's m-th. The
// result is of the whole job and the same on every rank.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/train/rank_exchange.h"
#include "heddle/train/step/result.h"
#include "heddle/train/step/sequences.h"
#include "heddle/train/trainer_options.h"

namespace heddle::comm {
struct Traffic;
}  // namespace heddle::comm
namespace heddle::device {
struct TensorView;
}  // namespace heddle::device
namespace heddle::model {
struct Extent;
}  // namespace heddle::model
namespace heddle::runtime {
class CopyEngine;
class Executor;
class MeshCommunicators;
}  // namespace heddle::runtime

namespace heddle::train {

class Controllers;
class StepStatistics;
struct StateTensor;
struct StepWork;

/// The plan as a trainer runs it: with evaluation, prediction, and weights packed as the backend has them.
plan::Plan as_trained(plan::Plan plan, const std::string& backend);

/// The frozen weights that adapters stand beside.
struct Base {
  std::string path;    // path of a checkpoint or a released model; "": drawn from the seed
  std::string digest;  // digest of the base (train/adapters/base)
};

class Trainer {
 public:
  /// ConfigError when model, plan and world don't fit; OutOfMemory when the state doesn't. The world must outlive
  /// the trainer; null: one rank.
  explicit Trainer(TrainerOptions options, comm::World* world = nullptr);
  ~Trainer();

  /// Starts the parameters from the seed, at step 0, and every controller anew.
  void initialise();
  /// One step on `sequences` (dp × microbatches × sequences of a microbatch, or as many as another of the plan's
  /// numbers of microbatches has), each of sequence_length + 1 + depths
  /// ids. A loss or gradient that is not finite raises Error on every rank, naming the first op that made it;
  /// parameters are then as before the step. Where outliers are left out, it is one, and the result says so.
  StepResult step(const Sequences& sequences);
  /// The controllers, which remember something from step to step.
  Controllers& controllers() const { return *controllers_; }

  /// This rank's statistic in the listing that it runs for the purpose; without data where it has none of the kind.
  device::TensorView statistic(ir::Purpose purpose, const model::StatisticKind& kind) const;

  const config::RunProgress& done() const { return done_; }
  int64_t steps_done() const { return done_.steps; }
  /// Sets the place from which a run goes on; the same on every rank.
  void set_done(const config::RunProgress& done) { done_ = done; }
  /// State in this rank's arena; after writing it call weights_changed().
  std::vector<StateTensor> state();
  std::vector<model::Extent> held_extents(const StateTensor& tensor) const;
  std::vector<model::Extent> owned_extents(const StateTensor& tensor) const;
  void weights_changed();
  /// The base of the frozen weights beside adapters.
  const Base& base() const { return base_; }
  void set_base(Base base) { base_ = std::move(base); }

  int64_t sequence_tokens() const;
  int64_t sequences_per_step() const;
  const plan::Lowered& lowered() const { return lowered_; }
  const TrainerOptions& options() const { return options_; }
  runtime::Executor& executor() { return *executor_; }
  const plan::Mesh& mesh() const { return mesh_; }
  RankExchange& ranks() { return ranks_; }
  const StepWork& work() const { return *work_; }
  /// The choice of a copy engine for messages, and what went which way; null: one rank.
  const runtime::CopyEngine* copy_engine() const { return copy_engine_.get(); }
  /// Traffic that this rank has sent on each stream that communicates, so far.
  std::map<std::string, comm::Traffic> traffic() const;

 private:
  /// Gathers the results of a step from all ranks, which call it together.
  StepResult gather(std::span<const double> scales, std::chrono::steady_clock::time_point start);

  TrainerOptions options_;
  plan::Mesh mesh_;
  plan::Lowered lowered_;
  std::unique_ptr<StepStatistics> statistics_;
  std::unique_ptr<StepWork> work_;
  RankExchange ranks_;
  std::shared_ptr<device::Device> device_;
  std::unique_ptr<runtime::CopyEngine> copy_engine_;  // null: one rank
  std::unique_ptr<comm::World> device_world_;         // for ranks that talk from device to device
  std::unique_ptr<runtime::MeshCommunicators> communicators_;
  std::unique_ptr<runtime::Executor> executor_;
  std::unique_ptr<Controllers> controllers_;
  config::RunProgress done_;
  Base base_;
};

}  // namespace heddle::train
