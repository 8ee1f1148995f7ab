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

void lower(ir::StepProgram& program, ir::StepProgram::ActionLists& lists,
           const std::vector<std::vector<Compute>>& ranks) {
  std::map<std::pair<BlockKind, int>, int> made;
  for (const std::vector<Compute>& order : ranks) {
    std::vector<ir::Action>& actions = lists.emplace_back();
    const auto act = [&](BlockKind kind, int stage, int microbatch) {
      auto at = made.find({kind, stage});
      if (at == made.end()) {
        at = made.emplace(std::make_pair(kind, stage), static_cast<int>(program.blocks.size())).first;
        program.blocks.push_back(make_block(program, stage, kind));
      }
      if (!program.blocks[static_cast<size_t>(at->second)].steps.empty()) actions.push_back({at->second, {microbatch}});
    };
    std::vector<int> stages;
    for (const Compute& c : order) {
      if (c.kind == BlockKind::begin) {
        act(c.kind, c.stage, -1);
        continue;
      }
      if (std::find(stages.begin(), stages.end(), c.stage) == stages.end()) stages.push_back(c.stage);
      const bool backward = c.kind == BlockKind::I || c.kind == BlockKind::IW;
      if (c.kind == BlockKind::F) act(BlockKind::receive_F, c.stage, c.microbatch);
      if (backward) act(BlockKind::receive_I, c.stage, c.microbatch);
      act(c.kind, c.stage, c.microbatch);
      if (c.kind == BlockKind::F) act(BlockKind::send_F, c.stage, c.microbatch);
      if (backward) act(BlockKind::send_I, c.stage, c.microbatch);
    }
    for (const int stage : stages) act(BlockKind::end, stage, -1);
  }
}

}  // namespace heddle::schedule
