#include "heddle/ir/walk/streams.h"

#include <algorithm>
#include <numeric>

namespace heddle::ir {

std::string channel_name(const Op& op) {
  if (!communicates(*op.def)) return "";
  if (!is_message(op.def->moves)) return "comm." + op.group;
  return fmt::format("comm.{}.{}", op.group, op.phase == Phase::F ? "forward" : "backward");
}

std::string usual_stream(const Op& op) {
  if (op.def->stream != StreamKind::comm) return std::string(name_of(op.def->stream));
  return is_message(op.def->moves) ? fmt::format("{}.{}", channel_name(op), op.kind()) : channel_name(op);
}

std::string stream_name(const Op& op) { return op.stream.empty() ? usual_stream(op) : op.stream; }

std::string group_of_stream(const std::string& stream) {
  if (!stream.starts_with("comm.")) return "";
  return stream.substr(5, stream.find('.', 5) - 5);
}

namespace {
std::vector<int> all_listings(const StepProgram& program) {
  std::vector<int> all(program.listings.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}
}  // namespace

StreamTable::StreamTable(const StepProgram& program) : StreamTable(program, all_listings(program)) {}

StreamTable::StreamTable(const StepProgram& program, const std::vector<int>& listings)
    : of_(program.listings.size()), channel_of_(program.listings.size()) {
  for (const int s : listings) {
    for (const Op& op : program.listings[s].ops) {
      const std::string name = stream_name(op), channel = channel_name(op);
      auto at = std::find(names_.begin(), names_.end(), name);
      if (at == names_.end()) at = names_.insert(names_.end(), name);
      of_[s].push_back(static_cast<uint8_t>(at - names_.begin()));
      auto over =
          std::find_if(channels_.begin(), channels_.end(), [&](const Channel& c) { return c.name == channel; });
      if (over == channels_.end() && !channel.empty()) over = channels_.insert(over, {channel, op.group});
      channel_of_[s].push_back(channel.empty() ? int8_t{-1} : static_cast<int8_t>(over - channels_.begin()));
    }
  }
  HEDDLE_CHECK(names_.size() <= kMostStreams, "{} streams, at most {}", names_.size(), kMostStreams);
  HEDDLE_CHECK(channels_.size() <= kMostStreams, "{} channels, at most {}", channels_.size(), kMostStreams);
}

}  // namespace heddle::ir
