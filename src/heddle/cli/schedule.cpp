// heddle schedule: a pipeline schedule made or read, proved, timed and drawn.
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/schedule_print.h"
#include "heddle/observe/charts/svg_schedule.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"
#include "heddle/schedule/text.h"

namespace heddle::cli {

namespace {

using schedule::Generator, schedule::GeneratorOptions, schedule::Peak;
using Json = nlohmann::ordered_json;

int print_all(const ScheduleOptions& options, const Given& given) {
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
  for (const Generator& generator : schedule::generators()) {
    GeneratorOptions each = generator_options(options, given);
    if (!generator.any_chunks) each.chunks = 0;
    try {
      ScheduleResult r = result_of(schedule::make_schedule(generator.name, each), given, options);
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
    say("{}\n", all.dump(2));
  } else {
    say("{}{}{}", table.text(observe::describe_terminal(1)), refused.empty() ? "" : "\n", refused);
  }
  return kDone;
}

int print_names(bool json) {
  observe::Table table({{"schedule"}, {"stages a rank", observe::Align::right}, {"what"}, {"source"}});
  Json all = Json::array();
  for (const Generator& g : schedule::generators()) {
    table.row({g.name, fmt::format("{}{}", g.chunks, g.any_chunks ? " or more" : ""), g.what, g.source});
    all.push_back({{"schedule", g.name}, {"what", g.what}, {"source", g.source}});
  }
  say("{}", json ? all.dump(2) + "\n" : table.text(observe::describe_terminal(1)));
  return kDone;
}

int schedule(const ScheduleOptions& options) {
  const Given given = given_by(options);
  if (options.all) {
    if (!options.name.empty()) config_error("schedule: both {} and --all", options.name.substr(0, 60));
    return print_all(options, given);
  }
  if (options.name.empty()) return print_names(options.json);
  const ScheduleResult result = chosen(options, given);
  if (!options.svg.empty())
    write_file(options.svg, observe::svg_schedule(result.schedule, result.timing, line_of(result.timing)));
  if (options.json) {
    say("{}\n", json_of(result, given, true).dump(2));
  } else if (options.text) {
    say("{}", schedule::text_of(result.schedule));
  } else {
    print(result, given);
    if (!options.svg.empty()) say("picture      {}\n", options.svg);
  }
  return result.synthesis && result.synthesis->searched < 1 ? kInterrupted : kDone;
}

}  // namespace

void add_schedule(Commands& all) {
  auto [command, options] =
      add_command(all, "schedule", "Order, bubbles and memory of a pipeline schedule, and its picture", schedule);
  command.option("NAME", options.name,
                 "A schedule such as 1f1b, a file with the text of one (- for the standard input), or synthesis; "
                 "without it, the names");
  command.option("--all", options.all, "One table of all schedules");
  command.option("--ranks", options.ranks, "Ranks of the pipeline; 4 if not given").from(1);
  command
      .option("--microbatches", options.microbatches,
              "Microbatches of one step; twice as many as ranks if not given")
      .from(1);
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
              "Activations that a microbatch keeps on all layers of a rank until its input gradient, and until its "
              "weight gradient; the default is the Zero Bubble papers' split, with flash attention it is near "
              "0.06,0.94")
      .called("UNTIL_I,UNTIL_W");
  command.option("--buffers", options.buffers, "Refuse the schedule if so many messages between two ranks don't do")
      .from(1);
  command
      .option("--cap", options.cap,
              "synthesis: the room each rank has for activations, in the unit of --memory; one or one a rank")
      .called("N[,N...]");
  command
      .option(
          "--effort", options.effort,
          "synthesis: amount of search, 1 is some ten seconds of a free core; a stop (Ctrl-C) prints the fastest "
          "order so far")
      .from(0.0, 1000.0);
  command.option("--svg", options.svg, "Write the picture to this file").called("FILE");
  command.option("--text", options.text, "Print the order, as a file that this command reads");
  add_json(command, options.json);
}

}  // namespace heddle::cli
