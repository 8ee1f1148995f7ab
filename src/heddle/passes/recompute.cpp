#include "heddle/passes/recompute.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

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

struct Group {
  std::string name, meaning;
  bool (*holds)(const Op& op);
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all{
      {"norm", "normed rows, of layers and latents", [](const Op& op) { return op.kind() == "rms_norm"; }},
      {"activation", "silu(gate) * up of MLPs and experts",
       [](const Op& op) {
         return is_one_of(op.kind(), {"swiglu", "split", "silu", "multiply"}) &&
                is_one_of(op.part, {"mlp", "shared", "expert_up"});
       }},
      {"gather", "rows that come from other ranks of tp and cp, and keys and values made from them",
       [](const Op& op) {
         return is_one_of(op.kind(), {"all_gather", "ring_shift", "sequence_to_heads"}) ||
                op.part == "sequence_keys";
       }},
      {"mla_up", "queries, keys and values from their latents, with positions",
       [](const Op& op) {
         return is_one_of(op.part, {"mla_up", "sequence_keys"}) && op.kind() != "sequence_to_heads";
       }},
      {"attention", "the core of attention",
       [](const Op& op) {
         return is_one_of(op.kind(), {"attention", "attention_part", "attention_finish", "sequence_to_heads"});
       }},
      {"router", "logits, scores and gates; never the choice", [](const Op& op) { return op.part == "router"; }},
      {"permute", "rows in the experts' order, from other ranks where experts are spread",
       [](const Op& op) {
         return is_one_of(op.kind(), {"permute", "dispatch"});
       }},
      {"expert_up", "the routed experts' first product and activation",
       [](const Op& op) { return op.part == "expert_up"; }},
      {"shared", "the shared expert", [](const Op& op) { return op.part == "shared"; }},
      {"mlp", "the dense layers' MLP", [](const Op& op) { return op.part == "mlp"; }},
      {"moe", "all of a layer's experts, but the choice",
       [](const Op& op) {
         return is_one_of(op.part, {"router", "expert_up", "expert_down", "shared"}) ||
                is_one_of(op.kind(), {"permute", "dispatch"});
       }},
      {"layer", "all but the layer's input and the choice of experts", [](const Op&) { return true; }},
  };
  return all;
}

struct Level {
  std::string name;
  std::vector<std::string> groups;
};

const std::vector<Level>& levels() {
  static const std::vector<Level> all{{"light", {"activation", "permute", "router"}},
                                      {"medium", {"activation", "permute", "router", "expert_up", "shared"}},
                                      {"full", {"moe"}}};
  return all;
}

const Group* find_group(std::string_view name) {
  for (const Group& group : groups()) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::optional<int> layer_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// An op that makes a value of F again, in terms of values of F. Its outputs are those that it stands for.
struct Replay {
  Op op;
  bool needed_in_I = false;
};

class Recomputer {
 public:
  Recomputer(Stage& stage, const std::vector<RecomputeChoice>& choices, bool deferred)
      : stage_(stage), choices_(choices), deferred_(deferred) {}

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
    return std::any_of(choices_.begin(), choices_.end(), [&](const RecomputeChoice& choice) {
      return layer >= choice.first_layer && layer <= choice.last_layer && find_group(choice.group)->holds(op);
    });
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
  const std::vector<RecomputeChoice>& choices_;
  const bool deferred_;
  std::vector<Replay> replays_;
  std::map<ValueId, size_t> replay_of_;
  std::multimap<ValueId, const Op*> readers_;                            // in F
  std::map<ValueId, ValueId> again_[static_cast<size_t>(Phase::W) + 1];  // by phase: the clone's value
};

}  // namespace

const std::vector<RecomputeWord>& recompute_words() {
  static const std::vector<RecomputeWord> all = [] {
    std::vector<RecomputeWord> words;
    for (const Group& group : groups()) words.push_back({group.name, group.meaning});
    for (const Level& level : levels())
      words.push_back({level.name, fmt::format("{}", fmt::join(level.groups, ", "))});
    return words;
  }();
  return all;
}

std::vector<RecomputeChoice> parse_recompute(std::string_view text) {
  std::vector<RecomputeChoice> choices;
  if (trimmed(text).empty()) return choices;
  std::vector<std::string> names;
  for (const RecomputeWord& word : recompute_words()) names.push_back(word.name);
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const std::string_view item = trimmed(text.substr(from, comma - from));
    from = comma + 1;
    const size_t colon = std::min(item.find(':'), item.size());
    const std::string name(item.substr(0, colon));
    RecomputeChoice choice{name};
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      config_error("'{}' is nothing to recompute, accepted: {}{}", name.substr(0, 40), fmt::join(names, ", "),
                   did_you_mean(name, names));
    }
    if (colon < item.size()) {
      const std::string_view range = item.substr(colon + 1);
      const size_t dash = std::min(range.find('-'), range.size());
      const auto first = layer_number(range.substr(0, dash));
      const auto last = dash < range.size() ? layer_number(range.substr(dash + 1)) : first;
      if (!first || !last || *first > *last) {
        config_error("'{}' is no range of layers, accepted: '{}:3' or '{}:0-3'", item.substr(0, 60), name, name);
      }
      choice.first_layer = *first;
      choice.last_layer = *last;
    }
    const auto level =
        std::find_if(levels().begin(), levels().end(), [&](const Level& l) { return l.name == name; });
    if (level == levels().end()) {
      choices.push_back(choice);
      continue;
    }
    for (const std::string& group : level->groups) {
      choice.group = group;
      choices.push_back(choice);
    }
  }
  return choices;
}

void recompute(Stage& stage, const std::vector<RecomputeChoice>& choices, bool deferred) {
  if (!choices.empty()) Recomputer(stage, choices, deferred).run();
}

}  // namespace heddle::passes
