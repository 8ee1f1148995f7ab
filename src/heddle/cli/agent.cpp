// heddle agent: keeps what a job's ranks on this host hold in memory, and writes it to disk.
#include "heddle/session/agent/agent.h"

#include <atomic>
#include <csignal>
#include <cstdio>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"

namespace heddle::cli {

namespace {

constexpr int64_t kMostToken = 4096;

std::atomic<bool> stopped{false};
static_assert(std::atomic<bool>::is_always_lock_free);

struct AgentCommand {
  session::AgentOptions agent;
  std::string token_file;
};

int agent(const AgentCommand& options) {
  session::AgentOptions agent = options.agent;
  if (!options.token_file.empty()) {
    const std::string text = read_file(options.token_file, kMostToken);
    agent.token = text.substr(0, text.find_first_of("\r\n"));
  }
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) std::signal(number, [](int) { stopped = true; });
  std::signal(SIGPIPE, SIG_IGN);
  session::run_agent(agent, stopped, [](const std::string& line) {
    std::fputs((escaped_lines(line) + "\n").c_str(), stdout);
    std::fflush(stdout);
  });
  return kDone;
}

}  // namespace

void add_agent(Commands& all) {
  auto [command, options] = add_command(
      all, "agent", "Keep a host's copies of a run's state in memory, and write them to disk when ranks ask or die",
      agent);
  command.option("RUN", options.agent.run, "The run's folder, of a run that is there or will be").required();
  command.option("--partner", options.agent.partner, "The agent of another host, which keeps a copy in its memory")
      .called("HOST:PORT");
  command
      .option("--listen", options.agent.listen,
              "The interface on which other hosts' agents give theirs, such as eth0")
      .called("INTERFACE");
  command.option("--token-file", options.token_file, "A file whose first line is the job's token").called("FILE");
}

}  // namespace heddle::cli
