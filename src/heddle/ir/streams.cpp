#include "heddle/ir/streams.h"

#include <algorithm>

namespace heddle::ir {

std::string stream_name(const Op& op) {
  if (op.def->stream != StreamKind::comm) return std::string(name_of(op.def->stream));
  if (!op.attributes.has("step")) return "comm." + op.group;
  const bool next = op.attributes.integer("step") > 0;
  const bool forward = (op.kind() == "send") == next;
  return fmt::format("comm.{}.{}", op.group, forward ? "forward" : "backward");
}

std::string group_of_stream(const std::string& stream) {
  if (!stream.starts_with("comm.")) return "";
  return stream.substr(5, stream.find('.', 5) - 5);
}

StreamTable::StreamTable(const StepProgram& program) {
  for (const Stage& stage : program.stages) {
    std::vector<uint8_t>& of = of_.emplace_back();
    for (const Op& op : stage.ops) {
      const std::string name = stream_name(op);
      auto at = std::find(names_.begin(), names_.end(), name);
      if (at == names_.end()) at = names_.insert(names_.end(), name);
      of.push_back(static_cast<uint8_t>(at - names_.begin()));
    }
  }
  HEDDLE_CHECK(names_.size() <= kMostStreams, "{} streams, at most {}", names_.size(), kMostStreams);
}

}  // namespace heddle::ir
