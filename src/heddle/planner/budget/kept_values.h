// The values that a pipeline rank keeps of a microbatch between its forward and its backward. Words of
// memory.recompute and memory.offload free some of them at a price. It runs those passes on the rank's text,
// nothing else.
#pragma once

#include <string>
#include <vector>

#include "heddle/passes/op_groups.h"
#include "heddle/plan/plan.h"
#include "heddle/schedule/validate.h"

namespace heddle::planner {

/// Values that are not kept.
struct DroppedValues {
  std::vector<passes::OpGroup> recompute, offload;
  bool operator==(const DroppedValues&) const = default;
};

/// The kept values of a microbatch.
struct Kept {
  std::vector<schedule::StageBytes> chunks;  // on the device, of each chunk, with the rows that take most
  double host_bytes = 0;                     // bytes of all chunks
  /// All chunks' time of recomputation, where rows decide as often as they are taken to; and the time for which
  /// copies take the device's memory away from the computation.
  double price_us = 0;
};

/// Layers that stand side by side in a chunk and keep the same.
struct LayerRun {
  int first = 0, last = 0;
  int alike = 0;        // runs of one number have layers of one kind
  bool routed = false;  // rows of other ranks come to them
  bool operator==(const LayerRun&) const = default;
};

class KeptValues {
 public:
  /// `text`: a training listing as it is before values are given up. `order`: of its rank. `crowding`: the most
  /// rows that must have room, over balanced ones.
  KeptValues(ir::Listing text, const std::vector<schedule::Action>& order, const std::vector<int>& stages,
             passes::Durations duration_us, double bytes_per_us, double crowding);

  Kept with(const DroppedValues& given) const;
  /// If two are equal, `with` returns the same for words whose layers are as far from the first one.
  const std::string& shape() const { return shape_; }
  int first_layer() const { return first_layer_; }
  /// Runs in order, at most so many of a kind in each chunk.
  std::vector<LayerRun> runs(int most) const;
  /// True if rows of its layers come from other ranks, so that limits have something to decide.
  bool spreads() const { return even_rows_ > 0 && crowding_ > 1; }

 private:
  void add_price(const ir::Listing& listing, Kept& kept) const;

  ir::Listing text_;
  std::string shape_;
  int first_layer_;
  bool deferred_;
  std::vector<bool> apart_;
  passes::Durations duration_us_;
  double bytes_per_us_, crowding_;
  int64_t even_rows_;
};

/// How often, over a run's layers and microbatches, more rows are taken to come to a rank than `times` the even
/// share. Seldom: the step is predicted with experts as busy as each other, where such a limit costs nothing. What
/// counts is that a higher one costs less.
double often_beyond(double times);

}  // namespace heddle::planner
