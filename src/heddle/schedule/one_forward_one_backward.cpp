#include "heddle/schedule/one_forward_one_backward.h"

#include <algorithm>
#include <map>

namespace heddle::schedule {

using ir::BlockKind;

std::vector<Compute> one_forward_one_backward(int rank, int ranks, int microbatches) {
  std::vector<Compute> order{{BlockKind::begin, rank, -1}};
  const int warm_up = std::min(ranks - 1 - rank, microbatches);
  for (int m = 0; m < warm_up; ++m) order.push_back({BlockKind::F, rank, m});
  for (int m = warm_up; m < microbatches; ++m) {
    order.push_back({BlockKind::F, rank, m});
    order.push_back({BlockKind::IW, rank, m - warm_up});
  }
  for (int m = microbatches - warm_up; m < microbatches; ++m) order.push_back({BlockKind::IW, rank, m});
  return order;
}

static bool has_beginning(const ir::StepProgram& program, int stage) {
  const std::vector<ir::Op>& ops = program.stages[static_cast<size_t>(stage)].ops;
  return std::any_of(ops.begin(), ops.end(), [](const ir::Op& op) { return op.phase == ir::Phase::begin; });
}

void lower(ir::StepProgram& program, ir::StepProgram::ActionLists& lists,
           const std::vector<std::vector<Compute>>& ranks) {
  std::map<std::pair<BlockKind, int>, int> made;
  for (const std::vector<Compute>& order : ranks) {
    std::vector<ir::Action>& actions = lists.emplace_back();
    const auto block = [&](BlockKind kind, int stage, const auto& make) {
      auto at = made.find({kind, stage});
      if (at == made.end()) {
        at = made.emplace(std::make_pair(kind, stage), static_cast<int>(program.blocks.size())).first;
        program.blocks.push_back(make(program, stage));
      }
      return at->second;
    };
    const auto act = [&](BlockKind kind, int stage, int microbatch) {
      const int at = block(kind, stage, [kind](const auto& p, int s) { return make_block(p, s, kind); });
      if (!program.blocks[static_cast<size_t>(at)].steps.empty()) actions.push_back({at, {microbatch}});
    };
    int beginning = -1;  // stage whose beginning waits for its first forward
    std::vector<int> stages;
    for (const Compute& c : order) {
      if (c.kind == BlockKind::begin) {
        beginning = c.stage;
        continue;
      }
      const bool first = c.kind == BlockKind::F && c.stage == beginning && has_beginning(program, c.stage);
      if (beginning >= 0 && !first) act(BlockKind::begin, beginning, -1);
      beginning = -1;
      if (std::find(stages.begin(), stages.end(), c.stage) == stages.end()) stages.push_back(c.stage);
      const bool backward = c.kind == BlockKind::I || c.kind == BlockKind::IW;
      if (c.kind == BlockKind::F) act(BlockKind::receive_F, c.stage, c.microbatch);
      if (backward) act(BlockKind::receive_I, c.stage, c.microbatch);
      if (first) {
        actions.push_back({block(BlockKind::begin, c.stage, ir::make_first_block), {-1, c.microbatch}});
      } else {
        act(c.kind, c.stage, c.microbatch);
      }
      if (c.kind == BlockKind::F) act(BlockKind::send_F, c.stage, c.microbatch);
      if (backward) act(BlockKind::send_I, c.stage, c.microbatch);
    }
    for (const int stage : stages) act(BlockKind::end, stage, -1);
  }
}

}  // namespace heddle::schedule
