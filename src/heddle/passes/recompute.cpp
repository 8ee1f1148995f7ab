#include "heddle/passes/recompute.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "heddle/passes/copy_ops.h"
#include "heddle/passes/stands_for.h"

namespace heddle::passes {

namespace {

using ir::Listing;
using ir::none;
using ir::Op;
using ir::Phase;
using ir::Role;
using ir::ValueId;

// An op that makes a value of F again, in terms of values of F. Its outputs are those that it stands for. With a
// condition it makes the very values that were dropped, else others in their place.
struct Replay {
  Op op;
  ir::Condition condition;
  bool needed_in_I = false;
};

class Recomputer {
 public:
  Recomputer(Listing& listing, const std::vector<OpGroup>& groups, bool deferred)
      : listing_(listing),
        uses_(listing),
        second_round_(ops::counted_in_second_round(listing)),
        groups_(groups),
        deferred_(deferred) {}

  void run() {
    find_replays();
    for (const Op& op : listing_.ops) {
      if (op.phase == Phase::I) need_in_I(op, false);
    }
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (Op& op : ops) {
      if (op.phase == Phase::I || op.phase == Phase::W) read_again(op, op.phase, op.layer, false);
      listing_.ops.push_back(std::move(op));
    }
    give_up();
  }

 private:
  // The multiple of the even share of rows beyond which an op is replayed, 0 for always; nothing for an op that may
  // not be.
  std::optional<double> chosen(const Op& op, int layer) const {
    if (layer < 0 || op.part == "head" || !op.def->replayable || op.def->is_loss || !op.updates.empty() ||
        ir::is_message(op.def->moves)) {
      return std::nullopt;
    }
    const bool always = op.def->made_again || is_of_second_round(op);
    return always ? 0 : limit_of(groups_, op, layer);
  }

  bool is_of_second_round(const Op& op) const {
    return !op.out.empty() && op.out[0] != none && second_round_.contains(counted_by(op));
  }

  // The value that counts the rows of what an op makes, or none where their number is fixed.
  ValueId counted_by(const Op& op) const {
    const ir::Shape& shape = listing_.value(op.out.at(0)).shape;
    return shape.empty() ? none : shape[0].rows_of;
  }

  int64_t even_rows(ValueId counted) const {
    return ops::even_rows(listing_, *uses_.writer(uses_.writer(counted)->operand("counts")));
  }

  static bool is_outside(const Op& reader, const Op& maker) {
    return reader.layer != maker.layer || reader.chunk != maker.chunk || reader.part == "head";
  }
  static bool reads_any(const Op& reader, const std::vector<ValueId>& values) {
    return std::any_of(values.begin(), values.end(), [&](ValueId id) {
      return std::find(reader.in.begin(), reader.in.end(), id) != reader.in.end();
    });
  }

  // True if another layer, another rank or the output head reads what the op makes: then it is an input, and kept.
  bool leaves_its_layer(const Op& op) const {
    return std::any_of(op.out.begin(), op.out.end(), [&](ValueId id) {
      const auto readers = uses_.readers(id);
      return std::any_of(readers.begin(), readers.end(), [&](int reader) {
        return uses_.op(reader).phase == Phase::F && is_outside(uses_.op(reader), op);
      });
    });
  }

  // The count by which an op is decided. An op that all ranks run or none is decided by one number: the rows of the
  // rank with most of them.
  ValueId decided_by(const Op& op, ValueId counted) const {
    return ir::communicates(*op.def) ? uses_.writer(counted)->result("most") : counted;
  }

  void add(Op op, double above) {
    ir::Condition condition;
    if (above > 0) {
      const ValueId counted = counted_by(op);
      if (counted == none && above >= 1) return;  // such rows are the even share
      if (counted != none)
        condition = {decided_by(op, counted),
                     static_cast<int64_t>(above * static_cast<double>(even_rows(counted)))};
    }
    for (const ValueId id : op.out) replay_of_[id] = replays_.size();
    replays_.push_back({std::move(op), condition, false});
  }

  void find_replays() {
    for (const Op& op : listing_.ops) {
      if (op.phase != Phase::F) continue;
      if (const auto above = chosen(op, op.layer); above && !leaves_its_layer(op)) {
        add(op, *above);
        continue;
      }
      const std::vector<Op> parts = shown_ops(uses_, op);  // of a fused op that is kept
      for (const Op& part : parts) {
        const bool leaves = leaves_its_layer(part) || std::any_of(parts.begin(), parts.end(), [&](const Op& other) {
                              return reads_any(other, part.out) && is_outside(other, part);
                            });
        if (const auto above = chosen(part, part.layer); above && !leaves) add(part, *above);
      }
    }
  }

  bool is_small(ValueId id) const { return listing_.value(id).shape.size() == 1; }
  bool is_kept(ValueId id) const { return is_small(id) || listing_.value(id).role == Role::metadata; }

  // The replay that makes what an op reads, or null where the operand stays as it is.
  Replay* replay_for(ValueId id, bool for_clone) {
    if (id == none || is_small(id)) return nullptr;
    if (!for_clone && is_kept(id)) return nullptr;
    const auto at = replay_of_.find(id);
    return at == replay_of_.end() ? nullptr : &replays_[at->second];
  }

  void need_in_I(const Op& reader, bool is_clone) {
    for (const ValueId id : reader.in) {
      Replay* replay = replay_for(id, is_clone);
      if (replay == nullptr || replay->needed_in_I) continue;
      replay->needed_in_I = true;
      need_in_I(replay->op, true);
    }
  }

  // Turns an op of I or W, or a clone, to clones of what it reads, which come into the list before it.
  void read_again(Op& reader, Phase phase, int layer, bool is_clone) {
    for (ValueId& id : reader.in) {
      const Replay* replay = replay_for(id, is_clone);
      if (replay == nullptr) continue;
      const Phase made_in = phase == Phase::W && !deferred_ && replay->needed_in_I ? Phase::I : phase;
      auto& again = again_[static_cast<size_t>(made_in)];
      if (!again.contains(id)) clone(*replay, made_in, layer);
      id = again.at(id);
    }
  }

  void clone(const Replay& replay, Phase phase, int layer) {
    const Op& of = replay.op;
    Op op = of;
    op.phase = phase;
    op.layer = layer;
    op.again = true;
    op.condition = replay.condition;
    read_again(op, phase, layer, true);
    std::vector<std::string> names;
    for (const ValueId id : of.out) names.push_back(listing_.value(id).name + ".again");
    for (ValueId& id : op.out) {
      if (!replay.condition || is_kept(id)) id = none;
    }
    const std::vector<ValueId> out = listing_.append(std::move(op), names);
    for (size_t i = 0; i < out.size(); ++i) {
      again_[static_cast<size_t>(phase)][of.out[i]] = replay.condition ? of.out[i] : out[i];
      if (out[i] == of.out[i]) dropped_[out[i]] = replay.condition;
    }
  }

  // Drops what is made again under a condition: after its last use in F, and, where W has a clone of its own, after
  // that in I. There all of I comes before W, in the list as when it runs.
  void give_up() {
    if (dropped_.empty()) return;
    if (deferred_) {
      std::stable_sort(listing_.ops.begin(), listing_.ops.end(),
                       [](const Op& a, const Op& b) { return a.phase < b.phase; });
    }
    std::map<size_t, std::vector<ValueId>> after;  // by op
    for (const auto& [id, condition] : dropped_) {
      std::map<Phase, size_t> last;  // of those that use it
      for (size_t i = 0; i < listing_.ops.size(); ++i) {
        const Op& op = listing_.ops[i];
        const bool uses = std::find(op.in.begin(), op.in.end(), id) != op.in.end() ||
                          std::find(op.out.begin(), op.out.end(), id) != op.out.end();
        if (uses) last[op.phase] = i;
      }
      const bool twice =
          again_[static_cast<size_t>(Phase::I)].contains(id) && again_[static_cast<size_t>(Phase::W)].contains(id);
      after[last.at(Phase::F)].push_back(id);
      if (twice) after[last.at(Phase::I)].push_back(id);
    }
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (size_t i = 0; i < ops.size(); ++i) {
      const Op beside = ops[i];
      listing_.ops.push_back(std::move(ops[i]));
      if (!after.contains(i)) continue;
      for (const ValueId id : after.at(i)) {
        Op drop = op_beside("drop", id, beside);
        drop.condition = dropped_.at(id);
        listing_.append(std::move(drop), {});
      }
    }
  }

  Listing& listing_;
  const ir::Uses uses_;                   // before anything is made again
  const std::set<ValueId> second_round_;  // counts of rows that are kept for no backward
  const std::vector<OpGroup>& groups_;
  const bool deferred_;
  std::vector<Replay> replays_;
  std::map<ValueId, size_t> replay_of_;
  std::map<ValueId, ValueId> again_[static_cast<size_t>(Phase::W) + 1];  // by phase: the clone's value
  std::map<ValueId, ir::Condition> dropped_;
};

}  // namespace

std::vector<std::string> recompute_words() {
  std::vector<std::string> words;
  for (const GroupWord& word : group_words()) words.push_back(word.name);
  return words;
}

std::vector<OpGroup> recompute_groups(std::string_view text) { return parse_groups(text, "recompute"); }

void recompute(Listing& listing, const std::vector<OpGroup>& groups, bool deferred) {
  const auto made_again = [](const Op& op) { return op.def->made_again || op.attributes.has("round"); };
  if (!groups.empty() || std::any_of(listing.ops.begin(), listing.ops.end(), made_again))
    Recomputer(listing, groups, deferred).run();
}

}  // namespace heddle::passes
