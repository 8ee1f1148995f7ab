#include "heddle/ir/verify/outcomes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "heddle/ir/print.h"

namespace heddle::ir {

namespace {

constexpr size_t kMostOutcomes = 1024;  // of what one value depends on

// Rows by counting value: one number of each stretch in which no condition changes.
using Outcome = std::map<ValueId, int64_t>;

// The writes, reads and drops of a value and its parts, in list order.
struct Event {
  enum class Kind : uint8_t { write, read, drop } kind;
  const Op* op;
  ValueId id;
};

std::vector<Outcome> outcomes_of(const Listing& listing, const std::vector<Event>& events) {
  std::map<ValueId, std::set<int64_t>> limits;
  for (const Event& event : events) {
    const Condition& condition = event.op->condition;
    if (condition) limits[condition.rows_of].insert(condition.limit);
  }
  std::vector<Outcome> outcomes{{}};
  for (const auto& [rows_of, bounds] : limits) {
    std::vector<Outcome> more;
    for (const Outcome& outcome : outcomes) {
      std::vector<int64_t> samples(bounds.begin(), bounds.end());
      samples.push_back(samples.back() + 1);
      for (const int64_t rows : samples) {
        more.push_back(outcome);
        more.back()[rows_of] = rows;
      }
    }
    outcomes = std::move(more);
    HEDDLE_CHECK(outcomes.size() <= kMostOutcomes, "'{}' depends on more than {} outcomes",
                 listing.value(events[0].id).name, kMostOutcomes);
  }
  return outcomes;
}

std::string shown(const Listing& listing, const Outcome& outcome) {
  std::string text;
  for (const auto& [rows_of, rows] : outcome)
    text += fmt::format("{}{} rows of '{}'", text.empty() ? ", at " : " and ", rows, listing.value(rows_of).name);
  return text;
}

// The elements of a value that are there: stretches that don't touch, by their beginning, with their end and the op
// that wrote them.
class Elements {
 public:
  struct Stretch {
    int64_t end;
    const Op* by;
  };
  bool has_any(int64_t begin, int64_t end) const {
    const auto next = there_.lower_bound(begin);
    return (next != there_.end() && next->first < end) ||
           (next != there_.begin() && std::prev(next)->second.end > begin);
  }
  /// Calls `visit` with the op that wrote each stretch; false where some are missing.
  template <class Visit>
  bool all(int64_t begin, int64_t end, const Visit& visit) const {
    auto at = there_.upper_bound(begin);
    if (at != there_.begin()) --at;
    for (; at != there_.end() && begin < end; ++at) {
      if (at->first > begin || at->second.end <= begin) return false;
      visit(*at->second.by);
      begin = at->second.end;
    }
    return begin >= end;
  }
  void add(int64_t begin, int64_t end, const Op& by) { there_[begin] = {end, &by}; }
  bool is_empty() const { return there_.empty(); }
  void clear() { there_.clear(); }

 private:
  std::map<int64_t, Stretch> there_;
};

void verify_value(const Listing& listing, const std::vector<Event>& events) {
  const FixedRows one(1);  // a value whose rows are counted has no parts
  for (const Outcome& outcome : outcomes_of(listing, events)) {
    Elements there;
    for (const Event& event : events) {
      const Op& op = *event.op;
      if (op.condition && !op.condition.holds(outcome.at(op.condition.rows_of))) continue;
      const Value& value = listing.value(event.id);
      const auto each_stretch = [&](const auto& visit) {
        if (value.part_of == none) return visit(int64_t{0}, std::max<int64_t>(listing.elements(event.id, one), 1));
        listing.each_stretch(event.id, visit);
      };
      switch (event.kind) {
        case Event::Kind::write:
          each_stretch([&](int64_t begin, int64_t end) {
            HEDDLE_CHECK(!there.has_any(begin, end), "'{}' is written twice{}", value.name,
                         shown(listing, outcome));
            there.add(begin, end, op);
          });
          break;
        case Event::Kind::read:
          each_stretch([&](int64_t begin, int64_t end) {
            const bool all =
                there.all(begin, end, [&](const Op& by) { verify_phases(listing, op, value, by.phase); });
            HEDDLE_CHECK(all, "'{}' reads '{}' before it is written{}", text_of(listing, op), value.name,
                         shown(listing, outcome));
          });
          break;
        case Event::Kind::drop:
          HEDDLE_CHECK(value.part_of == none, "'{}' drops '{}', a part", text_of(listing, op), value.name);
          HEDDLE_CHECK(!there.is_empty(), "'{}' drops '{}', which is not there{}", text_of(listing, op), value.name,
                       shown(listing, outcome));
          there.clear();
          break;
      }
    }
  }
}

constexpr const char* kWorld = "world";  // the group of all ranks

// Decisions: who makes them, and who must make them alike.
class Decisions {
 public:
  explicit Decisions(const Listing& listing) : listing_(listing), writers_(listing.values.size()) {
    for (const Op& op : listing.ops) {
      for (const std::vector<ValueId>* ids : {&op.out, &op.updates}) {
        for (const ValueId id : *ids) writers_[id].push_back(&op);
      }
    }
  }

  void verify(const Op& op) {
    const Condition& condition = op.condition;
    if (!condition) return;
    const std::vector<const Op*>& counted = writers_.at(static_cast<size_t>(condition.rows_of));
    HEDDLE_CHECK(counted.size() == 1 && counted[0]->def->host_stall && !counted[0]->condition,
                 "'{}' depends on '{}', which the host doesn't read always", text_of(listing_, op),
                 listing_.value(condition.rows_of).name);
    HEDDLE_CHECK(counted[0] < &op, "'{}' depends on '{}', which is counted later", text_of(listing_, op),
                 listing_.value(condition.rows_of).name);
    verify_phases(listing_, op, listing_.value(condition.rows_of), counted[0]->phase);
    HEDDLE_CHECK(!op.def->host_stall, "'{}' counts rows under a condition", text_of(listing_, op));
    HEDDLE_CHECK(!is_message(op.def->moves), "'{}' is a message under a condition: its peer would wait",
                 text_of(listing_, op));
    for (const ValueId id : op.updates) {
      const Role role = listing_.value(id).role;
      HEDDLE_CHECK(role != Role::accumulator && role != Role::statistic,
                   "'{}' sums into '{}' under a condition: nobody might begin the sum", text_of(listing_, op),
                   listing_.value(id).name);
    }
    HEDDLE_CHECK(!communicates(*op.def) || alike(condition.rows_of, op.group),
                 "'{}' is run by all of '{}', of which each counts its own '{}'", text_of(listing_, op), op.group,
                 listing_.value(condition.rows_of).name);
  }

  // True if all ranks of a group hold the same value. A collective among them leaves it so, or it is computed from
  // values that are alike; or an op finds it in what such a collective wrote.
  bool alike(ValueId id, const std::string& group) {
    const auto [known, fresh] = alike_.try_emplace({id, group}, false);
    if (!fresh) return known->second;
    const std::vector<const Op*>& writers = writers_[id];
    const bool is = !writers.empty() && std::all_of(writers.begin(), writers.end(), [&](const Op* op) {
      if (communicates(*op->def)) return (op->group == group || op->group == kWorld) && leaves_alike(*op, id);
      if (leaves_alike(*op, id)) return written_by(group, op->in);
      return !op->in.empty() &&
             std::all_of(op->in.begin(), op->in.end(), [&](ValueId in) { return in == none || alike(in, group); });
    });
    return alike_[{id, group}] = is;
  }

 private:
  bool written_by(const std::string& group, const std::vector<ValueId>& values) const {
    return std::all_of(values.begin(), values.end(), [&](ValueId id) {
      if (id == none) return true;
      const std::vector<const Op*>& of = writers_[id];
      return !of.empty() && std::all_of(of.begin(), of.end(),
                                        [&](const Op* op) { return communicates(*op->def) && op->group == group; });
    });
  }
  static bool leaves_alike(const Op& op, ValueId id) {
    for (const std::string_view name : names_in(op.def->alike)) {
      if (place_of(name, op.def->results) >= 0 && op.result(name) == id) return true;
    }
    return false;
  }

  const Listing& listing_;
  std::vector<std::vector<const Op*>> writers_;  // by value
  std::map<std::pair<ValueId, std::string>, bool> alike_;
};

}  // namespace

void verify_phases(const Listing& listing, const Op& reader, const Value& value, Phase written) {
  const bool once = once_a_step(reader.phase) || once_a_step(written);
  HEDDLE_CHECK(written <= reader.phase && (!once || written == reader.phase),
               "'{}' in phase {} reads '{}' of phase {}", text_of(listing, reader), name_of(reader.phase),
               value.name, name_of(written));
}

void verify_outcomes(const Listing& listing) {
  // Most values are written once, as a whole, and always: those are not looked at again (ir/verify).
  std::set<ValueId> bases;
  bool decides = false;
  for (const Op& op : listing.ops) {
    decides = decides || op.condition;
    for (const std::vector<ValueId>* ids : {&op.out, &op.in}) {
      for (const ValueId id : *ids) {
        if (id == none || is_persistent(listing.value(id).role)) continue;
        if (op.condition || op.def->drops || listing.value(id).part_of != none) bases.insert(listing.base(id));
      }
    }
  }
  if (decides) {
    Decisions decisions(listing);
    for (const Op& op : listing.ops) decisions.verify(op);
  }
  if (bases.empty()) return;
  std::map<ValueId, std::vector<Event>> events;
  for (const Op& op : listing.ops) {
    const auto note = [&](const std::vector<ValueId>& ids, Event::Kind kind) {
      for (const ValueId id : ids) {
        if (id != none && bases.contains(listing.base(id))) events[listing.base(id)].push_back({kind, &op, id});
      }
    };
    note(op.in, op.def->drops ? Event::Kind::drop : Event::Kind::read);
    note(op.updates, Event::Kind::read);
    note(op.out, Event::Kind::write);
  }
  for (const auto& [base, of] : events) verify_value(listing, of);
}

}  // namespace heddle::ir
