#include "heddle/passes/shard/shard_weights.h"

#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/passes/copy_ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::ValueId;

class Gatherer : public BringWeights {
 public:
  struct Run {
    ValueId id = none;
    std::string group;
    int ranks = 1;
  };

  Gatherer(ir::Listing& listing, std::map<ValueId, Run> runs, const BlockOrder& order, const Durations& duration_us)
      : BringWeights(listing, order, duration_us), runs_(std::move(runs)) {}

 protected:
  bool is_away(ValueId id) const override {
    HEDDLE_CHECK(listing_.value(id).part_of == none || !runs_.contains(listing_.base(id)),
                 "'{}' is a part of a weight that is cut among ranks", listing_.value(id).name);
    return runs_.contains(id);
  }
  Op bring(ValueId id, const Op& beside) const override {
    const Run& run = runs_.at(id);
    Op op = op_beside("gather_rows", run.id, beside);
    op.group = run.group;
    op.attributes.set("ranks", int64_t{run.ranks});
    const ir::Shape& shape = listing_.value(id).shape;
    for (size_t i = 0; i < shape.size(); ++i) op.attributes.set(fmt::format("dim{}", i), shape[i].count);
    return op;
  }
  bool insists(ValueId) const override { return true; }
  void stay(ValueId) override {}
  std::vector<Fetch> standing(const Timeline&) const override { return {}; }

 private:
  std::map<ValueId, Run> runs_;
};

std::string name_of_run(const ir::Value& weight, const model::Parameter& p) {
  if (!p.across.empty() && !p.frozen) return "shard." + p.name;
  const bool wide = weight.dtype == Dtype::f32 || weight.dtype == Dtype::f64;
  return (wide && !p.frozen ? "master." : "copy.") + p.name;
}

ir::Value run_like(const ir::Listing& listing, const model::Parameter& p, int ranks) {
  ir::Value run = listing.value(p.value);
  run.name = name_of_run(run, p);
  run.shape = {ir::Dim{run_elements(listing, p.value, ranks), none}};
  run.space = ir::Space::device;
  run.shared_with = -1;
  return run;
}

}  // namespace

int64_t run_elements(const ir::Listing& listing, ValueId whole, int64_t ranks) {
  return (listing.elements(whole, ir::FixedRows()) + ranks - 1) / ranks;
}

ValueId run_of_weight(const ir::Listing& listing, const std::string& name) {
  const ValueId weight = listing.find(name);
  if (weight == none || listing.value(weight).space != ir::Space::nowhere) return none;
  for (const char* run : {"shard.", "copy.", "master."}) {
    if (const ValueId id = listing.find(run + name); id != none) return id;
  }
  internal_error("'{}' has no place, and neither has a part of it", name);
}

void shard_weights(model::RankText& text, const ShardedWeights& weights, const BlockOrder& order,
                   const Durations& duration_us) {
  std::map<ValueId, Gatherer::Run> runs;
  for (const model::Parameter& p : text.parameters) {
    const auto at = weights.find(p.name);
    if (at == weights.end()) continue;
    const ValueId run = text.listing.add_value(run_like(text.listing, p, at->second));
    text.listing.value(p.value).space = ir::Space::nowhere;
    runs[p.value] = {run, p.within, at->second};
  }
  Gatherer(text.listing, std::move(runs), order, duration_us).run();
}

void gather_sharded_weights(model::RankText& text, const ir::Listing& owner, int index,
                            const ShardedWeights& weights, const Durations& duration_us) {
  std::map<ValueId, Gatherer::Run> runs;
  for (const model::Parameter& p : text.parameters) {
    const auto at = weights.find(p.name);
    if (at == weights.end()) continue;
    ir::Value run = owner.value(run_of_weight(owner, p.name));
    run.shared_with = index;
    run.space = ir::Space::device;  // until host_weights moves it to where the owner has it
    text.listing.value(p.value).space = ir::Space::nowhere;
    const ValueId id = text.listing.add_value(std::move(run));
    runs[p.value] = {id, p.within, at->second};
  }
  const BlockOrder order;
  Gatherer(text.listing, std::move(runs), order, duration_us).run();
}

}  // namespace heddle::passes
