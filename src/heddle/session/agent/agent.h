// The agent of a host: it outlives the ranks of a job, whose copies in memory lie in its folder
// (train/saved/segment.h).
//
// It writes to disk the steps that the ranks ask for, in the background; the newest that is whole when a rank, the
// job or a partner dies, or it is told to stop; and it gives each step to the agent of another host, which keeps it
// in memory. What memory holds when it ends and could not be written stays there, for the next agent or the next
// run.
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
  std::string token;                      // of the job; needed with either
  std::shared_ptr<AgentOrders> orders{};  // what a supervisor tells it while it runs; null: nobody does
};

/// Runs until `stop`. `say` is told one line each: first that it is ready, with its port and its folder; then what
/// it has done, and what has failed. ConfigError where it can't begin.
void run_agent(const AgentOptions& options, const std::atomic<bool>& stop,
               const std::function<void(const std::string& line)>& say);

}  // namespace heddle::session
