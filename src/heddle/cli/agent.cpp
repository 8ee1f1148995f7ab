// heddle agent: keeps what a job's ranks on this host hold in memory, and writes it to disk.
#include "heddle/session/agent/agent.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
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
  bool supervised = false;
};

// Standard input, a line at a time, for as long as there is any.
class Orders {
 public:
  /// The next line; none: nothing came in `wait_s`, or nothing will (`ended`).
  std::optional<std::string> next(double wait_s) {
    for (size_t end = held_.find('\n'); end == held_.npos; end = held_.find('\n')) {
      pollfd look{STDIN_FILENO, POLLIN, 0};
      if (ended_ || ::poll(&look, 1, static_cast<int>(wait_s * 1e3)) <= 0) return std::nullopt;
      std::array<char, 4096> bytes;
      const ssize_t size = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      ended_ = size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN) || held_.size() > kMostToken;
      if (size > 0) held_.append(bytes.data(), static_cast<size_t>(size));
    }
    const size_t end = held_.find('\n');
    std::string line = held_.substr(0, end);
    held_.erase(0, end + 1);
    return line;
  }
  bool ended() const { return ended_; }

 private:
  std::string held_;
  bool ended_ = false;
};

int agent(const AgentCommand& options) {
  session::AgentOptions agent = options.agent;
  if (!options.token_file.empty()) {
    const std::string text = read_file(options.token_file, kMostToken);
    agent.token = text.substr(0, text.find_first_of("\r\n"));
  }
  Orders input;
  if (options.supervised) {
    agent.orders = std::make_shared<session::AgentOrders>();
    while (agent.orders->token().empty() && !input.ended()) {
      if (const std::optional<std::string> line = input.next(1)) (void)agent.orders->take(*line);
    }
    agent.token = agent.orders->token();
  }
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) std::signal(number, [](int) { stopped = true; });
  const auto tell = [](const std::string& line) {
    say("{}\n", escaped_lines(line));
    forget_unheard();  // an agent does its work whether or not anybody listens
  };
  std::thread listening;
  if (options.supervised) {
    listening = std::thread([&] {
      while (!stopped && !input.ended()) {
        try {
          const std::optional<std::string> line = input.next(0.05);
          if (const std::string answer = line ? agent.orders->take(*line) : ""; !answer.empty()) tell(answer);
        } catch (const ConfigError& error) {
          tell(error.what());
        }
      }
      stopped = true;
    });
  }
  const auto hear_out = [&] {
    stopped = true;
    if (listening.joinable()) listening.join();
  };
  try {
    session::run_agent(agent, stopped, tell);
  } catch (...) {
    hear_out();
    throw;
  }
  hear_out();
  return kDone;
}

}  // namespace

void add_agent(Commands& all) {
  auto [command, options] = add_command(
      all, "agent",
      "Keep a host's snapshots of a run's state in memory, and write them to disk when ranks ask or die", agent);
  command.option("RUN", options.agent.run, "The folder of a run that exists or will exist").required();
  command.option("--partner", options.agent.partner, "The agent of another host, which keeps a copy in its memory")
      .called("HOST:PORT");
  command
      .option("--listen", options.agent.listen,
              "The interface on which other hosts' agents reach this one, such as eth0; default: that of the "
              "default route")
      .called("INTERFACE");
  command.option("--supervised", options.supervised,
                 "Take the token, partners and the end from standard input, as heddle launch gives them");
  command.option("--token-file", options.token_file, "A file whose first line is the job's token").called("FILE");
}

}  // namespace heddle::cli
