#include "heddle/session/traced/run_pipeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "heddle/observe/charts/schedule_timeline.h"
#include "heddle/observe/units.h"
#include "heddle/simulate/simulate.h"

namespace heddle::session {

namespace {

using schedule::Compute;
using schedule::Interval;
using schedule::Kind;

/// When each action of the schedule computed, in milliseconds from the first. `ranks`: the ranks of the job that
/// stand for the pipeline's.
schedule::Timing timing_of(const ir::StepProgram& program, const schedule::Schedule& schedule,
                           const std::vector<RankSpans>& ranks) {
  schedule::Timing timing;
  double first = std::numeric_limits<double>::max(), last = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::map<std::tuple<int, ir::Phase, int>, Interval> of;  // chunk, phase, microbatch
    double& busy = timing.busy.emplace_back(0);
    for (size_t i = 0; i < ranks[r].streams.size(); ++i) {
      if (ranks[r].streams[i] != ir::name_of(ir::StreamKind::compute)) continue;
      for (const device::Span& span : ranks[r].of_stream[i]) {
        const ir::Op& op = program.listings[span.listing].ops[span.op_index];
        if (ir::once_a_step(op.phase)) continue;
        const double start = static_cast<double>(span.start_ns) * 1e-6,
                     end = static_cast<double>(span.end_ns) * 1e-6;
        const auto [at, fresh] = of.try_emplace({op.chunk, op.phase, span.microbatch}, Interval{start, end});
        at->second = {std::min(at->second.start, start), std::max(at->second.end, end)};
        busy += end - start;
        first = std::min(first, start);
        last = std::max(last, end);
      }
    }
    const std::vector<int> stages = schedule.placement.stages_of(static_cast<int>(r));
    timing.of.emplace_back();
    for (const schedule::Action& action : schedule.order[r]) {
      Interval whole{std::numeric_limits<double>::max(), 0};
      const auto add = [&](const Compute& c) {
        const auto chunk = static_cast<int>(std::find(stages.begin(), stages.end(), c.stage) - stages.begin());
        for (const ir::Phase phase : {ir::Phase::F, ir::Phase::I, ir::Phase::W}) {
          const bool part = phase == ir::Phase::F   ? c.kind == Kind::F
                            : phase == ir::Phase::I ? c.kind == Kind::I || c.kind == Kind::B
                                                    : c.kind == Kind::W || c.kind == Kind::B;
          const auto found = of.find({chunk, phase, c.microbatch});
          if (!part || found == of.end()) continue;
          whole = {std::min(whole.start, found->second.start), std::max(whole.end, found->second.end)};
        }
      };
      add(action.first);
      if (action.with) add(*action.with);
      timing.of.back().push_back(whole);
    }
  }
  for (std::vector<Interval>& rank : timing.of) {
    double before = first;  // a stage without layers computes nothing
    for (Interval& interval : rank) {
      if (interval.end < interval.start) interval = {before, before};
      before = interval.end;
      interval = {interval.start - first, interval.end - first};
    }
  }
  timing.makespan = timing.span = last - first;
  timing.work = timing.useful = *std::max_element(timing.busy.begin(), timing.busy.end());
  return timing;
}

/// Microseconds that an op took: where nobody waits for others the mean over microbatches and ranks, else the
/// shortest, which is that of the one who came last.
std::map<std::pair<int, uint32_t>, double> durations_of(const ir::StepProgram& program,
                                                        const std::vector<RankSpans>& ranks) {
  struct Seen {
    double sum = 0, least = std::numeric_limits<double>::max();
    int64_t count = 0;
  };
  std::map<std::pair<int, uint32_t>, Seen> seen;
  for (const RankSpans& rank : ranks) {
    for (const std::vector<device::Span>& spans : rank.of_stream) {
      for (const device::Span& span : spans) {
        const double us = static_cast<double>(span.end_ns - span.start_ns) * 1e-3;
        Seen& s = seen[{span.listing, span.op_index}];
        s.sum += us;
        s.least = std::min(s.least, us);
        ++s.count;
      }
    }
  }
  std::map<std::pair<int, uint32_t>, double> us;
  for (const auto& [at, s] : seen) {
    const ir::Op& op = program.listings[static_cast<size_t>(at.first)].ops[at.second];
    us[at] = ir::communicates(*op.def) ? s.least : s.sum / static_cast<double>(s.count);
  }
  return us;
}

std::vector<RankSpans> simulated(const train::Trainer& trainer, const std::vector<RankSpans>& ranks) {
  const ir::StepProgram& program = trainer.lowered().program;
  const auto us = durations_of(program, ranks);
  const plan::Plan& plan = trainer.options().plan;
  simulate::SimulationInput input;
  input.groups = simulate::groups_of(program, trainer.mesh());
  input.duration_us = [&](int, const ir::Issue& issue) {
    const auto at = us.find({issue.listing, issue.op_index});
    return at == us.end() ? 0 : at->second;
  };
  const int64_t rows = plan.sequences * plan.sequence_length * trainer.options().model.num_experts_per_tok;
  input.rows = [&](int, const ir::Issue&, size_t output) { return output == 0 ? rows : 0; };
  return spans_of(simulate::simulate(program, input));
}

}  // namespace

std::vector<observe::PipelineView> pipeline_views(const train::Trainer& trainer,
                                                  const std::vector<RankSpans>& ranks) {
  const plan::Plan& plan = trainer.options().plan;
  if (plan.mesh.pp == 1 || std::ssize(ranks) < plan.ranks()) return {};
  const auto pipeline = [&](const std::vector<RankSpans>& all) {
    std::vector<RankSpans> found(static_cast<size_t>(plan.mesh.pp));
    for (size_t r = all.size(); r-- > 0;)
      found[static_cast<size_t>(trainer.mesh().at(static_cast<int>(r)).at(ir::Axis::pp))] = all[r];
    return found;
  };
  const schedule::Schedule schedule = plan::schedule_of(plan);
  const ir::StepProgram& program = trainer.lowered().program;
  constexpr double kUnit_us = 1e3;  // a timing's unit
  const schedule::Timing measured = timing_of(program, schedule, pipeline(ranks)),
                         predicted = timing_of(program, schedule, pipeline(simulated(trainer, ranks)));
  const double until_us = kUnit_us * std::max(measured.makespan, predicted.makespan);  // one scale
  const auto view = [&](const char* what, const schedule::Timing& timing) {
    return observe::PipelineView{
        fmt::format("{}, {}", schedule.name, what),
        fmt::format("{}, the busiest rank computes {:.0f} % of it", observe::duration_text(timing.makespan * 1e-3),
                    100 * timing.work / timing.makespan),
        observe::schedule_timeline(schedule, timing, kUnit_us), until_us};
  };
  return {view("as it ran", measured), view("as predicted", predicted)};
}

}  // namespace heddle::session
