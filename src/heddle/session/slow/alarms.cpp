#include "heddle/session/slow/alarms.h"

#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/output_file.h"
#include "heddle/session/run_logs.h"

namespace heddle::session {

Alarms::Alarms(std::string run, RunFolder folder, const std::string& command, Warn warn)
    : run_(std::move(run)), folder_(std::move(folder)), warn_(std::move(warn)), command_(command, warn_) {}

void Alarms::tell(const std::vector<Alarm>& alarms, int64_t step, RunLogs& logs) {
  for (const Alarm& alarm : alarms) {
    warn_(alarm.line);
    nlohmann::ordered_json json{{"time", wall_time_s()},
                                {"run", run_},
                                {"folder", folder_.path},
                                {"generation", own_fence() ? own_fence()->number : 0},
                                {"step", step}};
    json.update(alarm.json);
    json["text"] = alarm.line;
    const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    logs.attempt("alarms", [&] {
      OutputFile file(folder_.alarms(), OutputFile::Open::append);
      file.write_whole(text);
      file.close();
    });
    command_.run(text);
  }
}

}  // namespace heddle::session
