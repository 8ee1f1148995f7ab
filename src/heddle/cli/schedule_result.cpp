#include "heddle/cli/schedule_result.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/schedule/text.h"
#include "heddle/session/signals.h"

namespace heddle::cli {

using schedule::Certificate, schedule::Channel, schedule::Generator, schedule::GeneratorOptions,
    schedule::NamedOrder;
using schedule::OrderTask, schedule::Peak, schedule::Placement, schedule::Requirements, schedule::Schedule;
using schedule::Synthesis, schedule::SynthesisOptions;
using Json = nlohmann::ordered_json;

ScheduleResult result_of(Schedule schedule, const Given& given, const ScheduleOptions& options) {
  ScheduleResult result;
  auto [times, bytes] = of_stages(schedule.placement, given, options);
  Requirements requirements{std::move(bytes)};
  requirements.buffers = static_cast<int>(options.buffers);
  requirements.same_sums = false;  // reported, not refused
  result.certificate = validate(schedule, requirements);
  result.timing = timing_of(schedule, times);
  result.schedule = std::move(schedule);
  return result;
}

namespace {

// `path` may be - for the standard input.
Schedule read_schedule_file(const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  if (path == kStandardInput) return schedule::read_schedule(standard_input(kMostBytes));
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof())
    throw SystemError(errno, fmt::format("{}: can't be read", path));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes) config_error("{}: more than {}", path, observe::bytes_text(kMostBytes));
  try {
    return schedule::read_schedule(text);
  } catch (const ConfigError& error) {
    config_error("{}: {}", path, error.what());
  }
}

// On a V of two stages a rank; with --chunks, that many stages a rank from the first to the last and round again.
ScheduleResult synthetic(const ScheduleOptions& options, const Given& given) {
  const GeneratorOptions sizes = generator_options(options, given);
  if (options.cap.empty())
    config_error("schedule: synthesis needs --cap, the room of each rank for activations in the unit of --memory");
  if (sizes.ranks > schedule::kMostRanks / 2 || sizes.chunks > schedule::kMostStages / sizes.ranks)
    config_error("schedule: {} ranks of {} stages, accepted up to {} stages in all", sizes.ranks, sizes.chunks,
                 schedule::kMostStages);
  if (sizes.group != 0) config_error("schedule: --group with synthesis; accepted with interleaved schedules");
  const Placement placement =
      sizes.chunks == 0 ? schedule::v_placement(sizes.ranks) : schedule::loop_placement(sizes.ranks, sizes.chunks);
  auto [times, bytes] = of_stages(placement, given, options);
  const auto ranks = static_cast<size_t>(sizes.ranks);
  std::vector<double> caps = numbers_of("--cap", options.cap, 1, ranks);
  if (caps.size() == 1) caps.assign(ranks, caps[0]);
  const OrderTask task{placement, sizes.microbatches, std::move(times), std::move(bytes), std::move(caps)};
  SynthesisOptions search;
  search.pairs = given.rank.all_to_all > 0 || task.times.pair < 1;  // else a pair gains nothing
  search.work = static_cast<int64_t>(options.effort * static_cast<double>(search.work));
  const session::Signals signals;
  session::Signals::answer("the fastest order so far is printed", "nothing was written");
  Synthesis found = [&] {
    observe::Doing doing("searching for a schedule");
    search.ask = [&](double share, double makespan) {
      doing.now(std::isfinite(makespan) ? fmt::format("searching for a schedule, the fastest so far takes {}",
                                                      observe::number_text(makespan, 6))
                                        : "searching for a schedule",
                share);
      return !session::Signals::take().stop;
    };
    return synthesise(task, search);
  }();
  ScheduleResult result = result_of(found.schedule, given, options);
  result.what = "found for cap " + options.cap;
  result.synthesis = std::move(found);
  return result;
}

}  // namespace

ScheduleResult chosen(const ScheduleOptions& options, const Given& given) {
  if (options.name == "synthesis") return synthetic(options, given);
  if (!options.cap.empty())
    config_error("schedule: --cap with {}, accepted with synthesis", options.name.substr(0, 60));
  std::error_code ignored;
  if (options.name == kStandardInput || std::filesystem::is_regular_file(options.name, ignored)) {
    for (const auto& [flag, value] : {std::pair{"--ranks", options.ranks},
                                      {"--microbatches", options.microbatches},
                                      {"--chunks", options.chunks},
                                      {"--group", options.group}}) {
      if (value != 0) config_error("schedule: {} with a file; accepted with a name, the file has its own", flag);
    }
    ScheduleResult result = result_of(read_schedule_file(options.name), given, options);
    result.what = "from " + options.name;
    return result;
  }
  const Generator& generator = schedule::find_generator(options.name);
  ScheduleResult result = result_of(make_schedule(options.name, generator_options(options, given)), given, options);
  result.what = generator.what;
  result.source = generator.source;
  return result;
}

std::vector<double> numbers(const std::vector<Peak>& peaks, double Peak::*field) {
  std::vector<double> found;
  for (const Peak& peak : peaks) found.push_back(std::round(peak.*field * 1e9) / 1e9);  // 0.57 has no exact sums
  return found;
}

int most_early(const Certificate& certificate) {
  int most = 0;
  for (const Channel& channel : certificate.channels) most = std::max(most, channel.most_early);
  return most;
}

Json json_of(const ScheduleResult& r, const Given& given, bool with_order) {
  const Placement& placement = r.schedule.placement;
  Json json{{"schedule", r.schedule.name},
            {"what", r.what},
            {"source", r.source},
            {"ranks", placement.ranks},
            {"stages", placement.stages},
            {"microbatches", r.schedule.microbatches},
            {"parameter_copies", placement.routes},
            {"times",
             {{"forward", given.rank.forward},
              {"input_grad", given.rank.input_grad},
              {"weight_grad", given.rank.weight_grad},
              {"pair", given.pair},
              {"hop", given.hop},
              {"all_to_all", given.rank.all_to_all}}},
            {"makespan", r.timing.makespan},
            {"span", r.timing.span},
            {"work", r.timing.work},
            {"bubble_synchronous", r.timing.synchronous_rate()},
            {"bubble_staggered", r.timing.staggered_rate()},
            {"bubble_synchronous_time", r.timing.synchronous()},
            {"bubble_staggered_time", r.timing.staggered()},
            {"efficiency", r.timing.efficiency()},
            {"peak", numbers(r.certificate.peaks, &Peak::bytes)},
            {"peak_for_weight_grad", numbers(r.certificate.peaks, &Peak::for_weight_grad)},
            {"least_buffers", r.certificate.least_buffers},
            {"most_early", most_early(r.certificate)},
            {"sums_in_order", r.certificate.out_of_order.empty()}};
  if (r.synthesis) {
    const Synthesis& found = *r.synthesis;
    json["synthesis"] = {{"searched", found.searched},
                         {"began_as", found.seed},
                         {"bound", found.bounds.makespan()},
                         {"bound_work", found.bounds.work},
                         {"bound_chain", found.bounds.chain},
                         {"bound_memory", found.bounds.memory},
                         {"gap", found.gap()},
                         {"named", Json::array()}};
    for (const NamedOrder& order : found.named) {
      json["synthesis"]["named"].push_back({{"schedule", order.name},
                                            {"makespan", order.makespan},
                                            {"peak", order.peak_bytes},
                                            {"fits", order.fits}});
    }
  }
  if (with_order) {
    json["order"] = Json::array();
    for (int rank = 0; rank < placement.ranks; ++rank) json["order"].push_back(rank_text(r.schedule, rank));
  }
  return json;
}

}  // namespace heddle::cli
