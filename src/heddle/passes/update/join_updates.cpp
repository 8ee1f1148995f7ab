#include "heddle/passes/update/join_updates.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/ir/walk/streams.h"
#include "heddle/ops/update/joined.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::ValueId;

// The place of an op in the listing as it is written anew, from 1; 0 stands before all of them.
using Place = size_t;
// The last op of each stream of each phase that has ended, with all before it.
using Ended = std::map<std::pair<ir::Phase, std::string>, Place>;

struct Written {
  Op op;
  std::vector<Op> parts;  // more than one: they are joined
  Ended before;           // when it begins
};

// The most that are looked through for each op. In a listing whose updates all stand apart, looking at all takes a
// square of their number.
constexpr size_t kMostOpen = 64;

// The ops that have touched a value, or a part of it, last.
struct Touched {
  Place write = 0;
  std::map<std::pair<ir::Phase, std::string>, Place> reads;
  Place read() const {
    Place last = 0;
    for (const auto& [stream, place] : reads) last = std::max(last, place);
    return last;
  }
};

class Joiner {
 public:
  explicit Joiner(ir::Listing& listing) : listing_(listing), touched_(listing.values.size()) {}

  void run() {
    for (Op& op : listing_.ops) write(std::move(op));
    listing_.ops.clear();
    for (Written& w : text_) listing_.ops.push_back(w.parts.size() > 1 ? ops::join(w.parts) : std::move(w.op));
  }

 private:
  Written& at(Place place) { return text_[place - 1]; }
  Touched& touched(ValueId id) { return touched_[listing_.base(id)]; }
  static std::pair<ir::Phase, std::string> stream_of(const Op& op) { return {op.phase, ir::stream_name(op)}; }

  bool joins(const Op& op) const {
    const ir::OpDef* joined = ops::joined_form(*op.def);
    if (joined == nullptr || !ir::once_a_step(op.phase) || op.in.size() != ops::shared_operands(*joined) + 1)
      return false;
    const auto lies_whole = [&](ValueId id) {
      return id != none && listing_.value(id).space == ir::Space::device && listing_.value(id).stretches == 1;
    };
    return std::all_of(op.in.begin(), op.in.end(), lies_whole) &&
           std::all_of(op.updates.begin(), op.updates.end(), lies_whole);
  }

  bool alike(const Op& a, const Op& b) const {
    const auto shared = static_cast<std::ptrdiff_t>(ops::shared_operands(*ops::joined_form(*a.def)));
    const auto of_one_type = [&](ValueId x, ValueId y) {
      return listing_.value(x).dtype == listing_.value(y).dtype &&
             listing_.value(x).layout == listing_.value(y).layout;
    };
    return a.def == b.def && a.phase == b.phase && a.group == b.group && a.stream == b.stream &&
           a.condition == b.condition && a.layer == b.layer && a.chunk == b.chunk && a.part == b.part &&
           a.again == b.again && a.ahead == b.ahead && a.fresh == b.fresh && a.later == b.later &&
           a.trails == b.trails && a.attributes == b.attributes && a.updates.size() == b.updates.size() &&
           std::equal(a.in.begin(), a.in.begin() + shared, b.in.begin()) && of_one_type(a.in.back(), b.in.back()) &&
           std::equal(a.updates.begin(), a.updates.end(), b.updates.begin(), of_one_type);
  }

  template <class Visit>
  void each_read(const Op& op, const Visit& visit) {
    for (const ValueId id : op.in) {
      if (id != none) visit(touched(id));
    }
    if (op.condition) visit(touched(op.condition.rows_of));
  }
  template <class Visit>
  void each_write(const Op& op, const Visit& visit) {
    for (const auto* ids : {&op.out, &op.updates}) {
      for (const ValueId id : *ids) visit(touched(id));
    }
  }

  bool stands_apart(const Op& op, Place first) {
    bool apart = true;
    each_read(op, [&](const Touched& t) { apart = apart && t.write < first; });
    each_write(op, [&](const Touched& t) { apart = apart && t.write < first && t.read() < first; });
    return apart;
  }

  // Adds what has ended when the op begins, by what it has to wait for; of its own phase.
  void wait_for(const Op& op, Ended& ended) {
    const auto after = [&](Place place) {
      if (place == 0 || at(place).op.phase != op.phase) return;
      for (const auto& [stream, known] : at(place).before) ended[stream] = std::max(ended[stream], known);
      Place& own = ended[stream_of(at(place).op)];
      own = std::max(own, place);
    };
    each_read(op, [&](const Touched& t) { after(t.write); });
    each_write(op, [&](const Touched& t) {
      after(t.write);
      for (const auto& [stream, place] : t.reads) after(place);
    });
  }

  static bool within(const Ended& needed, const Ended& known, const std::pair<ir::Phase, std::string>& own) {
    return std::all_of(needed.begin(), needed.end(), [&](const auto& need) {
      const auto found = known.find(need.first);
      return need.first == own || need.second == 0 || (found != known.end() && found->second >= need.second);
    });
  }

  void touch(const Op& op, Place place) {
    each_read(op, [&](Touched& t) {
      Place& last = t.reads[stream_of(op)];
      last = std::max(last, place);
    });
    each_write(op, [&](Touched& t) {
      t.write = place;
      t.reads.clear();
    });
  }

  void write(Op op) {
    Ended needed;
    wait_for(op, needed);
    const auto own = stream_of(op);
    if (joins(op)) {
      for (const Place first : open_) {
        if (!alike(at(first).op, op) || !stands_apart(op, first) || !within(needed, at(first).before, own))
          continue;
        at(first).parts.push_back(op);
        touch(op, first);
        return;
      }
    }
    Ended& known = streams_[own];
    for (const auto& [stream, place] : needed) known[stream] = std::max(known[stream], place);
    const Place place = text_.size() + 1;
    text_.push_back({op, {}, known});
    if (joins(op)) {
      text_.back().parts.push_back(op);
      open_.push_back(place);
      if (open_.size() > kMostOpen) open_.erase(open_.begin());
    }
    touch(op, place);
  }

  ir::Listing& listing_;
  std::vector<Written> text_;
  std::vector<Touched> touched_;
  std::map<std::pair<ir::Phase, std::string>, Ended> streams_;  // when the next op of a stream begins
  std::vector<Place> open_;                                     // what others may join, as they stand
};

}  // namespace

void join_updates(ir::Listing& listing) { Joiner(listing).run(); }

}  // namespace heddle::passes
