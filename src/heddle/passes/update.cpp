#include "heddle/passes/update.h"

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::Role;
using ir::ValueId;

class Writer {
 public:
  Writer(model::StageText& text, const UpdateOptions& options) : stage_(text.stage), text_(text), o_(options) {}

  void write() {
    std::vector<ValueId> parts;
    for (const model::Parameter& p : text_.parameters) {
      if (!p.trained) continue;
      HEDDLE_CHECK(stage_.accumulators.contains(p.value), "nothing makes a gradient of '{}'", p.name);
      parts.push_back(op("grad_square_sum", stage_.accumulators.at(p.value), {"square." + p.name})[0]);
    }
    const auto norm = op("grad_norm", parts, {"norm", "clip"}, {{"max_norm", o_.clip_norm}});
    op("accumulate", {norm[0]}, {}, {}, {statistic("grad_norm")});
    const ValueId hyper = op("load_step", {}, {"hyper"})[0];
    for (const model::Parameter& p : text_.parameters) {
      if (p.trained) step(p, norm[1], hyper);
    }
    if (o_.bias_update_rate > 0) {
      for (const model::Parameter& p : text_.parameters) {
        if (!p.name.ends_with("e_score_correction_bias")) continue;
        const ValueId load = stage_.find(fmt::format("load.{}", layer_of(p.value)));
        op("router_bias_update", {load}, {}, {{"rate", o_.bias_update_rate}}, {p.value});
      }
    }
  }

 private:
  std::vector<ValueId> op(std::string_view kind, std::vector<ValueId> in, std::vector<std::string> names,
                          ir::Attributes attributes = {}, std::vector<ValueId> updates = {}) {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    op.updates = std::move(updates);
    op.phase = ir::Phase::end;
    op.attributes = std::move(attributes);
    return stage_.append(std::move(op), names);
  }

  int layer_of(ValueId weight) const {
    for (const ir::Op& op : stage_.ops) {
      for (const ValueId id : op.in) {
        if (id == weight) return op.layer;
      }
    }
    return -1;
  }

  ValueId statistic(const std::string& name) {
    ir::Value value;
    value.name = name;
    value.dtype = Dtype::f64;
    value.shape = {{1, ir::none}};
    value.role = Role::statistic;
    return stage_.add_value(std::move(value));
  }

  ValueId beside(const ir::Value& like, const std::string& name, Dtype dtype) {
    ir::Value value = like;
    value.name = name;
    value.dtype = dtype;
    value.role = Role::optimizer;
    value.layout = ir::Layout::rows;
    value.packed_bytes = 0;
    return stage_.add_value(std::move(value));
  }

  void step(const model::Parameter& p, ValueId clip, ValueId hyper) {
    const ir::Value weight = stage_.value(p.value);
    const std::vector<ValueId> accumulators = stage_.accumulators.at(p.value);
    const Dtype wide = stage_.value(accumulators[0]).dtype;
    const bool packed = weight.layout == ir::Layout::packed;
    const bool own_master = !packed && weight.dtype == wide;
    const ValueId master = own_master ? p.value : beside(weight, "master." + p.name, wide);
    const ValueId m = beside(weight, "m." + p.name, wide), v = beside(weight, "v." + p.name, wide);
    const bool copy = !own_master && !packed && o_.fuse_copy;
    std::vector<ValueId> in{clip, hyper};
    in.insert(in.end(), accumulators.begin(), accumulators.end());
    std::vector<ValueId> updates{master, m, v};
    if (copy) updates.push_back(p.value);
    op("adamw", in, {},
       {{"beta1", o_.beta1},
        {"beta2", o_.beta2},
        {"epsilon", o_.epsilon},
        {"decay", p.decays ? o_.weight_decay : 0.0},
        {"copy", int64_t{copy}}},
       updates);
    if (packed) op("pack_weight", {master}, {}, {}, {p.value});
    if (!own_master && !packed && !copy) op("cast_weight", {master}, {}, {}, {p.value});
  }

  ir::Stage& stage_;
  model::StageText& text_;
  const UpdateOptions& o_;
};

}  // namespace

void update(model::StageText& text, const UpdateOptions& options) { Writer(text, options).write(); }

}  // namespace heddle::passes
