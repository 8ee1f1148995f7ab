// heddle launch: trains on the hosts that there are, and goes on when ranks or hosts fail.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/train/train_profile.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/config/run_config.h"
#include "heddle/job/batch_script.h"
#include "heddle/job/supervisor.h"
#include "heddle/planner/rated_profile.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

struct LaunchOptions {
  std::string config;
  std::vector<std::string> set;
  int64_t steps = 0;
  double minutes = 0;
  std::string hosts, by, shell, listen, batch, profile;
  std::vector<std::string> launcher_words, sbatch;
  int64_t ranks = 0, spares = 0, attempts = 3;
  double pause_s = 1, look_s = 30, wait_hosts_s = 600;
  bool resume = false, no_grow = false, no_probe = false, replace_slow = false, standby = false, quiet = false,
       json = false;
};

void add_flags(Command& command, LaunchOptions& options) {
  command.option("CONFIG", options.config, "The configuration file").required();
  add_set(command, options.set);
  command.option("--steps", options.steps, "Steps of the whole run, the same as --set train.steps=N").from(1);
  command.option("--minutes", options.minutes, "Minutes in training steps of the whole run").above_zero();
  command
      .option("--hosts", options.hosts,
              "Hosts, one a line: NAME slots=N. Otherwise those of the Slurm allocation, else this one")
      .called("FILE");
  command.option("--ranks", options.ranks, "Ranks; otherwise all slots but those of the spares").from(1);
  command
      .option("--spares", options.spares,
              "The last so many hosts stand by until another fails; with --ranks, all hosts that the ranks leave "
              "over stand by")
      .from(0);
  command.option("--by", options.by, "Launcher of the ranks: mpirun, srun; otherwise srun inside of Slurm")
      .called("LAUNCHER");
  command
      .option("--shell", options.shell,
              "A program that runs a command on a host, called as ssh is: PROGRAM HOST COMMAND...")
      .called("PROGRAM");
  command
      .option("--listen", options.listen,
              "The interface through which hosts' agents reach each other; otherwise that of the default route")
      .called("INTERFACE");
  command.option("--launcher-word", options.launcher_words, "A word for the launcher's line; may be given again")
      .called("WORD");
  command.option("--resume", options.resume, "Go on with the run in the folder; begin it where there is none yet");
  command.option("--attempts", options.attempts, "Stop after so many failures in a row without progress").from(1);
  command
      .option("--pause", options.pause_s,
              "Seconds before the second start without progress; doubled for each after it")
      .from(0);
  command.option("--look-every", options.look_s, "Seconds between two checks of hosts that are out").from(0.1);
  command.option("--no-grow", options.no_grow, "Leave hosts that return out until the next start");
  command.option("--no-probe", options.no_probe, "Do not test hosts with products and transfers after a fault");
  command.option("--replace-slow", options.replace_slow, "Replace a host with a slow rank by a spare");
  command.option("--standby", options.standby,
                 "Keep ranks started that wait for a fault: they continue at once, where hosts and layout stay");
  command.option("--wait-hosts", options.wait_hosts_s, "Seconds to wait where no host answers; then exit status 75")
      .from(0);
  command
      .option("--profile", options.profile,
              "Profile by which layouts are compared, written by `heddle profile --out`")
      .called("FILE");
  command.option("--batch", options.batch, "Only write a Slurm batch script that starts this job").called("FILE");
  command
      .option("--sbatch", options.sbatch,
              "A line #SBATCH --KEY=VALUE of that script, such as time=8:00:00 or gres=gpu:8; may be given again")
      .called("KEY=VALUE")
      .needs("--batch");
  command.option("--quiet", options.quiet, "The ranks print only warnings and the run's result");
  add_json(command, options.json);
}

std::vector<std::string> settings_of(const LaunchOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.steps > 0) set.push_back(fmt::format("train.steps={}", options.steps));
  if (options.minutes > 0) set.push_back(fmt::format("train.minutes={}", options.minutes));
  return set;
}

std::vector<job::Host> hosts_of(const LaunchOptions& options) {
  if (!options.hosts.empty()) return job::read_hosts(options.hosts);
  if (std::vector<job::Host> hosts = job::slurm_hosts(); !hosts.empty()) return hosts;
  const int64_t ranks =
      options.ranks > 0 ? options.ranks : config::read_run_config(options.config, settings_of(options)).ranks();
  return {{"localhost", static_cast<int>(ranks)}};
}

// Flags that the script has itself, or that a call inside of an allocation has no use for; all others are carried
// over.
constexpr std::array kOfTheScript{"CONFIG", "--hosts", "--by", "--resume", "--batch", "--sbatch"};

// The flags and values that were given, as words, by a walk along the table of all.
std::vector<std::string> words_given(const LaunchOptions& options) {
  LaunchOptions given = options, usual;
  Command as_given, as_usual;
  add_flags(as_given, given);
  add_flags(as_usual, usual);
  std::vector<std::string> words;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (value.starts_with('-')) return words.push_back(name + "=" + value);
    words.push_back(name);
    words.push_back(value);
  };
  for (size_t i = 0; i < as_given.options.size(); ++i) {
    const Option& option = as_given.options[i];
    if (std::find(kOfTheScript.begin(), kOfTheScript.end(), option.name) != kOfTheScript.end()) continue;
    std::visit(
        [&]<class T>(T* value) {
          if (*value == *std::get<T*>(as_usual.options[i].into)) return;
          if constexpr (std::is_same_v<T, bool>) {
            words.push_back(option.name);
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            for (const std::string& one : *value) add(option.name, one);
          } else if constexpr (std::is_same_v<T, std::optional<std::string>>) {
            if (*value) add(option.name, **value);
          } else {
            add(option.name, fmt::format("{}", *value));
          }
        },
        option.into);
  }
  return words;
}

// The line that the batch script begins, inside of whose allocation the hosts are Slurm's. They are those of the
// file, spares among them, as without a script; of --ranks alone one rank on each, and the spares beside them.
int write_batch(const LaunchOptions& options, const std::string& program) {
  const config::RunConfig config = config::read_run_config(options.config, settings_of(options));
  if (options.hosts.empty() && options.ranks == 0)
    config_error("--batch: --hosts FILE or --ranks N says how many nodes are asked for");
  job::BatchJob batch;
  batch.name = config.name;
  batch.settings = options.sbatch;
  if (options.hosts.empty()) {
    batch.nodes = static_cast<int>(options.ranks + options.spares);
  } else {
    const std::vector<job::Host> hosts = job::read_hosts(options.hosts);
    if (options.ranks == 0 && options.spares >= std::ssize(hosts))
      config_error("--spares {}: there are {} hosts", options.spares, hosts.size());
    if (options.ranks > job::slots_of(hosts))
      config_error("--ranks {}: {} has {} slots", options.ranks, options.hosts, job::slots_of(hosts));
    batch.nodes = static_cast<int>(hosts.size());
    for (const job::Host& host : hosts) batch.ranks_per_node = std::max(batch.ranks_per_node, host.slots);
  }
  batch.words = {program, "launch", options.config, "--by", options.by.empty() ? "srun" : options.by, "--resume"};
  const std::vector<std::string> given = words_given(options);
  batch.words.insert(batch.words.end(), given.begin(), given.end());
  write_file(options.batch, job::batch_script(batch));
  say("wrote {}; submit it with sbatch {}\n", options.batch, options.batch);
  return kDone;
}

int launch(const LaunchOptions& options) {
  if (options.config == kStandardInput) config_error("-: a job is started more than once; name a file");
  if (!comm::mpi_available())
    config_error(
        "launch: this heddle was built without MPI, by which ranks of several hosts are started; build it "
        "with libopenmpi-dev, or run ranks as threads of one host: heddle train --ranks N");
  if (own_fence()) config_error("launch: a supervised job starts no other ({} is set)", kFenceVariable);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (!options.batch.empty()) return write_batch(options, program);
  job::JobOptions job;
  job.program = program;
  job.config = std::filesystem::absolute(options.config).string();
  job.set = settings_of(options);
  job.hosts = hosts_of(options);
  job.by = options.by;
  job.shell = options.shell;
  job.listen = options.listen;
  job.more = options.launcher_words;
  job.ranks = static_cast<int>(options.ranks);
  job.spares = static_cast<int>(options.spares);
  job.resume = options.resume;
  job.grow = !options.no_grow;
  job.probe = !options.no_probe;
  job.replace_slow = options.replace_slow;
  job.standby = options.standby;
  job.json = options.json;
  job.attempts = static_cast<int>(options.attempts);
  job.pause_s = options.pause_s;
  job.look_s = options.look_s;
  job.wait_hosts_s = options.wait_hosts_s;
  if (options.quiet) job.flags.push_back("--quiet");
  TrainOptions known;
  known.profile = options.profile;
  const std::optional<cost::MachineProfile> measured = known_profile(known);
  job.profile = measured ? *measured : planner::rated_profile();
  job::Supervisor supervisor(std::move(job),
                             [](const std::string& line) { say(stderr, "launch: {}\n", escaped(line)); });
  const job::JobSummary s = supervisor.run();
  if (options.json) {
    Json json{{"folder", s.folder},  {"generations", s.generations},
              {"faults", s.faults},  {"ranks", s.ranks},
              {"hosts_out", s.lost}, {"status", s.status},
              {"reason", s.reason},  {"run", Json::parse(s.said, nullptr, false)}};
    if (json["run"].is_discarded()) json["run"] = nullptr;
    say("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    forget_unheard();  // the status says what became of the job
  }
  if (s.status != kDone && s.status != kInterrupted) say(stderr, "heddle: {}\n", escaped_lines(s.reason));
  return s.status;
}

}  // namespace

void add_launch(Commands& all) {
  auto [command, options] =
      add_command(all, "launch", "Train on several hosts and go on when ranks or hosts fail", launch);
  add_flags(command, options);
}

}  // namespace heddle::cli
