// What the supervisor of a job tells an agent while it runs, a line each on its standard input:
//
//   token WORD            the job's token, which comes first
//   partner HOST:PORT     whose agent keeps a copy from now on; without an address nobody does
//   forget                the job has ended well: what is held is needed no more
//
// Where standard input ends, the supervisor has, and the agent ends as when it is told to stop.
#pragma once

#include <mutex>
#include <optional>
#include <string>

namespace heddle::session {

class AgentOrders {
 public:
  /// ConfigError where it is none of these.
  void take(const std::string& line);
  /// The partner, if another one was named since this was asked.
  std::optional<std::string> new_partner();
  std::string token() const;
  bool forgets() const;

 private:
  mutable std::mutex mutex_;
  std::string token_;
  std::optional<std::string> partner_;
  bool forgets_ = false;
};

}  // namespace heddle::session
