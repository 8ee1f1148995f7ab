#include "heddle/ir/verify/verify.h"

#include <algorithm>
#include <map>

#include "heddle/ir/print.h"
#include "heddle/ir/verify/outcomes.h"
#include "heddle/ir/verify/verify_actions.h"

namespace heddle::ir {

namespace {

void verify_inference(const Listing& listing, const Op& op) {
  check_names(op);
  const std::vector<Value> expected = op.def->infer(listing, op);
  HEDDLE_CHECK(expected.size() == op.out.size(), "'{}' has {} outputs, its definition {}", text_of(listing, op),
               op.out.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Value& found = listing.value(op.out[i]);
    const Space space = runs_on_host(op) ? Space::host : expected[i].space;
    HEDDLE_CHECK(found.dtype == expected[i].dtype && found.shape == expected[i].shape && found.space == space,
                 "'{}': output '{}' is {}, inferred {}", text_of(listing, op), found.name, text_of(listing, found),
                 text_of(listing, expected[i]));
  }
}

// Only the copies between the arenas and the ops of the host's processor touch values on the host; the latter touch
// nothing else. Values that outlive the process are persistent.
void verify_spaces(const Listing& listing, const Op& op) {
  const auto hold = [&](const std::vector<ValueId>& ids, bool on_host) {
    for (const ValueId id : ids) {
      if (id == none) continue;
      const Value& value = listing.value(id);
      HEDDLE_CHECK((value.space != Space::device) == on_host, "'{}': '{}' lies on the {}", text_of(listing, op),
                   value.name, name_of(value.space));
      HEDDLE_CHECK(value.space != Space::nowhere || op.def->reserves, "'{}' uses '{}', which lies nowhere",
                   text_of(listing, op), value.name);
      HEDDLE_CHECK(value.space != Space::shared || is_persistent(value.role),
                   "'{}' lies in shared memory for a while", value.name);
    }
  };
  if (op.def->flips) {
    const Value &a = listing.value(op.updates[0]), &b = listing.value(op.updates[1]);
    HEDDLE_CHECK(a.space == b.space, "'{}': '{}' lies on the {}, '{}' on the {}", text_of(listing, op), a.name,
                 name_of(a.space), b.name, name_of(b.space));
    return;
  }
  const bool on_host = runs_on_host(op);
  HEDDLE_CHECK(!on_host || (op.def->moves == Moves::nothing && !communicates(*op.def) && !op.def->host_stall),
               "'{}' is nothing that the host's processor runs", text_of(listing, op));
  hold(op.in, on_host || op.def->moves == Moves::from_host || op.def->reserves);
  hold(op.out, on_host || op.def->moves == Moves::to_host);
  std::vector<ValueId> updates = op.updates;
  for (const std::string_view name : names_in(op.def->reaches_host)) {
    if (!on_host && listing.value(op.updated(name)).space == Space::host) std::erase(updates, op.updated(name));
  }
  hold(updates, on_host || op.def->moves == Moves::to_host);
}

void verify_part(const Listing& listing, const Value& part) {
  if (part.part_of == none) return;
  const Value& base = listing.value(part.part_of);
  const FixedRows rows;
  const auto elements = [&](const Value& value) {
    int64_t count = 1;
    for (const Dim& dim : value.shape) {
      HEDDLE_CHECK(dim.is_static(), "'{}' of '{}' has rows that are counted", part.name, base.name);
      count *= dim.count;
    }
    return count;
  };
  HEDDLE_CHECK(base.part_of == none && base.layout == Layout::rows && part.dtype == base.dtype &&
                   part.role == base.role && part.space == base.space && part.shared_with == base.shared_with,
               "'{}' is not a part of '{}'", part.name, base.name);
  HEDDLE_CHECK(part.stretches > 0 && elements(part) % part.stretches == 0, "'{}' has no {} equal stretches",
               part.name, part.stretches);
  const int64_t length = elements(part) / part.stretches;
  HEDDLE_CHECK(part.stretches == 1 || part.stretch_step >= length, "the stretches of '{}' overlap", part.name);
  HEDDLE_CHECK(part.first_element >= 0 &&
                   part.first_element + (part.stretches - 1) * part.stretch_step + length <= elements(base),
               "'{}' goes beyond '{}'", part.name, base.name);
}

// Only ops that say so of an operand may take a value in stretches there.
void verify_stretches(const Listing& listing, const Op& op) {
  const auto verify = [&](const std::vector<ValueId>& ids, std::string_view names, std::string_view taken) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == none || listing.value(ids[i]).stretches == 1) continue;
      const std::vector<std::string_view> all = names_in(names);
      HEDDLE_CHECK(i < all.size() && place_of(all[i], taken) >= 0, "'{}' does not take rows of '{}' by runs",
                   text_of(listing, op), listing.value(ids[i]).name);
    }
  };
  verify(op.in, op.def->operands, op.def->by_row);
  verify(op.out, op.def->results, op.def->by_row);
  verify(op.updates, op.def->updates, "");
}

void verify_inputs(const Listing& listing) {
  for (const Input& input : listing.inputs) {
    HEDDLE_CHECK(listing.find_input(input.name) == &input, "two inputs of {} are named '{}'", listing.name,
                 input.name);
    HEDDLE_CHECK(input.elements() > 0, "input '{}' is {}", input.name, text_of(input));
  }
}

// verify_outcomes checks that all of a value, or of a part, is written, where an op writes less than a whole value
// or does not always run.
class ListingVerifier {
 public:
  explicit ListingVerifier(const Listing& listing)
      : listing_(listing),
        writers_(listing.values.size(), 0),
        written_in_(listing.values.size(), Phase::F),
        may_be_updated_(listing.values.size(), false),
        varies_(listing.values.size(), false) {
    verify_inputs(listing);
    for (const Value& value : listing.values) verify_part(listing, value);
    for (const Op& op : listing.ops) {
      for (const ValueId id : op.out) {
        if (op.condition || listing.value(id).part_of != none) vary(id);
      }
      for (const ValueId id : op.in) {
        if (op.def->drops && id != none) vary(id);
      }
    }
  }

  void verify() {
    for (const Op& op : listing_.ops) {
      verify_inference(listing_, op);
      verify_spaces(listing_, op);
      verify_stretches(listing_, op);
      for (const ValueId id : op.in) {
        if (id != none) read(op, id);
      }
      for (const ValueId id : op.mentions) {
        HEDDLE_CHECK(writers(id) >= 1, "'{}' mentions '{}' before it is written", text_of(listing_, op),
                     listing_.value(id).name);
      }
      HEDDLE_CHECK(!op.later || (op.def->moves == Moves::from_host && op.out.size() == 1),
                   "'{}' is no copy from the host that makes a value", text_of(listing_, op));
      for (const ValueId id : op.out) write(op, id);
      for (const ValueId id : op.updates) update(op, id);
    }
    for (const auto& [weight, accumulators] : listing_.accumulators) {
      for (const ValueId id : accumulators)
        HEDDLE_CHECK(writers(id) >= 1, "accumulator '{}' has no writer", listing_.value(id).name);
    }
    verify_outcomes(listing_);
  }

 private:
  int& writers(ValueId id) { return writers_.at(static_cast<size_t>(listing_.base(id))); }
  void vary(ValueId id) { varies_[listing_.base(id)] = true; }
  bool varies(ValueId id) const { return varies_[listing_.base(id)]; }

  void read(const Op& op, ValueId id) {
    const Value& value = listing_.value(id);
    if (is_persistent(value.role)) return;
    HEDDLE_CHECK(writers(id) >= 1, "'{}' reads '{}' before it is written", text_of(listing_, op), value.name);
    for (const Dim& dim : value.shape) {
      HEDDLE_CHECK(dim.is_static() || writers(dim.rows_of) == 1, "'{}' has rows that '{}' counts too late",
                   value.name, listing_.value(dim.rows_of).name);
    }
    if (varies(id)) return;
    verify_phases(listing_, op, value, written_in_[listing_.base(id)]);
  }

  void write(const Op& op, ValueId id) {
    const Value& value = listing_.value(id);
    HEDDLE_CHECK(!is_persistent(value.role), "'{}' writes the persistent '{}' as an output", text_of(listing_, op),
                 value.name);
    HEDDLE_CHECK(++writers(id) == 1 || varies(id), "'{}' is written twice", value.name);
    written_in_[listing_.base(id)] = op.phase;
    may_be_updated_[id] = op.def->reserves || op.def->moves == Moves::from_host;
  }

  void update(const Op& op, ValueId id) {
    const Value& value = listing_.value(id);
    HEDDLE_CHECK(is_persistent(value.role) || may_be_updated_[id], "'{}' updates '{}', which does not persist",
                 text_of(listing_, op), value.name);
    if (!is_persistent(value.role)) read(op, id);
    ++writers(id);
    if (value.role != Role::accumulator) return;
    std::vector<ValueId>& sums = summed_[listing_.base(id)];
    if (adds_beside(op)) {
      HEDDLE_CHECK(!sums.empty(), "'{}' adds to '{}', of which nothing is there yet", text_of(listing_, op),
                   value.name);
      return;
    }
    for (const ValueId other : sums)
      HEDDLE_CHECK(!listing_.overlap(id, other), "accumulator '{}' has two writers", value.name);
    sums.push_back(id);
  }

  const Listing& listing_;
  std::vector<int> writers_;  // so far, of the value or of a part of it
  std::vector<Phase> written_in_;
  std::vector<bool> may_be_updated_;  // of a microbatch, and yet
  std::vector<bool> varies_;
  std::map<ValueId, std::vector<ValueId>> summed_;  // by accumulator: what ops sum into
};

}  // namespace

void verify(const Listing& listing) { ListingVerifier(listing).verify(); }

void verify(const StepProgram& program) {
  for (const Listing& listing : program.listings) {
    verify(listing);
    for (const Value& value : listing.values) {
      if (value.shared_with < 0) continue;
      const Listing& owner = program.listings.at(static_cast<size_t>(value.shared_with));
      const ValueId id = owner.find(value.name);
      HEDDLE_CHECK(id != none && is_persistent(value.role) && owner.value(id).shape == value.shape &&
                       owner.value(id).dtype == value.dtype && owner.value(id).layout == value.layout &&
                       owner.value(id).space == value.space,
                   "'{}' of {} is not that of {}", value.name, listing.name, owner.name);
    }
  }
  for (int p = 0; p < kPurposes; ++p) {
    const bool train = static_cast<Purpose>(p) == Purpose::train;
    verify_actions(program, program.actions[p], train ? program.microbatches : 1);
  }
  for (const auto& [microbatches, lists] : program.fewer) verify_actions(program, lists, microbatches);
}

}  // namespace heddle::ir
