#include "heddle/passes/host/offload.h"

#include <algorithm>
#include <map>

#include "heddle/ops/ops.h"
#include "heddle/passes/copy_ops.h"
#include "heddle/passes/host/link_times.h"
#include "heddle/passes/stands_for.h"

namespace heddle::passes {

namespace {

using ir::Listing;
using ir::none;
using ir::Op;
using ir::Phase;
using ir::ValueId;

struct Candidate {
  ValueId value = none;
  int chunk = 0;
  size_t last_use = 0;               // in F, an index into the ops, as are:
  std::map<Phase, size_t> first_in;  // where a copy_in must have ended; phases I and W
  double copy_us = 0;
  bool stays = false;
};

// A copy that brings a candidate back, in the phase that needs it.
struct Back {
  Candidate* of;
  Phase phase;
  size_t use;
  bool ahead;
};

class Offloader {
 public:
  Offloader(Listing& listing, const std::vector<OpGroup>& groups, bool deferred, const std::vector<bool>& apart,
            const Durations& duration_us)
      : listing_(listing),
        uses_(listing),
        groups_(groups),
        deferred_(deferred),
        apart_(apart),
        duration_us_(duration_us) {}

  void run() {
    find_candidates();
    for (int chunk = 0; chunk < static_cast<int>(listing_.chunks.size()); ++chunk) plan(chunk);
    write();
  }

 private:
  struct Readers {
    std::vector<size_t> in_F;
    std::map<Phase, size_t> first;  // I, W
    bool elsewhere = false;         // in another chunk, phase or the output head
  };

  Readers readers_of(ValueId id) const {
    Readers of;
    for (const int i : uses_.readers(id)) {
      const Op& op = uses_.op(i);
      of.elsewhere = of.elsewhere || op.part == "head" || ir::once_a_step(op.phase);
      if (op.phase == Phase::F) {
        of.in_F.push_back(static_cast<size_t>(i));
      } else {
        of.first.try_emplace(op.phase, i);
      }
    }
    return of;
  }

  void find_candidates() {
    for (size_t i = 0; i < listing_.ops.size(); ++i) {
      const Op& op = listing_.ops[i];
      if (op.phase != Phase::F || op.part == "head") continue;
      for (size_t o = 0; o < op.out.size(); ++o) {
        const Readers of = readers_of(op.out[o]);
        if (!of.first.empty() && chosen(op, o, of)) add(op.out[o], i, of);
      }
    }
  }

  bool chosen(const Op& op, size_t output, const Readers& readers) const {
    const ir::Value& value = listing_.value(op.out[output]);
    const auto same_chunk = [&](size_t i) { return listing_.ops[i].chunk == op.chunk; };
    if (value.role != ir::Role::activation || value.shape.size() < 2 || readers.elsewhere ||
        uses_.writer(op.out[output])->condition ||
        !std::all_of(readers.in_F.begin(), readers.in_F.end(), same_chunk) ||
        !std::all_of(readers.first.begin(), readers.first.end(),
                     [&](const auto& r) { return same_chunk(r.second); })) {
      return false;
    }
    const Op maker = maker_of(uses_, op, output);
    for (const size_t reader : readers.in_F) {
      const int layer = listing_.ops[reader].layer;
      if (layer == maker.layer) continue;
      return std::any_of(groups_.begin(), groups_.end(), [&](const OpGroup& group) {
        return group.name == kLayerInput && layer >= group.first_layer && layer <= group.last_layer;
      });
    }
    return maker.layer >= 0 && holds(groups_, maker, maker.layer);
  }

  void add(ValueId value, size_t maker, const Readers& readers) {
    Candidate& c = candidates_.emplace_back();
    c.value = value;
    c.chunk = listing_.ops[maker].chunk;
    c.last_use = readers.in_F.empty() ? maker : readers.in_F.back();
    c.first_in = readers.first;
    if (!deferred_ && c.first_in.size() == 2) {
      c.first_in[Phase::I] = std::min(c.first_in[Phase::I], c.first_in[Phase::W]);
      c.first_in.erase(Phase::W);
    }
    Op copy = op_beside("copy_in", value, listing_.ops[maker]);
    c.copy_us = kMargin * duration_us_(listing_, copy);
  }

  // Decides which of a chunk's candidates go, and where their copies stand.
  void plan(int chunk) {
    const Timeline forward(listing_, chunk, {Phase::F}, duration_us_);
    const double room_us = apart_.at(static_cast<size_t>(chunk)) ? forward.end_us : 0;
    std::vector<Candidate*> own;
    for (Candidate& c : candidates_) {
      if (c.chunk == chunk) own.push_back(&c);
    }
    // Finds the values that leave too late. The copies go in the order in which the forward is done with the
    // values.
    std::sort(own.begin(), own.end(), [](const auto* a, const auto* b) { return a->last_use < b->last_use; });
    double free_us = 0;
    for (Candidate* c : own) {
      const double begin = std::max(free_us, forward.start_of(c->last_use));
      c->stays = begin + c->copy_us > forward.end_us + room_us;
      if (!c->stays) free_us = begin + c->copy_us;
    }
    const std::vector<std::vector<Phase>> blocks = deferred_
                                                       ? std::vector<std::vector<Phase>>{{Phase::I}, {Phase::W}}
                                                       : std::vector<std::vector<Phase>>{{Phase::I, Phase::W}};
    for (const std::vector<Phase>& phases : blocks) bring_back(own, chunk, phases, room_us);
  }

  // Copies back for blocks of these phases.
  void bring_back(const std::vector<Candidate*>& own, int chunk, const std::vector<Phase>& phases, double room_us) {
    std::vector<Fetch> needed;
    std::vector<Back> of;
    for (Candidate* c : own) {
      for (const auto& [phase, use] : c->first_in) {
        if (c->stays || std::find(phases.begin(), phases.end(), phase) == phases.end()) continue;
        needed.push_back({.use = use, .of = of.size(), .copy_us = c->copy_us});
        of.push_back({c, phase, use, false});
      }
    }
    place_fetches(needed, Timeline(listing_, chunk, phases, duration_us_), room_us);
    for (const Fetch& fetch : needed) {
      Back& back = of[fetch.of];
      back.of->stays = fetch.too_late;
      back.ahead = fetch.ahead;
      if (!fetch.too_late) fetches_[fetch.before].push_back(back);
    }
  }

  void write() {
    std::map<size_t, std::vector<Candidate*>> leaving;  // by the op after which they go
    for (Candidate& c : candidates_) {
      if (!c.stays) leaving[c.last_use].push_back(&c);
    }
    std::map<ValueId, ValueId> on_host;
    std::map<std::pair<ValueId, Phase>, ValueId> back;
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (size_t i = 0; i < ops.size(); ++i) {
      if (const auto at = fetches_.find(i); at != fetches_.end()) {
        std::sort(at->second.begin(), at->second.end(), [](const Back& a, const Back& b) { return a.use < b.use; });
        for (const Back& fetch : at->second) {
          if (fetch.of->stays) continue;
          const ValueId value = fetch.of->value;
          Op copy = op_beside("copy_in", on_host.at(value), ops[i]);
          copy.phase = fetch.phase;
          copy.ahead = fetch.ahead;
          back[{value, copy.phase}] = listing_.append(std::move(copy), {listing_.value(value).name + ".back"})[0];
        }
      }
      if (ops[i].phase == Phase::I || ops[i].phase == Phase::W) {
        for (ValueId& id : ops[i].in) {
          auto at = back.find({id, ops[i].phase});
          if (at == back.end()) at = back.find({id, Phase::I});
          if (at != back.end()) id = at->second;
        }
      }
      const Op beside = ops[i];
      listing_.ops.push_back(std::move(ops[i]));
      for (const Candidate* c : leaving[i]) {
        const std::string name = listing_.value(c->value).name + ".host";
        on_host[c->value] = listing_.append(op_beside("copy_out", c->value, beside), {name})[0];
      }
    }
  }

  Listing& listing_;
  const ir::Uses uses_;  // before anything is written
  const std::vector<OpGroup>& groups_;
  const bool deferred_;
  const std::vector<bool>& apart_;
  const Durations& duration_us_;
  std::vector<Candidate> candidates_;
  std::map<size_t, std::vector<Back>> fetches_;  // by the op before which they stand
};

}  // namespace

std::vector<std::string> offload_words() {
  std::vector<std::string> words;
  for (const GroupWord& word : group_words()) words.push_back(word.name);
  words.emplace_back(kLayerInput);
  return words;
}

std::vector<OpGroup> offload_groups(std::string_view text) {
  std::vector<OpGroup> groups = parse_groups(text, "offload", {kLayerInput});
  for (const OpGroup& group : groups) {
    if (group.above > 0)
      config_error("'{}' to offload with a limit of rows, accepted: '{}'", text_of({group}), group.name);
  }
  return groups;
}

void offload(Listing& listing, const std::vector<OpGroup>& groups, bool deferred, const std::vector<bool>& apart,
             const Durations& duration_us) {
  if (!groups.empty()) Offloader(listing, groups, deferred, apart, duration_us).run();
}

}  // namespace heddle::passes
