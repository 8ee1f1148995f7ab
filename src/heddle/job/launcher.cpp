#include "heddle/job/launcher.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>

#include "heddle/base/error.h"
#include "heddle/job/batch_script.h"
#include "heddle/session/run_environment.h"

namespace heddle::job {

namespace {

using Words = std::vector<std::string>;

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

Words by_mpirun(const Start& start) {
  std::string hosts;
  bool away = false;
  for (const Host& host : start.hosts) {
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", host.name, host.slots);
    away |= !is_here(host.name);
  }
  Words words{"mpirun",   "--host", hosts,       "-np", fmt::format("{}", slots_of(start.hosts)),
              "--map-by", "slot",   "--bind-to", "none"};
  // After a rank's death it ends the others at once: they would use their second for nothing.
  add(words, {"--mca", "odls_base_sigkill_timeout", "0"});
  // A host that is cut off is noticed in seconds; Open MPI's own settings let minutes pass.
  add(words, {"--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca",
              "oob_tcp_keepalive_probes", "3"});
  if (away && !start.shell.empty())
    add(words,
        {"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", start.shell, "--mca", "plm_rsh_no_tree_spawn", "1"});
  for (const std::string& name : start.variables) add(words, {"-x", name});
  add(words, start.more);
  add(words, start.program);
  return words;
}

Words by_srun(const Start& start) {
  std::string hosts;
  for (const Host& host : start.hosts) hosts += (hosts.empty() ? "" : ",") + host.name;
  // A step that Slurm itself is ending after a task's death takes no further signal, and its other tasks have
  // KillWait (30 s) left. The supervisor ends them at once.
  Words words{"srun",
              "--mpi=pmix",
              "--kill-on-bad-exit=0",
              "--overlap",
              "--distribution=block",
              "--nodelist=" + hosts,
              fmt::format("--nodes={}", start.hosts.size()),
              fmt::format("--ntasks={}", slots_of(start.hosts))};
  bool even = true;
  for (const Host& host : start.hosts) even &= host.slots == start.hosts[0].slots;
  if (even) words.push_back(fmt::format("--ntasks-per-node={}", start.hosts[0].slots));
  add(words, start.more);  // the environment goes to every task by itself
  add(words, start.program);
  return words;
}

// Quotes the words, which a shell on the other side reads again. A host that no longer answers ends it in seconds.
Words on_host_by_shell(const std::string& host, const std::string& shell, const Words& words) {
  if (shell.empty() && is_here(host)) return words;
  Words all{shell, host};
  if (shell.empty()) {
    all = {"ssh",
           "-o",
           "BatchMode=yes",
           "-o",
           "ConnectTimeout=5",
           "-o",
           "ServerAliveInterval=2",
           "-o",
           "ServerAliveCountMax=3",
           host};
  }
  for (const std::string& word : words) all.push_back(shell_word(word));
  return all;
}

Words on_host_by_srun(const std::string& host, const std::string&, const Words& words) {
  Words all{"srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=" + host};
  add(all, words);
  return all;
}

}  // namespace

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all{
      {"mpirun", "Open MPI's, which reaches other hosts by ssh or by what --shell says", by_mpirun,
       on_host_by_shell, 0},
      {"srun", "Slurm's, inside of an allocation", by_srun, on_host_by_srun, SIGTERM}};
  return all;
}

const Launcher& launcher_named(const std::string& name) {
  const std::string wanted = !name.empty() ? name : std::getenv("SLURM_JOB_ID") != nullptr ? "srun" : "mpirun";
  Words names;
  for (const Launcher& launcher : launchers()) {
    if (launcher.name == wanted) return launcher;
    names.emplace_back(launcher.name);
  }
  config_error("--by is '{}', accepted: {}", wanted, fmt::join(names, ", "));
}

bool is_here(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == session::host_name();
}

}  // namespace heddle::job
