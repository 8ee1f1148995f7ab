// Which subcommand the arguments ask for. Misspelt subcommands and flags are named with the nearest one that
// exists.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"

namespace heddle::cli {

namespace {

constexpr const char* kWelcome = R"(Heddle trains DeepSeek-V3-style mixture-of-experts models.

  heddle train CONFIG.toml      train; examples/demo.toml is a small complete model
  heddle generate RUN           continue a text with a trained run
  heddle inspect CONFIG.toml    parameters, FLOPs and memory, before anything runs
  heddle simulate CONFIG.toml   step time and where it goes on this machine, before anything runs
  heddle profile                measure this machine for that
  heddle data SOURCE --out DIR  prepare text: tokenizer and token file
  heddle predict --points FILE  throughput and memory of published runs, beside what was measured
  heddle search --model NAME    the best layout, schedule and recomputation for a cluster
  heddle search --from SCRIPT   what a Megatron-LM or MindSpeed job would do, and what would be better
  heddle schedule NAME          a pipeline schedule: order, bubbles, memory, picture
  heddle explain [KEY]          what a configuration key does
  heddle doctor                 what this machine can do

`heddle COMMAND --help` tells more. Exit status: 0 done, 1 failed, 2 bad input, 130 stopped.
)";

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

// The first argument that `app` does not know, as a sentence.
[[noreturn]] void refuse_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    if (!extra.starts_with("-")) continue;
    const std::string flag = extra.substr(0, extra.find('='));
    const std::vector<std::string> flags = flags_of(app);
    config_error("{}: unknown flag '{}'{}", app.get_name(), flag.substr(0, 60), did_you_mean(flag, flags));
  }
  config_error("{}: unexpected argument '{}' (see heddle {} --help)", app.get_name(),
               extras.empty() ? "" : extras.front().substr(0, 60), app.get_name());
}

}  // namespace

int run_command_line(int count, char** arguments) {
  CLI::App app("Heddle trains DeepSeek-V3-style mixture-of-experts models.", "heddle");
  app.set_version_flag("--version", HEDDLE_VERSION);
  for (const auto add : {add_train, add_generate, add_inspect, add_profile, add_simulate, add_doctor, add_explain,
                         add_data, add_predict, add_claims, add_search, add_schedule}) {
    add(app);
  }
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](CLI::App*) { return true; }))
    names.push_back(each->get_name());
  if (count < 2 || std::string_view(arguments[1]) == "help") {
    fmt::print("{}", kWelcome);
    return kDone;
  }
  const std::string first = arguments[1];
  if (!first.starts_with("-") && std::find(names.begin(), names.end(), first) == names.end()) {
    config_error("unknown command '{}'{}", first.substr(0, 60),
                 nearest_name(first, names).empty() ? fmt::format(", accepted: {}", fmt::join(names, ", "))
                                                    : did_you_mean(first, names));
  }
  if (first == "--help" || first == "-h") {
    fmt::print("{}", kWelcome);
    return kDone;
  }
  try {
    app.parse(count, arguments);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    for (const CLI::App* each : app.get_subcommands()) {
      if (const auto extras = each->remaining(); !extras.empty()) refuse_extras(*each, extras);
      config_error("{}: {} (see heddle {} --help)", each->get_name(), error.what(), each->get_name());
    }
    const std::string flag = first.substr(0, first.find('='));
    config_error("unknown flag '{}'{}", flag.substr(0, 60), did_you_mean(flag, flags_of(app)));
  }
  const std::vector<CLI::App*> given = app.get_subcommands();
  for (const CLI::App* each : given) {
    if (const auto extras = each->remaining(); !extras.empty()) refuse_extras(*each, extras);
  }
  HEDDLE_CHECK(!given.empty(), "no command was chosen");
  return dynamic_cast<Command&>(*given.back()).run();
}

}  // namespace heddle::cli
