#include "heddle/passes/shard/shard_gradients.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/passes/copy_ops.h"
#include "heddle/passes/host/staged_ops.h"
#include "heddle/passes/shard/shard_weights.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::Role;
using ir::ValueId;

// A gradient that has a place in each microbatch only.
struct Gradient {
  ValueId sum = none;          // over the step; none of a partial that another op takes at once
  std::string group;           // whose ranks cut the sum; "" where it is whole
  int ranks = 1;               // of the group
  size_t first = 0, last = 0;  // ops: the first that writes it, the last that uses it
  bool is_used = false;
  ValueId now = none;  // of the microbatch
};

class Sharder {
 public:
  Sharder(model::RankText& text, const std::map<std::string, int>& ranks)
      : text_(text), listing_(text.listing), ranks_(ranks) {}

  void run() {
    for (const model::Parameter& p : text_.parameters) {
      const auto sums = listing_.accumulators.find(p.value);
      if (p.within.empty() || sums == listing_.accumulators.end()) continue;
      for (const ValueId id : sums->second) gradients_[id] = {.group = p.within, .ranks = ranks_.at(p.within)};
    }
    if (gradients_.empty()) return;
    find_others();
    find_uses();
    for (auto& [id, gradient] : gradients_) {
      set_space(listing_, id, ir::Space::nowhere);
      if (is_sum(id)) gradient.sum = add_sum(id, gradient);
    }
    write();
    for (auto& [weight, sums] : listing_.accumulators) {
      for (ValueId& id : sums) {
        if (const auto at = gradients_.find(id); at != gradients_.end()) id = at->second.sum;
      }
    }
  }

 private:
  bool is_sum(ValueId id) const {
    return std::any_of(listing_.accumulators.begin(), listing_.accumulators.end(), [&](const auto& of) {
      return std::find(of.second.begin(), of.second.end(), id) != of.second.end();
    });
  }
  bool is_ours(const std::vector<ValueId>& ids) const {
    return std::any_of(ids.begin(), ids.end(), [&](ValueId id) { return gradients_.contains(id); });
  }

  // An op overwrites all that it updates, or nothing: sums beside those that are cut have a place in the microbatch
  // too. So have partials that are rounded before they are added (passes/exact_sums).
  void find_others() {
    std::map<ValueId, Gradient> others;
    for (const Op& op : listing_.ops) {
      if (!is_ours(op.updates)) continue;
      for (const std::vector<ValueId>* ids : {&op.updates, &op.in}) {
        for (const ValueId id : *ids) {
          if (id != none && listing_.value(id).role == Role::accumulator && !gradients_.contains(id))
            others[id] = {};
        }
      }
    }
    gradients_.merge(others);
  }

  void find_uses() {
    for (size_t i = 0; i < listing_.ops.size(); ++i) {
      for (const std::vector<ValueId>* ids : {&listing_.ops[i].updates, &listing_.ops[i].in}) {
        for (const ValueId id : *ids) {
          if (id == none) continue;
          HEDDLE_CHECK(listing_.value(id).part_of == none || !gradients_.contains(listing_.base(id)),
                       "'{}' sums into a part of what is cut among ranks", listing_.ops[i].kind());
          const auto at = gradients_.find(id);
          if (at == gradients_.end()) continue;
          if (!std::exchange(at->second.is_used, true)) at->second.first = i;
          at->second.last = i;
        }
      }
    }
  }

  ValueId add_sum(ValueId whole, const Gradient& gradient) {
    ir::Value sum = listing_.value(whole);
    sum.name = "sum." + sum.name;
    sum.space = ir::Space::device;
    if (gradient.ranks > 1) sum.shape = {ir::Dim{run_elements(listing_, whole, gradient.ranks), none}};
    return listing_.add_value(std::move(sum));
  }

  void write() {
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (size_t i = 0; i < ops.size(); ++i) {
      for (auto& [id, gradient] : gradients_) {
        if (!gradient.is_used || gradient.first != i) continue;
        gradient.now =
            listing_.append(copy_beside("reserve", listing_, id, ops[i]), {listing_.value(id).name + ".now"})[0];
      }
      Op& op = ops[i];
      if (is_ours(op.updates) && !adds_beside(op)) op.fresh = true;
      for (std::vector<ValueId>* ids : {&op.updates, &op.in}) {
        for (ValueId& id : *ids) {
          if (const auto at = gradients_.find(id); at != gradients_.end()) id = at->second.now;
        }
      }
      const Op beside = op;
      listing_.ops.push_back(std::move(op));
      for (const auto& [id, gradient] : gradients_) {
        if (gradient.is_used && gradient.last == i && gradient.sum != none) add(id, gradient, beside);
      }
    }
  }

  // Adds a microbatch's gradient, or what this rank owns of the sum over the ranks, to the step's.
  void add(ValueId whole, const Gradient& gradient, const Op& beside) {
    ValueId summed = gradient.now;
    if (gradient.ranks > 1) {
      Op reduce = op_of("reduce_gradients", {summed}, beside);
      reduce.group = gradient.group;
      reduce.attributes = {{"ranks", int64_t{gradient.ranks}}, {"one", int64_t{1}}};
      summed = listing_.append(std::move(reduce), {"shard." + listing_.value(whole).name})[0];
    }
    Op accumulate = op_of("accumulate", {summed}, beside);
    accumulate.updates = {gradient.sum};
    listing_.append(std::move(accumulate), {});
  }

  static Op op_of(std::string_view kind, std::vector<ValueId> in, const Op& beside) {
    Op op = op_beside(kind, none, beside);
    op.in = std::move(in);
    return op;
  }

  model::RankText& text_;
  ir::Listing& listing_;
  const std::map<std::string, int>& ranks_;
  std::map<ValueId, Gradient> gradients_;
};

}  // namespace

void shard_gradients(model::RankText& text, const std::map<std::string, int>& ranks) { Sharder(text, ranks).run(); }

}  // namespace heddle::passes
