#include "heddle/job/journal.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"

namespace heddle::job {

Journal::Journal(std::string path) : path_(std::move(path)) {
  std::ifstream file(held_path(path_), std::ios::binary);
  char last = '\n';
  if (file.seekg(-1, std::ios::end)) file.get(last);
  torn_ = last != '\n';
}

void Journal::add(const std::string& event, const nlohmann::ordered_json& more) {
  using Json = nlohmann::ordered_json;
  Json line{{"time", wall_time_s()}, {"event", event}};
  line.update(more);
  try {
    OutputFile file(path_, OutputFile::Open::append);
    file.write_whole((torn_ ? "\n" : "") + line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
    file.close();
    torn_ = false;
  } catch (const SystemError&) {  // it is only looked at
  }
}

}  // namespace heddle::job
