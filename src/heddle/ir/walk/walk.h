// The one interpreter skeleton. It walks a rank's actions in program order, places values in the arena, finds the
// ops that an op must wait for, and hands each op to an Issuer. The executor issues to real streams, the simulator
// to virtual ones; memory and waits are the same for both because they are decided here.
//
// A frame value is placed when its op is issued, or the first that writes a part of it. It is released when its
// last reader (in any phase) has been issued, or an op that drops it. Persistent values are placed once, when the
// walk is made. An op that only makes room (OpDef::reserves, Op::later) places what others write and is not issued.
// Each space has an arena of its own, placed and accounted for in the same way. An op whose condition doesn't hold
// is passed over: the host knows the rows that it asks for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/ir/walk/lifetimes.h"
#include "heddle/ir/walk/storage.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::ir {

struct WalkState;

struct Operand {
  ValueId id = none;
  int64_t offset = -1;  // in the arena of the value's space; -1 when absent
};

struct Wait {
  int stream = 0;
  uint64_t count = 0;  // until this many ops of that stream have ended
};

/// One op on its way to a stream.
struct Issue {
  int listing = 0;
  uint32_t op_index = 0;
  const Op* op = nullptr;
  int microbatch = 0;
  int stream = 0;
  uint64_t count = 0;  // this op is the count-th on its stream
  bool overwrite = false;
  std::span<const Operand> in, out, updates;
  int64_t scratch_offset = -1;
  int64_t scratch_bytes = 0;
  std::span<const Wait> waits;
  const RowCounts* rows = nullptr;
  int64_t live_bytes = 0;  // after the outputs were placed
  int64_t reserved_bytes = 0;
};

class Issuer {
 public:
  virtual ~Issuer() = default;
  virtual int64_t scratch_bytes(int listing, uint32_t op, const RowCounts& rows) = 0;
  virtual void issue(const Issue& issue) = 0;
  /// Called after issuing an op with a host stall, for each of its outputs: the rows that it counts, or 0. May
  /// block.
  virtual int64_t read_rows(const Issue& issue, size_t output) = 0;
};

/// Raised when the arena is full; the message names the tensors that fill it.
class OutOfMemory : public Error {
  using Error::Error;
};

class Walk {
 public:
  /// Places the persistent values. Capacities of the two arenas; 0 means unlimited. `limit_bytes`: as far as the
  /// device's may grow beyond its capacity; 0: not at all. The program must outlive the walk.
  Walk(const StepProgram& program, int rank, int64_t capacity_bytes, int64_t host_capacity_bytes = 0,
       int64_t limit_bytes = 0);
  ~Walk();

  /// Walks one step, of all microbatches or of so many (StepProgram::fewer); of the step before all ops must have
  /// ended but those that trail (Op::trails). Throws OutOfMemory; frames are then given back, and the walk can be
  /// used again once all ops have ended.
  void run_step(Issuer& issuer, Purpose purpose = Purpose::train, int microbatches = 0);
  /// The number of ops of each stream that the end of the last step waits for.
  const Marks& ended() const { return ended_; }
  /// Ops put on each stream so far.
  const Marks& issued() const { return issued_; }

  const StreamTable& streams() const { return streams_; }
  /// True if some value of the rank lies there.
  bool uses(Space space) const { return uses_space_[static_cast<size_t>(space)]; }
  const Storage& storage(Space space = Space::device) const { return storage_[static_cast<size_t>(space)]; }
  Storage& storage(Space space = Space::device) { return storage_[static_cast<size_t>(space)]; }
  int64_t persistent_bytes(Space space = Space::device) const {
    return persistent_bytes_[static_cast<size_t>(space)];
  }
  /// Bytes that the last step copied to the host, and from it.
  int64_t copied_out_bytes() const { return copied_out_bytes_; }
  int64_t copied_in_bytes() const { return copied_in_bytes_; }
  /// Arena offset of a persistent value.
  int64_t offset_of(int listing, ValueId id) const;

  struct Live {
    std::string name;
    Role role;
    int listing, microbatch;
    int64_t bytes;
  };
  /// The values that fill the device's arena at the moment of the highest live bytes of the last step (largest
  /// first).
  const std::vector<Live>& live_at_peak() const { return at_peak_; }
  /// Keep live_at_peak() (costs a copy whenever the peak rises, from `peak_from_bytes` on: the peak, where it is
  /// known from a step before).
  bool keep_peak = false;
  int64_t peak_from_bytes = 0;
  /// Passes over ops that come to the same again, microbatch after microbatch (walk/repeats.h). What the walk says
  /// of its memory stays as it is. For issuers that answer for each microbatch alike.
  bool skip_repeats = false;

  /// Receives every value of a frame that is placed and given back, in bytes as storage rounds them. Receives each
  /// op once all that it needs has its place. `id`: none for what the op's kernel works in.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void placed(int listing, ValueId id, int microbatch, int64_t bytes) = 0;
    virtual void released(int listing, ValueId id, int microbatch, int64_t bytes) = 0;
    virtual void issued(const Issue& issue) = 0;
    /// With skip_repeats: what follows may come again (the last of several such moments counts), and what came
    /// since then comes so many times more, each so many microbatches later.
    virtual void began_cycle() {}
    virtual void repeated(int64_t times, int microbatches) { (void)times, (void)microbatches; }
  };
  Watcher* watcher = nullptr;

 private:
  struct Slot;
  struct Frame;
  struct Running;
  struct Cycle;
  Frame& frame(int listing, int microbatch);
  void spare_places_of(int listing, int microbatch);
  Slot& persistent(int listing, ValueId id);
  Slot& slot_of(const Running& r, ValueId id);
  Slot& new_slot(int32_t& place);
  template <class Change>
  void change(Frame& frame, ValueId base, const Change& to);
  template <class Visit>
  void each_segment(const Running& r, ValueId id, const Visit& visit);
  bool passed_over(const Running& r);
  bool reserves(Running& r);
  void run_op(Issuer& issuer, int listing, uint32_t op, int microbatch);
  void read_operands(Running& r);
  void place_outputs(Running& r);
  void place_output(Running& r, ValueId id);
  void place_scratch(Running& r, Issue& issue);
  void find_waits(const Running& r);
  bool overwrites(const Running& r);
  void order_channel(Running& r);
  void note_uses(const Running& r, const Issue& issue);
  void use(const Running& r, ValueId id);
  void drop(const Running& r, ValueId id);
  Storage::Place place(const std::string& name, int64_t bytes, Space space, int stream, int listing, bool brief);
  std::vector<Live> live_now(Space space) const;
  void drop_frames();
  template <class Exact, class OnMarks, class OnClock>
  void each_of_state(int since, const Exact& exact, const OnMarks& marks, const OnClock& clock);
  WalkState state(int since);
  void skip(const WalkState& from, const WalkState& to, int64_t times, int microbatches);
  size_t past_repeats(Cycle& cycle, const std::vector<Action>& actions, size_t next);

  const StepProgram& program_;
  StreamTable streams_;
  std::array<Storage, kSpaces> storage_;
  std::array<int64_t, kSpaces> persistent_bytes_{};
  std::array<bool, kSpaces> uses_space_;
  int64_t copied_out_bytes_ = 0, copied_in_bytes_ = 0;
  std::vector<int> listings_;
  int rank_;
  std::vector<std::unique_ptr<Lifetimes>> lifetimes_;  // [listing]
  Segments segments_;
  std::vector<std::unique_ptr<Slot>> slots_;      // of the values that are there, in no order
  std::unique_ptr<Slot> absent_;                  // of a value that has none
  std::vector<int32_t> free_slots_;               // of them, those that hold nothing
  std::vector<std::vector<int32_t>> persistent_;  // [listing][value]: its slot; a shared one is its owner's
  std::vector<std::vector<uint8_t>> touched_;     // [listing][op]: ran in this step
  std::vector<std::vector<std::unique_ptr<Frame>>> frames_;  // [listing][microbatch + 1]
  std::vector<std::vector<std::vector<int32_t>>> spare_;  // [listing]: places of frames that hold nothing any more
  Marks issued_{};                                        // ops enqueued on each stream
  Marks ended_{};                                         // of them, those that have ended when a step has
  std::vector<Wait> last_of_channel_;                     // the last op that went over it
  std::array<Marks, kMostStreams> waited_{};              // [stream]: what it has already waited for
  std::vector<Operand> in_, out_, updates_;
  std::vector<Wait> waits_;
  std::vector<Live> at_peak_;
  int64_t peak_seen_ = 0;
};

}  // namespace heddle::ir
