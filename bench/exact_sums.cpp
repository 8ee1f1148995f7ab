// What exact sums cost: whole training steps of a configuration with the switch on over off, on one rank and on
// dp 2 × ep 2 as threads, in pairs that take turns.
//
//   build/bench_exact_sums [--json] [--rounds N] [CONFIG]      (examples/demo.toml)
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/observe/table.h"
#include "heddle/train/run_config_plan.h"
#include "tests/simulate/tiny_step.h"

namespace heddle {
namespace {

struct Variant {
  std::unique_ptr<test::TinyRun> run;
  std::vector<test::Batch> batches;

  Variant(const config::RunConfig& config, int ranks, bool exact) {
    plan::Plan plan = train::plan_of(config);
    plan.mesh = {};
    plan.mesh.dp = plan.mesh.ep = ranks;
    plan.microbatches = 4 / ranks;  // of the same global batch
    plan.evaluates = plan.predicts = false;
    plan.exact_sums = exact;
    run = std::make_unique<test::TinyRun>(config.model, plan, "host", int64_t{2} << 30, std::max(1, 2 / ranks),
                                          false);
    const std::vector<double> table = model::rope_table(config.model, plan.sequence_length);
    run->fill([&](const model::Parameter& p, int64_t i) {
      if (p.start == model::Parameter::Start::rope_table) return table[static_cast<size_t>(i)];
      if (p.start == model::Parameter::Start::ones) return 1.0;
      return 0.02 * RandomKey(2).with(p.name).normal(static_cast<uint64_t>(i));
    });
    batches = test::tiny_batches(config.model, plan, 3);
    for (test::Batch& batch : batches) batch.hyper = {0, 0.1, 0.05};  // every step does the same
    run->run(batches);
  }

  double step_seconds() {
    const double began = now_s();
    run->run(batches);
    return now_s() - began;
  }
  int64_t peak_bytes() const { return run->executor(0).walk().storage().peak_live_bytes(); }
};

int run(const std::string& path, int rounds, bool as_json) {
  const config::RunConfig config = config::read_run_config(path);
  nlohmann::ordered_json found;
  observe::Table table({{"ranks"},
                        {"step, on over off", observe::Align::right},
                        {"peak memory, on over off", observe::Align::right}});
  for (const int ranks : {1, 2}) {
    Variant off(config, ranks, false), on(config, ranks, true);
    std::vector<double> ratios;
    for (int round = 0; round < rounds; ++round) {
      const bool off_first = round % 2 == 0;
      const double first = (off_first ? off : on).step_seconds(), second = (off_first ? on : off).step_seconds();
      ratios.push_back(off_first ? second / first : first / second);
    }
    const double step = median(ratios);
    const double peak = static_cast<double>(on.peak_bytes()) / static_cast<double>(off.peak_bytes());
    const std::string name = plan::text_of(on.run->plan().mesh);
    found[name] = {{"step_on_over_off", step}, {"peak_on_over_off", peak}};
    table.row({name, fmt::format("{:.3f}", step), fmt::format("{:.3f}", peak)});
    bench::so_far(as_json ? found.dump() : table.text(false));
  }
  if (as_json) {
    fmt::print("{}\n", found.dump());
  } else {
    fmt::print("{}", table.text(false));
  }
  return 0;
}

}  // namespace

int bench::run(Arguments& arguments) {
  bool json = false;
  int rounds = 9;
  std::string path = "examples/demo.toml";
  arguments.flag("--json", json);
  arguments.number("--rounds", rounds);
  arguments.place("CONFIG", path);
  arguments.read();
  return heddle::run(path, rounds, json);
}

}  // namespace heddle
