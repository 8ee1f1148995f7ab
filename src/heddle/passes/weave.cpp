#include "heddle/passes/weave.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "heddle/ir/walk/streams.h"

namespace heddle::passes {

namespace {

using ir::Op;
using ir::Phase;
using ir::ValueId;

constexpr int kLayersBehind = 2;  // that weight gradients may lag

struct Node {
  uint8_t slot = 0;
  uint32_t op = 0;
  int stream = 0;
  int channel = -1;  // the stream of its group's messages, where it sends some while it computes
  int depth = 0;     // layers of the block that come before its own
  bool weight_gradient = false, stall = false;
  double duration_us = 0, way_us = 0;  // to the end of the block, this op included
  std::vector<size_t> before, after;
  size_t missing = 0;  // of `before`, not yet placed
  double end_us = 0;
};

class Weaver {
 public:
  Weaver(const ir::StepProgram& program, const std::vector<ir::Block>& blocks, const Durations& duration_us,
         bool in_order) {
    for (size_t slot = 0; slot < blocks.size(); ++slot) {
      const ir::Listing& listing = program.listings[blocks[slot].listings[0]];
      const size_t first = nodes_.size();
      add(listing, blocks[slot], static_cast<uint8_t>(slot), duration_us);
      if (in_order) follow(first);
    }
    for (size_t i = nodes_.size(); i-- > 0;) {
      Node& node = nodes_[i];
      for (const size_t next : node.after) node.way_us = std::max(node.way_us, nodes_[next].way_us);
      node.way_us += node.duration_us;
    }
    backward_depth_.assign(blocks.size(), 0);
  }

  /// The time at which the last op ends, in the order that they have, or in that which `order` finds.
  double written_us() {
    for (size_t i = 0; i < nodes_.size(); ++i) run(nodes_[i]);
    return last_us_;
  }
  double last_us() const { return last_us_; }

  std::vector<ir::Step> order() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].missing == 0) ready_.push_back(i);
    }
    std::vector<ir::Step> steps;
    while (!ready_.empty()) {
      const size_t next = choose();
      place(next);
      steps.push_back({nodes_[next].slot, nodes_[next].op});
    }
    HEDDLE_CHECK(steps.size() == nodes_.size(), "{} of {} ops woven", steps.size(), nodes_.size());
    return steps;
  }

 private:
  void add(const ir::Listing& listing, const ir::Block& block, uint8_t slot, const Durations& duration_us) {
    Uses own;  // of values of this block's microbatch
    int depth = 0, layer = 0;
    std::optional<size_t> before_layer, latest;  // the last op of the layers before, and of this one so far
    for (size_t i = 0; i < block.steps.size(); ++i) {
      const uint32_t op_index = block.steps[i].op;
      const Op& op = listing.ops[op_index];
      const size_t at = nodes_.size();
      if (i > 0 && op.layer != layer) {
        ++depth;
        if (latest) before_layer = latest;
      }
      layer = op.layer;
      Node& node = nodes_.emplace_back();
      node.slot = slot;
      node.op = op_index;
      node.stream = stream(ir::stream_name(op));
      if (op.def->collective && op.def->stream == ir::StreamKind::compute)
        node.channel = stream(ir::channel_name(op));
      node.depth = depth;
      node.weight_gradient = op.phase == Phase::W;
      node.stall = op.def->host_stall;
      node.duration_us = duration_us(listing, op);
      const auto after = [&](size_t other) {
        if (other != at) node.before.push_back(other);
      };
      // The earlier uses of the value and its parts, by the base.
      const auto uses_of = [&](ValueId id) -> Uses::mapped_type& {
        return (ir::is_persistent(listing.value(id).role) ? persistent_ : own)[listing.base(id)];
      };
      const auto reads = [&](ValueId id) {
        if (id == ir::none) return;
        Uses::mapped_type& uses = uses_of(id);
        for (const Use& use : uses) {
          if (use.writes && listing.overlap(use.id, id)) after(use.node);
        }
        uses.push_back({id, at, false});
      };
      const auto writes = [&](ValueId id) {
        Uses::mapped_type& uses = uses_of(id);
        for (const Use& use : uses) {
          if (listing.overlap(use.id, id)) after(use.node);
        }
        std::erase_if(uses, [&](const Use& use) { return use.id == id; });  // what comes later comes after this
        uses.push_back({id, at, true});
      };
      reads(op.condition.rows_of);
      for (const ValueId id : op.in) {
        if (op.def->drops) {
          writes(id);
        } else {
          reads(id);
        }
        if (id == ir::none) continue;
        for (const ir::Dim& dim : listing.value(id).shape) reads(dim.rows_of);
      }
      for (const ValueId id : op.out) {
        for (const ir::Dim& dim : listing.value(id).shape) reads(dim.rows_of);
        writes(id);
      }
      for (const ValueId id : op.updates) writes(id);
      // An op takes the microbatches in their order.
      auto [ran, first_run] = last_run_.try_emplace(op_index, at);
      if (!first_run) after(std::exchange(ran->second, at));
      // Messages of a channel are received in the order of the listing, and of the blocks.
      if (op.def->moves == ir::Moves::to_neighbour) {
        auto [last, first] = last_send_.try_emplace(ir::channel_name(op), at);
        if (!first) after(std::exchange(last->second, at));
      }
      // Ops that are made again need nothing of the backward, and copies that are never kept nothing of the
      // forward. They wait for their layer's turn, lest all be made at once.
      if ((op.again || op.def->made_again) && before_layer) after(*before_layer);
      // A copy from the host, or a weight that is gathered, is not to come earlier than the listing has it.
      const bool timed = op.def->timed && !ir::once_a_step(op.phase);
      if ((op.def->moves == ir::Moves::from_host || timed) && latest) after(*latest);
      const bool copies = ir::is_copy(op.def->moves) || timed;
      const bool paces =
          !op.again && !copies && (op.phase != Phase::W || !latest || nodes_[*latest].weight_gradient);
      if (paces) latest = at;
      std::sort(node.before.begin(), node.before.end());
      node.before.erase(std::unique(node.before.begin(), node.before.end()), node.before.end());
      node.missing = node.before.size();
      for (const size_t other : node.before) nodes_[other].after.push_back(at);
    }
  }

  // The block whose nodes begin at `first` comes after what ended the block before it. It is also enqueued after
  // what that one sends: while the host waits for this block's counts, other ranks may wait for those messages.
  void follow(size_t first) {
    std::vector<size_t> ends, sends;
    const auto begin = nodes_.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::all_of(begin, nodes_.end(), [](const Node& node) { return node.weight_gradient; })) return;
    for (size_t i = first; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (node.before.empty()) {
        for (const size_t end : ends_) {
          node.before.push_back(end);
          order(end, i);
        }
        for (const size_t send : sends_) order(send, i);
      }
      if (node.weight_gradient) continue;
      const bool computes = node.stream == stream("compute");
      const bool goes_on = std::any_of(node.after.begin(), node.after.end(), [&](size_t next) {
        const Node& n = nodes_[next];
        return !n.weight_gradient && (n.stream == node.stream || !n.after.empty());  // not a mere send
      });
      if (!goes_on) (computes ? ends : sends).push_back(i);
    }
    ends_ = std::move(ends);
    sends_ = std::move(sends);
  }
  void order(size_t earlier, size_t later) {
    ++nodes_[later].missing;
    nodes_[earlier].after.push_back(later);
  }

  int stream(const std::string& name) {
    const auto [at, fresh] = streams_.try_emplace(name, static_cast<int>(streams_.size()));
    if (fresh) free_us_.push_back(0);
    return at->second;
  }

  double start_of(const Node& node) const {
    double start = std::max(host_us_, free_us_[node.stream]);
    if (node.channel >= 0) start = std::max(start, free_us_[node.channel]);
    for (const size_t other : node.before) start = std::max(start, nodes_[other].end_us);
    return start;
  }

  // The index of the op to place next. Ready ops of one stream that could start at once differ by priority only.
  size_t choose() const {
    size_t best = ready_[0];
    double best_start = 0, best_way = 0;
    bool first = true;
    for (const size_t i : ready_) {
      const Node& node = nodes_[i];
      const bool overdue = node.weight_gradient && backward_depth_[node.slot] >= node.depth + kLayersBehind;
      const double start = start_of(node) + (node.stall ? node.duration_us : 0);
      const double way = overdue ? kOverdue : node.weight_gradient ? 0 : node.way_us;
      if (!first && (start > best_start || (start == best_start && way <= best_way))) continue;
      first = false;
      best = i;
      best_start = start;
      best_way = way;
    }
    return best;
  }

  void run(Node& node) {
    node.end_us = start_of(node) + node.duration_us;
    free_us_[node.stream] = node.end_us;
    if (node.channel >= 0) free_us_[node.channel] = node.end_us;
    if (node.stall) host_us_ = node.end_us;
    last_us_ = std::max(last_us_, node.end_us);
  }

  void place(size_t i) {
    Node& node = nodes_[i];
    run(node);
    if (!node.weight_gradient) backward_depth_[node.slot] = std::max(backward_depth_[node.slot], node.depth);
    ready_.erase(std::find(ready_.begin(), ready_.end(), i));
    for (const size_t next : node.after) {
      if (--nodes_[next].missing == 0) ready_.push_back(next);
    }
  }

  static constexpr double kOverdue = 1e30;
  std::vector<Node> nodes_;
  struct Use {
    ValueId id;
    size_t node;
    bool writes;
  };
  using Uses = std::map<ValueId, std::vector<Use>>;  // by base: the last writes of each part and the reads since
  Uses persistent_;                                  // by all blocks, which are of one listing
  std::map<std::string, size_t> last_send_;          // by channel
  std::map<uint32_t, size_t> last_run_;              // of an op, in the blocks before
  std::vector<size_t> ends_, sends_;                 // of the last block in order
  std::vector<size_t> ready_;
  std::map<std::string, int> streams_;
  std::vector<double> free_us_;
  std::vector<int> backward_depth_;  // by slot: layers that input gradients have reached
  double host_us_ = 0, last_us_ = 0;
};

}  // namespace

void weave(const ir::StepProgram& program, ir::Block& block, const Durations& duration_us, bool pairs) {
  if (block.mixing == ir::Block::Mixing::none) return;
  const auto weave_steps = [&](ir::Block& woven) {
    const auto communicates = [&](const ir::Step& step) {
      const ir::Listing& listing = program.listings[woven.listings[step.slot]];
      return ir::communicates(*listing.ops[step.op].def);
    };
    if (std::none_of(woven.steps.begin(), woven.steps.end(), communicates)) return;
    const bool in_order = block.mixing == ir::Block::Mixing::in_order;
    woven.steps = Weaver(program, ir::parted(woven), duration_us, in_order).order();
  };
  if (pairs) {
    weave_steps(block);
    return;
  }
  std::vector<ir::Block> alone = ir::parted(block);
  for (ir::Block& part : alone) weave_steps(part);
  block.steps = ir::joined(alone).steps;
}

double lasts_us(const ir::StepProgram& program, const ir::Block& block, const Durations& duration_us, bool woven) {
  Weaver weaver(program, {block}, duration_us, false);
  if (!woven) return weaver.written_us();
  weaver.order();
  return weaver.last_us();
}

}  // namespace heddle::passes
