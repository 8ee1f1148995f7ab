#include "heddle/passes/state/state_slices.h"

#include <algorithm>
#include <set>
#include <string>

#include "heddle/passes/host/staged_ops.h"

namespace heddle::passes {

using ir::none;
using ir::Op;
using ir::ValueId;

namespace {
constexpr int kSlots = 3;                      // one that fills, one that is worked on, one that empties
constexpr int64_t kFewest = 32, kMost = 2048;  // slices of all state together
constexpr int64_t kLeastElements = 1024;       // of a slice
constexpr double kMostUs = 250;                // that copying a slice takes: beyond, larger ones gain nothing
constexpr int64_t kSmall = 64;                 // what is less than this part of a slice isn't worth copies
}  // namespace

StateSlices::StateSlices(ir::Listing& listing, double bytes_per_us)
    : listing_(listing), uses_(listing), bytes_per_us_(bytes_per_us) {}

void StateSlices::run() {
  find();
  if (total_ == 0) return;
  choose_size();
  std::erase_if(states_, [&](const auto& at) { return !large(at.second); });
  begin(states_);
  std::vector<Op> ops = std::move(listing_.ops);
  listing_.ops.clear();
  for (size_t i = 0; i < ops.size(); ++i) {
    before(i);
    Op& op = ops[i];
    if (uses_what_is_late(op)) bring_back(0);
    if (const auto at = states_.find(i); at != states_.end()) {
      const State& state = at->second;
      for (int64_t begin = 0; begin < state.elements; begin += slice_, ++turn_) {
        const int64_t end = std::min(begin + slice_, state.elements);
        Op part = op;
        for (size_t u = 0; u < part.updates.size(); ++u)
          part.updates[u] = listing_.elements_of(op.updates[u], begin, end);
        for (size_t o = 0; o < part.out.size(); ++o) {
          HEDDLE_CHECK(is_cut(op, op.def->results, o), "'{}' makes '{}' as a whole", op.kind(),
                       listing_.value(op.out[o]).name);
          part.out[o] = listing_.elements_of(op.out[o], begin, end);
        }
        write(op, state, std::move(part), begin, end);
      }
      bring_back(1);
    } else if (reads_host(op)) {
      late_.push_back(std::move(op));
    } else {
      listing_.ops.push_back(std::move(op));
    }
    after(i);
  }
  bring_back(0);
}

bool StateSlices::is_cut(const Op& op, std::string_view list, size_t i) {
  const std::vector<std::string_view> names = ir::names_in(list);
  const std::string_view name = names[std::min(i, names.size() - 1)];
  return ir::place_of(name, op.def->by_element) >= 0;
}

void StateSlices::find() {
  std::set<ValueId> counted;
  for (size_t i = 0; i < listing_.ops.size(); ++i) {
    const Op& op = listing_.ops[i];
    State state;
    for (size_t u = 0; u < op.updates.size(); ++u) {
      if (slices(op, op.updates[u]) && may_leave(op.updates[u])) state.updates.push_back(u);
    }
    if (state.updates.empty()) continue;
    const ValueId first = op.updates[state.updates[0]];
    state.elements = listing_.elements(first, ir::FixedRows());
    if (counted.insert(first).second) total_ += state.elements;
    states_[i] = state;
  }
}

// True if the op can update the value a slice at a time.
bool StateSlices::slices(const Op& op, ValueId id) const {
  if (op.def->by_element.empty() || op.phase != ir::Phase::end) return false;
  const auto at = std::find(op.updates.begin(), op.updates.end(), id);
  return at != op.updates.end() && is_cut(op, op.def->updates, static_cast<size_t>(at - op.updates.begin()));
}

bool StateSlices::may_leave(ValueId id) const {
  const auto readers = uses_.readers(id), updaters = uses_.updaters(id);
  return listing_.value(id).role == ir::Role::optimizer && listing_.value(id).space == ir::Space::device &&
         std::all_of(updaters.begin(), updaters.end(),
                     [&](int updater) { return slices(uses_.op(updater), id); }) &&
         std::all_of(readers.begin(), readers.end(),
                     [&](int reader) { return uses_.op(reader).phase == ir::Phase::end; });
}

void StateSlices::choose_size() {
  const auto most = static_cast<int64_t>(kMostUs * bytes_per_us_ / 4);
  const int64_t wanted = std::clamp(most, total_ / kMost, total_ / kFewest);
  slice_ = std::max(kLeastElements, (wanted + kLeastElements - 1) / kLeastElements * kLeastElements);
  for (const auto& [i, state] : states_) {
    for (const size_t u : state.updates) {
      if (large(state)) listing_.value(listing_.ops[i].updates[u]).space = ir::Space::host;
    }
  }
}

bool StateSlices::large(const State& state) const { return state.elements >= slice_ / kSmall; }

bool StateSlices::reads_host(const Op& op) const {
  return std::any_of(op.in.begin(), op.in.end(), [&](ValueId id) {
    return id != none && listing_.value(id).space == ir::Space::host && op.def->moves != ir::Moves::from_host;
  });
}

bool StateSlices::uses_what_is_late(const Op& op) const {
  const auto uses = [&](ValueId id) {
    return id != none && (std::find(op.in.begin(), op.in.end(), id) != op.in.end() ||
                          std::find(op.updates.begin(), op.updates.end(), id) != op.updates.end());
  };
  return std::any_of(late_.begin(), late_.end(), [&](const Op& late) {
    return std::any_of(late.updates.begin(), late.updates.end(), uses) ||
           std::any_of(late.out.begin(), late.out.end(), uses);
  });
}

ValueId StateSlices::slot(const Op& op, size_t u, ir::Space space, int64_t turn, int64_t elements) {
  const ir::Value& state = listing_.value(op.updates[u]);
  std::string_view what = ir::names_in(op.def->updates)[u];
  if (what.ends_with('?')) what.remove_suffix(1);
  const std::string name = fmt::format("slots.{}.{}", what, heddle::name_of(state.dtype));
  ValueId ring = listing_.find(name);
  if (ring == none) {
    ring = listing_.add_value({.name = name,
                               .dtype = state.dtype,
                               .shape = {{kSlots * slice_}},
                               .role = ir::Role::optimizer,
                               .space = space});
  }
  const int64_t at = turn % kSlots * slice_;
  return listing_.elements_of(ring, at, at + elements);
}

void StateSlices::copy(std::string_view kind, const Op& beside, ValueId from, ValueId to) {
  Op copy = copy_beside(kind, listing_, from, beside);
  copy.updates = {to};
  listing_.append(std::move(copy), {});
}

// Ops that read state as a whole, but for the last `keep`: those wait until the next state is on its way, lest its
// copies queue behind theirs.
void StateSlices::bring_back(size_t keep) {
  while (late_.size() > keep) {
    Op op = std::move(late_.front());
    late_.erase(late_.begin());
    for (ValueId& id : op.in) {
      if (id == none || listing_.value(id).space != ir::Space::host) continue;
      id = listing_.append(copy_beside("copy_in", listing_, id, op), {listing_.value(id).name + ".back"})[0];
    }
    listing_.ops.push_back(std::move(op));
  }
}

}  // namespace heddle::passes
