// heddle launch: trains on the hosts that there are, and goes on when ranks or hosts fail.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/train/train_profile.h"
#include "heddle/config/run_config.h"
#include "heddle/job/batch_script.h"
#include "heddle/job/supervisor.h"
#include "heddle/session/run_environment.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

struct LaunchOptions {
  std::string config;
  std::vector<std::string> set;
  int64_t steps = 0;
  double minutes = 0;
  std::string hosts, by, shell, listen, batch, profile;
  std::vector<std::string> launcher_words;
  int64_t ranks = 0, spares = 0, attempts = 3;
  double pause_s = 1, look_s = 30, wait_hosts_s = 600;
  bool resume = false, no_grow = false, no_probe = false, replace_slow = false, quiet = false, json = false;
};

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

// The line that the batch script begins, inside of whose allocation the hosts are Slurm's.
int write_batch(const LaunchOptions& options, const std::string& program) {
  const config::RunConfig config = config::read_run_config(options.config, settings_of(options));
  if (options.hosts.empty() && options.ranks == 0)
    config_error("--batch: --hosts FILE or --ranks N says how many nodes are asked for");
  const std::vector<job::Host> hosts = options.hosts.empty()
                                           ? std::vector<job::Host>(static_cast<size_t>(options.ranks))
                                           : job::read_hosts(options.hosts);
  job::BatchJob batch{
      config.name, static_cast<int>(hosts.size()), static_cast<int>(options.spares), hosts[0].slots, {}};
  batch.words = {program, "launch", options.config, "--by", "srun", "--resume"};
  for (const std::string& setting : settings_of(options)) {
    batch.words.push_back("--set");
    batch.words.push_back(setting);
  }
  if (options.spares > 0) {
    batch.words.push_back("--spares");
    batch.words.push_back(fmt::format("{}", options.spares));
  }
  if (!options.listen.empty()) {
    batch.words.push_back("--listen");
    batch.words.push_back(options.listen);
  }
  write_file(options.batch, job::batch_script(batch));
  fmt::print("wrote {}; submit it with sbatch {}\n", options.batch, options.batch);
  return kDone;
}

int launch(const LaunchOptions& options) {
  if (options.config == kStandardInput) config_error("-: a job is started more than once; name a file");
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
  job.json = options.json;
  job.attempts = static_cast<int>(options.attempts);
  job.pause_s = options.pause_s;
  job.look_s = options.look_s;
  job.wait_hosts_s = options.wait_hosts_s;
  if (options.quiet) job.flags.push_back("--quiet");
  TrainOptions known;
  known.profile = options.profile;
  const std::optional<cost::MachineProfile> measured = known_profile(known);
  job.profile = measured ? *measured : rated_profile();
  job::Supervisor supervisor(std::move(job),
                             [](const std::string& line) { fmt::print(stderr, "launch: {}\n", escaped(line)); });
  const job::JobSummary s = supervisor.run();
  if (options.json) {
    Json json{{"folder", s.folder},  {"generations", s.generations},
              {"faults", s.faults},  {"ranks", s.ranks},
              {"hosts_out", s.lost}, {"status", s.status},
              {"reason", s.reason},  {"run", Json::parse(s.said, nullptr, false)}};
    if (json["run"].is_discarded()) json["run"] = nullptr;
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  if (s.status != kDone && s.status != kInterrupted) fmt::print(stderr, "heddle: {}\n", escaped_lines(s.reason));
  return s.status;
}

}  // namespace

void add_launch(Commands& all) {
  auto [command, options] =
      add_command(all, "launch", "Train on several hosts and go on when ranks or hosts fail", launch);
  command.option("CONFIG", options.config, "The configuration file").required();
  add_set(command, options.set);
  command.option("--steps", options.steps, "Steps of the whole run, the same as --set train.steps=N").from(1);
  command.option("--minutes", options.minutes, "Minutes in training steps of the whole run").above_zero();
  command
      .option("--hosts", options.hosts,
              "Hosts, one a line: NAME slots=N. Otherwise those of the Slurm allocation, else this one")
      .called("FILE");
  command.option("--ranks", options.ranks, "Ranks wanted; otherwise all slots but those of the spares").from(1);
  command
      .option("--spares", options.spares,
              "So many hosts, the last, stand by until another fails; with --ranks all that it leaves do")
      .from(0);
  command.option("--by", options.by, "What starts the ranks: mpirun, srun; otherwise srun inside of Slurm")
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
  command.option("--attempts", options.attempts, "Give up after so many ends in a row that came no further")
      .from(1);
  command.option("--pause", options.pause_s, "Seconds before the second such start; doubled for each after it")
      .from(0);
  command.option("--look-every", options.look_s, "Seconds between two looks at hosts that are out").from(0.1);
  command.option("--no-grow", options.no_grow, "Leave out hosts that come back until the next start");
  command.option("--no-probe", options.no_probe, "Try no products and transfers on hosts after a fault");
  command.option("--replace-slow", options.replace_slow,
                 "Take a spare in the place of a host on which a rank is found slow");
  command.option("--wait-hosts", options.wait_hosts_s, "Seconds to wait where no host answers; then exit status 75")
      .from(0);
  command.option("--profile", options.profile, "What `heddle profile --out` wrote, by which layouts are compared")
      .called("FILE");
  command.option("--batch", options.batch, "Only write a Slurm batch script that starts this job").called("FILE");
  command.option("--quiet", options.quiet, "The ranks tell nothing but warnings and what the run came to");
  add_json(command, options.json);
}

}  // namespace heddle::cli
