// heddle simulate: a training step of a configuration on this machine, before it runs.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/real_text.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/command_config.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/observe/perfetto.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/planner/budget/memory_budget.h"
#include "heddle/planner/machine.h"
#include "heddle/session/traced/run_trace.h"

namespace heddle::cli {

namespace {

struct SimulateOptions {
  std::string config;
  std::vector<std::string> set;
  std::string profile;               // empty: the one that `heddle profile` keeps
  int64_t ranks = 0;                 // 0: as configured
  int64_t hosts = 1;                 // over which they are spread
  std::string routing = "balanced";  // or the relative deviation of the experts' shares, or a run's metrics
  double jitter = 0;                 // relative deviation of each op's time
  int64_t draws = 0;                 // 0: one, or 20 where something is drawn
  int64_t seed = 1;
  std::string trace;  // file
  bool json = false;
};

using Json = nlohmann::ordered_json;
constexpr double kMeasure_s = 45;  // on a machine without a profile

constexpr int kUsualDraws = 20;
constexpr size_t kMemoryPoints = 256, kShownAtPeak = 16;

Json at_peak_json(const simulate::RankResult& rank, size_t most) {
  Json tensors = Json::array();
  for (const ir::Walk::Live& live : rank.live_at_peak) {
    if (tensors.size() == most) break;
    tensors.push_back({{"name", live.name},
                       {"role", name_of(live.role)},
                       {"microbatch", live.microbatch},
                       {"bytes", live.bytes}});
  }
  return tensors;
}

// The most that lived in each of so many equal parts of the step, as ops were enqueued.
Json memory_json(const simulate::RankResult& rank, double step_us) {
  std::vector<int64_t> most(std::min(kMemoryPoints, std::max<size_t>(1, rank.ops.size())), -1);
  const auto parts = static_cast<double>(most.size());
  for (const simulate::SimulatedOp& op : rank.ops) {
    const auto part = static_cast<size_t>(std::clamp(op.start_us / step_us * parts, 0.0, parts - 1));
    most[part] = std::max(most[part], op.live_bytes);
  }
  Json at = Json::array(), live = Json::array();
  int64_t last = rank.persistent_bytes;
  for (size_t i = 0; i < most.size(); ++i) {
    if (most[i] >= 0) last = most[i];
    at.push_back(step_us * 1e-6 * static_cast<double>(i) / parts);
    live.push_back(last);
  }
  return {{"at_seconds", at}, {"live_bytes", live}};
}

Json draws_json(const runtime::Draws& d) {
  const auto peak = [&](double part) {
    return runtime::Draws::quantile({d.peak_live_bytes.begin(), d.peak_live_bytes.end()}, part);
  };
  const auto step_s = [&](double part) { return runtime::Draws::quantile(d.step_us, part) * 1e-6; };
  return {{"count", d.step_us.size()},
          {"out_of_memory", d.out_of_memory},
          {"step_seconds", {{"p50", step_s(0.5)}, {"p90", step_s(0.9)}, {"p99", step_s(0.99)}}},
          {"peak_live_bytes", {{"p50", peak(0.5)}, {"p90", peak(0.9)}, {"p99", peak(0.99)}}}};
}

runtime::Uncertainty uncertainty_of(const SimulateOptions& options) {
  runtime::Uncertainty u;
  u.jitter = options.jitter;
  u.seed = static_cast<uint64_t>(options.seed);
  if (options.routing != "balanced") {
    const char* end = options.routing.data() + options.routing.size();
    const auto [parsed, error] = read_real(options.routing.data(), end, u.spread);
    std::error_code ignored;
    if (error == std::errc() && parsed == end) {
      if (!(u.spread >= 0 && u.spread <= 10))
        config_error("--routing {}: a spread is between 0 and 10", options.routing.substr(0, 40));
    } else if (std::filesystem::exists(options.routing, ignored)) {
      u.spread = 0;
      const std::filesystem::path path(options.routing);
      u.counted_in = (std::filesystem::is_directory(path, ignored) ? path / "metrics.jsonl" : path).string();
      for (const observe::StepMetrics& step : observe::read_metrics(u.counted_in).steps) {
        if (step.layers.empty()) continue;
        u.counted_LE.clear();
        for (const observe::Figures& layer : step.layers)
          u.counted_LE.push_back(layer.list(observe::figures::kExpertLoads));
      }
      if (u.counted_LE.empty())
        config_error("--routing {}: none of its steps has counted the experts' rows (train.eval_every sets when)",
                     u.counted_in);
    } else {
      config_error("--routing is '{}', accepted: balanced, a spread such as 0.13, the folder or metrics of a run",
                   options.routing.substr(0, 200));
    }
  }
  u.draws = options.draws > 0 ? static_cast<int>(options.draws) : u.spread > 0 || u.jitter > 0 ? kUsualDraws : 1;
  return u;
}

Json json_of(const config::RunConfig& config, const planner::ConfigPrediction& c) {
  const runtime::StepPrediction& f = c.prediction;
  Json json{{"name", config.name},
            {"layout", plan::text_of(c.plan.mesh)},
            {"step_seconds", f.step_us * 1e-6},
            {"tokens_per_s", f.tokens_per_s},
            {"model_flops", f.model_flops},
            {"mfu", f.mfu},
            {"exposed_seconds", Json::object()},
            {"bubble_seconds", f.bubble_us * 1e-6},
            {"host_seconds", f.host_us * 1e-6},
            {"persistent_bytes", f.persistent_bytes},
            {"peak_live_bytes", f.peak_live_bytes},
            {"reserved_bytes", f.reserved_bytes},
            {"caching_allocator_bytes", f.caching_reserved_bytes},
            {"exchange", f.exchange},
            {"draws", draws_json(f.draws)},
            {"ranks", Json::array()},
            {"at_peak", Json::array()}};
  for (const auto& [kind, us] : f.exposed_us) json["exposed_seconds"][kind] = us * 1e-6;
  for (const simulate::RankResult& rank : f.simulation.ranks) {
    Json streams = Json::array();
    for (const simulate::StreamUse& s : rank.streams) {
      streams.push_back({{"stream", s.name},
                         {"busy_seconds", s.busy_us * 1e-6},
                         {"waiting_seconds", s.waiting_us * 1e-6},
                         {"idle_seconds", s.idle_us * 1e-6}});
    }
    json["ranks"].push_back({{"rank", rank.rank},
                             {"alike", rank.count},
                             {"end_seconds", rank.end_us * 1e-6},
                             {"host_stalled_seconds", rank.host_stalled_us * 1e-6},
                             {"persistent_bytes", rank.persistent_bytes},
                             {"peak_live_bytes", rank.peak_live_bytes},
                             {"reserved_bytes", rank.reserved_bytes},
                             {"caching_allocator_bytes", rank.caching_reserved_bytes},
                             {"streams", streams},
                             {"memory", memory_json(rank, f.step_us)},
                             {"at_peak", at_peak_json(rank, kShownAtPeak)}});
  }
  json["at_peak"] = at_peak_json(f.simulation.of(f.largest_rank), SIZE_MAX);
  return json;
}

void print(const config::RunConfig& config, const planner::ConfigPrediction& c,
           const cost::MachineProfile& profile) {
  const runtime::StepPrediction& f = c.prediction;
  const observe::Terminal terminal = observe::describe_terminal(1);
  say("{}: {}; a step of {} tokens on {} ({})\n\n", config.name,
      c.plan.ranks() == 1 ? "one rank" : plan::text_of(c.plan.mesh),
      observe::grouped_text(config.train.global_batch * config.train.sequence_length), profile.machine,
      profile.date);
  say("step {}, {}, MFU {:.1f} %\n\n", observe::duration_text(f.step_us * 1e-6),
      observe::count_text(f.tokens_per_s, "tok/s"), 100 * f.mfu);
  observe::Table table(
      {{"compute streams, mean of the ranks"}, {"time", observe::Align::right}, {"share", observe::Align::right}});
  const auto row = [&](const std::string& what, double us) {
    table.row({what, observe::duration_text(us * 1e-6), fmt::format("{:.1f} %", 100 * us / f.step_us)});
  };
  double busy_us = f.step_us - f.bubble_us - f.host_us - f.exposed_total_us();
  row("computing", busy_us);
  std::vector<std::pair<double, std::string>> exposed;
  for (const auto& [kind, us] : f.exposed_us) exposed.emplace_back(us, kind);
  std::sort(exposed.rbegin(), exposed.rend());
  for (const auto& [us, kind] : exposed) row("waiting for " + kind, us);
  row("waiting for other stages or ranks", f.bubble_us);
  row("waiting for the host", f.host_us);
  say("{}\n", table.text(terminal));
  if (const runtime::Draws& d = f.draws; d.step_us.size() + static_cast<size_t>(d.out_of_memory) > 1) {
    observe::Table drawn({{fmt::format("{} draws", d.step_us.size())},
                          {"median", observe::Align::right},
                          {"p90", observe::Align::right},
                          {"p99", observe::Align::right}});
    const auto quantiles = [&](const std::string& what, const std::vector<double>& of, const auto& text) {
      const auto at = [&](double part) { return text(runtime::Draws::quantile(of, part)); };
      drawn.row({what, at(0.5), at(0.9), at(0.99)});
    };
    quantiles("step", d.step_us, [](double us) { return observe::duration_text(us * 1e-6); });
    quantiles("memory at the peak", {d.peak_live_bytes.begin(), d.peak_live_bytes.end()},
              [](double bytes) { return observe::bytes_text(bytes); });
    say("{}", drawn.text(terminal));
    if (d.out_of_memory > 0) say("{} draws more do not fit into memory\n", d.out_of_memory);
    say("\n");
  }
  const std::string_view asked = word_of(c.plan.parallel.exchange.topology);
  if (f.exchange.size() > 0 && f.exchange != asked) say("exchange {}: {}\n\n", asked, f.exchange);
  constexpr size_t kShown = 10;
  observe::Table memory(
      {{fmt::format("memory of rank {}", f.largest_rank)}, {"role"}, {"bytes", observe::Align::right}});
  size_t shown = 0;
  for (const ir::Walk::Live& live : f.simulation.of(f.largest_rank).live_at_peak) {
    if (ir::is_persistent(live.role)) continue;
    if (++shown > kShown) break;
    memory.row({live.name, std::string(name_of(live.role)), observe::bytes_text(static_cast<double>(live.bytes))});
  }
  memory.rule();
  memory.row({"persistent", "", observe::bytes_text(static_cast<double>(f.persistent_bytes))});
  memory.row({"live at the peak", "", observe::bytes_text(static_cast<double>(f.peak_live_bytes))});
  memory.row({"reserved", "", observe::bytes_text(static_cast<double>(f.reserved_bytes))});
  memory.row({"a caching allocator's", "", observe::bytes_text(static_cast<double>(f.caching_reserved_bytes))});
  say("{}", memory.text(terminal));
}

int simulate(const SimulateOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.ranks > 0) set.push_back(fmt::format("mesh.ranks={}", options.ranks));
  command_config(options.config, set);
  const config::RunConfig config = planner::read_within_budget(options.config, set).config;
  const cost::MachineProfile profile = planner::machine_profile(options.profile, kMeasure_s, config.device.backend);
  planner::ConfigPrediction c;
  try {
    planner::JobPlaces places =
        planner::on_hosts(static_cast<int>(config.ranks()), static_cast<int>(options.hosts), profile);
    places.uncertainty = uncertainty_of(options);
    places.caching_allocator = true;
    const observe::Doing doing("simulating a step");
    c = planner::predict_config(config, profile, places);
  } catch (const ir::OutOfMemory& error) {
    config_error("{}: {}", options.config, error.what());
  }
  if (!options.trace.empty()) {
    observe::PerfettoTrace file(options.trace);
    file.add(session::trace_of(c.lowered, session::spans_of(c.prediction.simulation), 1).timeline);
    file.close();
    say(stderr, "trace: {}; open it at https://ui.perfetto.dev\n", options.trace);
  }
  if (options.json) {
    say("{}\n", json_of(config, c).dump(2));
  } else {
    print(config, c, profile);
  }
  return kDone;
}

}  // namespace

void add_simulate(Commands& all) {
  auto [command, options] = add_command(
      all, "simulate", "A training step on this machine before it runs: its time by kind of work, and its memory",
      simulate);
  command.option("CONFIG", options.config, "The configuration file; - is the standard input").required();
  add_set(command, options.set);
  command.option("--profile", options.profile, "Profile, written by `heddle profile --out`").called("FILE");
  command.option("--ranks", options.ranks, "The same as --set mesh.ranks=N").from(1);
  command.option("--hosts", options.hosts, "Hosts over which the ranks are spread; else threads of one").from(1);
  command
      .option(
          "--routing", options.routing,
          "Rows of the experts: balanced, the relative deviation of their shares, or a run whose counts to take")
      .called("balanced|SPREAD|RUN");
  command.option("--jitter", options.jitter, "Relative deviation of each op's time").from(0.0, 10.0);
  command.option("--draws", options.draws, "Steps to draw with a spread or jitter; their quantiles are printed")
      .from(1, 100'000);
  command.option("--seed", options.seed, "Of the draws").from(0);
  command.option("--trace", options.trace, "Write the step as a Perfetto trace").called("FILE");
  add_json(command, options.json);
}

}  // namespace heddle::cli
