#include "heddle/passes/fuse.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::Stage;
using ir::ValueId;

// A stage's ops while patterns in them are replaced.
class Rewriter {
 public:
  explicit Rewriter(Stage& stage) : stage_(stage) {}

  /// The op that writes `id`, or -1.
  int writer_of(ValueId id) const {
    for (size_t i = 0; i < stage_.ops.size(); ++i) {
      const auto& out = stage_.ops[i].out;
      if (std::find(out.begin(), out.end(), id) != out.end()) return static_cast<int>(i);
    }
    return -1;
  }
  /// The only op that reads or mentions `id`, or -1 when there are none or several.
  int only_reader_of(ValueId id) const {
    int reader = -1;
    for (size_t i = 0; i < stage_.ops.size(); ++i) {
      const Op& o = stage_.ops[i];
      if (std::find(o.in.begin(), o.in.end(), id) == o.in.end() &&
          std::find(o.mentions.begin(), o.mentions.end(), id) == o.mentions.end()) {
        continue;
      }
      if (reader >= 0) return -1;
      reader = static_cast<int>(i);
    }
    return reader;
  }
  bool is(int op, std::string_view kind) const {
    return op >= 0 && stage_.ops[static_cast<size_t>(op)].kind() == kind;
  }
  const Op& op(int i) const { return stage_.ops[static_cast<size_t>(i)]; }
  int count() const { return static_cast<int>(stage_.ops.size()); }

  /// Puts `fused` in the place of op `at` and removes the other `parts`.
  void replace(int at, std::vector<int> parts, Op fused) {
    fused.phase = op(at).phase;
    fused.layer = op(at).layer;
    fused.chunk = op(at).chunk;
    fused.part = op(at).part;
    if (fused.group.empty()) fused.group = op(at).group;
    stage_.ops[static_cast<size_t>(at)] = std::move(fused);
    std::sort(parts.rbegin(), parts.rend());
    for (const int part : parts) {
      if (part != at) stage_.ops.erase(stage_.ops.begin() + part);
    }
  }

 private:
  Stage& stage_;
};

Op fused_op(std::string_view kind, std::vector<ValueId> in, std::vector<ValueId> out,
            ir::Attributes attributes = {}) {
  Op op;
  op.def = &ops::find(kind);
  op.in = std::move(in);
  op.out = std::move(out);
  op.attributes = std::move(attributes);
  return op;
}

// Each pattern looks at one op (the anchor) and returns whether it rewrote.

bool fuse_norm(Rewriter& r, int anchor) {
  if (!r.is(anchor, "rms_norm")) return false;
  const int add = r.writer_of(r.op(anchor).in[0]);
  if (!r.is(add, "add") || r.op(add).chunk != r.op(anchor).chunk) return false;
  const Op a = r.op(add), n = r.op(anchor);
  r.replace(add, {anchor},
            fused_op("add_rms_norm", {a.in[0], a.in[1], n.in[1]}, {a.out[0], n.out[0], n.out[1]}, n.attributes));
  return true;
}

bool fuse_swiglu(Rewriter& r, int anchor) {
  if (!r.is(anchor, "multiply")) return false;
  const int silu = r.writer_of(r.op(anchor).in[0]), split = r.writer_of(r.op(anchor).in[1]);
  if (!r.is(silu, "silu") || !r.is(split, "split") || r.op(silu).in[0] != r.op(split).out[0]) return false;
  const Op s = r.op(split), m = r.op(anchor);
  if (r.only_reader_of(s.out[0]) < 0 || r.only_reader_of(s.out[1]) < 0 || r.only_reader_of(m.in[0]) < 0)
    return false;
  r.replace(anchor, {silu, split}, fused_op("swiglu", {s.in[0]}, {m.out[0]}));
  return true;
}

bool fuse_rope(Rewriter& r, int anchor) {
  if (!r.is(anchor, "mla_assemble")) return false;
  const int k_rope = r.writer_of(r.op(anchor).in[1]);
  if (!r.is(k_rope, "rope") || r.only_reader_of(r.op(anchor).in[1]) < 0) return false;
  const Op assemble = r.op(anchor), k = r.op(k_rope);
  int attention = -1;
  for (int i = anchor; i < r.count(); ++i) {
    if (r.is(i, "attention") && r.op(i).in[1] == assemble.out[0]) attention = i;
  }
  if (attention < 0) return false;
  const int q_rope = r.writer_of(r.op(attention).in[0]);
  if (!r.is(q_rope, "rope") || r.only_reader_of(r.op(q_rope).out[0]) < 0 || q_rope > anchor) return false;
  const Op q = r.op(q_rope);
  ir::Attributes attributes = assemble.attributes;
  attributes.set("sequence", q.attributes.integer("sequence"));
  attributes.set("interleaved", q.attributes.integer("interleaved"));
  r.replace(anchor, {k_rope, q_rope},
            fused_op("mla_rope", {q.in[0], assemble.in[0], k.in[0], q.in[1]},
                     {q.out[0], assemble.out[0], assemble.out[1]}, attributes));
  return true;
}

bool fuse_router(Rewriter& r, int anchor) {
  if (!r.is(anchor, "gate")) return false;
  const Op gate = r.op(anchor);
  const int scores = r.writer_of(gate.in[0]), choose = r.writer_of(gate.in[1]);
  if (!r.is(scores, "router_scores") || !r.is(choose, "choose")) return false;
  const Op s = r.op(scores), c = r.op(choose);
  ir::Attributes attributes = s.attributes;
  for (const Op* part : {&c, &gate}) {
    for (const auto& [name, item] : part->attributes.items()) attributes.set(name, item);
  }
  r.replace(scores, {choose, anchor},
            fused_op("router", {s.in[0], c.in.size() > 1 ? c.in[1] : none},
                     {s.out[0], gate.out[0], c.out[0], c.out[1], c.out[2], c.out[3]}, attributes));
  return true;
}

// On one rank `unpermute`, on several `collect`: each takes the residual last.
bool fuse_combine(Rewriter& r, int anchor) {
  if (!r.is(anchor, "add")) return false;
  const Op add = r.op(anchor);
  const int sum = r.writer_of(add.in[0]);
  if (!r.is(sum, "unpermute") && !r.is(sum, "collect")) return false;
  const size_t without = r.is(sum, "unpermute") ? 4 : 9;
  if (r.op(sum).in.size() > without || r.only_reader_of(add.in[0]) < 0) return false;
  Op fused = r.op(sum);
  fused.in.push_back(add.in[1]);
  fused.out = {add.out[0]};
  r.replace(anchor, {sum}, std::move(fused));
  return true;
}

bool fuse_linear_loss(Rewriter& r, int anchor) {
  if (!r.is(anchor, "cross_entropy")) return false;
  const Op loss = r.op(anchor);
  const int linear = r.writer_of(loss.in[0]);
  if (!r.is(linear, "linear") || r.op(linear).in.size() > 2 || r.only_reader_of(loss.in[0]) < 0) return false;
  const Op l = r.op(linear);
  r.replace(
      anchor, {linear},
      fused_op("linear_cross_entropy", {l.in[0], l.in[1], loss.in[1], loss.in[2]}, loss.out, loss.attributes));
  return true;
}

}  // namespace

const std::vector<std::string>& fusion_names() {
  static const std::vector<std::string> names{"norm", "swiglu", "rope", "router", "combine", "loss", "adamw"};
  return names;
}

void fuse(Stage& stage, const std::set<std::string>& wanted) {
  for (const std::string& name : wanted) {
    if (std::find(fusion_names().begin(), fusion_names().end(), name) == fusion_names().end()) {
      config_error("unknown fusion '{}'{}", name, did_you_mean(name, fusion_names()));
    }
  }
  using Pattern = bool (*)(Rewriter&, int);
  // `combine` comes before `norm`: both want the addition that follows the experts.
  const std::vector<std::pair<std::string, Pattern>> patterns{
      {"combine", fuse_combine}, {"norm", fuse_norm},     {"swiglu", fuse_swiglu},
      {"rope", fuse_rope},       {"router", fuse_router}, {"loss", fuse_linear_loss}};
  Rewriter rewriter(stage);
  for (const auto& [name, pattern] : patterns) {
    if (!wanted.contains(name)) continue;
    for (int i = 0; i < rewriter.count(); ++i) {
      if (pattern(rewriter, i)) i = -1;  // places have moved
    }
  }
}

void fuse_norm_gradient(Stage& stage) {
  Rewriter r(stage);
  for (int i = 0; i < r.count(); ++i) {
    if (!r.is(i, "add") || r.op(i).phase != ir::Phase::I) continue;
    const Op add = r.op(i);
    const int norm = r.writer_of(add.in[1]), residual = r.writer_of(add.in[0]);
    if (!r.is(norm, "rms_norm_dgrad") || residual < 0 || residual > norm || r.only_reader_of(add.in[1]) < 0)
      continue;
    Op& dgrad = stage.ops[static_cast<size_t>(norm)];
    if (dgrad.in.size() > 4 && dgrad.in[4] != none) continue;
    dgrad.in.resize(5, none);
    dgrad.in[4] = add.in[0];
    dgrad.out[0] = add.out[0];
    stage.ops.erase(stage.ops.begin() + i);
    i = -1;
  }
}

void fuse_loss(Stage& stage) {
  Rewriter r(stage);
  for (int i = 0; i < r.count(); ++i) {
    if (!r.is(i, "linear_cross_entropy_dgrad")) continue;
    const Op dgrad = r.op(i);
    const int forward = r.writer_of(dgrad.in[3]);
    int wgrad = -1;
    for (int k = 0; k < r.count(); ++k) {
      if (r.is(k, "linear_cross_entropy_wgrad") && r.op(k).in == dgrad.in) wgrad = k;
    }
    const Op f = r.op(forward);
    const int keep = r.only_reader_of(f.out[0]);
    HEDDLE_CHECK(wgrad > i && r.is(keep, "accumulate"),
                 "linear_cross_entropy lacks its weight gradient or its sum");
    Op train = fused_op("linear_cross_entropy_train", f.in, {f.out[0], dgrad.out[0]}, dgrad.attributes);
    train.updates = r.op(wgrad).updates;
    train.phase = ir::Phase::I;
    train.layer = dgrad.layer;
    train.chunk = dgrad.chunk;
    Op sum = r.op(keep);
    sum.phase = ir::Phase::I;
    stage.ops[static_cast<size_t>(i)] = std::move(train);
    stage.ops[static_cast<size_t>(wgrad)] = std::move(sum);
    stage.ops.erase(stage.ops.begin() + keep);
    stage.ops.erase(stage.ops.begin() + forward);
    i = -1;
  }
}

}  // namespace heddle::passes
