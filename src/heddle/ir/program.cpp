#include "heddle/ir/program.h"

#include <algorithm>
#include <set>

namespace heddle::ir {

std::string_view name_of(BlockKind kind) {
  static constexpr std::string_view names[] = {"begin",     "F",         "I",       "W",       "IW",
                                               "receive_F", "receive_I", "fetch_I", "fetch_W", "end"};
  return names[static_cast<int>(kind)];
}

std::string_view name_of(Purpose purpose) {
  static constexpr std::string_view names[] = {"train", "evaluate", "predict", "prefill", "decode", "restore"};
  return names[static_cast<int>(purpose)];
}

const std::vector<Action>& StepProgram::actions_of(int rank, Purpose purpose) const {
  static const std::vector<Action> none;
  const ActionLists& lists = actions[static_cast<size_t>(purpose)];
  return lists.empty() ? none : lists.at(static_cast<size_t>(class_of_rank.at(static_cast<size_t>(rank))));
}

std::vector<int> StepProgram::listings_of(int rank) const {
  std::set<int> found;
  for (int p = 0; p < kPurposes; ++p) {
    for (const Action& action : actions_of(rank, static_cast<Purpose>(p))) {
      for (const int listing : blocks[static_cast<size_t>(action.block)].listings) found.insert(listing);
    }
  }
  return {found.begin(), found.end()};
}

namespace {
bool holds(BlockKind kind, const Op& op) {
  const bool receive = op.def->moves == Moves::from_neighbour, ahead = op.ahead;
  switch (kind) {
    case BlockKind::begin: return op.phase == Phase::begin;
    case BlockKind::F: return op.phase == Phase::F && !receive;
    case BlockKind::I: return op.phase == Phase::I && !receive && !ahead;
    case BlockKind::W: return op.phase == Phase::W && !ahead;
    case BlockKind::IW: return holds(BlockKind::I, op) || holds(BlockKind::W, op);
    case BlockKind::receive_F: return receive && op.phase == Phase::F;
    case BlockKind::receive_I: return receive && op.phase == Phase::I;
    case BlockKind::fetch_I: return ahead && op.phase == Phase::I;
    case BlockKind::fetch_W: return ahead && op.phase == Phase::W;
    case BlockKind::end: return op.phase == Phase::end;
  }
  return false;
}
}  // namespace

namespace {
std::string name_of_block(std::string_view kind, const StepProgram& program, int listing, int chunk) {
  const bool several = program.listings.at(static_cast<size_t>(listing)).chunks.size() > 1;
  return fmt::format("{}{}{}", kind, listing, several ? fmt::format(".{}", chunk) : "");
}
bool is_of(const Op& op, int chunk) { return op.chunk == chunk || op.phase == Phase::end; }
}  // namespace

Block make_block(const StepProgram& program, int listing, BlockKind kind, int chunk) {
  Block block;
  block.name = name_of_block(name_of(kind), program, listing, chunk);
  block.listings = {listing};
  const std::vector<Op>& ops = program.listings.at(static_cast<size_t>(listing)).ops;
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (is_of(ops[i], chunk) && holds(kind, ops[i])) block.steps.push_back({0, i});
  }
  return block;
}

Block joined(const std::vector<Block>& blocks) {
  Block all;
  for (const Block& block : blocks) {
    HEDDLE_CHECK(block.listings.size() == 1, "block {} to join has {} slots", block.name, block.listings.size());
    const auto slot = static_cast<uint8_t>(all.listings.size());
    all.name += (all.name.empty() ? "" : "|") + block.name;
    all.listings.push_back(block.listings[0]);
    for (const Step& step : block.steps) all.steps.push_back({slot, step.op});
  }
  return all;
}

std::vector<Block> parted(const Block& block) {
  std::vector<Block> parts(block.listings.size());
  for (size_t slot = 0; slot < parts.size(); ++slot) parts[slot].listings = {block.listings[slot]};
  for (const Step& step : block.steps) parts[step.slot].steps.push_back({0, step.op});
  return parts;
}

Block make_first_block(const StepProgram& program, int listing, int chunk) {
  Block block;
  block.name = name_of_block("begin_F", program, listing, chunk);
  block.listings = {listing, listing};
  const std::vector<Op>& ops = program.listings.at(static_cast<size_t>(listing)).ops;
  std::vector<uint32_t> computes;  // of the beginning, not yet placed
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (ops[i].chunk != chunk || !holds(BlockKind::begin, ops[i])) continue;
    if (ops[i].def->stream == StreamKind::compute) {
      computes.push_back(i);
    } else {
      block.steps.push_back({0, i});
    }
  }
  const auto place = [&](const auto& wanted) {
    std::erase_if(computes, [&](uint32_t i) {
      if (!wanted(ops[i])) return false;
      block.steps.push_back({0, i});
      return true;
    });
  };
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (ops[i].chunk != chunk || !holds(BlockKind::F, ops[i])) continue;
    place([&](const Op& begin) {
      return std::any_of(begin.updates.begin(), begin.updates.end(), [&](ValueId made) {
        return std::find(ops[i].in.begin(), ops[i].in.end(), made) != ops[i].in.end();
      });
    });
    block.steps.push_back({1, i});
  }
  place([](const Op&) { return true; });
  return block;
}

}  // namespace heddle::ir
