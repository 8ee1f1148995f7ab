#include "heddle/session/slow/slow_cost.h"

#include <algorithm>
#include <map>

#include "heddle/base/statistics.h"
#include "heddle/runtime/expected_rows.h"
#include "heddle/simulate/simulate.h"

namespace heddle::session {

namespace {

using Key = std::pair<int32_t, uint32_t>;
using Durations = std::map<Key, double>;

double call_s(const OpTime& time) { return time.calls > 0 ? time.seconds() / time.calls : 0; }

// The usual duration of an op on ranks that do the same. A collective lasts as long as on the rank that came last
// and waited least; a receive takes nothing beside what is sent.
Durations usual_of(const ir::StepProgram& program, const std::vector<const OpTimes*>& ranks,
                   const std::vector<const OpTimes*>& with_slow) {
  const auto op_of = [&](const OpTime& time) -> const ir::Op& {
    return program.listings.at(static_cast<size_t>(time.listing)).ops.at(time.op);
  };
  std::map<Key, std::vector<double>> all;
  Durations usual;
  for (const OpTimes* times : ranks) {
    for (const OpTime& time : *times) all[time.key()].push_back(call_s(time));
  }
  for (auto& [key, calls_s] : all) usual[key] = quantile(std::move(calls_s), 0.5);
  for (const OpTimes* times : with_slow) {
    for (const OpTime& time : *times) {
      const ir::Op& op = op_of(time);
      if (!ir::communicates(*op.def)) continue;
      double& least = usual.try_emplace(time.key(), call_s(time)).first->second;
      least = op.def->moves == ir::Moves::from_neighbour ? 0 : std::min(least, call_s(time));
    }
  }
  return usual;
}

}  // namespace

std::optional<double> step_without(const train::Trainer& trainer, const std::vector<OpTimes>& of_rank, int slow) {
  const ir::StepProgram& program = trainer.lowered().program;
  const int own_class = program.class_of_rank.at(static_cast<size_t>(slow));
  std::map<int, std::vector<const OpTimes*>> others, all;
  for (size_t r = 0; r < of_rank.size(); ++r) {
    if (of_rank[r].empty()) continue;
    all[program.class_of_rank[r]].push_back(&of_rank[r]);
    if (static_cast<int>(r) != slow) others[program.class_of_rank[r]].push_back(&of_rank[r]);
  }
  std::map<int, Durations> usual;
  for (const auto& [number, ranks] : others) usual[number] = usual_of(program, ranks, all[number]);
  simulate::SimulationInput input;
  for (const int number : program.class_of_rank) {
    if (!usual.contains(number)) return std::nullopt;
    input.alike.push_back(2 * number);
  }
  Durations own;
  for (const OpTime& time : of_rank[static_cast<size_t>(slow)]) own[time.key()] = call_s(time);
  const plan::Plan& plan = trainer.options().plan;
  runtime::ExpectedRows rows(trainer.options().model, plan, program, {}, false, {});
  bool with = true;
  input.groups = simulate::groups_of(program, plan::Mesh(plan.mesh));
  input.ranks_differ = false;
  input.rows = [&](int rank, const ir::Issue& issue, size_t output) { return rows.read(rank, issue, output); };
  input.duration_us = [&](int rank, const ir::Issue& issue) {
    const Key key{issue.listing, issue.op_index};
    const bool as_it_is = with && rank == slow && !ir::communicates(*issue.op->def);
    const Durations& from = as_it_is ? own : usual.at(program.class_of_rank[rank]);
    const auto at = from.find(key);
    return at == from.end() ? 0 : at->second * 1e6;
  };
  const double without_us = [&] {
    with = false;
    return simulate::simulate(program, input).step_us;
  }();
  with = true;
  input.alike[static_cast<size_t>(slow)] = 2 * own_class + 1;
  const double with_us = simulate::simulate(program, input).step_us;
  if (with_us <= 0) return std::nullopt;
  return std::min(1.0, without_us / with_us);
}

}  // namespace heddle::session
