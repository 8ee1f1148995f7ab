// Brings weights that lie elsewhere to the blocks of the schedule that read them: from the host, or from other
// ranks.
//
// Weights do not change within a step, so they only come in. A block is F of a chunk, and I with W, or each of them
// where the schedule runs them apart. Ahead of the first op of a block that reads a weight stands the op that
// brings it, as late as it may (passes/host/link_times). Its place is free after the last reader. Where a
// microbatch's I always follows its F at once and the weight would hardly be gone before it had to come again, one
// copy serves both.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "heddle/passes/host/block_fetches.h"
#include "heddle/passes/weave.h"

namespace heddle::passes {

/// The order in which a pipeline rank runs its blocks.
struct BlockOrder {
  bool deferred = false;      // I and W of a microbatch apart
  std::vector<bool> at_once;  // of each chunk: I of a microbatch always follows its F at once
};

class BringWeights {
 public:
  BringWeights(ir::Listing& listing, const BlockOrder& order, const Durations& duration_us)
      : listing_(listing), order_(order), duration_us_(duration_us) {}
  virtual ~BringWeights() = default;

  /// Writes the ops that bring what `is_away`, and lets the readers read what they bring.
  void run();

 protected:
  /// True for a weight, or a part of one, that blocks can't read where it lies.
  virtual bool is_away(ir::ValueId id) const = 0;
  /// The op that makes a copy of the weight on the device, beside another op.
  virtual ir::Op bring(ir::ValueId id, const ir::Op& beside) const = 0;
  /// True if the weight stays away even where its copy comes too late.
  virtual bool insists(ir::ValueId id) const = 0;
  /// Lets a weight lie where blocks read it.
  virtual void stay(ir::ValueId id) = 0;
  /// The ops of a block that an earlier pass has put on the same link.
  virtual std::vector<Fetch> standing(const Timeline& block) const = 0;
  /// Appends an op of the step's beginning or end.
  virtual void append_once(ir::Op op) { listing_.ops.push_back(std::move(op)); }

  ir::Listing& listing_;
  const BlockOrder& order_;
  const Durations& duration_us_;

 private:
  /// The uses of a weight, or of a part of one, by the ops of a chunk.
  struct Uses {
    struct InBlock {
      size_t first = 0, last = 0;      // indices into the ops
      ir::Phase phase = ir::Phase::W;  // the earliest
    };
    std::array<std::optional<InBlock>, kBlocks> in;
  };
  using Key = std::pair<ir::ValueId, int>;  // with the chunk
  struct Placed {
    Key key;
    size_t block;
    ir::Phase phase;
    size_t use;
    bool ahead;
  };

  void find_uses();
  double copy_us(ir::ValueId id, size_t use) const;
  bool one_serves_both(const Uses& uses, const Timeline& forward, const Timeline& backward, int chunk,
                       ir::ValueId id) const;
  std::set<ir::ValueId> place();
  void place_in(int chunk, size_t b, const Timeline& block, double room_us, std::set<ir::ValueId>& late);
  void write();

  std::map<Key, Uses> uses_;
  std::set<Key> shared_;                           // whose copy in F serves I too
  std::map<size_t, std::vector<Placed>> fetches_;  // by the op before which they stand
};

}  // namespace heddle::passes
