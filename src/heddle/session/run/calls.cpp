#include "heddle/session/run/calls.h"

#include "heddle/base/error.h"
#include "heddle/base/files/fence.h"
#include "heddle/comm/calls/call_log.h"
#include "heddle/runtime/executor.h"
#include "heddle/session/ranks/stall_lines.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

void publish_calls(RunContext& run) {
  if (run.place.calls == nullptr) return;
  std::string failure;
  if (run.leads()) {
    try {
      if (!own_fence()) clear_status_pages(run.folder);  // else the supervisor has, before it started us
      write_program_lines(run.folder, run.trainer->lowered().program);
    } catch (const SystemError& error) {
      failure = error.what();
    }
  }
  failure = run.trainer->ranks().from_first_rank(failure);
  if (failure.empty()) {
    try {
      run.place.calls->publish(comm::page_path(run.folder.ranks(), run.trainer->ranks().rank()));
    } catch (const SystemError& error) {
      failure = error.what();
    }
  }
  if (run.leads() && !failure.empty()) run.warn(failure + "; the supervisor will not see for whom ranks wait");
}

void retire_calls(RunContext& run) {
  if (run.place.calls == nullptr) return;
  run.place.calls->ended(comm::RankState::done);
  if (run.leads()) remove_program_lines(run.folder);
}

void tell_where_it_stood(RunContext& run, int64_t step) {
  if (!run.leads()) return;
  const std::string stood = run.config.plan.mesh.pp > 1 ? run.trainer->executor().stood_at() : "";
  if (!stood.empty()) run.terminal.line(fmt::format("step {}: rank 0 was in {}", step, stood));
  if (run.place.calls == nullptr) return;
  for (const std::string& line : stall_lines(run.folder, run.place.calls->page().generation))
    run.terminal.line(line);
}

}  // namespace heddle::session
