#include "heddle/passes/recompute.h"

#include <algorithm>
#include <map>

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::Phase;
using ir::Role;
using ir::Stage;
using ir::ValueId;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// An op that makes a value of F again, in terms of values of F. Its outputs are those that it stands for.
struct Replay {
  Op op;
  bool needed_in_I = false;
};

class Recomputer {
 public:
  Recomputer(Stage& stage, const std::vector<OpGroup>& groups, bool deferred)
      : stage_(stage), groups_(groups), deferred_(deferred) {}

  void run() {
    find_replays();
    for (const Op& op : stage_.ops) {
      if (op.phase == Phase::I) need_in_I(op, false);
    }
    std::vector<Op> ops = std::move(stage_.ops);
    stage_.ops.clear();
    for (Op& op : ops) {
      if (op.phase == Phase::I || op.phase == Phase::W) read_again(op, op.phase, op.layer, false);
      stage_.ops.push_back(std::move(op));
    }
  }

 private:
  bool chosen(const Op& op, int layer) const {
    if (layer < 0 || op.part == "head" || !op.def->replayable || op.def->is_loss || !op.updates.empty() ||
        is_one_of(op.kind(), {"send", "receive"})) {
      return false;
    }
    return holds(groups_, op, layer);
  }

  // Whether another layer, another rank or the output head reads what the op makes: then it is an input, and kept.
  bool leaves_its_layer(const Op& op) const {
    for (const ValueId id : op.out) {
      const auto [first, last] = readers_.equal_range(id);
      for (auto at = first; at != last; ++at) {
        const Op& reader = *at->second;
        if (reader.layer != op.layer || reader.chunk != op.chunk || reader.part == "head") return true;
      }
    }
    return false;
  }

  static Op made_of(const Op& op, std::string_view kind, std::vector<ValueId> in, std::vector<ValueId> out) {
    Op part = op;
    part.def = &ops::find(kind);
    part.in = std::move(in);
    part.out = std::move(out);
    return part;
  }

  void add(Op op) {
    for (const ValueId id : op.out) replay_of_[id] = replays_.size();
    replays_.push_back({std::move(op), false});
  }

  void find_replays() {
    for (const Op& op : stage_.ops) {
      for (const ValueId id : op.in) {
        if (op.phase == Phase::F && id != none) readers_.emplace(id, &op);
      }
    }
    for (const Op& op : stage_.ops) {
      if (op.phase != Phase::F) continue;
      if (op.kind() == "add_rms_norm") {
        if (!leaves_its_layer(op) && chosen(op, op.layer)) {
          add(op);
          continue;
        }
        const auto reader = readers_.find(op.out[1]);
        if (reader == readers_.end()) continue;
        Op norm = made_of(op, "rms_norm", {op.out[0], op.in[2]}, {op.out[1], op.out[2]});
        norm.part = reader->second->part == "head" ? "head" : "";
        if (chosen(norm, reader->second->layer)) add(std::move(norm));
      } else if (op.kind() == "router") {
        const Op scores = made_of(op, "router_scores", {op.in[0]}, {op.out[0]});
        const Op gate = made_of(op, "gate", {op.out[0], op.out[2]}, {op.out[1]});
        for (const Op& part : {scores, gate}) {
          if (chosen(part, op.layer)) add(part);
        }
      } else if (chosen(op, op.layer) && !leaves_its_layer(op)) {
        add(op);
      }
    }
  }

  // The replay that makes what an op reads, or null where the operand stays as it is.
  Replay* replay_for(ValueId id, bool for_clone) {
    if (id == none || stage_.value(id).shape.size() == 1) return nullptr;
    if (!for_clone && stage_.value(id).role == Role::metadata) return nullptr;
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
    for (const ValueId id : of.out) names.push_back(stage_.value(id).name + ".again");
    op.out.clear();
    const std::vector<ValueId> out = stage_.append(std::move(op), names);
    for (size_t i = 0; i < out.size(); ++i) again_[static_cast<size_t>(phase)][of.out[i]] = out[i];
  }

  Stage& stage_;
  const std::vector<OpGroup>& groups_;
  const bool deferred_;
  std::vector<Replay> replays_;
  std::map<ValueId, size_t> replay_of_;
  std::multimap<ValueId, const Op*> readers_;                            // in F
  std::map<ValueId, ValueId> again_[static_cast<size_t>(Phase::W) + 1];  // by phase: the clone's value
};

}  // namespace

std::vector<std::string> recompute_words() {
  std::vector<std::string> words;
  for (const GroupWord& word : group_words()) words.push_back(word.name);
  return words;
}

std::vector<OpGroup> recompute_groups(std::string_view text) { return parse_groups(text, "recompute"); }

void recompute(Stage& stage, const std::vector<OpGroup>& groups, bool deferred) {
  if (!groups.empty()) Recomputer(stage, groups, deferred).run();
}

}  // namespace heddle::passes
