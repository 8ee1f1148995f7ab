// One attempt of comm/placement at a peak of rows, and what the links have to carry for it.
#pragma once

#include <utility>

#include "heddle/comm/placement/placement.h"

namespace heddle::comm {

/// Holders above the peak shed rows, heaviest holder and heaviest expert first.
class Trial {
 public:
  /// Where copies may stand: on the owner's node; there before elsewhere; anywhere alike.
  enum class Reach : uint8_t { near_only, near_first, anywhere };
  /// Which expert goes next, and whither.
  enum class Order : uint8_t {
    expert_by_expert,  // all that can go of one, to who has room for it and little more, else to who has most room
    largest_first,     // what has most rows left, to who has most room: few slots have little to do
  };
  struct Aim {
    int64_t peak = 0;   // rows of a holder
    int64_t least = 1;  // rows of a copy
    Reach reach = Reach::near_first;
    Order order = Order::expert_by_expert;
  };
  Trial(const Loads& loads, const Holders& holders, bool whole_sources, const Aim& aim);
  Placement take() { return std::move(placement_); }

 private:
  struct Planned {
    int64_t expert, holder, rows;
    std::vector<int64_t> rows_S;  // what is settled already
  };
  void shed(int64_t holder);
  /// A copy of the expert with as many of the holder's rows above the peak as can go; false where none can.
  bool shed_some(int64_t holder, int64_t expert);
  /// Of up to `rows` of an expert's rows; −1: nobody has room.
  int64_t receiver(int64_t expert, int64_t rows) const;
  /// Takes up to `rows` of an expert's rows for a copy; whole sources only where that is asked for.
  bool plan(int64_t expert, int64_t holder, int64_t rows);
  std::vector<int64_t> whole_sources_of(int64_t expert, int64_t holder, int64_t rows) const;
  /// Which sources' rows the copies of one expert take: those of their own ranks first, then of their nodes.
  void split(int64_t expert, std::span<Planned> copies) const;
  /// How far a source is from a copy: 0 on its holder, 1 on its node, 2 elsewhere, 3 on the owner.
  int distance(int64_t source, int64_t holder, int64_t owner) const;

  const Loads& loads_;
  const Holders& holders_;
  const bool whole_;
  const Aim aim_;
  Placement placement_;
  std::vector<int64_t> rows_H_, used_H_;
  std::vector<int64_t> rows_E_;               // of an expert's own slot
  std::vector<std::vector<int64_t>> left_E_;  // by source, where whole sources move
  std::vector<Planned> planned_;
};

/// How long the busiest link needs for rows, and for copies: of a rank within its node, of a node to others.
class LinkTimes {
 public:
  LinkTimes(const Loads& loads, const Holders& holders, const CopyCosts& costs);
  int64_t of_rows(const Placement& placement) const;
  struct Copies {
    int64_t weights = 0;  // that come twice
    int64_t all = 0;      // with gradients, which go the other way
  };
  Copies of_copies(const Placement& placement) const;

 private:
  class Carried;
  const Holders& holders_;
  const CopyCosts costs_;
  std::vector<int64_t> rows_SH_;  // without copies
};

}  // namespace heddle::comm
