// Recordings of all ranks, one for those that do the same; and who communicates with whom.
#include <map>
#include <numeric>
#include <set>

#include "heddle/base/error.h"
#include "heddle/simulate/simulate.h"

namespace heddle::simulate {

namespace {

// Ops that a rank's step runs whatever the rows: those without a condition.
size_t fewest_ops(const ir::StepProgram& program, int rank, ir::Purpose purpose) {
  std::map<int, size_t> of_block;
  size_t ops = 0;
  for (const ir::Action& action : program.actions_of(rank, purpose)) {
    const auto [at, fresh] = of_block.try_emplace(action.block, 0);
    if (fresh) {
      const ir::Block& block = program.blocks[action.block];
      for (const ir::Step& step : block.steps) {
        const ir::Op& op = program.listings[block.listings[step.slot]].ops[step.op];
        if (!op.condition && ir::runs(*op.def)) ++at->second;
      }
    }
    ops += at->second;
  }
  return ops;
}

}  // namespace

Groups groups_of(const ir::StepProgram& program, const plan::Mesh& mesh) {
  Groups groups;
  const ir::StreamTable streams(program);
  for (const auto& [channel, name] : streams.channels()) {
    std::vector<bool> seen(static_cast<size_t>(mesh.ranks()), false);
    for (int r = 0; r < mesh.ranks(); ++r) {
      if (seen[r]) continue;
      const std::vector<int> ranks = mesh.group(name, r);
      if (ranks.empty()) continue;
      for (const int member : ranks) seen[member] = true;
      groups[channel].push_back(ranks);
    }
  }
  return groups;
}

Recordings record_all(const ir::StepProgram& program, const SimulationInput& input) {
  const size_t ranks = program.class_of_rank.size();
  HEDDLE_CHECK(input.alike.empty() || input.alike.size() == ranks, "{} of {} ranks are alike", input.alike.size(),
               ranks);
  const auto key_of = [&](size_t r) {
    const int alike = input.ranks_differ ? static_cast<int>(r) : input.alike.empty() ? 0 : input.alike[r];
    return std::pair{program.class_of_rank[r], alike};
  };
  std::map<int, std::set<int>> apart;  // numbers in each class
  for (size_t r = 0; r < ranks; ++r) apart[key_of(r).first].insert(key_of(r).second);
  // Ranks of a class run as many ops, so the limit is checked before they are walked.
  size_t ops = 0;
  std::set<int> seen;
  for (size_t r = 0; r < ranks; ++r) {
    const int c = program.class_of_rank[r];
    if (seen.insert(c).second) ops += fewest_ops(program, static_cast<int>(r), input.purpose) * apart.at(c).size();
  }
  if (ops > kMostOps)
    config_error(
        "simulate: {} of {} ranks differ; they run {} ops or more, at most {} can be simulated: fewer ranks or "
        "microbatches, or balanced routing",
        std::accumulate(apart.begin(), apart.end(), size_t{0},
                        [](size_t n, const auto& of) { return n + of.second.size(); }),
        ranks, ops, kMostOps);
  Recordings recordings;
  std::map<std::pair<int, int>, std::shared_ptr<const Recording>> known;
  for (size_t r = 0; r < ranks; ++r) {
    auto& recording = known[key_of(r)];
    if (!recording) recording = std::make_shared<Recording>(record(program, static_cast<int>(r), input));
    recordings.push_back(recording);
  }
  return recordings;
}

}  // namespace heddle::simulate
