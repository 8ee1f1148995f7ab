#include "advisor/script/schedule_words.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::advisor {

namespace {

Pipeline row(std::string_view schedule) {
  const Pipeline found = schedule::find_pipeline(schedule);
  HEDDLE_CHECK(found != nullptr, "no schedule '{}'", schedule);
  return found;
}

}  // namespace

const std::vector<ScheduleWord>& schedule_words() {
  using enum Dialect;
  static const std::vector<ScheduleWord> all{
      {"1f1b", {megatron, mindspeed}},
      {"interleaved", {megatron, mindspeed}},
      {"interleaved_fused", {megatron, mindspeed}},
      {"dual_pipe_v", {mindspeed}, "dualpipev"},
  };
  return all;
}

std::string_view method_of(std::string_view schedule) {
  for (const ScheduleWord& word : schedule_words())
    if (word.schedule == schedule) return word.method;
  return "";
}

Pipeline pipeline_of_method(std::string_view method) {
  for (const ScheduleWord& word : schedule_words())
    if (!word.method.empty() && word.method == method) return row(word.schedule);
  return nullptr;
}

std::vector<Pipeline> schedules_of(Dialect dialect) {
  std::vector<Pipeline> own;
  for (const ScheduleWord& word : schedule_words())
    if (std::find(word.dialects.begin(), word.dialects.end(), dialect) != word.dialects.end())
      own.push_back(row(word.schedule));
  return own;
}

}  // namespace heddle::advisor
