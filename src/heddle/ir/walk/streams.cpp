#include "heddle/ir/walk/streams.h"

#include <algorithm>
#include <numeric>

namespace heddle::ir {

std::string stream_name(const Op& op) {
  if (op.def->stream != StreamKind::comm) return std::string(name_of(op.def->stream));
  if (!is_message(op.def->moves)) return "comm." + op.group;
  return fmt::format("comm.{}.{}.{}", op.group, op.phase == Phase::F ? "forward" : "backward", op.kind());
}

std::string channel_of_stream(const std::string& stream) {
  const size_t end = stream.rfind('.');
  return stream.ends_with(".send") || stream.ends_with(".receive") ? stream.substr(0, end) : stream;
}

std::string group_of_stream(const std::string& stream) {
  if (!stream.starts_with("comm.")) return "";
  return stream.substr(5, stream.find('.', 5) - 5);
}

namespace {
std::vector<int> all_stages(const StepProgram& program) {
  std::vector<int> all(program.stages.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}
}  // namespace

StreamTable::StreamTable(const StepProgram& program) : StreamTable(program, all_stages(program)) {}

StreamTable::StreamTable(const StepProgram& program, const std::vector<int>& stages) : of_(program.stages.size()) {
  for (const int s : stages) {
    std::vector<uint8_t>& of = of_[static_cast<size_t>(s)];
    for (const Op& op : program.stages[static_cast<size_t>(s)].ops) {
      const std::string name = stream_name(op);
      auto at = std::find(names_.begin(), names_.end(), name);
      if (at == names_.end()) at = names_.insert(names_.end(), name);
      of.push_back(static_cast<uint8_t>(at - names_.begin()));
    }
  }
  HEDDLE_CHECK(names_.size() <= kMostStreams, "{} streams, at most {}", names_.size(), kMostStreams);
}

}  // namespace heddle::ir
