// The common part of passes that keep optimizer state on the host and update it a slice at a time. It decides which
// state may leave the device, how it is cut, and who else must have it back.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "heddle/ir/uses.h"

namespace heddle::passes {

class StateSlices {
 public:
  /// `bytes_per_us`: of a copy between device and host, by which slices are made no larger than they need to be.
  StateSlices(ir::Listing& listing, double bytes_per_us);
  virtual ~StateSlices() = default;
  StateSlices(const StateSlices&) = delete;
  StateSlices& operator=(const StateSlices&) = delete;

  /// Moves to the host what ops of the end update element by element and nothing else changes. Exceptions are
  /// values that something reads in another phase, or that are small beside a slice. Other readers at the end read
  /// a copy that comes back for them, one op later, so that these copies don't hold up those of the next state.
  void run();

 protected:
  struct State {
    std::vector<size_t> updates;  // which of the op's go to the host
    int64_t elements = 0;
  };
  /// The ops whose state goes, by their place in the list, once it is known.
  virtual void begin(const std::map<size_t, State>&) {}
  /// Before and after an op is written, whichever it is.
  virtual void before(size_t) {}
  virtual void after(size_t) {}
  /// Writes the op that works on elements begin … end: `part` has its updates and results cut, where they
  /// lie now.
  virtual void write(const ir::Op& op, const State& state, ir::Op part, int64_t begin, int64_t end) = 0;

  static bool is_cut(const ir::Op& op, std::string_view list, size_t i);
  void copy(std::string_view kind, const ir::Op& beside, ir::ValueId from, ir::ValueId to);
  /// Elements of a ring of slots through which what an op updates u-th passes: as many as a slice has, the next of
  /// the slots for each `turn`.
  ir::ValueId slot(const ir::Op& op, size_t u, ir::Space space, int64_t turn, int64_t elements);
  int64_t turn() const { return turn_; }

  ir::Listing& listing_;
  const ir::Uses uses_;  // before anything is written

 private:
  void find();
  void choose_size();
  bool may_leave(ir::ValueId id) const;
  bool slices(const ir::Op& op, ir::ValueId id) const;
  bool large(const State& state) const;
  bool reads_host(const ir::Op& op) const;
  bool uses_what_is_late(const ir::Op& op) const;
  void bring_back(size_t keep);

  const double bytes_per_us_;
  std::map<size_t, State> states_;  // by op
  int64_t total_ = 0, slice_ = 0, turn_ = 0;
  std::vector<ir::Op> late_;
};

}  // namespace heddle::passes
