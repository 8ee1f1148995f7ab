#include "heddle/passes/recompute.h"

#include <algorithm>
#include <map>

#include "heddle/passes/stands_for.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::Phase;
using ir::Role;
using ir::Listing;
using ir::ValueId;

// An op that makes a value of F again, in terms of values of F. Its outputs are those that it stands for.
struct Replay {
  Op op;
  bool needed_in_I = false;
};

class Recomputer {
 public:
  Recomputer(Listing& listing, const std::vector<OpGroup>& groups, bool deferred)
      : listing_(listing), uses_(listing), groups_(groups), deferred_(deferred) {}

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
  }

 private:
  bool chosen(const Op& op, int layer) const {
    if (layer < 0 || op.part == "head" || !op.def->replayable || op.def->is_loss || !op.updates.empty() ||
        ir::is_message(op.def->moves)) {
      return false;
    }
    return holds(groups_, op, layer);
  }

  static bool is_outside(const Op& reader, const Op& maker) {
    return reader.layer != maker.layer || reader.chunk != maker.chunk || reader.part == "head";
  }
  static bool reads_any(const Op& reader, const std::vector<ValueId>& values) {
    return std::any_of(values.begin(), values.end(), [&](ValueId id) {
      return std::find(reader.in.begin(), reader.in.end(), id) != reader.in.end();
    });
  }

  // Whether another layer, another rank or the output head reads what the op makes: then it is an input, and kept.
  bool leaves_its_layer(const Op& op) const {
    return std::any_of(op.out.begin(), op.out.end(), [&](ValueId id) {
      const auto readers = uses_.readers(id);
      return std::any_of(readers.begin(), readers.end(), [&](int reader) {
        return uses_.op(reader).phase == Phase::F && is_outside(uses_.op(reader), op);
      });
    });
  }

  void add(Op op) {
    for (const ValueId id : op.out) replay_of_[id] = replays_.size();
    replays_.push_back({std::move(op), false});
  }

  void find_replays() {
    for (const Op& op : listing_.ops) {
      if (op.phase != Phase::F) continue;
      if (chosen(op, op.layer) && !leaves_its_layer(op)) {
        add(op);
        continue;
      }
      const std::vector<Op> parts = shown_ops(uses_, op);  // of a fused op that is kept
      for (const Op& part : parts) {
        const bool leaves = leaves_its_layer(part) || std::any_of(parts.begin(), parts.end(), [&](const Op& other) {
                              return reads_any(other, part.out) && is_outside(other, part);
                            });
        if (chosen(part, part.layer) && !leaves) add(part);
      }
    }
  }

  // The replay that makes what an op reads, or null where the operand stays as it is.
  Replay* replay_for(ValueId id, bool for_clone) {
    if (id == none || listing_.value(id).shape.size() == 1) return nullptr;
    if (!for_clone && listing_.value(id).role == Role::metadata) return nullptr;
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
      if (!again.contains(id)) clone(replay->op, made_in, layer);
      id = again.at(id);
    }
  }

  void clone(const Op& of, Phase phase, int layer) {
    Op op = of;
    op.phase = phase;
    op.layer = layer;
    op.again = true;
    read_again(op, phase, layer, true);
    std::vector<std::string> names;
    for (const ValueId id : of.out) names.push_back(listing_.value(id).name + ".again");
    op.out.clear();
    const std::vector<ValueId> out = listing_.append(std::move(op), names);
    for (size_t i = 0; i < out.size(); ++i) again_[static_cast<size_t>(phase)][of.out[i]] = out[i];
  }

  Listing& listing_;
  const ir::Uses uses_;  // before anything is made again
  const std::vector<OpGroup>& groups_;
  const bool deferred_;
  std::vector<Replay> replays_;
  std::map<ValueId, size_t> replay_of_;
  std::map<ValueId, ValueId> again_[static_cast<size_t>(Phase::W) + 1];  // by phase: the clone's value
};

}  // namespace

std::vector<std::string> recompute_words() {
  std::vector<std::string> words;
  for (const GroupWord& word : group_words()) words.push_back(word.name);
  return words;
}

std::vector<OpGroup> recompute_groups(std::string_view text) { return parse_groups(text, "recompute"); }

void recompute(Listing& listing, const std::vector<OpGroup>& groups, bool deferred) {
  if (!groups.empty()) Recomputer(listing, groups, deferred).run();
}

}  // namespace heddle::passes
