// The agent of a host: it outlives the ranks of a job, whose copies in memory lie in its folder
// (train/saved/segment.h).
//
// It writes to disk, in the background, the steps that the ranks ask for. When a rank, the job or a partner dies,
// or it has to stop, it writes the newest whole step. It sends each step to the agent of another host, which keeps
// it in memory. What could not be written when it ends stays in memory, for the next agent or the next run.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "heddle/session/agent/orders.h"

namespace heddle::session {

struct AgentOptions {
  std::string run;                        // the run's folder
  std::string partner;                    // HOST:PORT of the agent that keeps what lies here; "": none
  std::string listen;                     // the interface on which others give theirs; "": none
  std::string token;                      // token of the job; needed with either
  std::shared_ptr<AgentOrders> orders{};  // orders of a supervisor while it runs; null: none
};

/// Runs until `stop`. `say` receives one line at a time: first that it is ready, with its port and its folder; then
/// what it has done, and what has failed. ConfigError where it can't begin.
void run_agent(const AgentOptions& options, const std::atomic<bool>& stop,
               const std::function<void(const std::string& line)>& say);

}  // namespace heddle::session
