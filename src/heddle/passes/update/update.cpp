#include "heddle/passes/update/update.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "heddle/ir/uses.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/host/staged_ops.h"
#include "heddle/passes/muon.h"
#include "heddle/passes/shard/shard_weights.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Phase;
using ir::Role;
using ir::ValueId;

class UpdateWriter {
 public:
  UpdateWriter(model::RankText& text, const UpdateOptions& options)
      : listing_(text.listing), uses_(text.listing), text_(text), o_(options) {}

  std::vector<ir::Op> write() {
    for (const model::Parameter& p : text_.parameters) {
      if (!p.trained) continue;
      HEDDLE_CHECK(listing_.accumulators.contains(p.value), "nothing makes a gradient of '{}'", p.name);
      if (reduced_over(p).empty()) gradients_[p.value] = listing_.accumulators.at(p.value);
    }
    reduce_gradients();
    if (o_.exact_sums) round_gradients();
    std::vector<ValueId> parts;
    for (const model::Parameter& p : text_.parameters) {
      if (!p.trained) continue;
      const char* kind = o_.exact_sums ? "grad_square_sum_exact" : "grad_square_sum";
      parts.push_back(op(kind, gradients_.at(p.value), {"square." + p.name})[0]);
    }
    const int world = o_.ranks_of("world");
    if (world > 1 || o_.exact_sums)
      parts = op("sum_parts", parts, {"square"}, {{"size", int64_t{o_.exact_sums ? 4 : 1}}});
    if (world > 1) {
      parts = op("all_reduce", parts, {"square_all"}, {{"ranks", int64_t{world}}}, {}, "world");
    }
    const auto norm = op("grad_norm", parts, {"norm", "clip"}, {{"max_norm", o_.clip_norm}});
    op("accumulate", {norm[0]}, {}, {},
       {model::add_statistic(listing_, text_.statistics, {.kind = &model::kGradientNorm}, {{1, none}},
                             Dtype::f64)});
    // Learning rate, 1 − β₁ᵗ and 1 − β₂ᵗ of step t, rate of the balancing biases.
    ValueId clip = norm[1], hyper = load({.name = "hyper", .dtype = Dtype::f64, .shape = {4}, .owner = "rates"});
    if (o_.skips_outliers()) leave_out(norm[0], clip, hyper);
    gather_max_logits();
    std::vector<MuonTarget> matrices;
    for (const model::Parameter& p : text_.parameters) {
      if (moves_by_muon(p, listing_, o_)) matrices.push_back(muon_target(p));
    }
    const auto others = [&] {
      for (const model::Parameter& p : text_.parameters) {
        if (p.trained && !moves_by_muon(p, listing_, o_)) step(p, clip, hyper);
      }
    };
    write_muon(listing_, o_, matrices, clip, hyper, others, [&](const MuonTarget& target) {
      const auto later = late_copies_.find(target.parameter->value);
      moved(*target.parameter, target.master, later == late_copies_.end() ? target.copy : later->second, clip);
    });
    if (o_.move_biases) update_biases(hyper);
    phase_ = Phase::begin;
    gather_weights();
    return std::move(restores_);
  }

 private:
  int ranks_of(const model::Parameter& p) const { return o_.ranks_of(p.replica_group); }

  // The group among which the end of a step sums what its ranks hold of a gradient, and that among which its
  // beginning gathers what they hold of a weight; "" where the rank has it already.
  std::string reduced_over(const model::Parameter& p) const {
    if (!p.within.empty()) return p.across;
    return ranks_of(p) > 1 ? p.replica_group : "";
  }
  std::string gathered_over(const model::Parameter& p) const {
    if (is_sharded(p)) return p.across;
    return ranks_of(p) > 1 ? p.replica_group : "";
  }
  bool is_sharded(const model::Parameter& p) const { return listing_.value(p.value).space == ir::Space::nowhere; }
  // The weight that lasts: the whole, or this rank's run.
  ValueId lasting(const model::Parameter& p) const {
    return is_sharded(p) ? run_of_weight(listing_, p.name) : p.value;
  }

  /// In the places of factor and rates come those by which an outlier moves nothing. The loss is that of all ranks.
  void leave_out(ValueId norm, ValueId& clip, ValueId& hyper) {
    std::vector<ValueId> losses;
    for (const model::Statistic& s : text_.statistics) {
      if (s.kind->objective) losses.push_back(s.value);
    }
    const int world = o_.ranks_of("world");
    losses = op("sum_parts", losses, {"loss"}, {{"size", int64_t{1}}});
    if (world > 1) losses = op("all_reduce", losses, {"loss_all"}, {{"ranks", int64_t{world}}}, {}, "world");
    // The largest norm, and the largest loss summed over labels, of a step that is not left out.
    const ValueId limits = load({.name = "limits",
                                 .dtype = Dtype::f64,
                                 .shape = {2},
                                 .owner = "outliers",
                                 .otherwise = ir::Default::of(std::numeric_limits<double>::infinity())});
    const std::vector<ValueId> decided =
        op("skip_outlier", {norm, clip, hyper, limits, losses[0]}, {"clip.decided", "hyper.decided", "skipped"});
    op("accumulate", {decided[2]}, {}, {},
       {model::add_statistic(listing_, text_.statistics, {.kind = &model::kSkipped}, {{1, none}}, Dtype::f64)});
    clip = decided[0];
    hyper = decided[1];
  }

  std::vector<ValueId> op(std::string_view kind, std::vector<ValueId> in, std::vector<std::string> names,
                          ir::Attributes attributes = {}, std::vector<ValueId> updates = {},
                          std::string group = "") {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    op.updates = std::move(updates);
    op.phase = phase_;
    op.chunk = chunk_;
    // The ranks across runs are on the stream of the group that they are runs of: what ends a step needs no more.
    if (const size_t run = group.find('_'); run != std::string::npos) op.stream = "comm." + group.substr(0, run);
    op.group = std::move(group);
    op.attributes = std::move(attributes);
    return listing_.append(std::move(op), names);
  }

  ValueId load(const ir::Input& input) {
    listing_.add_input(input);
    return op("load", {}, {input.name}, {{"input", input.name}})[0];
  }

  struct Bucket {
    std::string group;
    std::vector<const model::Parameter*> parameters;
  };

  /// The parameters that a group shares, in buckets of one group and type, and of one chunk when the first comes
  /// first. `bytes` of each counts towards the bucket's size.
  template <class Group, class Bytes>
  std::vector<Bucket> buckets(bool last_first, Group group, Bytes bytes) const {
    std::vector<Bucket> full;
    std::map<std::tuple<std::string, Dtype, int>, std::pair<std::vector<const model::Parameter*>, int64_t>> open;
    std::vector<const model::Parameter*> order;
    for (const model::Parameter& p : text_.parameters) {
      if (p.trained && !group(p).empty()) order.push_back(&p);
    }
    if (last_first) std::reverse(order.begin(), order.end());
    for (const model::Parameter* p : order) {
      const int64_t size = bytes(*p);
      if (size == 0) {
        full.push_back({group(*p), {p}});  // alone
        continue;
      }
      auto& [bucket, sum] = open[{group(*p), listing_.value(p->value).dtype, last_first ? 0 : chunk_of(*p)}];
      if (!bucket.empty() && sum + size > o_.bucket_bytes) {
        full.push_back({group(*p), std::move(bucket)});
        bucket.clear();
        sum = 0;
      }
      bucket.push_back(p);
      sum += size;
    }
    for (auto& [key, rest] : open) {
      if (!rest.first.empty()) full.push_back({std::get<std::string>(key), std::move(rest.first)});
    }
    return full;
  }

  void reduce_gradients() {
    const auto bytes = [&](const model::Parameter& p) {
      const std::vector<ValueId>& uses = listing_.accumulators.at(p.value);
      return uses.size() > 1 ? 0 : listing_.bytes(uses[0], ir::FixedRows());
    };
    const auto over = [&](const model::Parameter& p) { return reduced_over(p); };
    for (const auto& [group, bucket] : buckets(true, over, bytes)) {
      std::vector<ValueId> in;
      std::vector<std::string> names;
      for (const model::Parameter* p : bucket) {
        const std::vector<ValueId>& uses = listing_.accumulators.at(p->value);
        in.insert(in.end(), uses.begin(), uses.end());
        names.push_back("shard.grad." + p->name);
      }
      const bool one = bucket.size() == 1;
      ir::Attributes attributes{{"ranks", int64_t{o_.ranks_of(group)}}, {"one", int64_t{one}}};
      const auto order = o_.order_of_uses.find(bucket[0]->name);
      if (one && order != o_.order_of_uses.end()) attributes.set("order", order->second);
      const auto shards = op("reduce_gradients", in, names, attributes, {}, group);
      for (size_t i = 0; i < bucket.size(); ++i) gradients_[bucket[i]->value] = {shards[i]};
    }
  }

  void round_gradients() {
    for (auto& [weight, sums] : gradients_) {
      const std::string name = listing_.value(weight).name;
      const bool wide = listing_.value(weight).dtype == Dtype::f64;
      sums = op("round_gradient", sums, {"rounded." + name}, {{"dtype", std::string(wide ? "f64" : "f32")}});
    }
  }

  /// The op that uses a weight first, or null.
  const ir::Op* first_use(ValueId weight) const { return uses_.first_reader(weight); }
  /// In whose beginning a weight is gathered. One that other pipeline ranks hold too must not wait for what they
  /// wait for, so it is gathered before anything else.
  int chunk_of(const model::Parameter& p) const {
    if (p.on_several_stages) return ir::kAllChunks;
    const ir::Op* first = first_use(lasting(p));
    return first == nullptr ? 0 : first->chunk;
  }

  // A run that is read before the end is there already (passes/shard).
  ValueId state(const ir::Shape& shape, const std::string& name, Dtype dtype, Role role = Role::optimizer) {
    if (const ValueId known = listing_.find(name); known != none) return known;
    ir::Value value;
    value.name = name;
    value.dtype = dtype;
    value.shape = shape;
    value.role = role;
    return listing_.add_value(std::move(value));
  }

  struct MomentPair {
    ValueId m, v;
  };
  // Wider than fp32 they stay as they are.
  MomentPair moments(const model::Parameter& p, const ir::Shape& shape, Dtype wide) {
    const bool narrow = o_.moments != Moments::fp32 && wide == Dtype::f32;
    const Dtype second = narrow ? Dtype::bf16 : wide;
    const Dtype first = narrow && o_.moments == Moments::fp8 ? Dtype::u8 : second;
    return {state(shape, "m." + p.name, first), state(shape, "v." + p.name, second)};
  }

  void step(const model::Parameter& p, ValueId clip, ValueId hyper) {
    const std::vector<ValueId>& gradients = gradients_.at(p.value);
    const ir::Shape shape = listing_.value(gradients[0]).shape;
    const Dtype wide = listing_.value(gradients[0]).dtype;
    const ir::Value& weight = listing_.value(p.value);
    const bool packed = weight.layout == ir::Layout::packed;
    if (o_.split_masters && (ranks_of(p) > 1 || !packed) && weight.dtype == Dtype::bf16 && wide == Dtype::f32)
      return step_split(p, clip, hyper);
    const ValueId master = master_of(p);
    const auto [m, v] = moments(p, shape, wide);
    std::vector<ValueId> in{clip, hyper};
    in.insert(in.end(), gradients.begin(), gradients.end());
    std::vector<ValueId> updates{master, m, v};
    const ValueId copy = copy_of(p, master);
    const bool copies = copy != none && !scales(p);
    if (copies) updates.push_back(copy);
    op("adamw", in, {},
       {{"beta1", o_.beta1},
        {"beta2", o_.beta2},
        {"epsilon", o_.epsilon},
        {"decay", p.decays ? o_.weight_decay : 0.0},
        {"copy", int64_t{copies}}},
       updates);
    moved(p, master, copy, clip);
  }

  /// Behind the update of a whole master.
  void moved(const model::Parameter& p, ValueId master, ValueId copy, ValueId clip) {
    if (scales(p)) {
      scale_heads("scale_heads", p, clip, {master});
      if (copy != none) listing_.append(remake("cast_weight", master, copy), {});
    }
    remake_of(p, master, copy);
    average(p, master, clip);
  }

  // A weight whose heads may shrink behind the update, which then makes no copy of it.
  bool scales(const model::Parameter& p) const { return o_.qk_clip > 0 && p.trained && p.heads.rows > 0; }

  // Brings those of all ranks that hold runs of one weight, in the order of the runs.
  void gather_max_logits() {
    for (const model::Parameter& p : text_.parameters) {
      if (!scales(p)) continue;
      const auto [at, fresh] = most_.try_emplace({p.layer, p.replica_group}, none);
      if (!fresh) continue;
      ValueId& most = at->second;
      most = model::value_of(text_.statistics, model::kMaxLogits, p.layer);
      HEDDLE_CHECK(most != none, "nothing keeps the largest logits of '{}'", p.name);
      if (ranks_of(p) == 1) continue;
      most = op("all_gather", {most}, {fmt::format("max_logits_all.{}", p.layer)},
                {{"ranks", int64_t{ranks_of(p)}}, {"runs", int64_t{1}}}, {}, p.replica_group)[0];
    }
  }

  void scale_heads(std::string_view kind, const model::Parameter& p, ValueId clip, std::vector<ValueId> updates) {
    const ir::Shape& shape = listing_.value(p.value).shape;
    op(kind, {clip, most_.at({p.layer, p.replica_group})}, {},
       {{"above", o_.qk_clip},
        {"heads", shape[0].count / p.heads.rows},
        {"rows", p.heads.rows},
        {"first", p.heads.first},
        {"first_power", p.heads.first_power},
        {"rest_power", p.heads.rest_power},
        {"columns", shape.size() == 1 ? int64_t{1} : shape[1].count}},
       std::move(updates));
  }

  void average(const model::Parameter& p, ValueId master, ValueId clip) {
    if (o_.average_decay <= 0) return;
    const ir::Value value = listing_.value(master);
    op("average_master", {clip, master}, {}, {{"decay", o_.average_decay}},
       {state(value.shape, "average." + p.name, value.dtype)});
  }

  MuonTarget muon_target(const model::Parameter& p) {
    MuonTarget target{&p, gradients_.at(p.value)};
    const ir::Value gradient = listing_.value(target.gradients[0]);
    target.master = master_of(p);
    target.momentum = state(gradient.shape, "m." + p.name, gradient.dtype);
    target.copy = copy_of(p, target.master);
    if (scales(p) && target.copy != none) late_copies_[p.value] = std::exchange(target.copy, none);
    return target;
  }

  // As the gradient lies: a value of its own, or the weight where that is wide, whole and in rows.
  ValueId master_of(const model::Parameter& p) {
    const ir::Value& weight = listing_.value(p.value);
    const ir::Value gradient = listing_.value(gradients_.at(p.value)[0]);
    const bool own = weight.layout != ir::Layout::packed && ranks_of(p) == 1 && weight.dtype == gradient.dtype;
    return own ? p.value : state(gradient.shape, "master." + p.name, gradient.dtype);
  }

  // The rounded copy of the master that the update writes; none if the weight is made from the master itself or
  // needs no copy.
  ValueId copy_of(const model::Parameter& p, ValueId master) {
    const ir::Value weight = listing_.value(p.value);
    const bool sharded = ranks_of(p) > 1;
    ValueId copy = none;
    if (weight.dtype != listing_.value(master).dtype) {
      if (sharded) {
        copy = state(listing_.value(master).shape, "copy." + p.name, weight.dtype);
      } else if (weight.layout != ir::Layout::packed && o_.fuse_copy) {
        copy = p.value;
      }
    }
    if (sharded) sources_[p.value] = copy != none ? copy : master;
    return copy;
  }

  // Behind its update: the weight, where the update has not written it.
  void remake_of(const model::Parameter& p, ValueId master, ValueId copy) {
    if (copy != none) restores_.push_back(remake("cast_weight", master, copy));
    if (ranks_of(p) > 1 || master == p.value || copy != none) return;
    const bool packed = listing_.value(p.value).layout == ir::Layout::packed;
    restores_.push_back(remake(packed ? "pack_weight" : "cast_weight", master, p.value));
    listing_.append(restores_.back(), {});
  }

  // The weight, or the rounded run that this rank hands out, is the upper half of the master: nothing is made of
  // it.
  void step_split(const model::Parameter& p, ValueId clip, ValueId hyper) {
    const std::vector<ValueId>& gradients = gradients_.at(p.value);
    const ir::Shape shape = listing_.value(gradients[0]).shape;
    std::vector<ValueId> in{clip, hyper};
    in.insert(in.end(), gradients.begin(), gradients.end());
    const bool sharded = ranks_of(p) > 1;
    const ValueId rest = state(shape, "rest." + p.name, Dtype::u16);
    const auto [m, v] = moments(p, shape, Dtype::f32);
    const ValueId weight = sharded ? state(shape, "copy." + p.name, Dtype::bf16) : p.value;
    if (sharded) sources_[p.value] = weight;
    op("adamw_split", in, {},
       {{"beta1", o_.beta1},
        {"beta2", o_.beta2},
        {"epsilon", o_.epsilon},
        {"decay", p.decays ? o_.weight_decay : 0.0}},
       {rest, m, v, weight});
    if (scales(p)) scale_heads("scale_heads_split", p, clip, {rest, v, weight});
  }

  ir::Op remake(std::string_view kind, ValueId master, ValueId weight) const {
    return {.def = &ops::find(kind), .in = {master}, .updates = {weight}, .phase = phase_, .chunk = chunk_};
  }

  void update_biases(ValueId hyper) {
    for (const model::Parameter& p : text_.parameters) {
      if (!p.balances || p.frozen) continue;
      const int ranks = ranks_of(p);
      // Margins, where they are counted, decide the biases.
      const ValueId margins = model::value_of(text_.statistics, model::kMargins, p.layer);
      const bool by_load = margins == none;
      ValueId counted = by_load ? model::value_of(text_.statistics, model::kLoad, p.layer) : margins;
      HEDDLE_CHECK(counted != none, "nothing counts the load that '{}' balances", p.name);
      if (ranks > 1) {
        counted = op("all_reduce", {counted}, {fmt::format("{}_all.{}", by_load ? "load" : "margins", p.layer)},
                     {{"ranks", int64_t{ranks}}}, {}, p.replica_group)[0];
      }
      if (by_load) {
        ir::Attributes attributes;
        if (o_.biases_by_share > 0) attributes.set("by_share", o_.biases_by_share);
        op("router_bias_update", {counted, hyper}, {}, attributes, {p.value});
      } else {
        op("quantile_bias_update", {counted, hyper}, {}, {{"top_k", o_.experts_chosen}}, {p.value});
      }
    }
  }

  void gather_weights() {
    const auto bytes = [&](const model::Parameter& p) {
      const ValueId weight = lasting(p);
      return listing_.value(weight).layout == ir::Layout::packed ? 0 : listing_.bytes(weight, ir::FixedRows());
    };
    const auto over = [&](const model::Parameter& p) { return gathered_over(p); };
    for (const auto& [group, bucket] : buckets(false, over, bytes)) {
      chunk_ = chunk_of(*bucket[0]);
      const int64_t ranks = o_.ranks_of(group);
      const ir::Value& first = listing_.value(bucket[0]->value);
      if (first.layout == ir::Layout::packed) {
        ir::Attributes attributes{{"ranks", ranks}};
        for (size_t i = 0; i < first.shape.size(); ++i)
          attributes.set(fmt::format("dim{}", i), first.shape[i].count);
        const ValueId rows = op("gather_rows", {sources_.at(bucket[0]->value)}, {"rows." + bucket[0]->name},
                                attributes, {}, group)[0];
        op("pack_weight", {rows}, {}, {}, {bucket[0]->value});
        continue;
      }
      std::vector<ValueId> in, updates;
      for (const model::Parameter* p : bucket) {
        in.push_back(sources_.at(p->value));
        updates.push_back(lasting(*p));
      }
      op("gather_weights", in, {}, {{"ranks", ranks}}, updates, group);
    }
  }

  ir::Listing& listing_;
  const ir::Uses uses_;  // of the values that were there before
  model::RankText& text_;
  const UpdateOptions& o_;
  std::vector<ir::Op> restores_;
  Phase phase_ = Phase::end;
  int chunk_ = 0;
  std::map<ValueId, std::vector<ValueId>> gradients_;    // of a weight: its accumulators, or its shard
  std::map<ValueId, ValueId> sources_;                   // of a sharded weight: the run that this rank hands out
  std::map<std::pair<int, std::string>, ValueId> most_;  // largest logits of a layer, of each rank of a group
  std::map<ValueId, ValueId> late_copies_;  // of a weight that Muon moves: the copy that is made once heads shrink
};

}  // namespace

std::vector<ir::Op> update(model::RankText& text, const UpdateOptions& options) {
  return UpdateWriter(text, options).write();
}

ir::Listing restore_listing(const std::vector<ir::Op>& restores, const ir::Listing& owner, int index) {
  ir::Listing listing;
  listing.name = owner.name + ", restore";
  const auto shared = [&](ValueId& id) {
    const ir::Value& owned = owner.value(id);
    id = listing.find(owned.name);
    if (id != none) return;
    ir::Value value = owned;
    value.shared_with = index;
    id = listing.add_value(std::move(value));
  };
  for (ir::Op op : restores) {
    op.chunk = 0;
    for (std::vector<ValueId>* ids : {&op.in, &op.updates}) {
      for (ValueId& id : *ids) shared(id);
    }
    append_staged(listing, std::move(op));
  }
  return listing;
}

}  // namespace heddle::passes
