// The in-order streams of a rank. Ops on different streams overlap; the walk says which must wait for which.
//
// Collectives have one stream a mesh axis. On a pipeline axis activations and gradients have a channel each, and
// each channel one stream that sends and one that receives, so that nothing queues behind what goes another way.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "heddle/ir/program.h"

namespace heddle::ir {

constexpr int kMostStreams = 24;

/// For each stream, the number of ops enqueued on it when something happened; 0 is "nothing to wait for".
using Marks = std::array<uint64_t, kMostStreams>;
inline void merge(Marks& into, const Marks& from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = into[i] < from[i] ? from[i] : into[i];
}

/// The streams that a program uses, named, and the stream of each op.
class StreamTable {
 public:
  explicit StreamTable(const StepProgram& program);
  /// Of these stages only.
  StreamTable(const StepProgram& program, const std::vector<int>& stages);
  const std::vector<std::string>& names() const { return names_; }
  int count() const { return static_cast<int>(names_.size()); }
  int of(int stage, uint32_t op) const { return of_[static_cast<size_t>(stage)][op]; }
  static constexpr int compute = 0;

 private:
  std::vector<std::string> names_{"compute"};
  std::vector<std::vector<uint8_t>> of_;
};

/// "compute", "copy_in", "comm.tp", "comm.pp.forward.send", …
std::string stream_name(const Op& op);
/// Which communicator an op on a communicating stream uses: "comm.tp", "comm.pp.forward".
std::string channel_of_stream(const std::string& stream);
/// "tp" of "comm.tp", "pp" of "comm.pp.forward.send"; empty when the stream does not communicate.
std::string group_of_stream(const std::string& stream);

}  // namespace heddle::ir
