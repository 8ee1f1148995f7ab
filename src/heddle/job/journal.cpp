#include "heddle/job/journal.h"

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"

namespace heddle::job {

void Journal::add(const std::string& event, const nlohmann::ordered_json& more) {
  using Json = nlohmann::ordered_json;
  Json line{{"time", wall_time_s()}, {"event", event}};
  line.update(more);
  try {
    OutputFile file(path_, OutputFile::Open::append);
    file.write_whole(line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
    file.close();
  } catch (const SystemError&) {  // it is only looked at
  }
}

}  // namespace heddle::job
