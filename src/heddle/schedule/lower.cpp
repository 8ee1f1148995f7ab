#include "heddle/schedule/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace heddle::schedule {

namespace {

using ir::Block;
using ir::BlockKind;
using ir::Op;
using ir::Phase;

/// The channel from one pipeline rank to another, of activations (F) or gradients (I).
struct StageChannel {
  int from, to;
  Phase phase;
  auto operator<=>(const StageChannel&) const = default;
};
/// The pipeline stage whose output, or whose output's gradient, it is.
struct Message {
  int64_t edge;
  int microbatch;
  auto operator<=>(const Message&) const = default;
};

constexpr size_t kMostNeighbours = 6;

BlockKind block_of(Kind kind) {
  switch (kind) {
    case Kind::F: return BlockKind::F;
    case Kind::I: return BlockKind::I;
    case Kind::W: return BlockKind::W;
    case Kind::B: return BlockKind::IW;
  }
  internal_error("kind {}", static_cast<int>(kind));
}

class Lowerer {
 public:
  Lowerer(ir::StepProgram& program, const Schedule& schedule, const Lowering& lowering)
      : program_(program), schedule_(schedule), lowering_(lowering) {
    const auto stages = static_cast<int>(schedule.placement.rank_of.size());
    chunk_of_.resize(static_cast<size_t>(stages));
    for (int r = 0; r < schedule.placement.ranks; ++r) {
      const std::vector<int> own = schedule.placement.stages_of(r);
      for (size_t c = 0; c < own.size(); ++c) chunk_of_[own[c]] = static_cast<int>(c);
    }
    for (int r = 0; r < schedule.placement.ranks; ++r) {
      for (const Action& action : schedule.order[r]) {
        for (const Compute& c : action.computes()) {
          if (c.kind == Kind::W) continue;
          const Op* send = message_op(r, chunk(c), phase_of(c), ir::Moves::to_neighbour);
          if (send != nullptr) sent_[channel(r, *send)].push_back({edge_of(*send), c.microbatch});
        }
      }
    }
  }

  std::vector<ir::Action> actions_of(int rank) {
    rank_ = rank;
    actions_.clear();
    begun_.clear();
    arrived_.clear();
    if (begins(ir::kAllChunks)) act(BlockKind::begin, ir::kAllChunks, -1);
    if (!lowering_.trains()) {  // the weights are those of the training stages, whatever runs of them here
      for (int k = 0; k < chunks_of(rank); ++k) {
        if (begins(k)) act(BlockKind::begin, k, -1);
      }
    }
    const std::vector<Action>& order = schedule_.order[rank];
    std::vector<Group> groups;
    for (size_t i = 0; i < order.size();) groups.push_back(group_at(order, i));
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const Compute& c : groups[g].computes) receive(c);
      if (g == 0) fetch(groups[0]);
      const bool before = g + 1 < groups.size() && !makes_what_is_fetched(groups[g], groups[g + 1]);
      if (before) fetch(groups[g + 1]);
      run(groups[g]);
      if (g + 1 < groups.size() && !before) fetch(groups[g + 1]);
    }
    act(BlockKind::end, 0, -1);
    return std::move(actions_);
  }

 private:
  int chunk(const Compute& c) const { return chunk_of_[c.stage]; }
  static Phase phase_of(const Compute& c) { return c.kind == Kind::F ? Phase::F : Phase::I; }
  int text_of(int rank) const { return lowering_.first_listing + rank; }
  static int64_t edge_of(const Op& op) { return op.attributes.integer_or("edge", 0); }

  int chunks_of(int rank) const { return static_cast<int>(program_.listings[text_of(rank)].chunks.size()); }

  const Op* message_op(int rank, int chunk, Phase phase, ir::Moves moves) {
    auto [at, fresh] = messages_.try_emplace({rank, chunk, phase, moves}, nullptr);
    if (!fresh) return at->second;
    for (const Op& op : program_.listings[text_of(rank)].ops) {
      if (op.chunk == chunk && op.phase == phase && op.def->moves == moves && at->second == nullptr)
        at->second = &op;
    }
    return at->second;
  }
  /// The channel of a send or receive of `rank`.
  static StageChannel channel(int rank, const Op& op) {
    const int there = rank + static_cast<int>(op.attributes.integer("step"));
    return op.def->moves == ir::Moves::to_neighbour ? StageChannel{rank, there, op.phase}
                                                    : StageChannel{there, rank, op.phase};
  }

  struct Key {
    int text;
    bool in_order;
    std::vector<std::pair<BlockKind, int>> parts;  // with their chunks
    Key(int text, bool in_order) : text(text), in_order(in_order) {}
    Key(int text, BlockKind kind, int chunk) : text(text), in_order(true), parts{{kind, chunk}} {}
    auto operator<=>(const Key&) const = default;
  };
  template <class Make>
  int block(const Key& key, const Make& make) {
    auto [at, fresh] = made_.try_emplace(key, static_cast<int>(program_.blocks.size()));
    if (fresh) program_.blocks.push_back(make());
    return at->second;
  }
  void add(int block, std::vector<int> microbatches) {
    if (!program_.blocks[block].steps.empty()) actions_.push_back({block, std::move(microbatches)});
  }
  // The beginning, the end, or a receive.
  void act(BlockKind kind, int chunk, int microbatch) {
    const int text = kind == BlockKind::begin ? rank_ : text_of(rank_);
    add(block({text, kind, chunk}, [&] { return ir::make_block(program_, text, kind, chunk); }), {microbatch});
  }

  void receive(const Compute& c) {
    if (c.kind == Kind::W) return;
    const Op* wanted = message_op(rank_, chunk(c), phase_of(c), ir::Moves::from_neighbour);
    if (wanted == nullptr) return;
    const StageChannel from = channel(rank_, *wanted);
    const std::vector<Message>& queue = sent_[from];
    std::set<Message>& arrived = arrived_[from];
    const Message message{edge_of(*wanted), c.microbatch};
    while (!arrived.contains(message)) {
      HEDDLE_CHECK(arrived.size() < queue.size(),
                   "pipeline rank {} waits for microbatch {} of stage {}, which rank {} "
                   "does not send",
                   rank_, message.microbatch, message.edge, from.from);
      const Message next = queue[arrived.size()];
      for (int k = 0; k < chunks_of(rank_); ++k) {
        const Op* op = message_op(rank_, k, from.phase, ir::Moves::from_neighbour);
        if (op == nullptr || edge_of(*op) != next.edge) continue;
        act(from.phase == Phase::F ? BlockKind::receive_F : BlockKind::receive_I, k, next.microbatch);
      }
      arrived.insert(next);
    }
  }

  bool begins(int chunk) {
    const bool begins = is_to_begin(chunk);
    begun_.insert(chunk);
    return begins;
  }
  bool is_to_begin(int chunk) const {
    if (begun_.contains(chunk)) return false;
    const std::vector<Op>& ops = program_.listings[rank_].ops;
    return std::any_of(ops.begin(), ops.end(),
                       [&](const Op& op) { return op.phase == Phase::begin && op.chunk == chunk; });
  }

  /// The computations that are enqueued as one block: one computation, a fused pair, or neighbours.
  struct Group {
    std::vector<Compute> computes;
    bool in_order = false;
  };

  // The group that begins with action i, which goes on to the one after it. No two of a group are of one
  // microbatch: then they need nothing of each other.
  Group group_at(const std::vector<Action>& order, size_t& i) const {
    Group group{order[i].computes()};
    bool fills = order[i].first.kind == Kind::W;  // has weight gradients that the schedule places by themselves
    const bool pair = order[i++].with.has_value();
    if (pair || !lowering_.at_once || group.computes[0].kind == Kind::F) return group;
    const auto next = [&](bool weight_gradient) {
      if (i == order.size() || order[i].with || (order[i].first.kind == Kind::W) != weight_gradient) return false;
      return std::none_of(group.computes.begin(), group.computes.end(),
                          [&](const Compute& c) { return c.microbatch == order[i].first.microbatch; });
    };
    const auto take_own_weight_gradient = [&] {
      Compute& last = group.computes.back();
      if (last.kind != Kind::I || i == order.size() || order[i].with) return;
      if (order[i].first != Compute{Kind::W, last.stage, last.microbatch}) return;
      last.kind = Kind::B;
      fills = true;
      ++i;
    };
    take_own_weight_gradient();
    while (group.computes.size() < kMostNeighbours && next(true)) {
      group.computes.push_back(order[i++].first);
      fills = true;
    }
    if (fills && next(false) && lowering_.at_once(rank_, i)) {
      group.computes.push_back(order[i++].first);
      take_own_weight_gradient();
    }
    group.in_order = group.computes.size() > 1;
    return group;
  }

  // Fetches what a group copies from the host before it begins. Weights that the beginning has yet to make are
  // fetched behind it.
  void fetch(const Group& group) {
    for (const Compute& c : group.computes) {
      if (c.kind == Kind::F && !is_to_begin(chunk(c))) act(BlockKind::fetch_F, chunk(c), c.microbatch);
      if (c.kind == Kind::I || c.kind == Kind::B) act(BlockKind::fetch_I, chunk(c), c.microbatch);
      if (c.kind == Kind::W || c.kind == Kind::B) act(BlockKind::fetch_W, chunk(c), c.microbatch);
    }
  }
  // True if a group leaves on the host what the next one fetches: values of its forward, sums of weight gradients,
  // or weights of a chunk that begins with it.
  bool makes_what_is_fetched(const Group& first, const Group& next) {
    return std::any_of(first.computes.begin(), first.computes.end(), [&](const Compute& made) {
      return std::any_of(next.computes.begin(), next.computes.end(), [&](const Compute& c) {
        if (c.stage != made.stage) return false;
        if (made.kind == Kind::F) return c.microbatch == made.microbatch || is_to_begin(chunk(made));
        return sums(made.kind) && sums(c.kind) && fetches_sums(chunk(c));
      });
    });
  }
  static bool sums(Kind kind) { return kind == Kind::W || kind == Kind::B; }
  bool fetches_sums(int chunk) const {
    const std::vector<Op>& ops = program_.listings[text_of(rank_)].ops;
    return std::any_of(ops.begin(), ops.end(),
                       [&](const Op& op) { return op.later && op.ahead && op.chunk == chunk; });
  }

  void run(const Group& group) {
    const int text = text_of(rank_);
    for (const Compute& c : group.computes) {
      if (c.kind != Kind::F || !begins(chunk(c))) continue;
      if (group.computes.size() == 1) {
        Key key{text, BlockKind::begin, chunk(c)};
        key.parts.emplace_back(BlockKind::F, chunk(c));
        add(block(key, [&] { return ir::make_first_block(program_, text, chunk(c)); }), {-1, c.microbatch});
        return;
      }
      act(BlockKind::begin, chunk(c), -1);
      act(BlockKind::fetch_F, chunk(c), c.microbatch);
    }
    Key key{text, group.in_order};
    std::vector<int> microbatches;
    for (const Compute& c : group.computes) {
      key.parts.emplace_back(block_of(c.kind), chunk(c));
      microbatches.push_back(c.microbatch);
    }
    const int made = block(key, [&] {
      std::vector<Block> blocks;
      for (const auto& [kind, chunk] : key.parts) blocks.push_back(ir::make_block(program_, text, kind, chunk));
      Block all = ir::joined(blocks);  // a fused pair, or neighbours
      all.mixing = group.in_order ? Block::Mixing::in_order : Block::Mixing::free;
      return all;
    });
    add(made, std::move(microbatches));
  }

  ir::StepProgram& program_;
  const Schedule& schedule_;
  const Lowering& lowering_;
  std::vector<int> chunk_of_;  // by pipeline stage
  std::map<Key, int> made_;
  std::map<std::tuple<int, int, Phase, ir::Moves>, const Op*> messages_;
  std::map<StageChannel, std::vector<Message>> sent_;
  int rank_ = 0;
  std::vector<ir::Action> actions_;
  std::set<int> begun_;
  std::map<StageChannel, std::set<Message>> arrived_;
};

}  // namespace

void lower(ir::StepProgram& program, ir::StepProgram::ActionLists& actions, const Schedule& schedule,
           const Lowering& lowering) {
  Lowerer lowerer(program, schedule, lowering);
  for (int r = 0; r < schedule.placement.ranks; ++r) actions.push_back(lowerer.actions_of(r));
}

}  // namespace heddle::schedule
