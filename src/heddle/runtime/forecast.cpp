#include "heddle/runtime/forecast.h"

#include <algorithm>

#include "heddle/runtime/dry_run.h"
#include "heddle/runtime/predict.h"

namespace heddle::runtime {

namespace {

// Durations of a program's ops, each worked out once.
class Durations {
 public:
  Durations(const plan::Plan& plan, const plan::Lowered& lowered, const cost::MachineProfile& profile,
            const ForecastInput& input)
      : program_(lowered.program), mesh_(plan.mesh), profile_(profile), input_(input) {
    resident_bytes_ =
        static_cast<double>(predict_memory(program_, 0, input.backend, 0, input.crowding).peak_live_bytes);
  }

  double us(int rank, const ir::Issue& issue) {
    const ir::Stage& stage = program_.stages[static_cast<size_t>(issue.stage)];
    const ir::Op& op = *issue.op;
    int64_t rows = 0;  // of operands whose rows are only known at run time
    for (const std::vector<ir::ValueId>* ids : {&op.in, &op.out}) {
      for (const ir::ValueId id : *ids) {
        if (id == ir::none) continue;
        for (const ir::Dim& dim : stage.value(id).shape) {
          if (!dim.is_static()) rows = std::max(rows, issue.rows->rows(dim.rows_of));
        }
      }
    }
    const auto [at, fresh] = known_.try_emplace({issue.stage, issue.op_index, issue.overwrite, rows}, 0.0);
    if (fresh) at->second = worked_out_us(rank, issue, stage, op);
    return at->second;
  }

  double threads(const ir::Issue& issue) const {
    if (pace_us(issue) > 0) return 0;  // asleep, mostly
    if (issue.op->def->stream == ir::StreamKind::compute) return input_.threads;
    return issue.op->def->stream == ir::StreamKind::comm ? 0 : 1;  // messages were measured as all ranks sent some
  }

 private:
  double pace_us(const ir::Issue& issue) const {
    if (input_.pace_ns.empty()) return 0;
    return static_cast<double>(input_.pace_ns[static_cast<size_t>(issue.stage)][issue.op_index]) * 1e-3;
  }

  double worked_out_us(int rank, const ir::Issue& issue, const ir::Stage& stage, const ir::Op& op) const {
    double us = profile_.launch_us;
    const ir::Cost cost = op.def->cost != nullptr ? op.def->cost(stage, op, *issue.rows) : ir::Cost{};
    const double copies_us =
        cost.bytes / profile_.copy_bytes_per_s * 1e6 * std::max(1, profile_.cores);  // one core
    if (op.def->stream == ir::StreamKind::compute) {
      us += cost::measured_us(profile_, stage, op, *issue.rows, issue.overwrite, input_.threads, resident_bytes_);
    } else if (op.def->stream == ir::StreamKind::comm) {
      const int ranks = op.def->collective ? static_cast<int>(mesh_.group(op.group, rank).size()) : 2;
      us += cost::message_us(profile_, input_.over, std::max(2, ranks), cost.message_bytes);
      if (op.def->collective) us += copies_us / profile_.speed(input_.over == cost::Link::nodes ? 1 : ranks);
    } else {
      us += copies_us;
    }
    us *= input_.scalar;
    const double pace = pace_us(issue);
    if (pace <= 0) return us;
    const bool apart = op.def->collective || op.kind() == "send";  // asleep before or after its work
    return apart ? us + pace + profile_.oversleep_us : std::max(us, pace + profile_.oversleep_us);
  }

  const ir::StepProgram& program_;
  const plan::Mesh mesh_;
  const cost::MachineProfile& profile_;
  const ForecastInput& input_;
  double resident_bytes_ = 0;
  std::map<std::tuple<int, uint32_t, bool, int64_t>, double> known_;
};

double model_flops(const model::ModelConfig& config, const plan::Plan& plan) {
  plan::Plan one = plan;
  one.mesh = {};
  one.schedule = "1f1b";
  one.order.reset();
  one.layout = "even";
  one.weave = "off";
  one.recompute.clear();
  one.microbatches = 1;
  one.evaluates = one.predicts = false;
  const plan::Lowered lowered = plan::lower(config, one);
  const ir::Stage& stage = lowered.program.stages[0];
  double flops = 0;
  for (const ir::Op& op : stage.ops) {
    const double times = ir::once_a_step(op.phase) ? 1 : plan.microbatches * plan.mesh.dp;
    if (op.def->cost != nullptr) flops += times * op.def->cost(stage, op, ir::FixedRows()).flops;
  }
  return flops;
}

// Where the compute stream of a rank stands still, by what runs meanwhile.
void account_gaps(const ir::StepProgram& program, const simulate::RankResult& rank, double step_us,
                  Forecast& into) {
  struct Stretch {
    double start_us, end_us;
    const ir::Op* op;
  };
  std::vector<Stretch> busy, others;
  for (const simulate::SimulatedOp& op : rank.ops) {
    const ir::Op& text = program.stages[static_cast<size_t>(op.stage)].ops[op.op];
    (text.def->stream == ir::StreamKind::compute ? busy : others).push_back({op.start_us, op.end_us, &text});
  }
  const auto by_start = [](const Stretch& a, const Stretch& b) { return a.start_us < b.start_us; };
  std::sort(busy.begin(), busy.end(), by_start);
  std::sort(others.begin(), others.end(), by_start);
  busy.push_back({step_us, step_us, nullptr});
  double free_us = 0;
  size_t first = 0;
  for (const Stretch& b : busy) {
    double at = free_us;
    while (first < others.size() && others[first].end_us <= at) ++first;
    for (size_t i = first; i < others.size() && at < b.start_us; ++i) {
      const Stretch& o = others[i];
      if (o.start_us >= b.start_us) break;
      if (o.end_us <= at) continue;
      const double from = std::max(at, o.start_us), to = std::min(b.start_us, o.end_us);
      into.bubble_us += std::max(0.0, o.start_us - at);
      (o.op->def->collective                       ? into.exposed_us[std::string(o.op->kind())]
       : o.op->def->stream == ir::StreamKind::comm ? into.bubble_us
                                                   : into.host_us) += std::max(0.0, to - from);
      at = std::max(at, to);
    }
    into.bubble_us += std::max(0.0, b.start_us - at);
    free_us = std::max(free_us, b.end_us);
  }
}

}  // namespace

double Forecast::exposed_total_us() const {
  double sum = 0;
  for (const auto& [kind, us] : exposed_us) sum += us;
  return sum;
}

Forecast forecast(const model::ModelConfig& config, const plan::Plan& plan, const plan::Lowered& lowered,
                  const cost::MachineProfile& profile, const ForecastInput& input) {
  const ir::StepProgram& program = lowered.program;
  Durations durations(plan, lowered, profile, input);
  simulate::SimulationInput sim;
  sim.groups = simulate::groups_of(program, plan::Mesh(plan.mesh));
  sim.enqueue_us = profile.enqueue_us;
  sim.wake_us = profile.wake_us;
  sim.capacity_bytes = input.capacity_bytes;
  sim.steps = 2;
  sim.keep_peak = true;
  sim.ranks_differ = false;
  sim.scratch_bytes = kernel_scratch(program, input.backend);
  sim.rows = balanced_rows(program, input.crowding);
  sim.duration_us = [&](int rank, const ir::Issue& issue) { return durations.us(rank, issue); };
  sim.threads = [&](int, const ir::Issue& issue) { return durations.threads(issue); };
  // Threads of one op share a profile of their own: they count as one core's worth of others' work each.
  sim.speed = [&](double threads) {
    return input.threads > 1 && threads <= input.threads ? 1.0 : profile.speed(threads);
  };
  sim.machine_of = input.machine_of;
  Forecast f;
  f.simulation = simulate::simulate(program, sim);
  HEDDLE_CHECK(f.simulation.deadlock.empty(), "the program can't go on:\n{}", f.simulation.deadlock);
  f.step_us = f.simulation.step_us;
  const double tokens =
      static_cast<double>(plan.microbatches * plan.sequences * plan.sequence_length * plan.mesh.dp);
  f.tokens_per_s = tokens / f.step_us * 1e6;
  f.model_flops = model_flops(config, plan);
  int machines = 1;
  for (const int m : input.machine_of) machines = std::max(machines, m + 1);
  const double peak = profile.flops_per_s(plan.dtype) * machines;
  f.mfu = peak > 0 ? f.model_flops / (f.step_us * 1e-6) / peak : 0;
  const auto ranks = static_cast<double>(f.simulation.ranks.size());
  for (size_t r = 0; r < f.simulation.ranks.size(); ++r) {
    const simulate::RankResult& rank = f.simulation.ranks[r];
    account_gaps(program, rank, f.step_us, f);
    if (rank.peak_live_bytes > f.peak_live_bytes) {
      f.peak_live_bytes = rank.peak_live_bytes;
      f.largest_rank = static_cast<int>(r);
    }
    f.persistent_bytes = std::max(f.persistent_bytes, rank.persistent_bytes);
    f.reserved_bytes = std::max(f.reserved_bytes, rank.reserved_bytes);
  }
  for (auto& [kind, us] : f.exposed_us) us /= ranks;
  f.bubble_us /= ranks;
  f.host_us /= ranks;
  return f;
}

}  // namespace heddle::runtime
