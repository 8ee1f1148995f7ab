// A rank's copies of its state in memory (passes/state/snapshot, train/saved/segment.h): when they begin, and when
// they count.
//
// A copy begins before a step and runs beside it. A thread of its own seals it as soon as all is copied; where the
// device can't say so from there, it is sealed once the step has ended. While the one set is written the other
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
#include <utility>

#include "heddle/train/rank_exchange.h"
#include "heddle/train/saved/segment.h"
#include "heddle/train/trainer_options.h"

namespace heddle::train {

/// The state that seals a copy.
struct SnapshotNote {
  CheckpointState state;
  bool persists = false;
};

class Snapshots {
 public:
  Snapshots(SnapshotPlace place, int rank, int ranks);
  /// Removes the files if no copy was ever sealed in them.
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  /// The file of the memory that outlives the process (runtime::ExecutorOptions::shared_file).
  std::string data_file() const { return files_.data(); }
  /// Sets the place of each value, once the executor has placed it. All three outlive this.
  void bind(const plan::Lowered& lowered, runtime::Executor& executor, const plan::Mesh& mesh);

  /// Begins a copy of the state as it is, which is sealed with `note`; all ranks call it together, before the step
  /// that it runs beside. `must`: waits for who reads the set. `homes`: of the experts. Whether it was begun. The
  /// executor outlives the copy.
  bool begin(runtime::Executor& executor, RankExchange& ranks, bool must, SnapshotNote note,
             const ExpertPlacements& placements);
  /// The step that it ran beside has ended, and with it the copy: it counts, now at the latest.
  void end();
  bool is_open() const { return hold_.has_value(); }

  /// The bytes of one copy, and how long begin and end have kept the rank from its steps so far.
  int64_t bytes() const { return bytes_; }
  double blocked_s() const { return blocked_s_; }
  int64_t sealed() const { return sealed_; }
  /// True if a rank could not write down that its copy before the last is whole: memory is full. The same on all.
  bool is_lost() const { return is_lost_; }
  /// The note on that, once.
  std::string take_note() { return std::exchange(note_, {}); }
  /// Removes these files once copies of this job's are whole on all ranks, and had time to reach a partner. They
  /// are another job's of the same run, which it went on from; so is the folder that it had made for them ("":
  /// none).
  void supersede(std::vector<SegmentFiles> files, std::string folder) {
    superseded_ = std::move(files);
    superseded_folder_ = std::move(folder);
  }
  /// Removes its own files: the run is over, and its disk has all.
  void remove();

 private:
  int64_t offset_of(ir::ValueId id) const;
  void find_elsewhere(const ExpertPlacements& placements);
  void seal_when_copied(const ir::Marks& marks, const SnapshotNote& note, const uint8_t* base);
  void stop();
  void remove_superseded();

  const bool own_folder_, kept_;
  SegmentFiles files_;
  SegmentIndex index_;
  std::function<std::vector<Runs>(size_t tensor, const ExpertPlacements& placements)>
      owned_;                                      // runs of the index's tensors
  ExpertPlacements placements_;                    // homes at the last copy
  std::map<size_t, std::vector<Runs>> elsewhere_;  // as a seal has it, at these
  const runtime::Executor* executor_ = nullptr;
  int listing_ = -1;
  ir::ValueId first_ = ir::none;
  int64_t bytes_ = 0;
  double blocked_s_ = 0;
  int set_ = -1;  // set that was begun last
  int64_t sealed_ = 0, sealed_in_a_row_ = 0;
  std::string lost_, note_;  // the first is the sealer's until it is joined
  bool is_lost_ = false;
  std::optional<FileHold> hold_;
  std::thread sealer_;  // thread that seals the open copy
  std::atomic<bool> step_ended_{false}, stopped_{false};
  std::exception_ptr failure_;  // failure of the sealer
  std::vector<SegmentFiles> superseded_;
  std::string superseded_folder_;
  device::Inputs nothing_;  // inputs of a copy
};

}  // namespace heddle::train
