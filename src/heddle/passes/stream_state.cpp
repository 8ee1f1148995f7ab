#include "heddle/passes/stream_state.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/ir/uses.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/copies.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::ValueId;

constexpr int kSlots = 3;                      // one that fills, one that is worked on, one that empties
constexpr int64_t kFewest = 32, kMost = 2048;  // slices of all state together
constexpr int64_t kLeastElements = 1024;       // of a slot
constexpr double kMostUs = 250;                // that filling a slot takes: beyond, larger slots gain nothing
constexpr int64_t kSmall = 64;                 // what is less than this part of a slot isn't worth copies

class Streamer {
 public:
  Streamer(ir::Listing& listing, double bytes_per_us)
      : listing_(listing), uses_(listing), bytes_per_us_(bytes_per_us) {}

  void run() {
    find();
    if (total_ == 0) return;
    choose_slots();
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (Op& op : ops) {
      if (uses_what_is_late(op)) bring_back();
      if (const auto at = streams_.find(place_of(ops, op)); at != streams_.end() && large(at->second)) {
        slice(op, at->second);
      } else if (reads_host(op)) {
        late_.push_back(std::move(op));
      } else {
        listing_.ops.push_back(std::move(op));
      }
    }
    bring_back();
  }

 private:
  struct State {
    std::vector<size_t> updates;  // which of the op's go to the host
    int64_t elements = 0;
  };

  static size_t place_of(const std::vector<Op>& ops, const Op& op) { return static_cast<size_t>(&op - ops.data()); }
  static bool is_cut(const Op& op, std::string_view list, size_t i) {
    const std::vector<std::string_view> names = ir::names_in(list);
    const std::string_view name = names[std::min(i, names.size() - 1)];
    return ir::place_of(name, op.def->by_element) >= 0;
  }

  void find() {
    for (size_t i = 0; i < listing_.ops.size(); ++i) {
      const Op& op = listing_.ops[i];
      if (op.def->by_element.empty() || op.phase != ir::Phase::end) continue;
      State state;
      for (size_t u = 0; u < op.updates.size(); ++u) {
        if (is_cut(op, op.def->updates, u) && may_leave(op.updates[u])) state.updates.push_back(u);
      }
      if (state.updates.empty()) continue;
      state.elements = listing_.elements(op.updates[state.updates[0]], ir::FixedRows());
      total_ += state.elements;
      streams_[i] = state;
    }
  }

  bool may_leave(ValueId id) const {
    const auto readers = uses_.readers(id);
    return listing_.value(id).role == ir::Role::optimizer && listing_.value(id).space == ir::Space::device &&
           uses_.updaters(id).size() == 1 && std::all_of(readers.begin(), readers.end(), [&](int reader) {
             return uses_.op(reader).phase == ir::Phase::end;
           });
  }

  void choose_slots() {
    const auto most = static_cast<int64_t>(kMostUs * bytes_per_us_ / 4);
    const int64_t wanted = std::clamp(most, total_ / kMost, total_ / kFewest);
    slot_ = std::max(kLeastElements, (wanted + kLeastElements - 1) / kLeastElements * kLeastElements);
    for (const auto& [i, state] : streams_) {
      for (const size_t u : state.updates) {
        if (large(state)) listing_.value(listing_.ops[i].updates[u]).space = ir::Space::host;
      }
    }
  }
  bool large(const State& state) const { return state.elements >= slot_ / kSmall; }

  bool reads_host(const Op& op) const {
    return std::any_of(op.in.begin(), op.in.end(), [&](ValueId id) {
      return id != none && listing_.value(id).space == ir::Space::host && op.def->moves != ir::Moves::from_host;
    });
  }

  bool uses_what_is_late(const Op& op) const {
    const auto uses = [&](ValueId id) {
      return id != none && (std::find(op.in.begin(), op.in.end(), id) != op.in.end() ||
                            std::find(op.updates.begin(), op.updates.end(), id) != op.updates.end());
    };
    return std::any_of(late_.begin(), late_.end(), [&](const Op& late) {
      return std::any_of(late.updates.begin(), late.updates.end(), uses) ||
             std::any_of(late.out.begin(), late.out.end(), uses);
    });
  }

  // The slots of the state that an op updates u-th.
  ValueId ring(const Op& op, size_t u) {
    const ir::Value& state = listing_.value(op.updates[u]);
    const std::string name =
        fmt::format("slots.{}.{}", ir::names_in(op.def->updates)[u], heddle::name_of(state.dtype));
    if (const ValueId known = listing_.find(name); known != none) return known;
    return listing_.add_value(
        {.name = name, .dtype = state.dtype, .shape = {{kSlots * slot_}}, .role = ir::Role::optimizer});
  }

  void slice(const Op& op, const State& state) {
    for (int64_t begin = 0; begin < state.elements; begin += slot_) {
      const int64_t end = std::min(begin + slot_, state.elements), at = (taken_++ % kSlots) * slot_;
      Op part = op;
      for (size_t i = 0; i < part.in.size(); ++i) {
        if (part.in[i] != none && is_cut(op, op.def->operands, i))
          part.in[i] = listing_.elements_of(op.in[i], begin, end);
      }
      for (size_t u = 0; u < part.updates.size(); ++u)
        part.updates[u] = listing_.elements_of(op.updates[u], begin, end);
      std::vector<std::pair<ValueId, ValueId>> pairs;  // on the host, in the slot
      for (const size_t u : state.updates) {
        const ValueId slot = listing_.elements_of(ring(op, u), at, at + end - begin);
        pairs.emplace_back(part.updates[u], slot);
        part.updates[u] = slot;
      }
      for (const auto& [host, slot] : pairs) copy("copy_in", op, host, slot);
      listing_.ops.push_back(std::move(part));
      for (const auto& [host, slot] : pairs) copy("copy_out", op, slot, host);
    }
    bring_back(1);
  }

  void copy(std::string_view kind, const Op& beside, ValueId from, ValueId to) {
    Op copy = op_beside(kind, from, beside);
    copy.updates = {to};
    listing_.append(std::move(copy), {});
  }

  // Ops that read state as a whole, but for the last `keep`: those wait until the next state is on its way, lest
  // its copies queue behind theirs.
  void bring_back(size_t keep = 0) {
    while (late_.size() > keep) {
      Op op = std::move(late_.front());
      late_.erase(late_.begin());
      for (ValueId& id : op.in) {
        if (id == none || listing_.value(id).space != ir::Space::host) continue;
        id = listing_.append(op_beside("copy_in", id, op), {listing_.value(id).name + ".back"})[0];
      }
      listing_.ops.push_back(std::move(op));
    }
  }

  ir::Listing& listing_;
  const ir::Uses uses_;  // before anything is written
  const double bytes_per_us_;
  std::map<size_t, State> streams_;  // by op
  int64_t total_ = 0, slot_ = 0, taken_ = 0;
  std::vector<Op> late_;
};

}  // namespace

void map_state(ir::Listing& listing) {
  const ir::Uses uses(listing);
  for (const Op& op : listing.ops) {
    for (const std::string_view name : ir::names_in(op.def->reaches_host)) {
      const ValueId id = op.updated(name);
      if (uses.readers(id).empty() && uses.updaters(id).size() == 1) listing.value(id).space = ir::Space::host;
    }
  }
}

void stream_state(ir::Listing& listing, double bytes_per_us) { Streamer(listing, bytes_per_us).run(); }

}  // namespace heddle::passes
