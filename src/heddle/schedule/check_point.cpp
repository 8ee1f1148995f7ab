#include "heddle/schedule/check_point.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace heddle::schedule {

namespace {

using ir::Action;
using ir::Block;
using ir::Op;
using ir::Phase;

using Channel = std::tuple<int, int, Phase>;  // from, to

class Checks {
 public:
  Checks(ir::StepProgram& program, ir::StepProgram::ActionLists& actions,
         const std::vector<std::vector<size_t>>& bounds, int first_listing)
      : program_(program), actions_(actions), bounds_(bounds), first_listing_(first_listing) {}

  void add() {
    const ir::Block first = ir::make_block(program_, first_listing_, ir::BlockKind::check);
    if (first.steps.empty()) return;
    for (int r = 0; r < ranks(); ++r) cuts_.push_back(before_backward(r));
    while (crossed()) {
    }
    restart_ = block("restart", Block::Does::restarts);
    stop_ = block("stop", Block::Does::stops);
    ir::StepProgram::ActionLists checked;
    for (int r = 0; r < ranks(); ++r) checked.push_back(checked_actions(r));
    actions_ = std::move(checked);
  }

 private:
  int ranks() const { return static_cast<int>(actions_.size()); }
  const std::vector<Action>& actions_of(int rank) const { return actions_[static_cast<size_t>(rank)]; }
  size_t& cut(int rank) { return cuts_[static_cast<size_t>(rank)]; }

  int block(const char* name, Block::Does does) {
    program_.blocks.push_back({.name = name, .listings = {}, .steps = {}, .does = does});
    return static_cast<int>(program_.blocks.size()) - 1;
  }

  template <class Visit>
  void each_op(const Action& action, const Visit& visit) const {
    const Block& block = program_.blocks[static_cast<size_t>(action.block)];
    for (const ir::Step& step : block.steps)
      visit(program_.listings[static_cast<size_t>(block.listings[step.slot])].ops[step.op]);
  }

  size_t before_backward(int rank) const {
    const std::vector<Action>& actions = actions_of(rank);
    const std::vector<size_t>& bounds = bounds_[static_cast<size_t>(rank)];
    for (size_t b = 0; b < bounds.size(); ++b) {
      const size_t end = b + 1 < bounds.size() ? bounds[b + 1] : actions.size();
      bool backward = false;
      for (size_t i = bounds[b]; i < end; ++i) {
        each_op(actions[i], [&](const Op& op) {
          const bool is_gradient = op.phase == Phase::I || op.phase == Phase::W;
          backward = backward || op.phase == Phase::end ||
                     (is_gradient && !op.ahead && op.def->moves != ir::Moves::from_neighbour);
        });
      }
      if (backward) return bounds[b];
    }
    return actions.size() - 1;  // before the end
  }

  // What a rank's actions up to there have sent, or received.
  std::map<Channel, size_t> passed(int rank, size_t end, ir::Moves moves) const {
    std::map<Channel, size_t> messages;
    for (size_t i = 0; i < end; ++i) {
      each_op(actions_of(rank)[i], [&](const Op& op) {
        if (op.def->moves == moves) ++messages[channel(rank, op)];
      });
    }
    return messages;
  }
  static Channel channel(int rank, const Op& op) {
    const int there = rank + static_cast<int>(op.attributes.integer("step"));
    return op.def->moves == ir::Moves::to_neighbour ? Channel{rank, there, op.phase}
                                                    : Channel{there, rank, op.phase};
  }

  // Whether a rank received before its check what is sent after the sender's; if so, its check comes earlier now.
  bool crossed() {
    for (int r = 0; r < ranks(); ++r) {
      std::map<Channel, size_t> received;
      for (size_t i = 0; i < cut(r); ++i) {
        bool crosses = false;
        each_op(actions_of(r)[i], [&](const Op& op) {
          if (op.def->moves != ir::Moves::from_neighbour) return;
          const Channel from = channel(r, op);
          const int sender = std::get<0>(from);
          crosses = crosses || ++received[from] > passed(sender, cut(sender), ir::Moves::to_neighbour)[from];
        });
        if (!crosses) continue;
        const std::vector<size_t>& bounds = bounds_[static_cast<size_t>(r)];
        cut(r) = *std::prev(std::upper_bound(bounds.begin(), bounds.end(), i));
        return true;
      }
    }
    return false;
  }

  std::vector<Action> checked_actions(int rank) {
    const std::vector<Action>& actions = actions_of(rank);
    const int listing = first_listing_ + rank;
    const auto cut_at = actions.begin() + static_cast<std::ptrdiff_t>(cut(rank));
    std::vector<Action> checked(actions.begin(), cut_at);
    program_.blocks.push_back(ir::make_block(program_, listing, ir::BlockKind::check));
    checked.push_back({static_cast<int>(program_.blocks.size()) - 1, {-1}});
    const auto add = [&](Action action, int64_t limit) {
      action.condition = {decision(listing), limit, true};
      action.decided_in = listing;
      checked.push_back(std::move(action));
    };
    // What is under way.
    std::map<Channel, size_t> waiting;
    const std::map<Channel, size_t> received = passed(rank, cut(rank), ir::Moves::from_neighbour);
    for (int from = 0; from < ranks(); ++from) {
      for (const auto& [to, sent] : passed(from, cut(from), ir::Moves::to_neighbour)) {
        if (std::get<1>(to) != rank) continue;
        const auto at = received.find(to);
        waiting[to] = sent - (at == received.end() ? 0 : at->second);
      }
    }
    for (auto action = cut_at; action != actions.end(); ++action) {
      bool is_waiting = false;
      each_op(*action, [&](const Op& op) {
        if (op.def->moves != ir::Moves::from_neighbour) return;
        size_t& left = waiting[channel(rank, op)];
        is_waiting = left > 0;
        left -= is_waiting ? 1 : 0;
      });
      if (is_waiting) add(*action, 0);
    }
    add({restart_, {}}, 0);
    add({stop_, {}}, 1);
    for (auto action = actions.begin(); action != cut_at; ++action) add(*action, 0);
    checked.insert(checked.end(), cut_at, actions.end());
    return checked;
  }

  ir::ValueId decision(int listing) const {
    for (const Op& op : program_.listings[static_cast<size_t>(listing)].ops) {
      if (op.phase == Phase::check && !op.def->decides.empty()) return op.out[0];
    }
    internal_error("the check of listing {} decides nothing", listing);
  }

  ir::StepProgram& program_;
  ir::StepProgram::ActionLists& actions_;
  const std::vector<std::vector<size_t>>& bounds_;
  const int first_listing_;
  std::vector<size_t> cuts_;  // by rank: the actions before its check
  int restart_ = 0, stop_ = 0;
};

}  // namespace

void add_checks(ir::StepProgram& program, ir::StepProgram::ActionLists& actions,
                const std::vector<std::vector<size_t>>& bounds, int first_listing) {
  Checks(program, actions, bounds, first_listing).add();
}

}  // namespace heddle::schedule
