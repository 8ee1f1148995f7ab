// What a run tells of slow ranks, links and ops while it trains, and what it is asked of them.
#include "heddle/base/clock.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/output_file.h"
#include "heddle/session/slow/wanted_op_times.h"
#include "heddle/session/training_run.h"

namespace heddle::session {

// Of slow ranks and links are told whoever reads, a file for programs, and the user's own program.
void TrainingRun::tell(const std::vector<Alarm>& alarms) {
  if (!leads()) return;
  for (const Alarm& alarm : alarms) {
    warn(alarm.line);
    nlohmann::ordered_json json{{"time", wall_time_s()},
                                {"run", config_.name},
                                {"folder", folder_.path},
                                {"generation", own_fence() ? own_fence()->number : 0},
                                {"step", trainer_->steps_done()}};
    json.update(alarm.json);
    json["text"] = alarm.line;
    const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    logs_->attempt("alarms", [&] {
      OutputFile file(folder_.alarms(), OutputFile::Open::append);
      file.write_whole(text);
      file.close();
    });
    alarm_command_->run(text);
  }
}

void TrainingRun::watch_ranks(const train::StepResult& result, observe::StepMetrics& metrics) {
  tell(rank_watch_->after(result));
  if (alarm_command_) alarm_command_->poll();
  if (const auto times = rank_watch_->take_op_times(); times && leads()) {
    logs_->attempt("op times", [&] { write_file(folder_.op_times(), *times, OutputFile::Flush::to_system); });
    progress_->line(fmt::format("times of ops: {}", folder_.op_times()));
  }
  if (leads() && place_.calls != nullptr) {
    for (const comm::CallLog::Total& total : place_.calls->totals()) {
      auto& [told_s, told_bytes] = told_calls_[std::string(total.channel)];
      metrics.extra[fmt::format("{}_seconds", total.channel)] =
          total.inside_s - std::exchange(told_s, total.inside_s);
      metrics.extra[fmt::format("{}_bytes", total.channel)] = total.bytes - std::exchange(told_bytes, total.bytes);
    }
  }
  if (const runtime::CopyEngine* copies = trainer_->copies(); leads() && copies != nullptr && copies->asked()) {
    const comm::EngineTally now = copies->tally(), before = std::exchange(told_copies_, now);
    const auto add = [&](const char* what, int64_t comm::EngineTally::*count) {
      metrics.extra[what] = static_cast<double>(now.*count - before.*count);
    };
    add("engine_messages", &comm::EngineTally::messages);
    add("engine_bytes", &comm::EngineTally::bytes);
    add("engine_short_messages", &comm::EngineTally::short_messages);
    add("engine_short_bytes", &comm::EngineTally::short_bytes);
    add("engine_far_messages", &comm::EngineTally::far_messages);
    add("engine_far_bytes", &comm::EngineTally::far_bytes);
  }
  summary_.slow_ranks = rank_watch_->slow();
  if (!summary_.slow_ranks) return;
  const std::optional<SlowLinks>& links = rank_watch_->slow_links();
  summary_.slow_links = links ? json_of(*links, rank_watch_->hosts()) : nlohmann::ordered_json();
  metrics.extra["slow_ranks"] = static_cast<double>(summary_.slow_ranks->size());
  if (links) metrics.extra["slow_links"] = static_cast<double>(links->pairs.size());
  metrics.alarm = rank_watch_->summary();
}

// What this rank was asked by signals and, rank 0, by a file in the run's folder.
Wishes TrainingRun::own_wishes() {
  constexpr double kLook_s = 0.5;
  Wishes mine = Signals::take();
  if (!leads() || now_s() - wanted_seen_s_ < kLook_s) return mine;
  wanted_seen_s_ = now_s();
  mine.op_times = take_wanted_steps(folder_);
  return mine;
}

}  // namespace heddle::session
