// Every pipeline schedule on real ranks: whole training steps of a small mixture of experts on 4 pipeline ranks as
// threads, paced, the schedules taking turns in one run. Step time and activation memory against 1F1B, measured
// beside what the simulator foretells of the same programs.
//
//   build/bench_schedules [--json] [--rounds N] [--ranks P] [--microbatches M] [--step-seconds S]
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/paced_run.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/parallel.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/observe/table.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/simulate/simulate.h"
#include "tests/support/paced_time.h"

namespace heddle {
namespace {

using bench::PacedRun;

constexpr double kMessageUs = 50;  // of an op that communicates between threads

struct Options {
  bool json = false;
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
  Variant(const Options& options, const std::string& schedule)
      : name(schedule), config_(model_config(options)), board_(options.ranks) {
    plan::Plan plan;
    plan.mesh.pp = options.ranks;
    plan.parallel.schedule = schedule;
    plan.parallel.weave = plan::Weave::off;
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

  simulate::Simulation predicted(double work_per_s) const {
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
  comm::ThreadWorlds board_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<PacedRun>> runs_;
};

int tell(const Options& options, nlohmann::ordered_json& found, double use) {
  found["processor_use"] = use;
  found["believable"] = use <= kMostPacedUse;
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
      const PacedTimer timer;
      variant.seconds.push_back(variant.step());
      use = std::max(use, timer.elapsed().processor_use());
    }
    nlohmann::ordered_json unfinished{{"rounds", round + 1}};
    for (const auto& variant : variants) unfinished["step_seconds"][variant->name] = median(variant->seconds);
    bench::so_far(unfinished.dump(2));
  }
  observe::Table table({{"schedule"},
                        {"step, over 1f1b", observe::Align::right},
                        {"foretold", observe::Align::right},
                        {"step, over foretold", observe::Align::right},
                        {"activations, over 1f1b", observe::Align::right}});
  const double base_us = base.predicted(work_per_s).step_us;
  for (const auto& variant : variants) {
    const double seconds = median(variant->seconds), us = variant->predicted(work_per_s).step_us;
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
  bench::so_far(options.json ? found.dump() : "");
  return tell(options, found, use);
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
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
