// A model in training, as one of its ranks sees it: its step program with the state it works on, one step at a
// time.
//
// Every rank of the world makes a trainer of the same options and makes the same calls on it, with the same
// sequences: those of a step are the whole batch, of which global microbatch m·dp + d is data rank d's m-th. What
// comes back is of the whole job and the same on every rank.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/config/bias_rates.h"
#include "heddle/config/learning_rate.h"
#include "heddle/model/parameter_count.h"
#include "heddle/runtime/copy_engine.h"
#include "heddle/runtime/mesh_communicators.h"
#include "heddle/train/parameters.h"
#include "heddle/train/rank_exchange.h"
#include "heddle/train/saved/snapshots.h"
#include "heddle/train/step/attempts.h"
#include "heddle/train/step/expert_history.h"
#include "heddle/train/step/expert_moves.h"
#include "heddle/train/step/outliers.h"
#include "heddle/train/step/result.h"
#include "heddle/train/step/sequences.h"

namespace heddle::train {

using config::LearningRate;

struct TrainerOptions {
  model::ModelConfig model;
  plan::Plan plan;  // the trainer completes it
  std::string backend = "host";
  int threads = 1;
  int64_t memory_bytes = 0;        // capacity of a rank's arena, as foretold; 0: what the machine has
  int64_t memory_limit_bytes = 0;  // to which it may grow beyond; 0: not at all
  config::RunLength length;
  LearningRate learning_rate;
  uint64_t seed = 0;
  std::string start;             // where the frozen weights beside adapters came from, if not from the seed
  int64_t outlier_window = 50;   // applied steps that say what is an outlier
  SnapshotPlace snapshots;       // where copies of the state lie, if the plan has any
  bool always_attempts = false;  // to run ahead of the norm, whatever recent ones say (tests)
};

/// The plan as a trainer runs it: with evaluation, prediction, and weights packed as the backend has them.
plan::Plan as_trained(plan::Plan plan, const std::string& backend);

/// The frozen weights that adapters stand beside.
struct Base {
  std::string path;    // of a checkpoint or a released model; "": drawn from the seed
  std::string digest;  // of what lay there (train/adapters/base)
};

class Trainer {
 public:
  /// ConfigError when model, plan and world don't fit; OutOfMemory when the state doesn't. The world must outlive
  /// the trainer; null: one rank.
  explicit Trainer(TrainerOptions options, comm::World* world = nullptr);
  ~Trainer();

  /// Whether messages go by a copy engine, and what did; null: one rank.
  const runtime::CopyEngine* copies() const { return copies_.get(); }

  /// Starts the parameters from the seed, at step 0.
  void initialise();
  /// One step on `sequences` (dp × microbatches × sequences of a microbatch, or as many as another of the plan's
  /// numbers of microbatches has), each of sequence_length + 1 + depths
  /// ids. A loss or gradient that is not finite raises Error on every rank, naming the first op that made it;
  /// parameters are then as before the step. Where outliers are left out, it is one, and the result says so.
  StepResult step(const Sequences& sequences);
  /// The same without waiting for what only other ranks still have to do: under parallel.ahead_of_norm the result
  /// is that of the step before, if nobody has been told it yet, and an error that of either. Then `told`, numbers
  /// of any rank's, becomes their sums over the ranks. Else the result is that of the step, and `told` is left
  /// alone.
  std::optional<StepResult> advance(const Sequences& sequences, std::span<double> told = {});
  /// Copies of the state in memory, where the plan has any (plan::Choices::snapshot_every); else null.
  Snapshots* snapshots() { return snapshots_.get(); }
  /// What each copy is sealed with besides what the trainer knows; the trainer alone where nobody says.
  void set_snapshot_note(std::function<SnapshotNote()> note) { snapshot_note_ = std::move(note); }
  /// The next step begins with a copy, whatever its number; the same on every rank.
  void ask_for_snapshot() { snapshot_asked_ = true; }
  /// Another number of steps between copies than the plan's, from now on; the same on all ranks.
  void set_snapshot_every(int64_t steps) { options_.plan.snapshot_every = steps; }
  /// Ends what the last step has left open, so that all state is as after it; its result, if nobody has been told
  /// it yet. Whoever reads state, evaluates or predicts after advance() calls this first.
  std::optional<StepResult> settle();
  /// Mean next-token loss of sequences of the same form; any number of them.
  double evaluate(const Sequences& sequences);
  /// −Σ ln p of the labels that count, of each of at most dp sequences; a microbatch must be one sequence.
  std::vector<double> score(const Sequences& sequences);
  /// −Σ ln p of each sequence's labels, where pairs of them are learnt from; any number of sequences.
  std::vector<double> sequence_losses(const Sequences& sequences);
  /// Logits of the token after `tokens` (at most sequence_length of them).
  std::vector<float> next_logits(std::span<const int32_t> tokens);

  /// The same with a cache (Plan::cached_sequences). `prefill` reads a sequence from its beginning, which becomes
  /// what the cache holds of it. `decode` reads tokens that go on from what is held, at most cached_sequences of
  /// them, and holds them too; several of one sequence come in order. Logits after each.
  struct Placed {
    int64_t sequence = 0, position = 0;
    int32_t token = 0;
  };
  std::vector<float> prefill(int64_t sequence, std::span<const int32_t> tokens);
  std::vector<std::vector<float>> decode(std::span<const Placed> tokens);

  const config::RunProgress& done() const { return done_; }
  int64_t steps_done() const { return done_.steps; }
  /// Where a run that goes on takes up; the same on every rank.
  void set_done(const config::RunProgress& done) { done_ = done; }
  /// Which steps were left out, and what says which will be; the same on every rank.
  const OutlierHistory& outliers() const { return outliers_.history(); }
  void set_outliers(OutlierHistory history) { outliers_.set_history(std::move(history)); }
  /// What says which experts have copies, where that is known before a step; the same on every rank.
  const ExpertHistory& expert_history() const { return expert_history_; }
  void set_expert_history(ExpertHistory history) { expert_history_ = std::move(history); }
  /// Where experts live; the same on every rank. To be set before state is written, and only where all of it is:
  /// what is there stays where it lies. Of another number of ranks than share the experts here, or where the plan
  /// moves none, every expert is at home. Beside frozen weights, which a load makes anew, they are too.
  const ExpertHomes& homes() const { return homes_; }
  void set_homes(const ExpertHomes& homes);
  /// State in this rank's arena; after writing it call weights_changed().
  std::vector<StateTensor> state();
  std::vector<model::Extent> held_extents(const StateTensor& tensor) const;
  std::vector<model::Extent> owned_extents(const StateTensor& tensor) const;
  void weights_changed() { executor_->make_weights(); }
  /// Whether it trains adapters beside frozen weights, and which those are.
  bool is_adapted() const { return options_.plan.lora.rank > 0; }
  const Base& base() const { return base_; }
  void set_base(Base base) { base_ = std::move(base); }

  int64_t sequence_tokens() const;
  int64_t sequences_per_step() const;
  const plan::Lowered& lowered() const { return lowered_; }
  const TrainerOptions& options() const { return options_; }
  runtime::Executor& executor() { return *executor_; }
  const plan::Mesh& mesh() const { return mesh_; }
  /// What this rank has sent on each stream that communicates, so far.
  std::map<std::string, comm::Traffic> traffic() const {
    return communicators_ ? communicators_->traffic() : std::map<std::string, comm::Traffic>{};
  }
  RankExchange& ranks() { return ranks_; }
  /// Matrix-product FLOPs of a training step, by the op definitions, as one rank alone would do it.
  double flops_per_step() const { return flops_per_step_; }
  model::ParameterCount parameter_count() const { return parameter_count_; }

 private:
  int listing() const;
  void count_model();
  device::Batch batch_of(const Sequences& sequences, int microbatches) const;
  /// Of a step of so many sequences; InternalError where there is none such.
  int microbatches_of(int64_t sequences) const;
  /// Those of the step that comes next.
  void set_rates(device::Batch& batch) const;
  /// A step that has been run, and what this rank measured of it.
  struct Run {
    device::Batch batch;
    int64_t step = 0, sequences = 0;
    double seconds = 0;
    std::vector<double> row;
    RankFigures figures;
    bool taken_back = false;
    std::optional<MoveFigures> moves;
  };
  /// Experts that move as the step ends, where it is time to look.
  void choose_moves(Run& run) const;
  /// Of the step that has run: they have moved.
  void take_moves(const Run& run);
  void measure(Run& run, std::chrono::steady_clock::time_point start) const;
  /// Adds to the run what the check has found of it. Only after the check, before the step's end.
  void look_back(Run& run);
  /// All ranks call it together; an update or a loss that is not finite raises Error.
  StepResult gather_result(Run& run, std::span<double> told = {});
  bool runs_ahead() const { return options_.plan.parallel.ahead_of_norm; }
  void check_settled() const;
  /// Begins a copy of the state where one is due; whether it did.
  bool begin_snapshot();
  /// This rank's, of the listing that it runs for the purpose; without data where it has none of the kind.
  device::TensorView statistic(ir::Purpose purpose, const model::StatisticKind& kind) const;
  void run_cached(ir::Purpose purpose, std::vector<int32_t> tokens, std::vector<int32_t> places);
  /// A row of what that has left.
  std::vector<float> cached_logits(ir::Purpose purpose, int64_t row) const;

  TrainerOptions options_;
  plan::Mesh mesh_;
  plan::Lowered lowered_;
  StepStatistics statistics_;
  RankExchange ranks_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<runtime::CopyEngine> copies_;  // null: one rank
  std::unique_ptr<comm::World> device_world_;    // where ranks talk from device to device
  std::unique_ptr<runtime::MeshCommunicators> communicators_;
  std::unique_ptr<Run> running_;  // a step
  std::unique_ptr<Run> open_;     // the one before, whose result nobody has been told
  std::unique_ptr<runtime::Executor> executor_;
  std::unique_ptr<Snapshots> snapshots_;  // whose copies the executor makes
  std::function<SnapshotNote()> snapshot_note_;
  bool snapshot_asked_ = false;
  config::RunProgress done_;
  Attempts attempts_;
  Outliers outliers_;
  ExpertHistory expert_history_;
  ExpertHomes homes_;
  ExpertMoves expert_moves_;
  Base base_;
  double flops_per_step_ = 0;
  model::ParameterCount parameter_count_;
};

}  // namespace heddle::train
