// A rank's copies of its state in memory (passes/state/snapshot, train/saved/segment.h): when they are begun, and
// when what was copied counts.
//
// A copy is begun before a step and runs beside it; it is sealed as soon as all is copied, by a thread of its own,
// or, where the device can't say so from there, once the step has ended. While the one set is written the other
// stays whole, and all ranks write sets of the same step. Where somebody reads the set whose turn it is (an agent
// that writes it to disk), the copy is left out, or awaited where it was asked for.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "heddle/train/rank_exchange.h"
#include "heddle/train/saved/segment.h"

namespace heddle::train {

/// Where the copies lie.
struct SnapshotPlace {
  std::string folder;  // "": one of its own, which goes with the trainer
  std::string run;     // of all ranks of the job; "": any
  int64_t generation = 0;
  bool kept = false;  // by an agent, which writes it to disk where it is asked to
};

/// What a copy is sealed with.
struct SnapshotNote {
  CheckpointState state;
  bool persists = false;
};

class Snapshots {
 public:
  Snapshots(SnapshotPlace place, int rank, int ranks);
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  /// Of the memory that outlives the process (runtime::ExecutorOptions::shared_file).
  std::string data_file() const { return files_.data(); }
  /// Says what lies where, once the executor has placed it. All three outlive this.
  void bind(const plan::Lowered& lowered, runtime::Executor& executor, const plan::Mesh& mesh);

  /// Begins a copy of the state as it is, which is sealed with `note`; all ranks call it together, before the step
  /// that it runs beside. `must`: waits for who reads the set. Whether it was begun. The executor outlives the
  /// copy.
  bool begin(runtime::Executor& executor, RankExchange& ranks, bool must, SnapshotNote note);
  /// The step that it ran beside has ended, and with it the copy: it counts, now at the latest.
  void end();
  bool is_open() const { return hold_.has_value(); }

  /// Of the bytes of one copy, and how long begin and end have kept the rank from its steps so far.
  int64_t bytes() const { return bytes_; }
  double blocked_s() const { return blocked_s_; }
  int64_t copies() const { return sealed_; }
  /// Removes these once copies of this job's are whole on all ranks, and had time to reach a partner: another job's
  /// of the same run, which it went on from; and the folder that it had made for them ("": none).
  void supersede(std::vector<SegmentFiles> files, std::string folder) {
    superseded_ = std::move(files);
    superseded_folder_ = std::move(folder);
  }
  /// Removes what is there of its own: the run is over, and its disk has all.
  void remove();

 private:
  int64_t offset_of(ir::ValueId id) const;
  void find_elsewhere(const ExpertHomes& homes);
  void seal_when_copied(const ir::Marks& marks, const SnapshotNote& note, const uint8_t* base);
  void stop();
  void remove_superseded();

  const bool own_folder_;
  SegmentFiles files_;
  SegmentIndex index_;
  std::function<std::vector<Runs>(size_t tensor, const ExpertHomes& homes)> owned_;  // of the index's tensors
  ExpertHomes homes_;                                                                // of the last copy
  std::map<size_t, std::vector<Runs>> elsewhere_;                                    // as a seal has it, at these
  const runtime::Executor* executor_ = nullptr;
  int listing_ = -1;
  ir::ValueId first_ = ir::none;
  int64_t bytes_ = 0;
  double blocked_s_ = 0;
  int set_ = -1;  // that was begun last
  int64_t sealed_ = 0;
  std::optional<FileHold> hold_;
  std::thread sealer_;  // of the copy that is open
  std::atomic<bool> step_ended_{false}, stopped_{false};
  std::exception_ptr failure_;  // of the sealer
  std::vector<SegmentFiles> superseded_;
  std::string superseded_folder_;
  device::Batch nothing_;  // what a copy reads of a batch
};

}  // namespace heddle::train
