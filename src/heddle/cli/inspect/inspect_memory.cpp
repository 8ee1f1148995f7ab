#include "heddle/cli/inspect/inspect_memory.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/observe/memory/memory_json.h"
#include "heddle/observe/memory/memory_page.h"
#include "heddle/observe/memory/memory_text.h"
#include "heddle/observe/units.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/runtime/memory_curves.h"

namespace heddle::cli {

namespace {

constexpr size_t kJsonPlaces = 256, kPagePlaces = 1200;
constexpr const char* kTime = "computing time in the step, by nominal rates";

}  // namespace

InspectedMemory::InspectedMemory(const config::RunConfig& config, const plan::Plan& plan,
                                 const plan::Lowered& lowered, const planner::RankMemory& rank)
    : name_(config.name), of_(plan.ranks() > 1 ? fmt::format("rank {}, the fullest", rank.rank) : ""), rank_(rank) {
  const passes::Durations duration_us = plan::nominal_durations(plan.parallel.exchange, plan.rates);
  const ir::StepProgram& program = lowered.program;
  curves_ = runtime::predict_memory_curves(
      program, rank.rank, config.device.backend,
      [&](int, const ir::Issue& issue) { return duration_us(program.listings[issue.listing], *issue.op); });
}

void InspectedMemory::print(const observe::Terminal& terminal) const {
  for (const simulate::MemoryCurve& curve : curves_)
    say("\n{}", observe::memory_text(curve, terminal.columns > 0 ? terminal.columns : 100, terminal));
}

nlohmann::ordered_json InspectedMemory::json() const {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const simulate::MemoryCurve& curve : curves_)
    all.push_back(observe::json_of(simulate::thinned(curve, kJsonPlaces)));
  return all;
}

void InspectedMemory::write_page(const std::string& path, double capacity_bytes) const {
  observe::MemoryPage page;
  page.title = name_;
  page.subtitle =
      fmt::format("memory over a training step{}{}, predicted from its program", of_.empty() ? "" : " of ", of_);
  for (const simulate::MemoryCurve& curve : curves_) {
    observe::MemoryView view{of_, kTime, simulate::thinned(curve, kPagePlaces), {}};
    const bool device = curve.space == ir::Space::device;
    view.levels.push_back(
        {device ? "arena" : "host's arena",
         static_cast<double>(device ? rank_.memory.reserved_bytes : rank_.memory.host_reserved_bytes)});
    if (device) view.levels.push_back({"room", capacity_bytes});
    page.views.push_back(std::move(view));
  }
  page.figures_json = json().dump();
  write_file(path, observe::memory_page(page));
}

}  // namespace heddle::cli
