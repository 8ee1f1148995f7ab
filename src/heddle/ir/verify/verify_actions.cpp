#include "heddle/ir/verify/verify_actions.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "heddle/ir/print.h"
#include "heddle/ir/verify/verify.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::ir {

namespace {

// The messages that one rank puts on or takes off one pipeline channel, in order: (the listing that it comes from,
// which of its states, microbatch).
using Traffic = std::vector<std::tuple<int64_t, int64_t, int>>;
// (from, to, channel): sent, received
using Links = std::map<std::tuple<int, int, std::string>, std::pair<Traffic, Traffic>>;

// The actions of one class of ranks, for one purpose.
class ActionsVerifier {
 public:
  ActionsVerifier(const StepProgram& program, int rank_class, int microbatches, Links& links)
      : program_(program), class_(rank_class), microbatches_(microbatches), links_(links) {}

  void verify(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      HEDDLE_CHECK(action.block >= 0 && static_cast<size_t>(action.block) < program_.blocks.size(),
                   "action of class {} names block {}", class_, action.block);
      const Block& block = program_.blocks[action.block];
      HEDDLE_CHECK(action.microbatches.size() == block.listings.size(), "action {} binds {} microbatches, needs {}",
                   block.name, action.microbatches.size(), block.listings.size());
      for (const Step& step : block.steps) run(block, step, action.microbatches[step.slot]);
    }
    for (const auto& [listing, ran] : ran_) all_have_run(listing, ran);
  }

 private:
  struct Ran {
    std::vector<int> next;                     // by op: the microbatch that it runs next; kNever before it has run
    std::vector<std::vector<uint8_t>> done;    // by microbatch + 1 and op
    std::vector<std::vector<uint32_t>> after;  // by op: those that come before it in each microbatch
    std::vector<std::vector<uint32_t>> sums;   // by op that is `later`: those that keep the sum that it fetches
  };
  static constexpr int kNever = -1;

  const Listing& listing_of(int index) const { return program_.listings[index]; }

  // The microbatch that an op of a chunk runs first, and the one after its last.
  int first_of(const Listing& listing, const Op& op) const { return bound_of(listing, op, 0); }
  int end_of(const Listing& listing, const Op& op) const { return bound_of(listing, op, 1); }
  int bound_of(const Listing& listing, const Op& op, int after) const {
    if (once_a_step(op.phase)) return after;
    const Chunk& chunk = listing.chunks.at(static_cast<size_t>(op.chunk));
    return microbatches_ * (chunk.route + after) / chunk.routes;
  }

  void run(const Block& block, const Step& step, int microbatch) {
    const int index = block.listings[step.slot];
    const Listing& listing = listing_of(index);
    const Op& op = listing.ops[step.op];
    Ran& ran = ran_[index];
    if (ran.next.empty()) {
      ran.next.assign(listing.ops.size(), kNever);
      ran.done.assign(static_cast<size_t>(program_.microbatches) + 1, std::vector<uint8_t>(listing.ops.size(), 0));
      ran.after = before_each(listing);
      ran.sums = keepers(listing);
    }
    for (const uint32_t keeper : ran.sums[step.op]) {
      const int kept = ran.next[keeper] == kNever ? first_of(listing, listing.ops[keeper]) : ran.next[keeper];
      HEDDLE_CHECK(kept == microbatch, "{}: '{}' of microbatch {} fetches what '{}' kept of {}", block.name,
                   text_of(listing, op), microbatch, text_of(listing, listing.ops[keeper]), kept - 1);
    }
    in_order(block, listing, op, microbatch, ran.next[step.op]);
    std::vector<uint8_t>& done = ran.done[microbatch + 1];
    for (const uint32_t other : ran.after[step.op]) {
      HEDDLE_CHECK(done[other], "{}: '{}' runs microbatch {} before '{}', which comes before it", block.name,
                   text_of(listing, op), microbatch, text_of(listing, listing.ops[other]));
    }
    done[step.op] = 1;
    if (is_message(op.def->moves)) note_message(op, microbatch);
  }

  void in_order(const Block& block, const Listing& listing, const Op& op, int microbatch, int& next) {
    const bool once = once_a_step(op.phase);
    HEDDLE_CHECK(once == (microbatch == -1) && microbatch < program_.microbatches, "{}: microbatch {}", block.name,
                 microbatch);
    HEDDLE_CHECK(once || !ended_, "{}: microbatch {} after the end of the step", block.name, microbatch);
    ended_ = ended_ || op.phase == Phase::end;
    if (next == kNever) next = first_of(listing, op);
    HEDDLE_CHECK(next == (once ? 0 : microbatch), "{}: '{}' runs microbatch {}, expected {}", block.name,
                 text_of(listing, op), microbatch, next);
    ++next;
  }

  // The ops that must come before each op. A value is written before it is read; an op that drops it or writes it
  // again comes after those that used it.
  static std::vector<std::vector<uint32_t>> before_each(const Listing& listing) {
    struct Use {
      uint32_t op;
      ValueId id;
      bool writes;
    };
    std::vector<std::vector<Use>> uses(listing.values.size());  // by base
    std::vector<std::vector<uint32_t>> before(listing.ops.size());
    const auto use = [&](uint32_t op, ValueId id, bool writes) {
      if (id == none || is_persistent(listing.value(id).role)) return;
      std::vector<Use>& of = uses[listing.base(id)];
      for (const Use& other : of) {
        if (other.op != op && (other.writes || writes) && listing.overlap(other.id, id))
          before[op].push_back(other.op);
      }
      of.push_back({op, id, writes});
    };
    for (uint32_t i = 0; i < listing.ops.size(); ++i) {
      const Op& op = listing.ops[i];
      for (const ValueId id : op.in) use(i, id, op.def->drops);
      use(i, op.condition.rows_of, false);
      for (const ValueId id : op.out) use(i, id, true);
      for (const ValueId id : op.updates) use(i, id, true);
    }
    return before;
  }

  // A sum that is fetched in each microbatch must have been kept by the one before.
  static std::vector<std::vector<uint32_t>> keepers(const Listing& listing) {
    std::vector<std::vector<uint32_t>> keepers(listing.ops.size());
    for (uint32_t i = 0; i < listing.ops.size(); ++i) {
      if (!listing.ops[i].later) continue;
      for (uint32_t k = 0; k < listing.ops.size(); ++k) {
        const Op& op = listing.ops[k];
        const bool keeps = !once_a_step(op.phase) &&
                           std::any_of(op.updates.begin(), op.updates.end(),
                                       [&](ValueId id) { return listing.overlap(id, listing.ops[i].in[0]); });
        if (keeps) keepers[i].push_back(k);
      }
    }
    return keepers;
  }

  void note_message(const Op& op, int microbatch) {
    const bool sends = op.def->moves == Moves::to_neighbour;
    const int there = class_ + static_cast<int>(op.attributes.integer("step"));
    auto& [sent, received] = links_[{sends ? class_ : there, sends ? there : class_, channel_name(op)}];
    (sends ? sent : received)
        .emplace_back(op.attributes.integer_or("edge", 0), op.attributes.integer_or("state", 0), microbatch);
  }

  // A listing of which no more than the beginning runs belongs to another purpose.
  void all_have_run(int index, const Ran& ran) const {
    const Listing& listing = listing_of(index);
    bool begins_only = true;
    for (size_t i = 0; i < listing.ops.size(); ++i)
      begins_only = begins_only && (ran.next[i] == kNever || listing.ops[i].phase == Phase::begin);
    for (size_t i = 0; i < listing.ops.size() && !begins_only; ++i) {
      const int first = first_of(listing, listing.ops[i]), end = end_of(listing, listing.ops[i]);
      const int next = ran.next[i] == kNever ? first : ran.next[i];
      HEDDLE_CHECK(next == end, "listing {}: '{}' runs {} of {} times", index, text_of(listing, listing.ops[i]),
                   next - first, end - first);
    }
  }

  const StepProgram& program_;
  const int class_, microbatches_;
  Links& links_;
  std::map<int, Ran> ran_;  // by listing
  bool ended_ = false;
};

}  // namespace

void verify_actions(const StepProgram& program, const StepProgram::ActionLists& lists, int microbatches) {
  Links links;
  for (size_t c = 0; c < lists.size(); ++c) {
    ActionsVerifier(program, static_cast<int>(c), microbatches, links).verify(lists[c]);
  }
  for (const auto& [link, traffic] : links) {
    HEDDLE_CHECK(traffic.first == traffic.second, "sends and receives from pipeline rank {} to {} differ on {}",
                 std::get<0>(link), std::get<1>(link), std::get<2>(link));
  }
}

namespace {

// A collective of a rank: what it is, and what it is of.
struct Meeting {
  const Listing* listing;
  const Op* op;
  int microbatch;
  bool is_like(const Meeting& other) const {
    if (op->def != other.op->def || microbatch != other.microbatch || op->out.size() != other.op->out.size())
      return false;
    return op->attributes == other.op->attributes;
  }
};
using Meetings =
    std::map<std::string, std::pair<std::string, std::vector<Meeting>>>;  // by channel: group, in order

Meetings meetings_of(const StepProgram& program, const std::vector<Action>& actions) {
  Meetings meetings;
  for (const Action& action : actions) {
    const Block& block = program.blocks[action.block];
    for (const Step& step : block.steps) {
      const Listing& listing = program.listings[block.listings[step.slot]];
      const Op& op = listing.ops[step.op];
      if (!op.def->collective) continue;
      auto& [group, of] = meetings[channel_name(op)];
      group = op.group;
      of.push_back({&listing, &op, action.microbatches[step.slot]});
    }
  }
  return meetings;
}

void verify_meetings(const std::string& channel, const std::vector<Meeting>& one, const std::vector<Meeting>& other,
                     int rank, int peer) {
  const auto text = [](const std::vector<Meeting>& of, size_t i) {
    return i < of.size()
               ? fmt::format("'{}' of microbatch {}", text_of(*of[i].listing, *of[i].op), of[i].microbatch)
               : std::string("nothing");
  };
  for (size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    HEDDLE_CHECK(i < one.size() && i < other.size() && one[i].is_like(other[i]),
                 "over {}, rank {} runs {} where rank {} runs {}", channel, rank, text(one, i), peer,
                 text(other, i));
  }
}

// Ranks of a class do the same: of each class, its first rank is held to those that it meets of other classes.
void verify_channels(const StepProgram& program, const StepProgram::ActionLists& lists, const Members& members) {
  const std::vector<int>& class_of = program.class_of_rank;
  std::vector<Meetings> meetings;
  for (const std::vector<Action>& actions : lists) meetings.push_back(meetings_of(program, actions));
  std::set<int> seen;
  for (int rank = 0; rank < std::ssize(class_of) && !lists.empty(); ++rank) {
    const int own = class_of[rank];
    if (!seen.insert(own).second) continue;
    for (const auto& [channel, met] : meetings[own]) {
      for (const int peer : members(met.first, rank)) {
        const int other = class_of[peer];
        if (other == own) continue;
        const auto at = meetings[other].find(channel);
        static const std::vector<Meeting> none;
        verify_meetings(channel, met.second, at == meetings[other].end() ? none : at->second.second, rank, peer);
      }
    }
  }
}

}  // namespace

void verify_channels(const StepProgram& program, const Members& members) {
  for (const StepProgram::ActionLists& lists : program.actions) verify_channels(program, lists, members);
  for (const auto& [microbatches, lists] : program.fewer) verify_channels(program, lists, members);
}

}  // namespace heddle::ir
