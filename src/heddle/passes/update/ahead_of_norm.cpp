#include "heddle/passes/update/ahead_of_norm.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "heddle/ops/ops.h"
#include "heddle/passes/copies.h"

namespace heddle::passes {

namespace {

using ir::Condition;
using ir::Op;
using ir::Phase;
using ir::ValueId;

constexpr const char* kNormStream = "norm";  // what computes doesn't queue behind the norm there
constexpr const char* kKeepStream = "keep";  // nor activations behind the state that is kept

bool is_square(const Op& op) { return op.kind().starts_with("grad_square_sum"); }
bool makes_gradient(const Op& op) { return op.kind() == "reduce_gradients" || op.kind() == "round_gradient"; }
bool is_update(const Op& op) { return op.kind() == "adamw" || op.kind() == "adamw_split"; }
bool is_remake(const Op& op) { return op.kind() == "cast_weight" || op.kind() == "pack_weight"; }

class Rewriter {
 public:
  explicit Rewriter(ir::Listing& listing) : listing_(listing) {}

  void run() {
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (Op& op : ops) (op.phase == Phase::end ? end_ : listing_.ops).push_back(std::move(op));
    find_norm();
    look_back();
    write_end();
    take_back();
    keep();
  }

 private:
  Op op(std::string_view kind, Phase phase, std::vector<ValueId> in = {}, std::vector<ValueId> updates = {}) const {
    Op op;
    op.def = &ops::find(kind);
    op.phase = phase;
    op.in = std::move(in);
    op.updates = std::move(updates);
    return op;
  }

  // The value that outlives the step in the place of one that doesn't.
  ValueId held(ValueId id, const std::string& name) {
    const ir::Value& value = listing_.value(id);
    return listing_.add_value(
        {.name = name, .dtype = value.dtype, .shape = value.shape, .role = ir::Role::statistic});
  }

  void find_norm() {
    for (const Op& op : end_) {
      if (op.kind() == "grad_norm") norm_ = op;
      if (op.kind() == "load_step") hyper_ = op.out[0];
    }
    HEDDLE_CHECK(norm_.def != nullptr, "no norm to run ahead of");
    for (const Op& op : end_) {
      if (op.kind() == "accumulate" && op.in[0] == norm_.result("norm")) norm_statistic_ = op.updates[0];
    }
    clip_held_ = held(norm_.result("clip"), "clip.held");
    hyper_held_ = held(hyper_, "hyper.held");
  }

  void look_back() {
    const ValueId before = held(norm_.result("norm"), "norm.before");
    Op judge = op("post_validation", Phase::check, {norm_statistic_, clip_held_}, {before});
    judge.stream = kNormStream;
    const std::vector<ValueId> decided = listing_.append(std::move(judge), {"failed", "attempt"});
    failed_ = {decided[0], 0, true};
    attempts_ = {decided[1], 0, true};
    waits_ = {decided[1], 0, false};
  }

  void trail(Op op) {
    op.trails = true;
    if (op.group.empty()) op.stream = kNormStream;
    listing_.ops.push_back(std::move(op));
  }
  void add(Op op, const Condition& condition) {
    op.condition = condition;
    listing_.ops.push_back(std::move(op));
  }

  // The updates that run ahead come in the order in which gradients arrive, each beside its square.
  void write_end() {
    const auto take = [&](const auto& is) {
      std::vector<Op> taken;
      for (const Op& op : end_) {
        if (is(op)) taken.push_back(op);
      }
      std::erase_if(end_, is);
      return taken;
    };
    const std::vector<Op> gradients = take(makes_gradient), squares = take(is_square);
    const std::vector<Op> load = take([](const Op& op) { return op.kind() == "load_step"; });
    listing_.ops.insert(listing_.ops.end(), gradients.begin(), gradients.end());
    listing_.ops.insert(listing_.ops.end(), load.begin(), load.end());
    listing_.append(op("accumulate", Phase::end, {hyper_}, {hyper_held_}), {});
    Op nothing = op("grad_norm", Phase::end);  // of no gradients: a factor of 1
    nothing.attributes.set("max_norm", 0.0);
    const ValueId one = listing_.append(std::move(nothing), {"norm.none", "clip.none"})[1];
    for (size_t i = end_.size(); i-- > 0;) {
      if (!is_update(end_[i])) continue;
      Op ahead = end_[i];
      for (const Op& square : squares) {
        if (std::equal(square.in.begin(), square.in.end(), ahead.in.begin() + 2, ahead.in.end()))
          listing_.ops.push_back(square);
      }
      ahead.in[0] = one;
      add(std::move(ahead), attempts_);
      for (const Op& remake : remakes_of(end_[i])) add(remake, attempts_);
    }
    for (const Op& op : end_) {
      if (is_update(op) || is_remake(op)) {
        add(op, waits_);
      } else if (belongs_to_norm(op)) {
        trail(op);
        if (op.kind() == "grad_norm") trail(this->op("accumulate", Phase::end, {op.result("clip")}, {clip_held_}));
      } else {
        listing_.ops.push_back(op);
      }
    }
    end_.insert(end_.begin(), gradients.begin(), gradients.end());
  }

  // What sums up over the ranks, takes the root, and what is read of it besides the factor.
  bool belongs_to_norm(const Op& op) const {
    if (op.kind() == "all_reduce") return std::find(norm_.in.begin(), norm_.in.end(), op.out[0]) != norm_.in.end();
    return op.kind() == "grad_norm" || (op.kind() == "accumulate" && op.updates[0] == norm_statistic_);
  }

  std::vector<Op> remakes_of(const Op& adamw) const {
    std::vector<Op> remakes;
    for (const Op& op : end_) {
      if (is_remake(op) && op.in[0] == adamw.updates[0]) remakes.push_back(op);
    }
    return remakes;
  }

  static std::vector<ValueId> state_of(const Op& adamw) {
    std::vector<ValueId> state;
    for (size_t u = 0; u < adamw.updates.size(); ++u) {
      if (!ir::overwrites(adamw, u)) state.push_back(adamw.updates[u]);
    }
    return state;
  }
  ValueId kept(ValueId state) {
    const ir::Value& value = listing_.value(state);
    const std::string name = "kept." + value.name;
    if (const ValueId known = listing_.find(name); known != ir::none) return known;
    return listing_.add_value({.name = name,
                               .dtype = value.dtype,
                               .shape = value.shape,
                               .role = ir::Role::optimizer,
                               .space = ir::Space::host});
  }

  // The end of the step before once more, with the right factor.
  void take_back() {
    std::map<ValueId, ValueId> again;  // the gradients
    for (const Op& made : end_) {
      if (!makes_gradient(made)) continue;
      Op op = made;
      std::vector<std::string> names;
      for (const ValueId id : made.out) names.push_back(listing_.value(id).name + ".again");
      for (ValueId& id : op.in) id = again.contains(id) ? again.at(id) : id;
      op.out.clear();
      op.phase = Phase::check;
      op.condition = failed_;
      const std::vector<ValueId> out = listing_.append(std::move(op), names);
      for (size_t i = 0; i < out.size(); ++i) again[made.out[i]] = out[i];
    }
    for (const Op& made : end_) {
      if (!is_update(made)) continue;
      for (const ValueId state : state_of(made)) add(op("copy_in", Phase::check, {kept(state)}, {state}), failed_);
      Op adamw = made;
      adamw.phase = Phase::check;
      adamw.in[0] = clip_held_;
      adamw.in[1] = hyper_held_;
      for (ValueId& id : adamw.in) id = again.contains(id) ? again.at(id) : id;
      add(std::move(adamw), failed_);
      for (Op remake : remakes_of(made)) {
        remake.phase = Phase::check;
        add(std::move(remake), failed_);
      }
    }
  }

  void keep() {
    for (const Op& made : end_) {
      if (!is_update(made)) continue;
      for (const ValueId state : state_of(made)) {
        Op copy = op("copy_out", Phase::check, {state}, {kept(state)});
        copy.stream = kKeepStream;
        add(std::move(copy), attempts_);
      }
    }
  }

  ir::Listing& listing_;
  std::vector<Op> end_;  // as it was
  Op norm_;
  ValueId hyper_ = ir::none, norm_statistic_ = ir::none, clip_held_ = ir::none, hyper_held_ = ir::none;
  Condition failed_, attempts_, waits_;
};

}  // namespace

void ahead_of_norm(ir::Listing& listing) { Rewriter(listing).run(); }

}  // namespace heddle::passes
