// Orders that the supervisor of a job gives an agent while it runs, a line each on its standard input:
//
//   `replaces ID`         Before the token: the agent with this folder in memory no longer answers; it is ended.
//   `token WORD`          The job's token.
//   `partner HOST:PORT`   The partner whose agent keeps a copy from now on; without an address nobody does.
//   `forget`              The job has ended well: the copies are needed no more.
//   `answer WORD`         Say `answers WORD`: an agent that hangs does not.
//
// Where standard input ends, the supervisor has ended, and the agent ends as when it is stopped.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace heddle::session {

class AgentOrders {
 public:
  /// Returns the reply to the line; "": none. ConfigError where it is no order.
  std::string take(const std::string& line);
  /// The partner, if another one was named since this was asked.
  std::optional<std::string> new_partner();
  std::string token() const;
  /// IDs of folders in memory, as the names of files in RUN/.agents.
  std::vector<std::string> replaced() const;
  bool forgets() const;

 private:
  mutable std::mutex mutex_;
  std::string token_;
  std::vector<std::string> replaced_;
  std::optional<std::string> partner_;
  bool forgets_ = false;
};

}  // namespace heddle::session
