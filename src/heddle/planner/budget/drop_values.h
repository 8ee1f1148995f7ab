// Chooses the values that the ranks of a pipeline drop, layer by layer, so that each comes within its bytes at the
// least price: a knapsack, filled greedily.
//
// An item is a word of memory.recompute or memory.offload for a run of a stage's layers, perhaps with a limit of
// rows. Limits come first, for they cost nothing while experts are as busy as each other. An item frees what the
// chunk keeps without it, times the microbatches that the schedule holds there at once. Its price is the time that
// it adds to a microbatch. A rank takes the item that frees most for its price, until it fits; then it takes back
// what it can spare, the dearest first. Items are evaluated lazily: freed bytes and prices change little by what
// else is taken, so only the best of the list is computed anew.
//
// The early ranks of a pipeline hold most microbatches and drop most. Ranks that hold copies of the same layers
// (DualPipe) choose together; the others each for themselves.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <vector>

#include "heddle/planner/budget/kept_values.h"

namespace heddle::planner {

struct Item {
  enum class Way : uint8_t { again, to_host };  // memory.recompute, memory.offload
  Way way = Way::again;
  std::string word;
  double above = 0;  // only where more rows came than so many times the even share; 0: always
  LayerRun layers;

  bool operator==(const Item&) const = default;
  bool same_word(const Item& other) const { return way == other.way && word == other.word && above == other.above; }
};
DroppedValues dropped_values(const std::vector<Item>& items);
/// The items with neighbouring layers as one range, and no layers where a word holds for all `layers`.
DroppedValues in_short(const std::vector<Item>& items, int layers);

/// Choices that are open.
struct Open {
  bool recompute = true, offload = false;
  DroppedValues set;  // dropped in any case
};

class ValueDropper {
 public:
  /// `texts`: of each pipeline rank.
  ValueDropper(std::vector<KeptValues> texts, schedule::Schedule schedule, Open open);

  int ranks() const { return static_cast<int>(texts_.size()); }
  /// Ranks that choose together, each a list.
  const std::vector<std::vector<int>>& families() const { return families_; }
  const KeptValues& text(int rank) const { return texts_[rank]; }

  /// Bytes that the rank keeps for its backwards at most at once.
  double kept_bytes(int rank, const Kept& kept) const;
  double kept_bytes(int rank, const std::vector<Item>& items) const { return kept_bytes(rank, kept(rank, items)); }
  /// Worked out once for the same items of ranks whose texts have one shape; different ranks may ask at once.
  const Kept& kept(int rank, const std::vector<Item>& items) const;
  /// The number of times that it was.
  int worked_out() const;

  /// Adds items until the rank keeps no more than `most_bytes`; whether it does. `items` are of its family.
  bool drop(int rank, double most_bytes, std::vector<Item>& items) const;
  /// Takes back what all of a family can spare: rank r may keep `most_bytes[r]`. True if there was anything.
  bool keep_again(const std::vector<int>& family, const std::vector<double>& most_bytes,
                  std::vector<Item>& items) const;
  /// Words of memory.recompute that go together, from the least work on.
  static const std::vector<std::vector<std::string>>& few_words();
  /// Items for all of the rank's layers, and the lowest limit where rows decide.
  std::vector<Item> all_of(int rank, const std::vector<std::string>& words) const;
  /// All items that the rank's layers can drop.
  std::vector<Item> everything(int rank) const;

 private:
  // Results for the texts of one shape.
  struct Shape {
    int rank = 0;  // the rank whose text stands for it
    std::map<std::string, Kept> known;
    std::mutex mutex;  // guards `known`
  };
  // Items that a rank takes beyond these, one by one: the same for whatever number of bytes, as far as it is worked
  // out.
  struct Order {
    struct Entry {
      double worth = 0;
      size_t item = 0;
      size_t at = 0;  // number of items when it was worked out
      bool operator<(const Entry& other) const {
        return worth != other.worth ? worth < other.worth : item > other.item;
      }
    };
    std::vector<Item> all, items;
    std::vector<double> left_bytes;  // with none of them, with the first, …
    size_t before = 0;               // number of items that it began with
    const Kept* now = nullptr;
    std::priority_queue<Entry> queue;
  };
  Order begun(int rank, const std::vector<Item>& items) const;
  bool take_next(int rank, Order& order) const;
  double worth(int rank, const Order& order, const Item& item) const;

  std::vector<Item> choices(int rank) const;
  // Takes the highest limit with which the rank fits, the same for all its layers; else the lowest one. One limit,
  // for the rows that count are whichever the layers' limits leave most of together.
  bool drop_with_limits(int rank, double most_bytes, std::vector<Item>& items) const;

  std::vector<KeptValues> texts_;
  std::vector<std::shared_ptr<Shape>> shape_of_rank_;
  mutable std::vector<std::map<std::string, Order>> orders_;  // orders of each rank, by what it began with
  schedule::Schedule schedule_;
  Open open_;
  std::vector<schedule::Schedule> order_of_rank_;  // each rank's alone
  std::vector<std::vector<int>> stages_of_rank_, families_;
};

}  // namespace heddle::planner
