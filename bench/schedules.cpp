// Every pipeline schedule on real ranks: whole training steps of a small mixture of experts on 4 pipeline ranks as
// threads, paced, the schedules taking turns in one run. Step time and activation memory against 1F1B, measured
// beside what the simulator foretells of the same programs.
//
// Then, or alone with --ahead, the period of steps that follow each other, with and without updates that run ahead
// of the norm: the bubble beside the staggered one of the schedule's own timing.
//
//   build/bench_schedules [--json] [--ahead] [--rounds N] [--ranks P] [--microbatches M] [--step-seconds S]
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/paced_run.h"
#include "bench/support/main.h"
#include "heddle/backends/backend.h"
#include "heddle/base/parallel.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/host/paced_time.h"
#include "heddle/observe/table.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/timing.h"
#include "heddle/simulate/consecutive.h"
#include "heddle/simulate/simulate.h"

namespace heddle {
namespace {

using bench::PacedRun;

constexpr double kMessageUs = 50;  // of an op that communicates between threads

struct Options {
  bool json = false, ahead = false;
  int rounds = 2, ranks = 4, microbatches = 16;
  double step_seconds = 6;  // of 1F1B, about: what an op sleeps too long must not matter
};

model::ModelConfig model_config(const Options& options) {
  model::ModelConfig c;
  c.vocab_size = 128;
  c.hidden_size = 128;
  c.num_hidden_layers = 4 * options.ranks;
  c.first_k_dense_replace = 0;
  c.num_attention_heads = 4;
  c.q_lora_rank = 48;
  c.kv_lora_rank = 32;
  c.qk_nope_head_dim = 16;
  c.qk_rope_head_dim = 8;
  c.v_head_dim = 16;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  c.n_shared_experts = 1;
  c.moe_intermediate_size = 64;
  return c;
}

/// One schedule on all ranks.
class Variant {
 public:
  Variant(const Options& options, const std::string& schedule, bool ahead = false)
      : name(schedule), config_(model_config(options)), board_(options.ranks) {
    plan::Plan plan;
    plan.mesh.pp = options.ranks;
    plan.parallel.schedule = schedule;
    plan.parallel.weave = plan::Weave::off;
    plan.parallel.ahead_of_norm = ahead;
    plan.microbatches = options.microbatches;
    plan.sequence_length = 64;
    plan.dtype = Dtype::bf16;
    plan.packed_bytes = backends::named("host").packed_bytes;
    worlds_.resize(static_cast<size_t>(options.ranks));
    runs_.resize(static_cast<size_t>(options.ranks));
    each([&](size_t r) {
      worlds_[r] = board_.world(static_cast<int>(r));
      runs_[r] = std::make_unique<PacedRun>(config_, plan, *worlds_[r]);
    });
    step();  // without a pace: memory and caches are warm
  }

  double step() {
    std::vector<double> took(runs_.size());
    each([&](size_t r) { took[r] = runs_[r]->step(); });
    return *std::max_element(took.begin(), took.end());
  }
  /// From the end of one step to that of the next, on the rank that ends last.
  double period(int steps) {
    std::vector<std::vector<double>> ended(runs_.size());
    each([&](size_t r) { ended[r] = runs_[r]->steps(steps + 1); });
    double first = 0, last = 0;
    for (const std::vector<double>& of : ended) {
      first = std::max(first, of.front());
      last = std::max(last, of.back());
    }
    return (last - first) / steps;
  }

  double foretold_period(double work_per_s) const {
    return simulate::steady_step_us(runs_[0]->program(), scene(work_per_s)) * 1e-6;
  }

  /// Of the order that has run, for the work of its stages: the busiest rank's work with its update, and the
  /// longest time from a rank's first action to the end of its update.
  struct Stated {
    double work = 0, span = 0;
    double bubble(double period) const { return 1 - work / period; }
  };
  Stated stated(double work_per_s) const {
    schedule::Schedule order = plan::schedule_of(runs_[0]->plan());
    for (std::vector<schedule::Action>& actions : order.order) {  // a pair runs one after the other here
      std::vector<schedule::Action> parted;
      for (const schedule::Action& action : actions) {
        for (const schedule::Compute& c : action.computes()) parted.push_back({c, std::nullopt});
      }
      actions = std::move(parted);
    }
    schedule::Times times;
    times.stages.resize(order.placement.rank_of.size(), {0, 0, 0, 0});
    std::vector<double> update(runs_.size(), 0);
    for (int r = 0; r < order.placement.ranks; ++r) {
      const ir::Listing& listing = runs_[0]->program().listings[static_cast<size_t>(r)];
      const std::vector<int> own = order.placement.stages_of(r);
      for (const ir::Op& op : listing.ops) {
        if (op.def->stream != ir::StreamKind::compute || op.phase == ir::Phase::check) continue;
        if (op.condition && !op.condition.more) continue;  // what runs where nothing runs ahead
        const double seconds = runs_[0]->work(listing, op) / work_per_s;
        if (ir::once_a_step(op.phase)) {
          update[static_cast<size_t>(r)] += seconds;
          continue;
        }
        schedule::StageTimes& of = times.stages.at(static_cast<size_t>(own[static_cast<size_t>(op.chunk)]));
        (op.phase == ir::Phase::F   ? of.forward
         : op.phase == ir::Phase::I ? of.input_grad
                                    : of.weight_grad) += seconds;
      }
    }
    const schedule::Timing timing = schedule::timing_of(order, times);
    Stated stated;
    for (size_t r = 0; r < timing.of.size(); ++r) {
      stated.work = std::max(stated.work, timing.busy[r] + update[r]);
      stated.span = std::max(stated.span, timing.of[r].back().end - timing.of[r].front().start + update[r]);
    }
    return stated;
  }
  void pace(double work_per_s) {
    for (auto& run : runs_) run->pace(work_per_s);
  }
  /// Of the stages that train; a second copy of the weights has no work of its own.
  double work() const { return runs_[0]->work(); }

  /// What the fullest rank holds beyond what lasts.
  double activation_bytes() const {
    int64_t most = 0;
    for (const auto& run : runs_) {
      const ir::Walk& walk = run->executor().walk();
      most = std::max(most, walk.storage().peak_live_bytes() - walk.persistent_bytes());
    }
    return static_cast<double>(most);
  }

  simulate::Simulation foretold(double work_per_s) const {
    return simulate::simulate(runs_[0]->program(), scene(work_per_s));
  }

  std::string name;
  std::vector<double> seconds;

 private:
  simulate::SimulationInput scene(double work_per_s) const {
    const PacedRun& run = *runs_[0];
    simulate::SimulationInput input;
    input.groups = simulate::groups_of(run.program(), plan::Mesh(run.plan().mesh));
    input.enqueue_us = 2;
    input.duration_us = [&run, work_per_s](int, const ir::Issue& issue) {
      const ir::Listing& listing = run.program().listings[static_cast<size_t>(issue.listing)];
      if (issue.op->def->stream != ir::StreamKind::compute) return kMessageUs;
      return run.work(listing, *issue.op) / work_per_s * 1e6;
    };
    input.rows = [](int, const ir::Issue&, size_t) { return int64_t{128}; };
    return input;
  }
  void each(const std::function<void(size_t)>& what) {
    on_threads(static_cast<int>(runs_.size()), [&](int r) { what(static_cast<size_t>(r)); });
  }

  model::ModelConfig config_;
  comm::ThreadBoard board_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<PacedRun>> runs_;
};

// Steps that follow each other, with the key and without.
void measure_ahead(const Options& options, double work_per_s, nlohmann::ordered_json& found, double& use) {
  constexpr int kSteps = 3;
  observe::Table table({{"schedule"},
                        {"period, s", observe::Align::right},
                        {"ahead, s", observe::Align::right},
                        {"ahead over without", observe::Align::right},
                        {"bubble", observe::Align::right},
                        {"ahead", observe::Align::right},
                        {"foretold", observe::Align::right},
                        {"ahead", observe::Align::right},
                        {"staggered", observe::Align::right}});
  double worst = 0, worst_foretold = 0;
  for (const std::string name : {"zb_h1", "zb_h2", "zb_v", "dual_pipe_v"}) {
    Variant waits(options, name), ahead(options, name, true);
    std::vector<double> periods;
    for (Variant* variant : {&waits, &ahead}) {
      variant->pace(work_per_s);
      const device::PacedTimer timer;
      periods.push_back(variant->period(kSteps));
      use = std::max(use, timer.elapsed().processor_use());
    }
    const Variant::Stated stated = ahead.stated(work_per_s);
    const double bubble = stated.bubble(periods[1]), staggered = stated.bubble(stated.span);
    const double foretold = waits.stated(work_per_s).bubble(waits.foretold_period(work_per_s));
    const double foretold_ahead = stated.bubble(ahead.foretold_period(work_per_s));
    worst = std::max(worst, 100 * std::abs(bubble - staggered));
    worst_foretold = std::max(worst_foretold, 100 * std::abs(foretold_ahead - staggered));
    found["ahead"][name] = {{"period_seconds", periods[0]},        {"period_ahead_seconds", periods[1]},
                            {"bubble", stated.bubble(periods[0])}, {"bubble_ahead", bubble},
                            {"bubble_foretold", foretold},         {"bubble_ahead_foretold", foretold_ahead},
                            {"bubble_staggered", staggered}};
    table.row({name, fmt::format("{:.3f}", periods[0]), fmt::format("{:.3f}", periods[1]),
               fmt::format("{:.3f}", periods[1] / periods[0]),
               fmt::format("{:.1f} %", 100 * stated.bubble(periods[0])), fmt::format("{:.1f} %", 100 * bubble),
               fmt::format("{:.1f} %", 100 * foretold), fmt::format("{:.1f} %", 100 * foretold_ahead),
               fmt::format("{:.1f} %", 100 * staggered)});
  }
  found["ahead_bubble_error"] = worst;
  found["ahead_bubble_error_foretold"] = worst_foretold;
  if (!options.json)
    fmt::print("{}off the staggered bubble by {:.1f} points at most, foretold {:.1f}\n", table.text(false), worst,
               worst_foretold);
}

int tell(const Options& options, nlohmann::ordered_json& found, double use) {
  found["processor_use"] = use;
  found["believable"] = use <= device::kMostPacedUse;
  if (options.json) {
    fmt::print("{}\n", found.dump());
  } else {
    fmt::print("busiest step: {:.0f} % of the cores\n", 100 * use);
  }
  return found["believable"] ? 0 : 1;
}

// (m + p − 1) slots of a microbatch's share of one rank.
double work_rate(const Options& options, const Variant& base) {
  const double slots = options.microbatches + options.ranks - 1;
  return base.work() * slots / options.ranks / options.step_seconds;
}

int run(const Options& options) {
  nlohmann::ordered_json found;
  double use = 0;
  if (options.ahead) {
    measure_ahead(options, work_rate(options, Variant(options, "1f1b")), found, use);
    return tell(options, found, use);
  }
  std::vector<std::unique_ptr<Variant>> variants;
  for (const std::string& name : schedule::generator_names()) {
    if (name == "dual_pipe" && (options.ranks % 2 != 0 || options.microbatches < 2 * options.ranks)) continue;
    variants.push_back(std::make_unique<Variant>(options, name));
  }
  const auto usual =
      std::find_if(variants.begin(), variants.end(), [](const auto& v) { return v->name == "1f1b"; });
  const Variant& base = **usual;
  const double work_per_s = work_rate(options, base);
  for (auto& variant : variants) variant->pace(work_per_s);
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      Variant& variant = *variants[(i + static_cast<size_t>(round)) % variants.size()];
      const device::PacedTimer timer;
      variant.seconds.push_back(variant.step());
      use = std::max(use, timer.elapsed().processor_use());
    }
  }
  observe::Table table({{"schedule"},
                        {"step, over 1f1b", observe::Align::right},
                        {"foretold", observe::Align::right},
                        {"step, over foretold", observe::Align::right},
                        {"activations, over 1f1b", observe::Align::right}});
  const double base_us = base.foretold(work_per_s).step_us;
  for (const auto& variant : variants) {
    const double seconds = median(variant->seconds), us = variant->foretold(work_per_s).step_us;
    const double over = seconds / median(base.seconds),
                 memory = variant->activation_bytes() / base.activation_bytes();
    found["schedules"][variant->name] = {{"step_seconds", seconds},
                                         {"step_over_1f1b", over},
                                         {"step_over_1f1b_predicted", us / base_us},
                                         {"step_over_predicted", seconds / us * 1e6},
                                         {"activation_bytes", variant->activation_bytes()},
                                         {"activations_over_1f1b", memory}};
    table.row({variant->name, fmt::format("{:.3f}", over), fmt::format("{:.3f}", us / base_us),
               fmt::format("{:.3f}", seconds / us * 1e6), fmt::format("{:.2f}", memory)});
  }
  if (!options.json) fmt::print("{}", table.text(false));
  measure_ahead(options, work_per_s, found, use);
  return tell(options, found, use);
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.flag("--ahead", options.ahead);
  arguments.number("--rounds", options.rounds);
  arguments.number("--ranks", options.ranks, 2);
  arguments.number("--microbatches", options.microbatches);
  arguments.number("--step-seconds", options.step_seconds, 0.01);
  arguments.read();
  options.ranks = std::min(options.ranks, 16);
  options.microbatches = std::min(options.microbatches, 1024);
  return heddle::run(options);
}

}  // namespace heddle
