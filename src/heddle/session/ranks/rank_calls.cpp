#include "heddle/session/ranks/rank_calls.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "heddle/base/files/fence.h"
#include "heddle/base/say.h"
#include "heddle/comm/calls/rank_status.h"
#include "heddle/session/run_environment.h"
#include "heddle/session/run_folder.h"

namespace heddle::session {

void end_with_parent() {
  if (!own_fence()) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == 1) ::raise(SIGKILL);  // it died before we asked
}

RankCalls::RankCalls(comm::World* world) {
  const std::optional<Fence>& job = own_fence();
  if (world == nullptr && !job) return;
  const int rank = world != nullptr ? world->rank() : 0;
  log_.emplace(rank, world != nullptr ? world->size() : 1, host_name(), job ? job->number : 0);
  if (world != nullptr) noted_.emplace(*world, *log_);
  if (!job) return;
  try {
    log_->publish(comm::page_path(RunFolder{job->folder}.ranks(), rank));
  } catch (const SystemError& error) {
    say(stderr, "heddle: warning: {}; the supervisor does not see what rank {} does\n", error.what(), rank);
  }
}

void RankCalls::end() {
  noted_.reset();
  if (!log_) return;
  const std::string folder = log_->folder();
  log_.reset();
  if (!folder.empty()) ::rmdir(folder.c_str());
}

void RankCalls::failed(const std::string& reason, int accused, bool input) {
  if (log_) log_->ended(comm::RankState::failed, reason, accused, input);
}

}  // namespace heddle::session
