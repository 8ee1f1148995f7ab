#include "heddle/runtime/step_prediction.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "heddle/backends/backend.h"
#include "heddle/ops/ops.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/runtime/dry_run.h"
#include "heddle/runtime/message_times.h"
#include "heddle/runtime/predict.h"

namespace heddle::runtime {

namespace {

// Rows as the walk has them, but none in a second round: these come seldom.
class UsualRows : public ir::RowCounts {
 public:
  UsualRows(const ir::RowCounts& all, const std::set<ir::ValueId>& seldom) : all_(all), seldom_(seldom) {}
  int64_t rows(ir::ValueId counts) const override { return seldom_.contains(counts) ? 0 : all_.rows(counts); }

 private:
  const ir::RowCounts& all_;
  const std::set<ir::ValueId>& seldom_;
};

// Durations of a program's ops, each worked out once.
class Durations {
 public:
  Durations(const plan::Plan& plan, const plan::Lowered& lowered, const cost::MachineProfile& profile,
            const PredictionInput& input, ExpectedRows& rows)
      : program_(lowered.program),
        mesh_(plan.mesh),
        profile_(profile),
        input_(input),
        apart_(!backends::named(input.backend).shares_memory),
        messages_(mesh_, profile, input.over, rows, input.cards) {
    for (const ir::Listing& listing : program_.listings) {
      second_rounds_.push_back(ops::counted_in_second_round(listing));
      of_ops_.emplace_back(listing.ops.size());
    }
    resident_bytes_ =
        static_cast<double>(predict_memory(program_, 0, input.backend, 0, input.crowding).peak_live_bytes);
  }

  double us(int rank, const ir::Issue& issue) { return of(rank, issue).us; }
  simulate::LinkUse link(int rank, const ir::Issue& issue) { return of(rank, issue).link; }

  double threads(const ir::Issue& issue) const {
    if (pace_us(issue) > 0) return 0;  // asleep, mostly
    if (issue.op->def->stream == ir::StreamKind::compute) return input_.threads;
    return issue.op->def->stream == ir::StreamKind::comm ? 0 : 1;  // messages were measured as all ranks sent some
  }

 private:
  double pace_us(const ir::Issue& issue) const {
    if (input_.pace_ns.empty()) return 0;
    return static_cast<double>(input_.pace_ns[issue.listing][issue.op_index]) * 1e-3;
  }

  const MessageTime& of(int rank, const ir::Issue& issue) {
    const ir::Listing& listing = program_.listings[issue.listing];
    const ir::Op& op = *issue.op;
    const UsualRows counts(*issue.rows, second_rounds_[static_cast<size_t>(issue.listing)]);
    OfOp& of = of_ops_[static_cast<size_t>(issue.listing)][issue.op_index];
    if (!of.counts) of.counts = counts_of(listing, op);
    int64_t rows = 0;
    for (const ir::ValueId id : *of.counts) rows = std::max(rows, counts.rows(id));
    // For ops by which ranks send, the rank matters.
    const int who = ir::communicates(*op.def) ? rank : -1;
    const std::tuple key(issue.overwrite, rows, who);
    for (const auto& [known, time] : of.known) {
      if (known == key) return time;
    }
    return of.known.emplace_back(key, worked_out(rank, issue, listing, op, counts)).second;
  }

  // The values that tell the rows of its operands at run time.
  static std::vector<ir::ValueId> counts_of(const ir::Listing& listing, const ir::Op& op) {
    std::vector<ir::ValueId> all;
    for (const std::vector<ir::ValueId>* ids : {&op.in, &op.out}) {
      for (const ir::ValueId id : *ids) {
        if (id == ir::none) continue;
        for (const ir::Dim& dim : listing.value(id).shape) {
          if (!dim.is_static() && std::find(all.begin(), all.end(), dim.rows_of) == all.end())
            all.push_back(dim.rows_of);
        }
      }
    }
    return all;
  }

  MessageTime worked_out(int rank, const ir::Issue& issue, const ir::Listing& listing, const ir::Op& op,
                         const ir::RowCounts& rows) {
    MessageTime time;
    double us = profile_.launch_us;
    const ir::Cost cost = op.def->cost(listing, op, rows);
    // An op that computes meanwhile copies no more than it sends.
    const double copied_bytes = op.def->by_pieces ? cost.message_bytes : cost.bytes;
    const bool over_host = ir::is_copy(op.def->moves) && profile_.host_copy_bytes_per_s > 0;
    const double copy_bytes_per_s = over_host ? profile_.host_copy_bytes_per_s : profile_.copy_bytes_per_s;
    const double copies_us =
        copied_bytes / copy_bytes_per_s * 1e6 * (apart_ ? 1 : std::max(1, profile_.cores));  // one core
    if (op.def->stream == ir::StreamKind::compute) {
      us += cost::measured_us(profile_, listing, op, rows, issue.overwrite, input_.threads, resident_bytes_);
    } else if (!ir::communicates(*op.def)) {
      us += copies_us;
    }
    if (ir::communicates(*op.def)) {  // beside what it computes, if it does, but for a piece of that
      const int64_t pieces = ir::pieces_of(op);
      const double alone_us = pieces > 1 ? us / static_cast<double>(pieces) : 0;
      time = messages_.of(rank, listing, op, cost.message_bytes);
      const auto ranks = static_cast<double>(op.def->collective ? mesh_.group(op.group, rank).size() : 2);
      if (op.def->collective)
        time.us += copies_us / (apart_ ? 1.0 : profile_.speed(input_.over == cost::Link::nodes ? 1 : ranks));
      us = std::max(us, profile_.launch_us + time.us + alone_us);
    }
    time.us = us * input_.scalar;
    const double pace = pace_us(issue);
    if (pace <= 0) return time;
    const bool apart =
        op.def->collective || op.def->moves == ir::Moves::to_neighbour;  // asleep before or after its work
    time.us = apart ? time.us + pace + profile_.oversleep_us : std::max(time.us, pace + profile_.oversleep_us);
    return time;
  }

  const ir::StepProgram& program_;
  const plan::Mesh mesh_;
  const cost::MachineProfile& profile_;
  const PredictionInput& input_;
  const bool apart_;  // each rank has a device of its own, with its own memory
  Messages messages_;
  std::vector<std::set<ir::ValueId>> second_rounds_;  // by listing
  double resident_bytes_ = 0;
  struct OfOp {
    std::optional<std::vector<ir::ValueId>> counts;
    std::vector<std::pair<std::tuple<bool, int64_t, int>, MessageTime>> known;  // by overwriting, rows, rank
  };
  std::vector<std::vector<OfOp>> of_ops_;  // [listing][op]
};

double model_flops(const model::ModelConfig& config, const plan::Plan& plan) {
  plan::Plan one = plan.plain();
  one.microbatches = 1;
  one.evaluates = one.predicts = false;
  const plan::Lowered lowered = plan::lower(config, one);
  const ir::Listing& listing = lowered.program.listings[0];
  double flops = 0;
  for (const ir::Op& op : listing.ops) {
    const double times = ir::once_a_step(op.phase) ? 1 : plan.microbatches * plan.mesh.dp;
    flops += times * op.def->cost(listing, op, ir::FixedRows()).flops;
  }
  return flops;
}

// Accounts the gaps of a rank's compute stream by what runs meanwhile.
void account_gaps(const ir::StepProgram& program, const simulate::RankResult& rank, double step_us,
                  StepPrediction& into) {  // once for all ranks that do this
  const auto ranks = static_cast<double>(rank.count);
  struct Stretch {
    double start_us, end_us;
    const ir::Op* op;
  };
  std::vector<Stretch> busy, others;
  for (const simulate::SimulatedOp& op : rank.ops) {
    const ir::Op& text = program.listings[op.listing].ops[op.op];
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
      into.bubble_us += ranks * std::max(0.0, o.start_us - at);
      (o.op->def->collective          ? into.exposed_us[std::string(o.op->kind())]
       : ir::communicates(*o.op->def) ? into.bubble_us
                                      : into.host_us) += ranks * std::max(0.0, to - from);
      at = std::max(at, to);
    }
    into.bubble_us += ranks * std::max(0.0, b.start_us - at);
    free_us = std::max(free_us, b.end_us);
  }
}

// The simulator's view of a plan on a machine, for one draw of the experts' shares.
class Scene {
 public:
  Scene(const model::ModelConfig& config, const plan::Plan& plan, const plan::Lowered& lowered,
        const cost::MachineProfile& profile, const PredictionInput& input, uint64_t seed)
      : input_(input),
        rows_(config, plan, lowered.program, input.node_of, input.over == cost::Link::nodes,
              shares_of(lowered.program, input.uncertainty, seed)),
        durations_(plan, lowered, profile, input, rows_) {
    const ir::StepProgram& program = lowered.program;
    sim.groups = simulate::groups_of(program, plan::Mesh(plan.mesh));
    sim.enqueue_us = profile.enqueue_us;
    sim.wake_us = profile.wake_us;
    sim.capacity_bytes = input.capacity_bytes;
    sim.limit_bytes = input.limit_bytes;
    sim.steps = 2;
    sim.keep_peak = true;
    sim.caching_allocator = input.caching_allocator;
    sim.ranks_differ = false;
    sim.alike = rows_.alike();
    sim.scratch_bytes = kernel_scratch(program, input.backend);
    sim.rows = [this](int rank, const ir::Issue& issue, size_t output) {
      return static_cast<int64_t>(
          std::ceil(input_.crowding * static_cast<double>(rows_.read(rank, issue, output))));
    };
    sim.duration_us = [this](int rank, const ir::Issue& issue) { return durations_.us(rank, issue); };
    sim.threads = [this](int, const ir::Issue& issue) { return durations_.threads(issue); };
    if (plan.rates.message_share > 0) {
      sim.takes = [rates = plan.rates](int, const ir::Issue& issue) { return plan::units_taken(*issue.op, rates); };
    }
    // Threads of one op share a profile of their own: they count as one core's worth of others' work each.
    // Devices share none.
    const bool apart = !backends::named(input.backend).shares_memory;
    sim.speed = [this, &profile, apart](double threads) {
      return apart || (input_.threads > 1 && threads <= input_.threads) ? 1.0 : profile.speed(threads);
    };
    sim.machine_of = input.machine_of;
    if (input.over == cost::Link::nodes) {
      sim.host_of = input.node_of;
      sim.link_use = [this](int rank, const ir::Issue& issue) { return durations_.link(rank, issue); };
    }
    sim.jitter = input.uncertainty.jitter;
  }
  Scene(const Scene&) = delete;

  ExpectedRows& rows() { return rows_; }
  simulate::SimulationInput sim;

 private:
  static ExpertShares shares_of(const ir::StepProgram& program, const Uncertainty& u, uint64_t seed) {
    if (!u.counted_LE.empty()) return counted_shares(program, u.counted_LE, u.counted_in);
    return u.spread > 0 ? drawn_shares(program, {u.spread}, seed) : ExpertShares{};
  }

  const PredictionInput& input_;
  ExpectedRows rows_;
  Durations durations_;
};

// "node", or "node, plain" where layers choose apart.
std::string exchanges_of(const ir::StepProgram& program, ExpectedRows& rows) {
  std::set<std::string_view> taken;
  for (size_t r = 0; r < program.class_of_rank.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (r > 0 && program.class_of_rank[r] == program.class_of_rank[r - 1]) continue;
    for (const int s : program.listings_of(rank)) {
      const ir::Listing& listing = program.listings[s];
      for (const ir::Op& op : listing.ops) {
        if (op.def->moves == ir::Moves::to_experts)
          taken.insert(word_of(static_cast<ir::Topology>(rows.of(rank, listing, op).topology)));
      }
    }
  }
  return fmt::format("{}", fmt::join(taken, ", "));
}

int64_t most_live_bytes(const simulate::Simulation& simulation) {
  int64_t most = 0;
  for (const simulate::RankResult& rank : simulation.ranks) most = std::max(most, rank.peak_live_bytes);
  return most;
}

// The median draw, and what all came to.
simulate::Simulation draw(const std::function<std::unique_ptr<Scene>(uint64_t seed)>& scene_of,
                          const ir::StepProgram& program, const Uncertainty& u, StepPrediction& into) {
  Draws& draws = into.draws;
  const bool rows_vary = u.spread > 0 && u.counted_LE.empty();
  const int count = rows_vary || u.jitter > 0 ? std::max(1, u.draws) : 1;
  std::unique_ptr<Scene> scene;
  simulate::Recordings recordings;
  const auto simulated = [&](uint64_t seed) {
    if (rows_vary || recordings.empty()) {
      scene = scene_of(seed);
      recordings = simulate::record_all(program, scene->sim);
    }
    scene->sim.seed = seed;
    simulate::Simulation s = simulate::simulate(program, scene->sim, recordings);
    HEDDLE_CHECK(s.deadlock.empty(), "the program can't go on:\n{}", s.deadlock);
    return s;
  };
  std::vector<std::pair<double, uint64_t>> steps;  // steps with their seeds
  simulate::Simulation last;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = u.seed + static_cast<uint64_t>(i);
    try {
      last = simulated(seed);
    } catch (const ir::OutOfMemory&) {
      if (++draws.out_of_memory == count) throw;
      recordings.clear();
      continue;
    }
    steps.emplace_back(last.step_us, seed);
    draws.step_us.push_back(last.step_us);
    draws.peak_live_bytes.push_back(most_live_bytes(last));
  }
  std::sort(draws.step_us.begin(), draws.step_us.end());
  std::sort(draws.peak_live_bytes.begin(), draws.peak_live_bytes.end());
  std::sort(steps.begin(), steps.end());
  if (steps.size() > 1) last = simulated(steps[(steps.size() - 1) / 2].second);
  return last;
}

}  // namespace

double Draws::quantile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(at, 1, sorted.size()) - 1];
}

double StepPrediction::exposed_total_us() const {
  double sum = 0;
  for (const auto& [kind, us] : exposed_us) sum += us;
  return sum;
}

StepPrediction predict_step(const model::ModelConfig& config, const plan::Plan& plan, const plan::Lowered& lowered,
                            const cost::MachineProfile& profile, const PredictionInput& input) {
  const ir::StepProgram& program = lowered.program;
  StepPrediction f;
  f.simulation = draw(
      [&](uint64_t seed) {
        auto scene = std::make_unique<Scene>(config, plan, lowered, profile, input, seed);
        f.exchange = exchanges_of(program, scene->rows());
        return scene;
      },
      program, input.uncertainty, f);
  f.step_us = f.simulation.step_us;
  const double tokens =
      static_cast<double>(plan.microbatches * plan.sequences * plan.sequence_length * plan.mesh.dp);
  f.tokens_per_s = tokens / f.step_us * 1e6;
  f.model_flops = model_flops(config, plan);
  int machines = 1;
  for (const int m : input.machine_of) machines = std::max(machines, m + 1);
  if (!backends::named(input.backend).shares_memory) machines = plan.ranks();  // a device each
  const double peak = profile.flops_per_s(plan.dtype) * machines;
  f.mfu = peak > 0 ? f.model_flops / (f.step_us * 1e-6) / peak : 0;
  const auto ranks = static_cast<double>(plan.ranks());
  for (const simulate::RankResult& rank : f.simulation.ranks) {
    account_gaps(program, rank, f.step_us, f);
    if (rank.peak_live_bytes > f.peak_live_bytes) {
      f.peak_live_bytes = rank.peak_live_bytes;
      f.largest_rank = rank.rank;
    }
    f.persistent_bytes = std::max(f.persistent_bytes, rank.persistent_bytes);
    f.reserved_bytes = std::max(f.reserved_bytes, rank.reserved_bytes);
    f.caching_reserved_bytes = std::max(f.caching_reserved_bytes, rank.caching_reserved_bytes);
  }
  for (auto& [kind, us] : f.exposed_us) us /= ranks;
  f.bubble_us /= ranks;
  f.host_us /= ranks;
  return f;
}

}  // namespace heddle::runtime
