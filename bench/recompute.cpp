// Step time and memory with each word of memory.recompute (or memory.offload) against keeping everything: whole
// training steps of a configuration on one rank, all variants taking turns in one run.
//
//   build/bench_recompute [--offload] [--json] [--rounds N] [CONFIG]      (examples/demo.toml)
#include "heddle/passes/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/observe/table.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/op_groups.h"
#include "heddle/train/run_config_plan.h"
#include "tests/simulate/tiny_step.h"

namespace heddle {
namespace {

struct Variant {
  std::string words;
  std::unique_ptr<test::TinyRun> run;
  std::vector<test::Batch> batches;
  std::vector<double> over_kept;  // its step over that of the pair which keeps everything

  int64_t activation_bytes() const {
    const ir::Walk& walk = run->executor(0).walk();
    return walk.storage().peak_live_bytes() - walk.persistent_bytes();
  }
};

double seconds_of(Variant& v) {
  const double began = now_s();
  v.run->run(v.batches);
  return now_s() - began;
}

int run(const std::string& path, int rounds, bool offloads, bool as_json) {
  const config::RunConfig config = config::read_run_config(path);
  std::vector<std::string> words{""};
  if (offloads) words = {"", passes::kLayerInput, "input,layer"};
  for (const passes::GroupWord& word : passes::group_words()) {
    if (word.name != "gather") words.push_back(word.name);  // nothing to gather on one rank
  }
  std::vector<Variant> variants;
  for (const std::string& word : words) {
    plan::Plan plan = train::plan_of(config);
    plan.mesh = {};
    plan.microbatches = 1;
    plan.evaluates = plan.predicts = false;
    if (offloads) {
      plan.memory.offload = passes::offload_groups(word);
    } else {
      plan.memory.recompute = passes::recompute_groups(word);
    }
    Variant& v = variants.emplace_back();
    v.words = word;
    v.run = std::make_unique<test::TinyRun>(config.model, plan, "host", int64_t{2} << 30, 2, false);
    const std::vector<double> table = model::rope_table(config.model, plan.sequence_length);
    v.run->fill([&](const model::Parameter& p, int64_t i) {
      if (p.start == model::Parameter::Start::rope_table) return table[static_cast<size_t>(i)];
      if (p.start == model::Parameter::Start::ones) return 1.0;
      return 0.02 * RandomKey(2).with(p.name).normal(static_cast<uint64_t>(i));
    });
    v.batches = test::tiny_batches(config.model, plan, 3);
    v.batches[0].hyper = {0, 0.1, 0.05};  // every step does the same
    v.run->run(v.batches);
  }
  const auto report = [&] {
    nlohmann::ordered_json found = nlohmann::ordered_json::array();
    observe::Table table({{offloads ? "on the host" : "made again"},
                          {"step, over keeping all", observe::Align::right},
                          {"activations, MiB", observe::Align::right},
                          {"over keeping all", observe::Align::right}});
    for (size_t i = 1; i < variants.size(); ++i) {
      const double over = median(variants[i].over_kept);
      const double mib = static_cast<double>(variants[i].activation_bytes()) / (1 << 20);
      const double share = mib * (1 << 20) / static_cast<double>(variants[0].activation_bytes());
      found.push_back({{"words", variants[i].words},
                       {"step_over_kept", over},
                       {"activation_bytes", variants[i].activation_bytes()},
                       {"activation_over_kept", share}});
      table.row({variants[i].words, fmt::format("{:.3f}", over), fmt::format("{:.1f}", mib),
                 fmt::format("{:.2f}", share)});
    }
    return as_json ? found.dump() + "\n" : table.text(false);
  };
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 1; i < variants.size(); ++i) {
      Variant &kept = variants[0], &again = variants[i];
      const bool kept_first = round % 2 == 0;
      const double first = seconds_of(kept_first ? kept : again), second = seconds_of(kept_first ? again : kept);
      again.over_kept.push_back(kept_first ? second / first : first / second);
    }
    bench::so_far(report());
  }
  fmt::print("{}", report());
  return 0;
}

}  // namespace

int bench::run(Arguments& arguments) {
  bool json = false, offloads = false;
  int rounds = 9;
  std::string path = "examples/demo.toml";
  arguments.flag("--offload", offloads);
  arguments.flag("--json", json);
  arguments.number("--rounds", rounds);
  arguments.place("CONFIG", path);
  arguments.read();
  return heddle::run(path, rounds, offloads, json);
}

}  // namespace heddle
