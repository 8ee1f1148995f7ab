// What memory costs in time on devices that differ in their link: state of the optimizer on the host, activations
// on the host against making them again, levels of recomputation, and budgets under hostile routers. Every figure
// that is measured, by the executor in the paced mode (bench/linked_device.h), stands beside the simulator's.
//
//   build/bench_memory [--json] [--rounds N] [--microbatches M] [--budget-runs N] [--stretch S]
//
// swap: one layer of DeepSeek-V3 with the eight experts that a rank of 32 holds. Its microbatch has so many
// sequences that state is the part of the whole that it is on the fullest rank of DeepSeek-V3 on 512 devices (pp
// 16, dp = ep 32), where up to 16 microbatches are in flight. Its step has fewer tokens a byte of state than a
// global batch of 15,360 sequences gives there, so that what the ring costs weighs more here.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/linked_device.h"
#include "bench/published_models.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/parallel.h"
#include "heddle/observe/table.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/op_groups.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/costs/account.h"
#include "heddle/plan/switches.h"
#include "tests/support/paced_time.h"

namespace heddle {
namespace {

using bench::LinkedDevice, bench::LinkedRun;
using Json = nlohmann::ordered_json;

struct Options {
  bool json = false;
  int rounds = 2, microbatches = 48, budget_runs = 12;
  double stretch = 1;
};

constexpr int64_t kTokens = 4096;

// A layer as a rank of 32 has it: its 8 experts get as many rows as its tokens choose.
model::ModelConfig layer_of_deepseek_v3() {
  model::ModelConfig c = bench::deepseek_v3(kTokens);
  c.vocab_size = 2112;  // a layer's share of the embedding and the head
  c.num_hidden_layers = 1;
  c.first_k_dense_replace = 0;
  c.n_routed_experts = 8;
  return c;
}

model::ModelConfig layers_of_llama_2_70b() {
  model::ModelConfig c = bench::layers_of_llama_2_70b(kTokens);
  c.vocab_size /= 20;  // the layers' share of the embedding and the head
  return c;
}

plan::Plan plan_on(const LinkedDevice& device, int64_t sequences, int microbatches) {
  plan::Plan plan;
  plan.rates = bench::rates_of(device);
  plan.dtype = Dtype::bf16;
  plan.sequences = sequences;
  plan.sequence_length = kTokens;
  plan.microbatches = microbatches;
  return plan;
}

// Of what a rank holds at its peak.
struct Held {
  double bytes = 0, state = 0;
  double share() const { return state / bytes; }
};
Held held_by(const model::ModelConfig& config, const plan::Plan& plan, int rank) {
  const plan::Lowered lowered = plan::lower(config, plan);
  Held held{static_cast<double>(runtime::predict_memory(lowered.program, rank, "host").peak_live_bytes), 0};
  for (const plan::RoleBytes& of : plan::persistent_by_role(lowered.program, rank)) {
    if (of.role == ir::Role::optimizer) held.state = static_cast<double>(of.bytes);
  }
  return held;
}

// Sequences a microbatch at which the layer's state is the part of the whole that it is on a rank of the full
// model's second stage, the fullest, whose backward makes as little again as lets it fit the smallest of the
// devices.
struct Proportions {
  double full_share = 0, share = 0;
  std::string recompute;
  int64_t sequences = 1;
  int full_microbatches = 1;  // at which a step has as many tokens a byte of state as there
};
Proportions proportions_of_deepseek_v3() {
  constexpr double kRoomBytes = 0.92 * 64e9;
  Proportions found;
  double tokens_a_byte = 0;
  for (const char* words : {"norm, mla_up, activation", "medium, norm, mla_up", "medium, norm, mla_up, mlp",
                            "full, norm, mla_up, mlp", "layer"}) {
    plan::Plan full = plan_on(bench::kLinkedDevices[0], 1, 32);
    full.mesh.pp = 16;
    full.mesh.dp = full.mesh.ep = 32;
    full.parallel.weave = plan::Weave::off;
    full.memory.recompute = passes::recompute_groups(words);
    found.recompute = words;
    const Held held = held_by(bench::deepseek_v3(kTokens), full, full.mesh.stage_ranks());
    found.full_share = held.share();
    tokens_a_byte = 480 * kTokens * 4 / held.state;  // through four layers: 15,360 sequences on 32 data ranks
    if (held.bytes <= kRoomBytes) break;
  }
  for (int64_t sequences = 1; sequences <= 64; ++sequences) {
    plan::Plan plan = plan_on(bench::kLinkedDevices[0], sequences, 1);
    plan.memory.recompute = passes::recompute_groups(found.recompute);
    const Held held = held_by(layer_of_deepseek_v3(), plan, 0);
    const double share = held.share();
    if (sequences > 1 && std::abs(share - found.full_share) >= std::abs(found.share - found.full_share)) break;
    found.share = share;
    found.sequences = sequences;
    found.full_microbatches =
        static_cast<int>(std::lround(tokens_a_byte * held.state / static_cast<double>(kTokens * sequences)));
  }
  return found;
}

// All of a device at once: they only sleep. The first round opens the arenas, and is not counted.
void run_all(const std::vector<LinkedRun*>& runs, int rounds) {
  for (int round = 0; round <= rounds; ++round)
    on_threads(static_cast<int>(runs.size()), [&](int i) { runs[static_cast<size_t>(i)]->step(round > 0); });
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }
double bytes_ratio(int64_t a, int64_t b) { return ratio(static_cast<double>(a), static_cast<double>(b)); }

struct Report {
  bool as_json = false;
  Json json;
  observe::Table table{{{"device"},
                        {"what"},
                        {"memory", observe::Align::right},
                        {"foretold", observe::Align::right},
                        {"step", observe::Align::right},
                        {"foretold", observe::Align::right},
                        {"link in use", observe::Align::right}}};
  void row(const std::string& device, const std::string& what, const LinkedRun& run, const LinkedRun& base,
           double link_use = 0) {
    table.row({device, what, fmt::format("{:.3f}", bytes_ratio(run.measured_bytes(), base.measured_bytes())),
               fmt::format("{:.3f}", bytes_ratio(run.memory().peak_live_bytes, base.memory().peak_live_bytes)),
               fmt::format("{:.4f}", ratio(run.seconds(), base.seconds())),
               fmt::format("{:.4f}", ratio(run.predicted_s(), base.predicted_s())),
               link_use > 0 ? fmt::format("{:.0f} %", 100 * link_use) : ""});
    bench::so_far(text());
  }
  std::string text() const {
    if (as_json) return json.dump() + "\n";
    std::string all = table.text(false);
    for (const char* key :
         {"state_share", "offload", "levels_best", "budget_runs", "budget_failures", "budget_failures_without"})
      if (json.contains(key)) all += fmt::format("{}: {}\n", key, json[key].dump(2));
    if (json.contains("processor_use")) {
      all += fmt::format("{:.0f} % of the cores\n", 100 * json["processor_use"].get<double>());
    }
    return all;
  }
  static Json json_of(const LinkedRun& run, const LinkedRun& base) {
    return {{"memory_ratio", bytes_ratio(run.measured_bytes(), base.measured_bytes())},
            {"memory_ratio_foretold", bytes_ratio(run.memory().peak_live_bytes, base.memory().peak_live_bytes)},
            {"step_seconds", run.seconds()},
            {"step_seconds_foretold", run.predicted_s()},
            {"step_ratio", ratio(run.seconds(), base.seconds())},
            {"step_ratio_foretold", ratio(run.predicted_s(), base.predicted_s())}};
  }
};

// The step with state on the host over that without.
double predicted_at(const LinkedDevice& device, const Proportions& proportions, int microbatches) {
  std::vector<double> seconds;
  for (const plan::StateResidency home : {plan::StateResidency::swap, plan::StateResidency::device}) {
    plan::Plan plan = plan_on(device, proportions.sequences, microbatches);
    plan.memory.optimizer = home;
    plan.memory.recompute = passes::recompute_groups(proportions.recompute);
    seconds.push_back(LinkedRun(layer_of_deepseek_v3(), plan, 1).predicted_s());
  }
  return ratio(seconds[0], seconds[1]);
}

void swap(const Options& options, const Proportions& proportions, Report& report) {
  report.json["state_share"] = {{"deepseek_v3", proportions.full_share},
                                {"here", proportions.share},
                                {"recompute", proportions.recompute},
                                {"sequences", proportions.sequences},
                                {"full_microbatches", proportions.full_microbatches}};
  const model::ModelConfig config = layer_of_deepseek_v3();
  for (const LinkedDevice& device : bench::kLinkedDevices) {
    std::vector<std::unique_ptr<LinkedRun>> runs;
    std::vector<LinkedRun*> all;
    for (const plan::StateResidency home :
         {plan::StateResidency::device, plan::StateResidency::swap, plan::StateResidency::mapped}) {
      plan::Plan plan = plan_on(device, proportions.sequences, options.microbatches);
      plan.memory.optimizer = home;
      plan.memory.recompute = passes::recompute_groups(proportions.recompute);
      all.push_back(runs.emplace_back(std::make_unique<LinkedRun>(config, plan, options.stretch)).get());
    }
    run_all(all, options.rounds);
    const double use = runs[1]->link_use();
    report.row(device.name, "swap", *runs[1], *runs[0], use);
    report.row(device.name, "mapped", *runs[2], *runs[0]);
    // At the batch of the full model: as many tokens a byte of state as there.
    const double predicted_full = predicted_at(device, proportions, proportions.full_microbatches);
    Json found{{"swap", Report::json_of(*runs[1], *runs[0])}, {"mapped", Report::json_of(*runs[2], *runs[0])}};
    found["swap"]["link_use"] = use;
    found["swap"]["step_ratio_foretold_at_full_batch"] = predicted_full;
    if (&device == bench::kLinkedDevices) {
      report.json["swap_memory_ratio"] = found["swap"]["memory_ratio"];
      report.json["swap_step_ratio"] = found["swap"]["step_ratio"];
      report.json["swap_link_use"] = use;
    }
    report.json["state"][device.name] = std::move(found);
    bench::so_far(report.text());
  }
}

// Of four such layers: what one makes again stands beside what the others keep.
void levels_of_recompute(const Options& options, int64_t sequences, Report& report) {
  model::ModelConfig config = layer_of_deepseek_v3();
  config.num_hidden_layers = 4;
  const LinkedDevice& device = bench::kLinkedDevices[0];
  std::vector<std::unique_ptr<LinkedRun>> runs;
  std::vector<LinkedRun*> all;
  const char* levels[] = {"", "light", "medium", "full"};
  for (const char* words : levels) {
    plan::Plan plan = plan_on(device, sequences, 2);
    plan.memory.recompute = passes::recompute_groups(words);
    all.push_back(runs.emplace_back(std::make_unique<LinkedRun>(config, plan, options.stretch)).get());
  }
  run_all(all, options.rounds);
  // Of those that cost at most 3 %, the one that saves most; else the cheapest.
  size_t best = 1;
  for (size_t i = 1; i < runs.size(); ++i) {
    report.row(device.name, levels[i], *runs[i], *runs[0]);
    report.json["levels"][levels[i]] = Report::json_of(*runs[i], *runs[0]);
    const bool cheap = ratio(runs[i]->predicted_s(), runs[0]->predicted_s()) <= 1.03;
    if (cheap && runs[i]->memory().peak_live_bytes < runs[best]->memory().peak_live_bytes) best = i;
  }
  report.json["levels_best"] = levels[best];
  report.json["levels_peak_ratio"] = report.json["levels"][levels[best]]["memory_ratio"];
  report.json["levels_step_ratio"] = report.json["levels"][levels[best]]["step_ratio"];
}

// The quickest of the choices that fit, by the simulator.
std::unique_ptr<LinkedRun> quickest(const LinkedDevice& device, const std::vector<std::string>& offloads,
                                    int64_t budget_bytes, const Options& options) {
  const model::ModelConfig config = layers_of_llama_2_70b();
  std::unique_ptr<LinkedRun> best;
  double best_s = 0;
  for (const std::string& offload : offloads) {
    for (const char* words : {"", "norm", "norm, activation", "norm, activation, mla_up", "norm, mlp",
                              "norm, mla_up, mlp", "norm, mla_up, mlp, attention", "layer"}) {
      plan::Plan plan = plan_on(device, 1, 4);
      plan.memory.recompute = passes::recompute_groups(words);
      plan.memory.offload = passes::offload_groups(offload);
      auto run = std::make_unique<LinkedRun>(config, plan, options.stretch * 2);
      if (run->memory().peak_live_bytes > budget_bytes) continue;
      const double s = run->predicted_s();
      if (best && s >= best_s) continue;
      best = std::move(run);
      best_s = s;
    }
  }
  return best;
}

void offload(const Options& options, Report& report) {
  const model::ModelConfig config = layers_of_llama_2_70b();
  for (const LinkedDevice& device : bench::kLinkedDevices) {
    const auto peak_of = [&](const char* words) {
      plan::Plan plan = plan_on(device, 1, 4);
      plan.memory.recompute = passes::recompute_groups(words);
      return LinkedRun(config, plan, 1).memory().peak_live_bytes;
    };
    // A little above what making whole layers again takes.
    const int64_t least = peak_of("layer"), most = peak_of(""), budget = least + (most - least) / 10;
    const auto again = quickest(device, {""}, budget, options);
    const auto away =
        quickest(device, {"", "input", "attention, mla_up", "mlp", "input, attention, mla_up", "input, layer"},
                 budget, options);
    run_all({again.get(), away.get()}, options.rounds);
    const auto words = [](const LinkedRun& run) {
      return fmt::format("recompute '{}', offload '{}'", passes::text_of(run.plan().memory.recompute),
                         passes::text_of(run.plan().memory.offload));
    };
    report.row(device.name, "offload", *away, *again);
    const double gain = ratio(again->seconds(), away->seconds());
    report.json["offload"][device.name] = {{"budget_bytes", budget},
                                           {"recompute_alone", words(*again)},
                                           {"with_offload", words(*away)},
                                           {"gain", gain},
                                           {"gain_predicted", ratio(again->predicted_s(), away->predicted_s())}};
    if (&device == bench::kLinkedDevices) report.json["offload_over_recompute"] = gain;
  }
}

// The draws of the test itself: programs whose router is hostile, in arenas of their budget.
void budgets(const Options& options, const std::filesystem::path& build, Report& report) {
  const std::filesystem::path told =
      std::filesystem::temp_directory_path() / fmt::format("heddle_budget_{}.json", getpid());
  setenv("HEDDLE_BUDGET_RUNS", fmt::format("{}", options.budget_runs).c_str(), 1);
  const std::string command =
      fmt::format("'{}' --gtest_filter=BudgetKept.* --gtest_output=json:'{}' > /dev/null 2>&1",
                  (build / "planner_test").string(), told.string());
  HEDDLE_CHECK(std::system(command.c_str()) != -1, "planner_test cannot be started");
  std::ifstream file(told);
  const Json json = Json::parse(file, nullptr, false);
  std::filesystem::remove(told);
  HEDDLE_CHECK(!json.is_discarded(), "planner_test has told nothing of its draws");
  const Json& test = json.at("testsuites").at(0).at("testsuite").at(0);
  const auto number = [&](const char* key) {
    return test.contains(key) ? std::atoi(test.at(key).get<std::string>().c_str()) : 0;
  };
  report.json["budget_runs"] = number("budget_runs");
  report.json["budget_failures"] = test.contains("failures") ? test.at("failures").size() : 0;
  report.json["budget_failures_without"] = number("budget_failures_without");
}

int run(const Options& options) {
  const std::filesystem::path build = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  // What is not there is said before minutes are spent on the rest.
  const auto built = [&](const char* program, const char* figures) {
    std::error_code ignored;
    if (std::filesystem::exists(build / program, ignored)) return true;
    fmt::print(stderr, "bench_memory: {} is not built beside it: {} are not measured\n", program, figures);
    return false;
  };
  const bool measures_budgets = options.budget_runs == 0 || built("planner_test", "budgets under hostile routers");
  Report report;
  report.as_json = options.json;
  const PacedTimer timer;
  const Proportions proportions = proportions_of_deepseek_v3();
  swap(options, proportions, report);
  levels_of_recompute(options, proportions.sequences, report);
  offload(options, report);
  const double use = timer.elapsed().processor_use();
  report.json["processor_use"] = use;
  bench::so_far(report.text());
  if (measures_budgets && options.budget_runs > 0) budgets(options, build, report);
  fmt::print("{}", report.text());
  return use <= kMostPacedUse && measures_budgets ? 0 : 1;
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.number("--rounds", options.rounds);
  arguments.number("--microbatches", options.microbatches);
  arguments.number("--budget-runs", options.budget_runs, 0);
  arguments.number("--stretch", options.stretch, 0.01);
  arguments.read();
  return heddle::run(options);
}

}  // namespace heddle
