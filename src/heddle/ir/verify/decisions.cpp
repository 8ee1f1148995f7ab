#include "heddle/ir/verify/decisions.h"

#include <set>

#include "heddle/ir/verify/outcomes.h"

namespace heddle::ir {

namespace {
const Listing& decided_in(const StepProgram& program, const Action& action) {
  return program.listings.at(static_cast<size_t>(action.decided_in));
}
}  // namespace

std::vector<Decided> decisions_of(const StepProgram& program, const StepProgram::ActionLists& lists) {
  std::map<std::string, std::set<int64_t>> limits;
  std::set<std::pair<int, ValueId>> seen;
  for (const std::vector<Action>& actions : lists) {
    for (const Action& action : actions) {
      const Condition& condition = action.condition;
      if (!condition) continue;
      const Listing& listing = decided_in(program, action);
      limits[listing.value(condition.rows_of).name].insert(condition.limit);
      if (!seen.insert({action.decided_in, condition.rows_of}).second) continue;
      HEDDLE_CHECK(program.class_of_rank.size() == 1 || alike_on_all(listing, condition.rows_of),
                   "each rank counts its own '{}', by which {} runs actions", listing.value(condition.rows_of).name,
                   listing.name);
    }
  }
  std::vector<Decided> all{{}};
  for (const auto& [name, bounds] : limits) {
    std::vector<Decided> more;
    for (Decided decided : all) {
      std::vector<int64_t> samples(bounds.begin(), bounds.end());
      samples.push_back(samples.back() + 1);
      for (const int64_t sample : samples) {
        decided[name] = sample;
        more.push_back(decided);
      }
    }
    all = std::move(more);
  }
  return all;
}

std::vector<Action> taken(const StepProgram& program, const std::vector<Action>& actions, const Decided& decided) {
  std::vector<Action> run;
  for (const Action& action : actions) {
    const Condition& condition = action.condition;
    if (condition && !condition.holds(decided.at(decided_in(program, action).value(condition.rows_of).name))) {
      continue;
    }
    run.push_back(action);
    const auto block = static_cast<size_t>(action.block);  // whether there is such a one is not asked here
    if (block < program.blocks.size() && program.blocks[block].does == Block::Does::stops) break;
  }
  return run;
}

}  // namespace heddle::ir
