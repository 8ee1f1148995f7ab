// heddle schedule: a pipeline schedule made or read, proved, timed and drawn.
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/observe/charts/svg_schedule.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/text_schedule.h"
#include "heddle/observe/units.h"
#include "heddle/plan/layout.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/synthesis/synthesis.h"
#include "heddle/schedule/text.h"
#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"

namespace heddle::cli {

namespace {

struct ScheduleOptions {
  std::string name;  // of a schedule, or a file with its text; empty: lists the names
  bool all = false;  // a table of all schedules
  int64_t ranks = 0, microbatches = 0;
  int64_t chunks = 0, group = 0;     // 0: as usual for the schedule
  std::string times = "1,1,1";       // F,I,W,FB,COMM of all layers of a rank
  double all_to_all = 0;             // of all layers of a rank, exposed in F and again in I unless in a pair
  std::string layout;                // empty: equal stages
  std::string memory = "0.57,0.43";  // kept until I, and until W, of all layers of a rank
  int64_t buffers = 0;               // 0: as many as it takes
  std::string cap;                   // of synthesis: room of each rank, in the unit of memory
  double effort = 1;                 // of synthesis
  std::string svg;                   // file
  bool text = false;
  bool json = false;
};

using Json = nlohmann::ordered_json;
using namespace heddle::schedule;  // NOLINT: this file speaks of nothing else

// What the options say of durations and bytes, of all layers of one rank.
struct Given {
  StageTimes rank;
  double pair = 0;  // duration of a fused pair
  double hop = 0;
  StageBytes bytes;
};

struct Result {
  std::string what, source;
  Schedule schedule;
  Timing timing;
  Certificate certificate;
  std::optional<Synthesis> synthesis;

  double largest_peak() const {
    double most = 0;
    for (const Peak& peak : certificate.peaks) most = std::max(most, peak.bytes);
    return most;
  }
};

std::vector<double> numbers_of(const char* flag, const std::string& text, size_t least, size_t most) {
  std::vector<double> numbers;
  const char *at = text.data(), *end = at + text.size();
  bool ok = true;
  while (ok) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    ok = error == std::errc{} && std::isfinite(number) && number >= 0;
    if (ok) numbers.push_back(number);
    if (!ok || stop == end) break;
    ok = *stop == ',';
    at = stop + 1;
  }
  if (!ok || numbers.size() < least || numbers.size() > most) {
    config_error("schedule: {} '{}', accepted {} numbers of at least 0 with commas between them", flag,
                 text.substr(0, 60),
                 least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most));
  }
  return numbers;
}

Given given_by(const ScheduleOptions& options) {
  const std::vector<double> times = numbers_of("--times", options.times, 3, 5);
  const std::vector<double> memory = numbers_of("--memory", options.memory, 2, 2);
  Given given;
  given.rank = {times[0], times[1], times[2], options.all_to_all};
  given.pair = times.size() > 3 ? times[3] : times[0] + times[1] + times[2];
  given.hop = times.size() > 4 ? times[4] : 0;
  given.bytes = {memory[0], memory[1]};
  if (times[0] + times[1] + times[2] <= 0)
    config_error("schedule: --times '{}', accepted a sum above 0", options.times);
  return given;
}

// Of each stage its part of what all stages of one rank take.
std::vector<double> shares_of(const Placement& placement, const std::string& layout) {
  std::vector<double> shares(static_cast<size_t>(placement.stages),
                             static_cast<double>(placement.ranks) / placement.stages);
  if (layout.empty()) return shares;
  const std::vector<std::string> letters = plan::letters_of_layout(layout, placement.stages);
  double layers = 0;
  for (size_t s = 0; s < shares.size(); ++s) {
    shares[s] = static_cast<double>(
        std::count_if(letters[s].begin(), letters[s].end(), [](char c) { return c == 't' || c == 'm'; }));
    layers += shares[s];
  }
  if (layers == 0) config_error("schedule: --layout '{}' has no layers", layout.substr(0, 60));
  for (double& share : shares) share *= placement.ranks / layers;
  return shares;
}

struct OfStages {
  Times times;
  std::vector<StageBytes> bytes;
};

OfStages of_stages(const Placement& placement, const Given& given, const ScheduleOptions& options) {
  OfStages of;
  for (const double share : shares_of(placement, options.layout)) {
    of.times.stages.push_back({given.rank.forward * share, given.rank.input_grad * share,
                               given.rank.weight_grad * share, given.rank.all_to_all * share});
    of.bytes.push_back({given.bytes.until_input_grad * share, given.bytes.until_weight_grad * share});
  }
  of.times.pair = given.pair / (given.rank.forward + given.rank.input_grad + given.rank.weight_grad);
  of.times.hop = given.hop;
  return of;
}

Result result_of(Schedule schedule, const Given& given, const ScheduleOptions& options) {
  Result result;
  auto [times, bytes] = of_stages(schedule.placement, given, options);
  Requirements requirements{std::move(bytes)};
  requirements.buffers = static_cast<int>(options.buffers);
  requirements.same_sums = false;  // told, not refused
  result.certificate = validate(schedule, requirements);
  result.timing = timing_of(schedule, times);
  result.schedule = std::move(schedule);
  return result;
}

GeneratorOptions generator_options(const ScheduleOptions& options, const Given& given) {
  const auto number = [](const char* flag, int64_t value) {
    if (value > kMostCells) config_error("schedule: {} {}, accepted up to {}", flag, value, kMostCells);
    return static_cast<int>(value);
  };
  const double held = given.bytes.until_input_grad + given.bytes.until_weight_grad;
  return {.ranks = number("--ranks", options.ranks),
          .microbatches = number("--microbatches", options.microbatches),
          .chunks = number("--chunks", options.chunks),
          .group = number("--group", options.group),
          .rank = given.rank,
          .hop = given.hop,
          .kept_for_w = held > 0 ? given.bytes.until_weight_grad / held : 1};
}

// `path` may be - for the standard input.
Schedule read_file(const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  if (path == kStandardInput) return read_schedule(standard_input(kMostBytes));
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof())
    throw SystemError(errno, fmt::format("{}: can't be read", path));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes) config_error("{}: more than {}", path, observe::bytes_text(kMostBytes));
  try {
    return read_schedule(text);
  } catch (const ConfigError& error) {
    config_error("{}: {}", path, error.what());
  }
}

// On a V of two stages a rank; with --chunks, that many stages a rank from the first to the last and round again.
Result synthetic(const ScheduleOptions& options, const Given& given) {
  const GeneratorOptions sizes = generator_options(options, given);
  if (sizes.ranks < 1 || sizes.microbatches < 1 || options.cap.empty())
    config_error("schedule: synthesis needs --ranks, --microbatches and --cap");
  if (sizes.ranks > kMostRanks / 2 || sizes.chunks > kMostStages / sizes.ranks)
    config_error("schedule: {} ranks of {} stages, accepted up to {} stages in all", sizes.ranks, sizes.chunks,
                 kMostStages);
  if (sizes.group != 0) config_error("schedule: --group with synthesis; accepted with interleaved schedules");
  const Placement placement =
      sizes.chunks == 0 ? v_placement(sizes.ranks) : loop_placement(sizes.ranks, sizes.chunks);
  auto [times, bytes] = of_stages(placement, given, options);
  const auto ranks = static_cast<size_t>(sizes.ranks);
  std::vector<double> caps = numbers_of("--cap", options.cap, 1, ranks);
  if (caps.size() == 1) caps.assign(ranks, caps[0]);
  const OrderTask task{placement, sizes.microbatches, std::move(times), std::move(bytes), std::move(caps)};
  SynthesisOptions search;
  search.pairs = given.rank.all_to_all > 0 || task.times.pair < 1;  // else a pair gains nothing
  search.work = static_cast<int64_t>(options.effort * static_cast<double>(search.work));
  Synthesis found = [&] {
    const observe::Doing doing("searching for a schedule");
    return synthesise(task, search);
  }();
  Result result = result_of(found.schedule, given, options);
  result.what = "found for cap " + options.cap;
  result.synthesis = std::move(found);
  return result;
}

Result chosen(const ScheduleOptions& options, const Given& given) {
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
    Result result = result_of(read_file(options.name), given, options);
    result.what = "from " + options.name;
    return result;
  }
  const Generator& generator = find_generator(options.name);
  if (options.ranks == 0 || options.microbatches == 0)
    config_error("schedule: {} needs --ranks and --microbatches", options.name);
  Result result = result_of(make_schedule(options.name, generator_options(options, given)), given, options);
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

Json json_of(const Result& r, const Given& given, bool with_order) {
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
    json["synthesis"] = {{"began_as", found.seed},
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

std::string percent(double rate) { return fmt::format("{:.1f} %", 100 * std::max(rate, 0.0)); }

// "8 on ranks 0-3, 4.5 on rank 4": runs of equal numbers.
std::string runs_text(const std::vector<double>& values) {
  std::string text;
  for (size_t i = 0, end = 0; i < values.size(); i = end) {
    for (end = i + 1; end < values.size() && values[end] == values[i];) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", observe::number_text(values[i]));
    if (i == 0 && end == values.size()) return text + (end > 1 ? " on every rank" : "");
    text += end - i == 1 ? fmt::format(" on rank {}", i) : fmt::format(" on ranks {}-{}", i, end - 1);
  }
  return text;
}

std::string line_of(const Timing& t) {
  return fmt::format("bubble {} synchronous, {} staggered; makespan {}, of it work {}; efficiency {}",
                     percent(t.synchronous_rate()), percent(t.staggered_rate()),
                     observe::number_text(t.makespan, 6), observe::number_text(t.work, 6), percent(t.efficiency()));
}

void print(const Result& r, const Given& given) {
  const Placement& placement = r.schedule.placement;
  fmt::print("{}: {}{}\n", r.schedule.name, r.what, r.source.empty() ? "" : fmt::format(" ({})", r.source));
  fmt::print("{} rank{}, {} stages, {} microbatches; F {}, I {}, W {}", placement.ranks,
             placement.ranks == 1 ? "" : "s", placement.stages, r.schedule.microbatches,
             observe::number_text(given.rank.forward, 6), observe::number_text(given.rank.input_grad, 6),
             observe::number_text(given.rank.weight_grad, 6));
  fmt::print(", pair {}, message {}, all-to-all {}\n\n", observe::number_text(given.pair, 6),
             observe::number_text(given.hop), observe::number_text(given.rank.all_to_all));
  const observe::Terminal terminal = observe::describe_terminal(1);
  fmt::print("{}\n", observe::text_schedule(r.schedule, r.timing, observe::terminal_columns(1, 160), terminal));
  const Certificate& c = r.certificate;
  fmt::print("bubble       synchronous {} ({}), staggered {} ({})\n", percent(r.timing.synchronous_rate()),
             observe::number_text(r.timing.synchronous()), percent(r.timing.staggered_rate()),
             observe::number_text(r.timing.staggered()));
  fmt::print("time         {}, of it {} work of the busiest rank; efficiency {}\n",
             observe::number_text(r.timing.makespan, 6), observe::number_text(r.timing.work, 6),
             percent(r.timing.efficiency()));
  fmt::print("peak         {}\n", runs_text(numbers(c.peaks, &Peak::bytes)));
  fmt::print("  for W      {}\n", runs_text(numbers(c.peaks, &Peak::for_weight_grad)));
  if (r.synthesis) {
    const NamedOrder* best = r.synthesis->best_named();
    fmt::print("bound        no order is faster than {}; at most {} to gain\n",
               observe::number_text(r.synthesis->bounds.makespan(), 6), percent(r.synthesis->gap()));
    fmt::print("named        {}\n", best == nullptr ? "none of this placement fits"
                                                    : fmt::format("{} takes {}, {} more", best->name,
                                                                  observe::number_text(best->makespan, 6),
                                                                  percent(best->makespan / r.timing.makespan - 1)));
  }
  fmt::print("weights      {}\n", placement.routes == 1 ? "once" : "twice, every stage on two ranks");
  fmt::print("messages     {}\n",
             c.channels.empty() ? "none"
                                : fmt::format("room for {} between two ranks suffices; at most {} received before "
                                              "they are needed",
                                              c.least_buffers, most_early(c)));
  fmt::print("sums         {}\n",
             c.out_of_order.empty() ? "weight gradients in increasing order of microbatches" : c.out_of_order);
}

int print_all(const ScheduleOptions& options, const Given& given) {
  if (options.ranks == 0 || options.microbatches == 0)
    config_error("schedule: --all needs --ranks and --microbatches");
  if (!options.svg.empty() || options.text || !options.layout.empty())
    config_error("schedule: --all with --svg, --text or --layout; accepted with one schedule");
  observe::Table table({{"schedule"},
                        {"stages", observe::Align::right},
                        {"bubble", observe::Align::right},
                        {"synchronous", observe::Align::right},
                        {"staggered", observe::Align::right},
                        {"efficiency", observe::Align::right},
                        {"peak", observe::Align::right},
                        {"for W", observe::Align::right},
                        {"weights", observe::Align::right},
                        {"room", observe::Align::right}});
  Json all = Json::array();
  std::string refused;
  for (const Generator& generator : generators()) {
    GeneratorOptions each = generator_options(options, given);
    if (!generator.any_chunks) each.chunks = 0;
    try {
      Result r = result_of(make_schedule(generator.name, each), given, options);
      r.what = generator.what;
      r.source = generator.source;
      all.push_back(json_of(r, given, false));
      double for_w = 0;
      for (const Peak& peak : r.certificate.peaks) for_w = std::max(for_w, peak.for_weight_grad);
      table.row({generator.name, std::to_string(r.schedule.placement.stages),
                 observe::number_text(r.timing.synchronous()), percent(r.timing.synchronous_rate()),
                 percent(r.timing.staggered_rate()), percent(r.timing.efficiency()),
                 observe::number_text(r.largest_peak()), observe::number_text(for_w),
                 std::to_string(r.schedule.placement.routes), std::to_string(r.certificate.least_buffers)});
    } catch (const ConfigError& error) {
      all.push_back({{"schedule", generator.name}, {"refused", error.what()}});
      const std::string message = error.what();
      refused += message.substr(0, message.find('\n')) + '\n';
    }
  }
  if (options.json) {
    fmt::print("{}\n", all.dump(2));
  } else {
    fmt::print("{}{}{}", table.text(observe::describe_terminal(1)), refused.empty() ? "" : "\n", refused);
  }
  return kDone;
}

int print_names(bool json) {
  observe::Table table({{"schedule"}, {"stages a rank", observe::Align::right}, {"what"}, {"source"}});
  Json all = Json::array();
  for (const Generator& g : generators()) {
    table.row({g.name, fmt::format("{}{}", g.chunks, g.any_chunks ? " or more" : ""), g.what, g.source});
    all.push_back({{"schedule", g.name}, {"what", g.what}, {"source", g.source}});
  }
  fmt::print("{}", json ? all.dump(2) + "\n" : table.text(observe::describe_terminal(1)));
  return kDone;
}

int schedule(const ScheduleOptions& options) {
  const Given given = given_by(options);
  if (options.all) {
    if (!options.name.empty()) config_error("schedule: both {} and --all", options.name.substr(0, 60));
    return print_all(options, given);
  }
  if (options.name.empty()) return print_names(options.json);
  const Result result = chosen(options, given);
  if (!options.svg.empty())
    write_file(options.svg, observe::svg_schedule(result.schedule, result.timing, line_of(result.timing)));
  if (options.json) {
    fmt::print("{}\n", json_of(result, given, true).dump(2));
  } else if (options.text) {
    fmt::print("{}", text_of(result.schedule));
  } else {
    print(result, given);
    if (!options.svg.empty()) fmt::print("picture      {}\n", options.svg);
  }
  return kDone;
}

}  // namespace

void add_schedule(Commands& all) {
  auto [command, options] =
      add_command(all, "schedule", "Order, bubbles and memory of a pipeline schedule, and its picture", schedule);
  command.option("NAME", options.name,
                 "A schedule such as 1f1b, a file with the text of one (- for the standard input), or synthesis; "
                 "without it, the names");
  command.option("--all", options.all, "One table of all schedules");
  command.option("--ranks", options.ranks, "Ranks of the pipeline").from(1);
  command.option("--microbatches", options.microbatches, "Of one step").from(1);
  command.option("--chunks", options.chunks, "Stages a rank, for interleaved schedules").from(1);
  command.option("--group", options.group, "Microbatches a group of interleaved schedules; as many as ranks")
      .from(1);
  command
      .option("--times", options.times,
              "Forward, input gradient and weight gradient of all layers of a rank; then, if wanted, of a fused "
              "pair, and of a message")
      .called("F,I,W[,FB[,COMM]]");
  command
      .option("--a2a", options.all_to_all,
              "All-to-all of all layers of a rank, in F and again in I; hidden in fused pairs")
      .from(0);
  command.option(
      "--layout", options.layout,
      "Layers of the stages, such as \"Et*3|(tt|)*6tt|tmL\"; t and m take time, --times is a rank's mean");
  command
      .option("--memory", options.memory,
              "What a microbatch keeps on all layers of a rank until its input gradient, and until its weight "
              "gradient; the default is the Zero Bubble papers' split, with flash attention it is near 0.06,0.94")
      .called("UNTIL_I,UNTIL_W");
  command.option("--buffers", options.buffers, "Refuse the schedule if so many messages between two ranks don't do")
      .from(1);
  command
      .option("--cap", options.cap,
              "synthesis: the room each rank has for activations, in the unit of --memory; one or one a rank")
      .called("N[,N...]");
  command.option("--effort", options.effort, "synthesis: how long to search, 1 is some ten seconds")
      .from(0.0, 1000.0);
  command.option("--svg", options.svg, "Write the picture to this file").called("FILE");
  command.option("--text", options.text, "Print the order, as a file that this command reads");
  add_json(command, options.json);
}

}  // namespace heddle::cli
