#include "heddle/schedule/generators/v_pattern.h"

#include <algorithm>
#include <array>

#include "heddle/schedule/lane.h"

namespace heddle::schedule {

namespace {

// The parts that a rank computes of a microbatch, each after the one before; then a weight gradient of either
// chunk.
enum Part : int8_t { F0, F1, I1, I0, kWeight, kGap };
constexpr std::array<Part, 4> kParts{F0, F1, I1, I0};

using Offsets = std::array<int, 4>;

/// One rank's slots, each of which holds one computation or nothing.
class Row {
 public:
  std::vector<int> at[5];  // the slots of each part, in order
  bool weights_written = false;

  int slots() const { return static_cast<int>(cells_.size()); }
  Part cell(int slot) const { return slot < slots() ? cells_[slot] : kGap; }
  void put(int slot, Part part) {
    if (slot >= slots()) cells_.resize(static_cast<size_t>(slot) + 1, kGap);
    cells_[slot] = part;
  }
  /// The cells again, from the slots of each part.
  void redraw() {
    cells_.clear();
    for (const Part part : {F0, F1, I1, I0, kWeight}) {
      for (const int slot : at[part]) put(slot, part);
    }
  }

  /// Every weight gradient takes the first gap after its input gradient.
  void write_weights() {
    int open = 0;
    for (int slot = 0; slot < slots() || open > 0; ++slot) {
      if (cell(slot) == I0 || cell(slot) == I1) ++open;
      if (cell(slot) != kGap || open == 0) continue;
      put(slot, kWeight);
      at[kWeight].push_back(slot);
      --open;
    }
    weights_written = true;
  }
  void erase_weights() {
    at[kWeight].clear();
    weights_written = false;
    redraw();
  }

  /// Notes what is held after each slot, and returns the most.
  int remember() {
    states_.clear();
    State state;
    int most = 0;
    for (const Part part : cells_) {
      state = after(state, part);
      states_.push_back(state);
      most = std::max(most, state.held);
    }
    return most;
  }

  /// Moves what is in `from` to the gap `to` < `from`, unless more than `most` would then be held at some time.
  bool move(int from, int to, int most) {
    std::swap(cells_[from], cells_[to]);
    State state = to > 0 ? states_[static_cast<size_t>(to) - 1] : State{};
    changed_.clear();
    for (int slot = to; slot < slots(); ++slot) {
      state = after(state, cells_[slot]);
      if (state.held > most) {
        std::swap(cells_[from], cells_[to]);
        return false;
      }
      if (slot >= from && state == states_[slot]) break;  // nothing differs from here on
      changed_.push_back(state);
    }
    std::copy(changed_.begin(), changed_.end(), states_.begin() + to);
    return true;
  }

 private:
  struct State {
    int held = 0, open = 0;  // forwards whose activations are there; weight gradients that look for a gap
    bool operator==(const State&) const = default;
  };
  State after(State state, Part part) const {
    if (part == F0 || part == F1) ++state.held;
    if (part == kWeight) --state.held;
    if (weights_written) return state;
    if (part == I0 || part == I1) ++state.open;
    if (part == kGap && state.open > 0) {
      --state.open;
      --state.held;
    }
    return state;
  }

  std::vector<Part> cells_;
  std::vector<State> states_, changed_;
};

class Pattern {
 public:
  Pattern(const std::vector<Offsets>& offsets, int microbatches)
      : microbatches_(microbatches), rows_(offsets.size()) {
    constexpr int kPeriod = 6;  // a microbatch has six computations on a rank
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (const Part part : kParts) {
        for (int m = 0; m < microbatches; ++m) rows_[r].at[part].push_back(offsets[r][part] + kPeriod * m);
      }
      rows_[r].redraw();
    }
  }

  void improve() {
    reorder(true);
    reorder(false);
  }

  void write(Schedule& schedule) const {
    for (int r = 0; r < ranks(); ++r) {
      const Row& row = rows_[r];
      const int down = r, up = 2 * ranks() - 1 - r;
      Lane lane(schedule, r);
      const auto weight_grad = [&] {
        for (const int stage : {up, down}) {
          if (lane.done(Kind::W, stage) == lane.done(Kind::I, stage)) continue;
          lane.W(stage);
          return true;
        }
        return false;
      };
      for (int slot = 0; slot < row.slots(); ++slot) {
        switch (row.cell(slot)) {
          case F0: lane.F(down); break;
          case F1: lane.F(up); break;
          case I1: lane.I(up); break;
          case I0: lane.I(down); break;
          default: weight_grad();
        }
      }
      while (weight_grad()) {
      }
    }
  }

 private:
  struct Item {
    int slot, rank;
    Part part;
    int count;  // how many of the part the rank has before it
    auto operator<=>(const Item&) const = default;
  };

  int ranks() const { return static_cast<int>(rows_.size()); }
  std::vector<Item> items() const {
    std::vector<Item> items;
    for (int r = 0; r < ranks(); ++r) {
      for (const Part part : {F0, F1, I1, I0, kWeight}) {
        const std::vector<int>& at = rows_[r].at[part];
        for (size_t i = 0; i < at.size(); ++i) items.push_back({at[i], r, part, static_cast<int>(i)});
      }
    }
    std::sort(items.begin(), items.end());
    return items;
  }

  /// The last slot with something that the item comes after, or −1.
  int slot_before(const Item& item) const {
    const Row& row = rows_[item.rank];
    const auto i = static_cast<size_t>(item.count);
    int slot = i > 0 ? row.at[item.part][i - 1] : -1;
    if (item.part == kWeight) return slot;
    const int from = item.part == F0 || item.part == I1 ? item.rank - 1 : item.rank + 1;
    if (from >= 0 && from < ranks()) slot = std::max(slot, rows_[from].at[item.part][i]);
    if (item.part != F0) slot = std::max(slot, row.at[item.part - 1][i]);
    return slot;
  }
  /// The slot of a rank's input gradient after which its weight gradient number `count` may run.
  static int slot_of_input_grad(const Row& row, int count) {
    const std::vector<int>&a = row.at[I1], &b = row.at[I0];
    size_t i = 0, j = 0;
    for (int k = 0;; ++k) {
      const int slot = j == b.size() || (i < a.size() && a[i] < b[j]) ? a[i++] : b[j++];
      if (k == count) return slot;
    }
  }

  /// Moves what it can to earlier gaps: in the cool-down, and where `warm_up` in the warm-up too. It does so again
  /// with the weight gradients in their places instead of in whatever gap there is. Then presses all together.
  void reorder(bool warm_up) {
    int most = 0;
    for (Row& row : rows_) {
      if (warm_up) row.write_weights();
      most = std::max(most, row.remember());
    }
    enum {
      kWarmUp,
      kSteady,
      kCoolDown
    } phase = kWarmUp;  // from the first I0 of rank 0 to the last microbatch's F0
    bool last_began = false;
    for (const Item& item : items()) {
      last_began |= item.part == F0 && item.count == microbatches_ - 1;
      if (phase == kWarmUp && item.part == I0 && item.rank == 0) {
        phase = kSteady;
      } else if (phase == kCoolDown || (phase == kWarmUp && warm_up)) {
        advance(item, most);
      }
      if (phase == kSteady && last_began) phase = kCoolDown;
    }
    for (Row& row : rows_) {
      if (!warm_up) row.write_weights();
    }
    press();
    for (Row& row : rows_) row.erase_weights();
  }

  void advance(const Item& item, int most) {
    Row& row = rows_[item.rank];
    int after = slot_before(item);
    if (item.part == kWeight) after = std::max(after, slot_of_input_grad(row, item.count));
    for (int slot = after + 1; slot < item.slot; ++slot) {
      if (row.cell(slot) != kGap || !row.move(item.slot, slot, most)) continue;
      row.at[item.part][item.count] = slot;
      return;
    }
  }

  /// Every rank's order stays, and everything starts as early as it can.
  void press() {
    std::vector<int> free(rows_.size(), 0);
    for (const Item& item : items()) {
      int& next = free[item.rank];
      next = std::max(next, slot_before(item) + 1);
      rows_[item.rank].at[item.part][item.count] = next++;
    }
  }

  int microbatches_;
  std::vector<Row> rows_;
};

Schedule from_pattern(const char* name, int ranks, int microbatches, Offsets (*offsets)(int ranks, int rank)) {
  Schedule schedule = blank_schedule(name, v_placement, ranks, microbatches);
  std::vector<Offsets> of;
  for (int r = 0; r < ranks; ++r) of.push_back(offsets(ranks, r));
  Pattern pattern(of, microbatches);
  pattern.improve();
  pattern.write(schedule);
  return schedule;
}

}  // namespace

Schedule v_half(int ranks, int microbatches) {
  return from_pattern("v_half", ranks, microbatches, [](int p, int r) -> Offsets {
    const int d = p % 2 == 0 ? 3 : 0;  // without it two computations would meet in one slot
    return {2 * r, 3 * p - 2 - r, 3 * p + d - 1 + 2 * r, 6 * p + d - 2 - r};
  });
}

Schedule v_min(int ranks, int microbatches) {
  return from_pattern("v_min", ranks, microbatches, [](int p, int r) -> Offsets {
    const int d = p % 3 == 0 ? 2 : 0;
    return {r, 2 * p - 1 - r, 2 * p + d + r, 4 * p + d - 1 - r};
  });
}

}  // namespace heddle::schedule
