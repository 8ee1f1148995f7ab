// heddle simulate: a training step of a configuration on this machine, before it runs.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/machine.h"
#include "heddle/cli/run_trace.h"
#include "heddle/observe/perfetto.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;
constexpr double kMeasure_s = 45;  // where the machine has no profile yet

Json json_of(const train::RunConfig& config, const ConfigForecast& c) {
  const runtime::Forecast& f = c.forecast;
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
    json["ranks"].push_back({{"end_seconds", rank.end_us * 1e-6},
                             {"host_stalled_seconds", rank.host_stalled_us * 1e-6},
                             {"peak_live_bytes", rank.peak_live_bytes},
                             {"reserved_bytes", rank.reserved_bytes},
                             {"streams", streams}});
  }
  for (const ir::Walk::Live& live : f.simulation.ranks[static_cast<size_t>(f.largest_rank)].live_at_peak) {
    json["at_peak"].push_back({{"name", live.name},
                               {"role", name_of(live.role)},
                               {"microbatch", live.microbatch},
                               {"bytes", live.bytes}});
  }
  return json;
}

void print(const train::RunConfig& config, const ConfigForecast& c, const cost::MachineProfile& profile) {
  const runtime::Forecast& f = c.forecast;
  const bool unicode = describe_terminal(1).unicode;
  fmt::print("{}: {}; a step of {} tokens on {} ({})\n\n", config.name,
             c.plan.ranks() == 1 ? "one rank" : plan::text_of(c.plan.mesh),
             grouped_text(config.tokens_per_step(), unicode), profile.machine, profile.date);
  fmt::print("step {}, {}, MFU {:.1f} %\n\n", duration_text(f.step_us * 1e-6), count_text(f.tokens_per_s, "tok/s"),
             100 * f.mfu);
  Table table({{"compute streams, mean of the ranks"}, {"time", Align::right}, {"share", Align::right}});
  const auto row = [&](const std::string& what, double us) {
    table.row({what, duration_text(us * 1e-6), fmt::format("{:.1f} %", 100 * us / f.step_us)});
  };
  double busy_us = f.step_us - f.bubble_us - f.host_us - f.exposed_total_us();
  row("computing", busy_us);
  std::vector<std::pair<double, std::string>> exposed;
  for (const auto& [kind, us] : f.exposed_us) exposed.emplace_back(us, kind);
  std::sort(exposed.rbegin(), exposed.rend());
  for (const auto& [us, kind] : exposed) row("waiting for " + kind, us);
  row("waiting for other stages or ranks", f.bubble_us);
  row("waiting for the host", f.host_us);
  fmt::print("{}\n", table.text(unicode));
  constexpr size_t kShown = 10;
  Table memory({{fmt::format("memory of rank {}", f.largest_rank)}, {"role"}, {"bytes", Align::right}});
  size_t shown = 0;
  for (const ir::Walk::Live& live : f.simulation.ranks[static_cast<size_t>(f.largest_rank)].live_at_peak) {
    if (ir::is_persistent(live.role)) continue;
    if (++shown > kShown) break;
    memory.row({live.name, std::string(name_of(live.role)), bytes_text(static_cast<double>(live.bytes))});
  }
  memory.rule();
  memory.row({"persistent", "", bytes_text(static_cast<double>(f.persistent_bytes))});
  memory.row({"live at the peak", "", bytes_text(static_cast<double>(f.peak_live_bytes))});
  memory.row({"reserved", "", bytes_text(static_cast<double>(f.reserved_bytes))});
  fmt::print("{}", memory.text(unicode));
}

}  // namespace

int simulate(const SimulateOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.ranks > 0) set.push_back(fmt::format("mesh.ranks={}", options.ranks));
  const train::RunConfig config = train::read_run_config(options.config, set);
  const cost::MachineProfile profile = machine_profile(options.profile, kMeasure_s);
  ConfigForecast c;
  try {
    c = forecast_config(config, profile);
  } catch (const ir::OutOfMemory& error) {
    config_error("{}: {}", options.config, error.what());
  }
  if (!options.trace.empty()) {
    PerfettoTrace file(options.trace);
    file.add(trace_of(c.lowered.program, spans_of(c.forecast.simulation), 1).timeline);
    file.close();
  }
  if (options.json) {
    fmt::print("{}\n", json_of(config, c).dump(2));
  } else {
    print(config, c, profile);
  }
  return kDone;
}

}  // namespace heddle::cli
