#include "heddle/passes/host/bring_weights.h"

#include <algorithm>
#include <tuple>

namespace heddle::passes {

using ir::none;
using ir::Op;
using ir::Phase;
using ir::ValueId;

namespace {
constexpr double kWorthIt = 2;  // a weight leaves for at least so many times what its copy takes
}  // namespace

void BringWeights::run() {
  find_uses();
  for (bool settled = false; !settled;) {
    const std::set<ValueId> late = place();
    settled = late.empty();
    for (const ValueId id : late) stay(id);
    std::erase_if(uses_, [&](const auto& use) { return late.contains(listing_.base(use.first.first)); });
  }
  write();
}

void BringWeights::find_uses() {
  for (size_t i = 0; i < listing_.ops.size(); ++i) {
    const Op& op = listing_.ops[i];
    if (ir::once_a_step(op.phase)) continue;
    for (const ValueId id : op.in) {
      if (id == none || !is_away(id)) continue;
      auto& in = uses_[{id, op.chunk}].in[block_of(op.phase, order_.deferred)];
      if (!in) in = Uses::InBlock{i, i, op.phase};
      in->last = i;
      in->phase = std::min(in->phase, op.phase);
    }
  }
}

double BringWeights::copy_us(ValueId id, size_t use) const {
  return kMargin * duration_us_(listing_, bring(id, listing_.ops[use]));
}

// True if the copy of a chunk's forward is still good for its backward.
bool BringWeights::one_serves_both(const Uses& uses, const Timeline& forward, const Timeline& backward, int chunk,
                                   ValueId id) const {
  const auto &f = uses.in[kBlockF], &i = uses.in[kBlockI];
  if (!f || !i || chunk >= std::ssize(order_.at_once) || !order_.at_once[chunk]) return false;
  const double left_us = forward.start_of(f->last) + duration_us_(listing_, listing_.ops[f->last]);
  return forward.end_us - left_us + backward.start_of(i->first) < kWorthIt * copy_us(id, f->first);
}

// Finds the places of the copies. Returns the weights that come too late, and need not go.
std::set<ValueId> BringWeights::place() {
  std::set<ValueId> late;
  fetches_.clear();
  shared_.clear();
  for (int chunk = 0; chunk < std::ssize(listing_.chunks); ++chunk) {
    std::vector<Timeline> times;
    for (size_t b = 0; b < kBlocks; ++b)
      times.emplace_back(listing_, chunk, phases_of(b, order_.deferred), duration_us_);
    for (const auto& [key, uses] : uses_) {
      if (key.second == chunk && one_serves_both(uses, times[kBlockF], times[kBlockI], chunk, key.first))
        shared_.insert(key);
    }
    for (size_t b = 0; b < kBlocks; ++b) place_in(chunk, b, times[b], times[kBlockF].end_us, late);
  }
  return late;
}

void BringWeights::place_in(int chunk, size_t b, const Timeline& block, double room_us, std::set<ValueId>& late) {
  std::vector<Fetch> fetches = standing(block);
  std::vector<std::pair<Key, Phase>> of;
  for (const auto& [key, uses] : uses_) {
    if (key.second != chunk || !uses.in[b] || (b == kBlockI && shared_.contains(key))) continue;
    fetches.push_back({.use = uses.in[b]->first,
                       .of = of.size(),
                       .copy_us = copy_us(key.first, uses.in[b]->first),
                       .insists = insists(key.first)});
    of.emplace_back(key, uses.in[b]->phase);
  }
  place_fetches(fetches, block, room_us, kMostBetween);
  for (const Fetch& fetch : fetches) {
    if (fetch.stands) continue;
    const auto& [key, phase] = of[fetch.of];
    if (fetch.too_late && !fetch.insists) late.insert(listing_.base(key.first));
    fetches_[fetch.before].push_back({key, b, phase, fetch.use, fetch.ahead});
  }
}

void BringWeights::write() {
  std::map<std::tuple<ValueId, int, size_t>, ValueId> here;  // by weight, chunk, block
  std::vector<Op> ops = std::move(listing_.ops);
  listing_.ops.clear();
  for (size_t i = 0; i < ops.size(); ++i) {
    if (const auto at = fetches_.find(i); at != fetches_.end()) {
      std::sort(at->second.begin(), at->second.end(),
                [](const Placed& a, const Placed& b) { return a.use < b.use; });
      for (const Placed& placed : at->second) {
        const auto [id, chunk] = placed.key;
        Op copy = bring(id, ops[i]);
        copy.condition = {};  // others read it too
        copy.phase = placed.phase;
        copy.ahead = placed.ahead;
        here[{id, chunk, placed.block}] = listing_.append(std::move(copy), {listing_.value(id).name + ".in"})[0];
      }
    }
    Op& op = ops[i];
    if (ir::once_a_step(op.phase)) {
      append_once(std::move(op));
      continue;
    }
    for (ValueId& id : op.in) {
      if (id == none || !is_away(id)) continue;
      const size_t block = block_of(op.phase, order_.deferred);
      const bool both = block == kBlockI && shared_.contains({id, op.chunk});
      id = here.at({id, op.chunk, both ? kBlockF : block});
    }
    listing_.ops.push_back(std::move(op));
  }
}

}  // namespace heddle::passes
