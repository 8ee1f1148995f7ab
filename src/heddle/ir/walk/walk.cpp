#include "heddle/ir/walk/walk.h"

#include <algorithm>
#include <utility>

#include "heddle/ir/walk/frames.h"

namespace heddle::ir {

namespace {
template <class Is>
bool has_value(const StepProgram& program, int rank, const Is& is) {
  for (const int s : program.listings_of(rank)) {
    const std::vector<Value>& values = program.listings[s].values;
    if (std::any_of(values.begin(), values.end(), is)) return true;
  }
  return false;
}

std::array<bool, kSpaces> used_spaces(const StepProgram& program, int rank) {
  std::array<bool, kSpaces> used{};
  for (size_t i = 0; i < used.size(); ++i)
    used[i] = has_value(program, rank, [&](const Value& v) { return v.space == static_cast<Space>(i); });
  return used;
}

// Values of a microbatch come back from the host.
bool comes_and_goes(const StepProgram& program, int rank) {
  return has_value(program, rank, [](const Value& v) { return v.space == Space::host && !is_persistent(v.role); });
}
}  // namespace

Walk::Walk(const StepProgram& program, int rank, int64_t capacity_bytes, int64_t host_capacity_bytes,
           int64_t limit_bytes)
    : program_(program),
      streams_(program, program.listings_of(rank)),
      storage_{Storage(capacity_bytes, comes_and_goes(program, rank), limit_bytes), Storage(host_capacity_bytes),
               Storage(0)},
      uses_space_(used_spaces(program, rank)),
      listings_(program.listings_of(rank)),
      rank_(rank),
      segments_(program, listings_),
      absent_(std::make_unique<Slot>()),
      last_of_channel_(streams_.channels().size(), Wait{-1, 0}) {
  const size_t listings = program.listings.size();
  lifetimes_.resize(listings);
  persistent_.resize(listings);
  touched_.resize(listings);
  frames_.resize(listings);
  spare_.resize(listings);
  for (const int s : listings_) {
    const auto at = static_cast<size_t>(s);
    const Listing& listing = program.listings[at];
    lifetimes_[at] = std::make_unique<Lifetimes>(listing);
    persistent_[at].assign(listing.values.size(), -1);
    touched_[at].assign(listing.ops.size(), 0);
    frames_[at].resize(static_cast<size_t>(program.microbatches) + 1);
    for (size_t v = 0; v < listing.values.size(); ++v) {
      const Value& value = listing.values[v];
      if (!is_persistent(value.role) || value.shared_with >= 0 || value.part_of != none) continue;
      if (value.space == Space::nowhere) continue;
      Slot& slot = new_slot(persistent_[at][v]);
      const uint32_t segments = segments_.count(s, static_cast<ValueId>(v));
      if (segments > 1) slot.segments.resize(segments);
      slot.bytes = listing.bytes(static_cast<ValueId>(v), FixedRows());
      slot.offset = place(value.name, slot.bytes, value.space, StreamTable::compute, s, false).offset;
    }
  }
  for (int i = 0; i < kSpaces; ++i) persistent_bytes_[i] = storage(static_cast<Space>(i)).live_bytes();
}

Walk::~Walk() = default;

Walk::Slot& Walk::persistent(int listing, ValueId part) {
  const ValueId id = program_.listings[listing].base(part);
  const Value& value = program_.listings[listing].value(id);
  const int owner = value.shared_with < 0 ? listing : value.shared_with;
  const int32_t place = persistent_[owner][value.shared_with < 0 ? id : program_.listings[owner].find(value.name)];
  return place < 0 ? (*absent_ = {}) : *slots_[static_cast<size_t>(place)];
}

namespace {
// The offset of a part behind the offset of its base.
int64_t offset_in_base(const Value& value) { return value.first_element * size_of(value.dtype); }
}  // namespace

int64_t Walk::offset_of(int listing, ValueId id) const {
  return const_cast<Walk*>(this)->persistent(listing, id).offset +
         offset_in_base(program_.listings[listing].value(id));
}

Walk::Frame& Walk::frame(int listing, int microbatch) {
  std::unique_ptr<Frame>& frame = frames_[listing].at(static_cast<size_t>(microbatch + 1));
  const size_t count = program_.listings[listing].values.size();
  if (!frame) {
    frame = std::make_unique<Frame>();
    frame->rows_of.resize(count);
  }
  if (frame->places.empty()) {
    std::vector<std::vector<int32_t>>& spare = spare_[listing];
    if (spare.empty()) {
      frame->places.assign(count, -1);
    } else {
      frame->places = std::move(spare.back());
      spare.pop_back();
    }
  }
  return *frame;
}

void Walk::spare_places_of(int listing, int microbatch) {
  const std::unique_ptr<Frame>& frame = frames_[listing].at(static_cast<size_t>(microbatch + 1));
  if (!frame || frame->places.empty() || frame->in_use > 0) return;
  spare_[listing].push_back(std::move(frame->places));
  frame->places.clear();
}

// The slot at that place; a new one where there is none.
Walk::Slot& Walk::new_slot(int32_t& place) {
  if (place < 0 && free_slots_.empty()) {
    place = static_cast<int32_t>(slots_.size());
    slots_.push_back(std::make_unique<Slot>());
  } else if (place < 0) {
    place = free_slots_.back();
    free_slots_.pop_back();
    *slots_[static_cast<size_t>(place)] = {};
  }
  return *slots_[static_cast<size_t>(place)];
}

// Changes the slot of a value. A value that has none gets one, and a slot that holds nothing afterwards is free.
template <class Change>
void Walk::change(Frame& frame, ValueId base, const Change& to) {
  int32_t& place = frame.places[base];
  Slot& slot = new_slot(place);
  frame.in_use -= int{slot.in_use()};
  to(slot);
  if (slot.in_use()) {
    ++frame.in_use;
  } else {
    free_slots_.push_back(std::exchange(place, -1));
  }
}

std::vector<Walk::Live> Walk::live_now(Space space) const {
  std::vector<Live> live;
  const auto add = [&](int listing, int microbatch, const std::vector<int32_t>& places) {
    for (size_t v = 0; v < places.size(); ++v) {
      if (places[v] < 0) continue;
      const Slot& slot = *slots_[static_cast<size_t>(places[v])];
      const Value& value = program_.listings[listing].values[v];
      if (slot.offset >= 0 && value.space == space)
        live.push_back({value.name, value.role, listing, microbatch, slot.bytes});
    }
  };
  for (const int s : listings_) {
    add(s, -1, persistent_[s]);
    const auto& frames = frames_[s];
    for (size_t m = 0; m < frames.size(); ++m) {
      if (frames[m]) add(s, static_cast<int>(m) - 1, frames[m]->places);
    }
  }
  std::stable_sort(live.begin(), live.end(), [](const Live& a, const Live& b) { return a.bytes > b.bytes; });
  return live;
}

Storage::Place Walk::place(const std::string& name, int64_t bytes, Space space, int stream, int listing,
                           bool brief) {
  Storage& arena = storage(space);
  const std::optional<Storage::Place> place = arena.place(bytes, stream, waited_[stream], brief);
  if (place) return *place;
  constexpr double kMiB = 1024.0 * 1024.0;
  std::string largest;
  const std::vector<Live> live = live_now(space);
  for (size_t i = 0; i < live.size() && i < 8; ++i) {
    largest +=
        fmt::format("{}{} {:.1f} MiB", i == 0 ? "" : ", ", live[i].name, static_cast<double>(live[i].bytes) / kMiB);
  }
  throw OutOfMemory(
      fmt::format("out of {} memory{}: '{}' of listing {} needs {:.1f} MiB; capacity {:.1f} MiB, live {:.1f} MiB "
                  "in {} tensors, "
                  "largest free segment {:.1f} MiB; the largest tensors: {}",
                  name_of(space), program_.class_of_rank.size() > 1 ? fmt::format(" on rank {}", rank_) : "", name,
                  listing, static_cast<double>(bytes) / kMiB, static_cast<double>(arena.limit()) / kMiB,
                  static_cast<double>(arena.live_bytes()) / kMiB, live.size(),
                  static_cast<double>(arena.largest_free_bytes()) / kMiB, largest));
}

// One op of one microbatch on its way through the walk.
struct Walk::Running {
  const int listing;
  const uint32_t index;
  const int microbatch;
  const Listing& text;
  const Op& op;
  Frame& frame;
  const int stream;
  Marks wait_for{};  // what must have ended before the op begins
};

Walk::Slot& Walk::slot_of(const Running& r, ValueId id) {
  const auto v = static_cast<size_t>(r.text.base(id));
  if (is_persistent(r.text.values[v].role)) return persistent(r.listing, id);
  const int32_t place = r.frame.places[v];
  return place < 0 ? (*absent_ = {}) : *slots_[static_cast<size_t>(place)];
}

template <class Visit>
void Walk::each_segment(const Running& r, ValueId id, const Visit& visit) {
  Slot& slot = slot_of(r, id);
  if (slot.segments.empty()) return visit(slot.whole);
  for (const uint32_t i : segments_.covered(r.listing, id)) visit(slot.segments[i]);
}

void Walk::read_operands(Running& r) {
  in_.clear();
  updates_.clear();
  for (const ValueId id : r.op.in) {
    if (id == none) {
      in_.push_back({});
      continue;
    }
    const Slot& slot = slot_of(r, id);
    HEDDLE_CHECK(slot.offset >= 0, "op '{}' of listing {} reads '{}', which is not alive", r.op.kind(), r.listing,
                 r.text.value(id).name);
    each_segment(r, id, [&](const Slot::Segment& segment) { merge(r.wait_for, segment.written); });
    in_.push_back({id, slot.offset + offset_in_base(r.text.value(id))});
  }
  for (const ValueId id : r.op.updates) {
    HEDDLE_CHECK(slot_of(r, id).offset >= 0, "op '{}' of listing {} updates '{}', which is not alive", r.op.kind(),
                 r.listing, r.text.value(id).name);
    each_segment(r, id, [&](const Slot::Segment& segment) {
      merge(r.wait_for, segment.written);
      merge(r.wait_for, segment.read);
    });
    updates_.push_back({id, slot_of(r, id).offset + offset_in_base(r.text.value(id))});
  }
}

// A value that counts rows is known to the host before the ops whose sizes need it are issued.
void Walk::place_outputs(Running& r) {
  out_.clear();
  for (const ValueId id : r.op.out) {
    place_output(r, r.text.base(id));
    each_segment(r, id, [&](const Slot::Segment& segment) {
      merge(r.wait_for, segment.written);
      merge(r.wait_for, segment.read);
    });
    out_.push_back({id, slot_of(r, id).offset + offset_in_base(r.text.value(id))});
  }
}

// A value is there once a part of it has been written.
void Walk::place_output(Running& r, ValueId base) {
  if (slot_of(r, base).offset >= 0) return;
  const Value& value = r.text.value(base);
  const int64_t bytes = r.text.bytes(base, r.frame);
  const bool brief = lifetimes_[r.listing]->outlives[base] == 0;
  const Storage::Place at = place(value.name, bytes, value.space, r.stream, r.listing, brief);
  const uint32_t segments = segments_.count(r.listing, base);
  change(r.frame, base, [&](Slot& slot) {
    slot.offset = at.offset;
    slot.bytes = bytes;
    slot.whole = {};
    // Whoever writes a segment waits for those that were there before.
    if (segments > 1) slot.segments.assign(segments, {at.wait_for, {}});
  });
  if (segments <= 1) merge(r.wait_for, at.wait_for);
  if (watcher != nullptr) watcher->placed(r.listing, base, r.microbatch, place_bytes(bytes));
}

void Walk::place_scratch(Running& r, Issue& issue) {
  const Storage& arena = storage();
  const std::string name = issue.scratch_bytes > 0 ? "scratch of " + std::string(r.op.kind()) : "";
  if (issue.scratch_bytes > 0) {
    const Storage::Place at = place(name, issue.scratch_bytes, Space::device, r.stream, r.listing, true);
    issue.scratch_offset = at.offset;
    merge(r.wait_for, at.wait_for);
    if (watcher != nullptr) watcher->placed(r.listing, none, r.microbatch, place_bytes(issue.scratch_bytes));
  }
  if (!keep_peak || arena.live_bytes() <= peak_seen_ || arena.live_bytes() < peak_from_bytes) return;
  peak_seen_ = arena.live_bytes();
  at_peak_ = live_now(Space::device);
  if (issue.scratch_bytes > 0) {
    at_peak_.push_back({name, Role::activation, r.listing, r.microbatch, issue.scratch_bytes});
  }
}

// The waits that its stream has not made already.
void Walk::find_waits(const Running& r) {
  waits_.clear();
  Marks& waited = waited_[r.stream];
  for (int i = 0; i < streams_.count(); ++i) {
    const auto k = static_cast<size_t>(i);
    if (i == r.stream || r.wait_for[k] <= waited[k]) continue;
    waited[k] = r.wait_for[k];
    waits_.push_back({i, r.wait_for[k]});
  }
}

// The first run in a step overwrites what is summed over the step.
bool Walk::overwrites(const Running& r) {
  uint8_t& touched = touched_[r.listing][r.index];
  const bool first = touched == 0 || r.op.fresh;
  touched = 1;
  if (!first || r.op.updates.empty() || (adds_beside(r.op) && !r.op.fresh)) return false;
  const Role role = r.text.value(r.op.updates[0]).role;
  return role == Role::accumulator || role == Role::statistic || role == Role::gradient;
}

// Takes the place of an op that only makes room. The op that writes there waits for those that were there before.
bool Walk::reserves(Running& r) {
  if (!r.op.def->reserves) {
    uint8_t& touched = touched_[r.listing][r.index];
    if (!r.op.later || touched != 0) return false;
    touched = 1;
  }
  place_outputs(r);
  for (const ValueId id : r.op.out) {
    each_segment(r, id, [&](Slot::Segment& segment) { segment.written = r.wait_for; });
    use(r, id);
  }
  for (const ValueId id : r.op.in) use(r, id);
  return true;
}

// Several streams may carry one channel: its ops go over it in the order in which they are issued. Messages have a
// stream each way, where they keep to it anyway.
void Walk::order_channel(Running& r) {
  const int channel = streams_.channel_of(r.listing, r.index);
  if (channel < 0 || is_message(r.op.def->moves)) return;
  const Wait& last = last_of_channel_[channel];
  if (last.stream < 0) return;
  uint64_t& until = r.wait_for[last.stream];
  until = std::max(until, last.count);
}

void Walk::drop(const Running& r, ValueId id) {
  Slot& slot = slot_of(r, id);
  Marks used{};
  each_segment(r, r.text.base(id), [&](const Slot::Segment& segment) {
    merge(used, segment.written);
    merge(used, segment.read);
  });
  storage(r.text.value(id).space).release(slot.offset, slot.bytes, used);
  slot.offset = -1;
  if (watcher != nullptr) watcher->released(r.listing, r.text.base(id), r.microbatch, place_bytes(slot.bytes));
}

// One of the uses of a value of the frame is over, whether its op ran or not; the last one gives the storage back.
void Walk::use(const Running& r, ValueId id) {
  if (id == none || is_persistent(r.text.values[id].role)) return;
  change(r.frame, r.text.base(id), [&](Slot& slot) {
    if (slot.uses_left == 0) slot.uses_left = lifetimes_[r.listing]->uses[r.text.base(id)];
    if (--slot.uses_left == 0 && slot.offset >= 0) drop(r, id);
  });
}

// Notes that the op, the count-th of its stream, uses its values, and gives back what has had its last use.
void Walk::note_uses(const Running& r, const Issue& issue) {
  const auto own = static_cast<size_t>(r.stream);
  if (issue.scratch_bytes > 0) {
    Marks used{};
    used[own] = issue.count;
    storage().release(issue.scratch_offset, issue.scratch_bytes, used);
    if (watcher != nullptr) watcher->released(r.listing, none, r.microbatch, place_bytes(issue.scratch_bytes));
  }
  if (const int channel = streams_.channel_of(r.listing, r.index); channel >= 0)
    last_of_channel_[channel] = {r.stream, issue.count};
  const auto write = [&](Slot::Segment& segment) {
    segment = {};
    segment.written[own] = issue.count;
  };
  for (const ValueId id : r.op.updates) {
    each_segment(r, id, write);
    use(r, id);
  }
  for (const ValueId id : r.op.out) {
    each_segment(r, id, write);
    use(r, id);
  }
  for (const ValueId id : r.op.in) {
    if (id == none) continue;
    each_segment(r, id, [&](Slot::Segment& segment) { segment.read[own] = issue.count; });
    use(r, id);
  }
}

// Ops that aren't to be issued: those whose condition doesn't hold, and those that only drop values or flip them.
bool Walk::passed_over(const Running& r) {
  const Condition& condition = r.op.condition;
  const bool holds = !condition || condition.holds(r.frame.rows(condition.rows_of));
  if (holds && r.op.def->flips) {
    Slot &a = slot_of(r, r.op.updates[0]), &b = slot_of(r, r.op.updates[1]);
    HEDDLE_CHECK(a.bytes == b.bytes && a.segments.size() == b.segments.size(), "'{}' and '{}' are not cut alike",
                 r.text.value(r.op.updates[0]).name, r.text.value(r.op.updates[1]).name);
    std::swap(a, b);  // with who has used it
    return true;
  }
  if (holds && !r.op.def->drops) return false;
  for (const std::vector<ValueId>* ids : {&r.op.out, &r.op.updates, &r.op.in}) {
    for (const ValueId id : *ids) {
      if (id == none) continue;
      if (holds && slot_of(r, id).offset >= 0) change(r.frame, r.text.base(id), [&](Slot&) { drop(r, id); });
      use(r, id);
    }
  }
  return true;
}

void Walk::run_op(Issuer& issuer, int listing, uint32_t op_index, int microbatch) {
  const Listing& text = program_.listings[listing];
  Running r{listing,
            op_index,
            microbatch,
            text,
            text.ops[op_index],
            frame(listing, microbatch),
            streams_.of(listing, op_index)};
  if (passed_over(r) || reserves(r)) return;
  read_operands(r);
  place_outputs(r);
  order_channel(r);
  Issue issue;
  issue.scratch_bytes = issuer.scratch_bytes(listing, op_index, r.frame);
  place_scratch(r, issue);
  find_waits(r);
  issue.listing = listing;
  issue.op_index = op_index;
  issue.op = &r.op;
  issue.microbatch = microbatch;
  issue.stream = r.stream;
  issue.count = ++issued_[r.stream];
  issue.overwrite = overwrites(r);
  issue.in = in_;
  issue.out = out_;
  issue.updates = updates_;
  issue.waits = waits_;
  issue.rows = &r.frame;
  issue.live_bytes = storage().live_bytes();
  issue.reserved_bytes = storage().reserved_bytes();
  if (is_copy(r.op.def->moves)) {
    (r.op.def->moves == Moves::to_host ? copied_out_bytes_ : copied_in_bytes_) += r.text.bytes(r.op.in[0], r.frame);
  }
  if (!r.op.trails) ended_[r.stream] = issue.count;
  if (watcher != nullptr) watcher->issued(issue);
  issuer.issue(issue);
  for (size_t i = 0; r.op.def->host_stall && i < r.op.out.size(); ++i) {
    r.frame.rows_of[r.op.out[i]] = issuer.read_rows(issue, i);
  }
  for (size_t i = 0; r.op.def->room != nullptr && i < r.op.out.size(); ++i) {
    r.frame.rows_of[r.op.out[i]] = r.op.def->room(r.text, r.op, i);
  }
  note_uses(r, issue);
}

void Walk::drop_frames() {
  for (size_t s = 0; s < frames_.size(); ++s) {
    for (auto& frame : frames_[s]) {
      if (!frame) continue;
      for (size_t v = 0; v < frame->places.size(); ++v) {
        if (frame->places[v] < 0) continue;
        change(*frame, static_cast<ValueId>(v), [&](Slot& slot) {
          if (slot.offset >= 0)
            storage(program_.listings[s].values[v].space).release(slot.offset, slot.bytes, issued_);
          slot.offset = -1;
          slot.uses_left = 0;
        });
      }
    }
  }
}

void Walk::run_step(Issuer& issuer, Purpose purpose, int microbatches) {
  for (auto& listing : touched_) std::fill(listing.begin(), listing.end(), 0);
  for (Storage& arena : storage_) {
    arena.settle(ended_);
    arena.reset_peak();
  }
  copied_out_bytes_ = copied_in_bytes_ = 0;
  peak_seen_ = 0;
  try {
    const std::vector<Action>& actions = program_.actions_of(rank_, purpose, microbatches);
    Cycle cycle;
    if (skip_repeats) cycle.actions = repeated_actions(actions);
    for (size_t next = 0; next < actions.size(); next = past_repeats(cycle, actions, next + 1)) {
      const Action& action = actions[next];
      const Block& block = program_.blocks[action.block];
      for (const Step& step : block.steps) {
        run_op(issuer, block.listings[step.slot], step.op, action.microbatches[step.slot]);
      }
      for (size_t i = 0; i < block.listings.size(); ++i) spare_places_of(block.listings[i], action.microbatches[i]);
    }
  } catch (...) {
    drop_frames();
    ended_ = issued_;
    throw;
  }
  for (int i = 0; i < kSpaces; ++i) {
    const auto space = static_cast<Space>(i);
    const int64_t left = storage(space).live_bytes() - persistent_bytes(space);
    HEDDLE_CHECK(left == 0, "{} bytes of activations outlive the step on the {}", left, name_of(space));
  }
}

}  // namespace heddle::ir
