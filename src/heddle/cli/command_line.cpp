// Arguments to options, by CLI11. The only file that includes it. Misspelt subcommands and flags are named with the
// nearest one that exists.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>

#include "heddle/base/error.h"
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
  std::function<int()> chosen;

  const auto command = [&](const char* name, const char* what, auto& options, int (*run)(decltype(options))) {
    CLI::App* sub = app.add_subcommand(name, what);
    sub->allow_extras();  // refused below, with the nearest flag
    sub->callback([&, run] { chosen = [&options, run] { return run(options); }; });
    return sub;
  };
  const auto json = [](CLI::App* sub, bool& into) { sub->add_flag("--json", into, "Print one JSON object"); };
  const auto set = [](CLI::App* sub, std::vector<std::string>& into) {
    sub->add_option("--set", into, "Set a configuration key, such as train.steps=100; may be given again")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };

  TrainOptions train_options;
  CLI::App* sub = command("train", "Train a model", std::as_const(train_options), train);
  sub->add_option("CONFIG", train_options.config, "The configuration file")->required();
  set(sub, train_options.set);
  sub->add_option("--steps", train_options.steps, "Steps of the whole run, the same as --set train.steps=N")
      ->check(CLI::PositiveNumber);
  sub->add_option("--minutes", train_options.minutes,
                  "Minutes in training steps of the whole run, the same as --set train.minutes=N")
      ->check(CLI::PositiveNumber);
  sub->add_option(
         "--ranks", train_options.ranks,
         "Ranks as threads of this process, the same as --set mesh.ranks=N; under mpirun or srun there are as "
         "many as were started")
      ->check(CLI::PositiveNumber);
  sub->add_option("--mode", train_options.mode,
                  "Choose the plan by simulating candidates on this machine: the fastest (auto), the least memory "
                  "(save-memory) or the least exposed communication (overlap) within 1.3 times of it")
      ->type_name("MODE");
  sub->add_option("--profile", train_options.profile, "For --mode: what `heddle profile --out` wrote")
      ->type_name("FILE");
  sub->add_flag("--resume", train_options.resume, "Go on from the newest whole checkpoint of the run");
  sub->add_flag("--trace", train_options.trace, "Also write the ops of step train.trace_step as a Perfetto trace");
  json(sub, train_options.json);

  GenerateOptions generate_options;
  sub = command("generate", "Continue a text with a trained run", std::as_const(generate_options), generate);
  sub->add_option("RUN", generate_options.run, "The run's folder, such as runs/demo")->required();
  set(sub, generate_options.set);
  sub->add_option("--prompt", generate_options.prompt, "The text to continue");
  sub->add_option("--tokens", generate_options.tokens, "At most so many tokens")->check(CLI::Range(1, 1 << 20));
  sub->add_option("--temperature", generate_options.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  sub->add_option("--seed", generate_options.seed, "Of the draws")->check(CLI::NonNegativeNumber);
  json(sub, generate_options.json);

  InspectOptions inspect_options;
  sub = command("inspect", "Parameters, FLOPs and memory of a configuration; nothing is allocated",
                std::as_const(inspect_options), inspect);
  CLI::Option* config = sub->add_option("CONFIG", inspect_options.config, "The configuration file");
  sub->add_option("--model", inspect_options.model, "Instead: a published model by name, such as DeepSeek-V3")
      ->excludes(config);
  set(sub, inspect_options.set);
  sub->add_flag("--program", inspect_options.program, "Print the step program");
  json(sub, inspect_options.json);

  ProfileOptions profile_options;
  sub = command("profile", "Measure this machine: products, traffic, messages; under mpirun its links",
                std::as_const(profile_options), profile);
  sub->add_option("CONFIG", profile_options.config,
                  "Add the ops of this configuration, each by itself, to the machine's profile");
  set(sub, profile_options.set);
  sub->add_option("--out", profile_options.out, "The profile; else machine.json in the user's cache folder")
      ->type_name("FILE");
  sub->add_option("--seconds", profile_options.seconds, "How long to measure, about")
      ->check(CLI::Range(1.0, 3600.0));
  json(sub, profile_options.json);

  SimulateOptions simulate_options;
  sub = command("simulate", "A training step on this machine, before it runs: time, where it goes, memory",
                std::as_const(simulate_options), simulate);
  sub->add_option("CONFIG", simulate_options.config, "The configuration file")->required();
  set(sub, simulate_options.set);
  sub->add_option("--profile", simulate_options.profile, "What `heddle profile --out` wrote")->type_name("FILE");
  sub->add_option("--ranks", simulate_options.ranks, "The same as --set mesh.ranks=N")->check(CLI::PositiveNumber);
  sub->add_option("--hosts", simulate_options.hosts, "Hosts over which the ranks are spread; else threads of one")
      ->check(CLI::PositiveNumber);
  sub->add_option(
         "--routing", simulate_options.routing,
         "Rows of the experts: balanced, the relative deviation of their shares, or a run whose counts to take")
      ->type_name("balanced|SPREAD|RUN")
      ->capture_default_str();
  sub->add_option("--jitter", simulate_options.jitter, "Relative deviation of each op's time")
      ->check(CLI::Range(0.0, 10.0));
  sub->add_option("--draws", simulate_options.draws,
                  "Steps to draw with a spread or jitter; their quantiles are told")
      ->check(CLI::Range(1, 100'000));
  sub->add_option("--seed", simulate_options.seed, "Of the draws")->check(CLI::NonNegativeNumber);
  sub->add_option("--trace", simulate_options.trace, "Write the step as a Perfetto trace")->type_name("FILE");
  json(sub, simulate_options.json);

  DoctorOptions doctor_options;
  sub = command("doctor", "What this machine can do, and which kernels are chosen on it",
                std::as_const(doctor_options), doctor);
  json(sub, doctor_options.json);

  ExplainOptions explain_options;
  sub = command("explain", "What a configuration key does; without KEY, all of them",
                std::as_const(explain_options), explain);
  sub->add_option("KEY", explain_options.key, "A key such as train.clip_norm, or a section");
  json(sub, explain_options.json);

  DataOptions data_options;
  sub = command("data", "Prepare text: train a tokenizer and write the token file", std::as_const(data_options),
                data);
  sub->add_option("SOURCE", data_options.source,
                  "\"demo\" (texts of Debian packages), a .txt or .jsonl file, or a folder")
      ->required();
  sub->add_option("--out", data_options.out, "The folder to prepare it in")->required()->type_name("DIR");
  sub->add_option("--vocabulary", data_options.vocabulary, "Tokens of the tokenizer")
      ->check(CLI::Range(258, 1 << 21));
  json(sub, data_options.json);

  PredictOptions predict_options;
  sub = command("predict", "Throughput and memory of training runs, from closed forms",
                std::as_const(predict_options), predict);
  sub->add_option("--points", predict_options.points, "Comma-separated runs, a header line, one run a line")
      ->required()
      ->type_name("FILE");
  sub->add_option("--out", predict_options.out, "The same runs with predictions as further columns")
      ->type_name("FILE");
  sub->add_option(
         "--held-out", predict_options.held_out,
         "In --out, predict each run by a calibration that has seen neither its fifth of the rows (rows) nor "
         "its model (models)")
      ->check(CLI::IsMember({"rows", "models"}));
  sub->add_option("--calibration", predict_options.calibration, "Scalars to use in place of the built-in ones")
      ->type_name("FILE");
  sub->add_option("--calibrate", predict_options.calibrate, "Write the scalars that these runs' measurements give")
      ->type_name("FILE");
  json(sub, predict_options.json);

  ClaimsOptions claims_options;
  sub = command("claims", "Published claims beside what is computed here for their settings",
                std::as_const(claims_options), print_claims);
  sub->add_option("NAME", claims_options.name, "One claim, such as merging; without it, all");
  json(sub, claims_options.json);

  SearchOptions search_options;
  sub = command("search", "The best plans for a model on a cluster, or what is better than another trainer's job",
                std::as_const(search_options), search_plans);
  CLI::Option* script =
      sub->add_option("--from", search_options.from, "A launch script of Megatron-LM or MindSpeed; read, never run")
          ->type_name("SCRIPT");
  sub->add_option("--model", search_options.model, "A published model by name, or a folder with its config.json")
      ->excludes(script);
  sub->add_option("--cluster", search_options.cluster, "An accelerator such as H800, or a TOML file of a cluster")
      ->type_name("NAME|FILE");
  const auto count_of = [&](const char* flag, int64_t& into, const char* what, int64_t most) {
    return sub->add_option(flag, into, what)->check(CLI::Range(int64_t{1}, most));
  };
  count_of("--devices", search_options.devices, "Accelerators", 1 << 20);
  count_of("--global-batch", search_options.global_batch, "Sequences of a step", 1 << 24)->excludes(script);
  count_of("--sequence", search_options.sequence, "Tokens of a sequence", 100'000'000)->excludes(script);
  sub->add_option("--precision", search_options.precision, "Of the matrix products")
      ->check(CLI::IsMember({"bf16", "fp16", "fp8", "mxfp8", "block8", "nvfp4"}))
      ->excludes(script);
  sub->add_option("--memory", search_options.memory, "Of a device, such as 80GiB; else 92 % of the accelerator's")
      ->type_name("BYTES");
  sub->add_option("--routing", search_options.routing,
                  "Relative deviation of the experts' loads; 0: forced balance, natural routing is near 0.13")
      ->check(CLI::Range(0.0, 10.0))
      ->excludes(script);
  sub->add_option("--restrict", search_options.restrict,
                  "Values of an axis, such as tp=1,2 or schedule=dual_pipe, or a TOML file; may be given again")
      ->type_name("NAME=VALUES")
      ->excludes(script)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub->add_option("--calibration", search_options.calibration, "Scalars to use in place of the built-in ones")
      ->type_name("FILE");
  count_of("--top", search_options.top, "Plans shown", 1000)->excludes(script);
  count_of("--short-list", search_options.short_list, "Plans timed action by action", 100'000)->excludes(script);
  count_of("--threads", search_options.threads, "In place of one a core", 4096)->excludes(script);
  sub->add_option("--imbalance", search_options.imbalance,
                  "Of the script's job: rows of the fullest expert rank over the mean")
      ->check(CLI::Range(1.0, 100.0))
      ->needs(script);
  sub->add_option("--set", search_options.set, "A variable that the script's environment sets; may be given again")
      ->type_name("NAME=VALUE")
      ->needs(script)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub->add_option("--explain", search_options.explain, "Write the explanation as one HTML page")->type_name("FILE");
  sub->add_option("--emit", search_options.emit,
                  "Print the best plan as heddle (TOML), megatron or mindspeed (bash)")
      ->check(CLI::IsMember({"heddle", "megatron", "mindspeed"}));
  sub->add_option("--out", search_options.out, "Where --emit writes to; standard output")->type_name("FILE");
  json(sub, search_options.json);

  ScheduleOptions schedule_options;
  sub = command("schedule", "Order, bubbles and memory of a pipeline schedule, and its picture",
                std::as_const(schedule_options), schedule);
  sub->add_option("NAME", schedule_options.name,
                  "A schedule such as 1f1b, a file with the text of one, or synthesis; without it, the names");
  sub->add_flag("--all", schedule_options.all, "One table of all schedules");
  sub->add_option("--ranks", schedule_options.ranks, "Ranks of the pipeline")->check(CLI::PositiveNumber);
  sub->add_option("--microbatches", schedule_options.microbatches, "Of one step")->check(CLI::PositiveNumber);
  sub->add_option("--chunks", schedule_options.chunks, "Stages a rank, for interleaved schedules")
      ->check(CLI::PositiveNumber);
  sub->add_option("--group", schedule_options.group,
                  "Microbatches a group of interleaved schedules; as many as ranks")
      ->check(CLI::PositiveNumber);
  sub->add_option(
         "--times", schedule_options.times,
         "Forward, input gradient and weight gradient of all layers of a rank; then, if wanted, of a fused "
         "pair, and of a message")
      ->type_name("F,I,W[,FB[,COMM]]");
  sub->add_option("--a2a", schedule_options.all_to_all,
                  "All-to-all of all layers of a rank, in F and again in I; hidden in fused pairs")
      ->check(CLI::NonNegativeNumber);
  sub->add_option(
      "--layout", schedule_options.layout,
      "Layers of the stages, such as \"Et*3|(tt|)*6tt|tmL\"; t and m take time, --times is a rank's mean");
  sub->add_option(
         "--memory", schedule_options.memory,
         "What a microbatch keeps on all layers of a rank until its input gradient, and until its weight "
         "gradient; the default is the Zero Bubble papers' split, with flash attention it is near 0.06,0.94")
      ->type_name("UNTIL_I,UNTIL_W");
  sub->add_option("--buffers", schedule_options.buffers,
                  "Refuse the schedule if so many messages between two ranks don't do")
      ->check(CLI::PositiveNumber);
  sub->add_option("--cap", schedule_options.cap,
                  "synthesis: the room each rank has for activations, in the unit of --memory; one or one a rank")
      ->type_name("N[,N...]");
  sub->add_option("--effort", schedule_options.effort, "synthesis: how long to search, 1 is some ten seconds")
      ->check(CLI::Range(0.0, 1000.0));
  sub->add_option("--svg", schedule_options.svg, "Write the picture to this file")->type_name("FILE");
  sub->add_flag("--text", schedule_options.text, "Print the order, as a file that this command reads");
  json(sub, schedule_options.json);

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
  for (const CLI::App* each : app.get_subcommands()) {
    if (const auto extras = each->remaining(); !extras.empty()) refuse_extras(*each, extras);
  }
  HEDDLE_CHECK(chosen != nullptr, "no command was chosen");
  return chosen();
}

}  // namespace heddle::cli
