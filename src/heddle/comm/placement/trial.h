// One attempt of comm/placement at a peak of rows, and what the links have to carry for it.
#pragma once

#include <algorithm>

#include "heddle/comm/placement/placement.h"

namespace heddle::comm {

/// Rows of a microbatch, added up once for all trials, and who is on whose node.
struct Totals {
  Totals(const Loads& loads, const Holders& holders);
  int64_t most() const { return *std::max_element(rows_H.begin(), rows_H.end()); }
  bool near(int64_t a, int64_t b) const { return near_HH[static_cast<size_t>(a * std::ssize(rows_H) + b)]; }
  bool one_node() const { return std::find(near_HH.begin(), near_HH.end(), false) == near_HH.end(); }
  std::vector<int64_t> rows_E, rows_H, rows_SH;  // of experts; of their owners, and by source
  std::vector<char> near_HH;
};

/// Holders above the peak shed rows, heaviest expert first.
class Trial {
 public:
  /// The reach of replicas: on the owner's node; there before elsewhere; anywhere alike.
  enum class Reach : uint8_t { near_only, near_first, anywhere };
  /// The order in which experts go, and their destination.
  enum class Order : uint8_t {
    expert_by_expert,  // all that can go of one, to who has room for it and little more, else to who has most room
    largest_first,     // what has most rows left, to who has most room: few slots have little to do
  };
  /// The holders that shed first: those with much need many slots, those with little just the right one.
  enum class Turn : uint8_t { fullest_first, fullest_last };
  struct Aim {
    int64_t peak = 0;   // rows of a holder
    int64_t least = 1;  // rows of a copy
    Reach reach = Reach::near_first;
    Order order = Order::expert_by_expert;
    Turn turn = Turn::fullest_first;
  };
  Trial(const Loads& loads, const Totals& totals, const Holders& holders, bool whole_sources, const Aim& aim);
  /// Rows of the fullest holder.
  int64_t most() const { return *std::max_element(rows_H_.begin(), rows_H_.end()); }
  Placement placement();

 private:
  struct Planned {
    int64_t expert, holder, rows;
    std::vector<int64_t> rows_S;  // what is settled already
  };
  void shed(int64_t holder);
  /// A copy of the expert with as many of the holder's rows above the peak as can go; false where none can.
  bool shed_some(int64_t holder, int64_t expert);
  /// The receiver of up to `rows` of an expert's rows; −1: nobody has room.
  int64_t receiver(int64_t expert, int64_t rows) const;
  /// Takes up to `rows` of an expert's rows for a copy; whole sources only where that is asked for.
  bool plan(int64_t expert, int64_t holder, int64_t rows);
  std::vector<int64_t> whole_sources_of(int64_t expert, int64_t holder, int64_t rows) const;
  /// Decides which sources' rows the replicas of one expert take: those of their own ranks first, then of their
  /// nodes.
  void split(int64_t expert, std::span<Planned> replicas) const;
  int64_t owner(int64_t expert) const { return expert / own_; }
  /// The distance of a source from a replica: 0 on its holder, 1 on its node, 2 elsewhere, 3 on the owner.
  int distance(int64_t source, int64_t holder, int64_t owner) const;

  const Loads& loads_;
  const Totals& totals_;
  const Holders& holders_;
  const bool whole_;
  const Aim aim_;
  const int64_t own_;
  std::vector<int64_t> rows_H_, rows_E_;      // of a holder; of an expert's own slot
  std::vector<int64_t> left_ES_;              // of an expert's own slot by source, where whole sources move
  std::vector<std::vector<int64_t>> held_H_;  // experts that a holder has copies of
  std::vector<Planned> planned_;
};

/// The time that the busiest link needs for rows, and for replicas: of a rank within its node, of a node to others.
class LinkTimes {
 public:
  LinkTimes(const Totals& totals, const Holders& holders, const CopyCosts& costs);
  int64_t of_rows(const Placement& placement) const;
  struct ReplicaTimes {
    int64_t weights = 0;  // that come twice
    int64_t all = 0;      // with gradients, which go the other way
  };
  ReplicaTimes of_replicas(const Placement& placement) const;

  /// The load of each link, each way.
  class Carried {
   public:
    explicit Carried(const std::vector<int>& node_of);
    void add(int64_t from, int64_t to, int64_t within_ps, int64_t across_ps);
    int64_t busiest() const;

   private:
    const std::vector<int>& node_of_;
    std::vector<int64_t> within_out_, within_in_, across_out_, across_in_;
  };

 private:
  /// Rows of a source on their way to a holder.
  void carry(Carried& carried, int64_t source, int64_t holder, int64_t rows) const;

  const Holders& holders_;
  const CopyCosts costs_;
  Carried without_;  // rows where there are no copies
};

}  // namespace heddle::comm
