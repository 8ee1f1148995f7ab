// A rank's copies of its state in memory (passes/state/snapshot, train/saved/segment.h): when they are begun, and
// when what was copied counts.
//
// A copy is begun before a step and runs beside it; once the step has ended it is sealed. While the one set is
// written the other stays whole, and all ranks write sets of the same step. Where somebody reads the set whose turn
// it is (an agent that writes it to disk), the copy is left out, or awaited where it was asked for.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

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
  /// Says what lies where, once the executor has placed it.
  void bind(const plan::Lowered& lowered, runtime::Executor& executor, const plan::Mesh& mesh);

  /// Begins a copy of the state as it is; all ranks call it together, before the step that it runs beside. `must`:
  /// waits for who reads the set. Whether it was begun.
  bool begin(runtime::Executor& executor, RankExchange& ranks, bool must);
  /// What was begun has been copied: it counts from now on.
  void seal(const SnapshotNote& note);
  bool is_open() const { return hold_.has_value(); }

  /// Of the bytes of one copy, and how long begin and seal have kept the rank from its steps so far.
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
  void remove_superseded();

  const bool own_folder_;
  SegmentFiles files_;
  SegmentIndex index_;
  std::map<ir::ValueId, size_t> held_;  // by value of the snapshot listing, index into the index's values
  const runtime::Executor* executor_ = nullptr;
  int listing_ = -1;
  ir::ValueId first_ = ir::none;
  int64_t bytes_ = 0;
  double blocked_s_ = 0;
  int set_ = -1;  // that was begun last
  int64_t sealed_ = 0;
  std::optional<FileHold> hold_;
  std::vector<SegmentFiles> superseded_;
  std::string superseded_folder_;
  device::Batch nothing_;  // what a copy reads of a batch
};

}  // namespace heddle::train
