#include "heddle/ir/program.h"

#include <algorithm>
#include <map>
#include <set>

#include "heddle/base/error.h"

namespace heddle::ir {

std::string_view name_of(BlockKind kind) {
  static constexpr std::string_view names[] = {"begin",     "F",       "I",       "W",       "IW", "receive_F",
                                               "receive_I", "fetch_F", "fetch_I", "fetch_W", "end"};
  return names[static_cast<int>(kind)];
}

std::string_view name_of(Purpose purpose) {
  static constexpr std::string_view names[] = {"train",  "evaluate", "predict", "prefill",
                                               "decode", "restore",  "snapshot"};
  return names[static_cast<int>(purpose)];
}

const std::vector<Action>& StepProgram::actions_of(int rank, Purpose purpose, int of_microbatches) const {
  static const std::vector<Action> none;
  const bool all = purpose != Purpose::train || of_microbatches == 0 || of_microbatches == microbatches;
  HEDDLE_CHECK(all || fewer.contains(of_microbatches), "no step of {} microbatches", of_microbatches);
  const ActionLists& lists = all ? actions[static_cast<size_t>(purpose)] : fewer.at(of_microbatches);
  return lists.empty() ? none : lists.at(static_cast<size_t>(class_of_rank.at(static_cast<size_t>(rank))));
}

bool StepProgram::takes(std::string_view input) const {
  return std::any_of(listings.begin(), listings.end(),
                     [&](const Listing& listing) { return listing.find_input(input) != nullptr; });
}

std::vector<int> StepProgram::listings_of(int rank) const {
  std::set<int> found;
  for (int p = 0; p < kPurposes; ++p) {
    for (const Action& action : actions_of(rank, static_cast<Purpose>(p))) {
      for (const int listing : blocks[action.block].listings) found.insert(listing);
    }
  }
  return {found.begin(), found.end()};
}

namespace {
bool holds(BlockKind kind, const Op& op) {
  const bool receive = op.def->moves == Moves::from_neighbour, ahead = op.ahead;
  switch (kind) {
    case BlockKind::begin: return op.phase == Phase::begin;
    case BlockKind::F: return op.phase == Phase::F && !receive && !ahead;
    case BlockKind::I: return op.phase == Phase::I && !receive && !ahead;
    case BlockKind::W: return op.phase == Phase::W && !ahead;
    case BlockKind::IW: return holds(BlockKind::I, op) || holds(BlockKind::W, op);
    case BlockKind::receive_F: return receive && op.phase == Phase::F;
    case BlockKind::receive_I: return receive && op.phase == Phase::I;
    case BlockKind::fetch_F: return ahead && op.phase == Phase::F;
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

namespace {

// The beginning of a step as it is put among the ops of the first forward.
class Beginning {
 public:
  Beginning(const std::vector<Op>& ops, int chunk) : ops_(ops) {
    std::set<ValueId> made_late;
    std::map<ValueId, uint32_t> rooms;  // reserved, until an op writes there
    for (uint32_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      if (op.chunk != chunk || !holds(BlockKind::begin, op)) continue;
      if (op.def->reserves) {
        rooms[op.out[0]] = i;
        continue;
      }
      const bool late = op.def->stream == StreamKind::compute || touches(op, made_late);
      if (late) {
        made_late.insert(op.out.begin(), op.out.end());
        made_late.insert(op.updates.begin(), op.updates.end());
      }
      std::vector<uint32_t>& list = late ? late_ : first_;
      for (const ValueId id : op.updates) {
        if (const auto room = rooms.find(id); room != rooms.end()) {
          list.push_back(room->second);
          rooms.erase(room);
        }
      }
      list.push_back(i);
    }
  }

  /// Ops that communicate, and those that need nothing that is computed.
  const std::vector<uint32_t>& first() const { return first_; }

  /// Takes out what an op needs of the rest, in list order.
  std::vector<uint32_t> needed_by(const Op& op) {
    std::set<ValueId> wanted(op.in.begin(), op.in.end());
    std::vector<uint32_t> taken;
    for (size_t k = late_.size(); k-- > 0;) {
      const Op& begin = ops_[late_[k]];
      const auto is_wanted = [&](ValueId id) { return wanted.contains(id); };
      if (std::none_of(begin.updates.begin(), begin.updates.end(), is_wanted) &&
          std::none_of(begin.out.begin(), begin.out.end(), is_wanted)) {
        continue;
      }
      wanted.insert(begin.in.begin(), begin.in.end());
      wanted.insert(begin.updates.begin(), begin.updates.end());
      taken.push_back(late_[k]);
    }
    std::erase_if(late_, [&](uint32_t i) { return std::find(taken.begin(), taken.end(), i) != taken.end(); });
    std::reverse(taken.begin(), taken.end());
    return taken;
  }
  const std::vector<uint32_t>& rest() const { return late_; }

 private:
  static bool touches(const Op& op, const std::set<ValueId>& ids) {
    const auto is_one = [&](ValueId id) { return ids.contains(id); };
    return std::any_of(op.in.begin(), op.in.end(), is_one) ||
           std::any_of(op.updates.begin(), op.updates.end(), is_one);
  }

  const std::vector<Op>& ops_;
  std::vector<uint32_t> first_, late_;
};

}  // namespace

Block make_first_block(const StepProgram& program, int listing, int chunk) {
  Block block;
  block.name = name_of_block("begin_F", program, listing, chunk);
  block.listings = {listing, listing};
  const std::vector<Op>& ops = program.listings.at(static_cast<size_t>(listing)).ops;
  Beginning beginning(ops, chunk);
  const auto add = [&](const std::vector<uint32_t>& begins) {
    for (const uint32_t i : begins) block.steps.push_back({0, i});
  };
  add(beginning.first());
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (ops[i].chunk != chunk || !(holds(BlockKind::fetch_F, ops[i]) || holds(BlockKind::F, ops[i]))) continue;
    add(beginning.needed_by(ops[i]));
    block.steps.push_back({1, i});
  }
  add(beginning.rest());
  return block;
}

}  // namespace heddle::ir
