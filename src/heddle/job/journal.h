// Events and actions of a job's supervisor: FOLDER/job.jsonl, an event a line with its time, for people and for
// tests. A disk that refuses it does the job no harm. A line that its writer's death cut short stands alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace heddle::job {

class Journal {
 public:
  explicit Journal(std::string path);
  /// Adds the time and the event's name in front.
  void add(const std::string& event, const nlohmann::ordered_json& more);

 private:
  std::string path_;
  bool torn_ = false;  // the file ends within a line
};

}  // namespace heddle::job
