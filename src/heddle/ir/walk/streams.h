// The in-order streams of a rank. Ops on different streams overlap; the walk says which must wait for which.
//
// What communicates does so over a channel: the communicator of its group, of which a pipeline axis has two, one
// for activations and one for gradients. A channel usually has a stream of its own, or one that sends and one that
// receives, so that nothing queues behind what goes another way. An op may also name a stream: several channels may
// then share one, and several streams one channel, whose ops run in the order in which they are issued.
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

/// The streams and channels that a program uses, named, and those of each op.
class StreamTable {
 public:
  explicit StreamTable(const StepProgram& program);
  /// The table of these listings only.
  StreamTable(const StepProgram& program, const std::vector<int>& listings);
  const std::vector<std::string>& names() const { return names_; }
  int count() const { return static_cast<int>(names_.size()); }
  int of(int listing, uint32_t op) const { return of_[listing][op]; }
  static constexpr int compute = 0;

  struct Channel {
    std::string name, group;
  };
  const std::vector<Channel>& channels() const { return channels_; }
  /// The index of the op's channel, or -1.
  int channel_of(int listing, uint32_t op) const { return channel_of_[listing][op]; }

 private:
  std::vector<std::string> names_{"compute"};
  std::vector<Channel> channels_;
  std::vector<std::vector<uint8_t>> of_;
  std::vector<std::vector<int8_t>> channel_of_;
};

/// The communicator that an op uses: "comm.tp", "comm.pp.forward"; "" when it doesn't communicate.
std::string channel_name(const Op& op);
/// The stream of an op: the one that it names, else "compute", "copy_in", "comm.tp", "comm.pp.forward.send", …
std::string stream_name(const Op& op);
/// The stream that it would run on if it named none.
std::string usual_stream(const Op& op);
/// The group whose channel, or sends and receives, have a stream of that name: "pp" of "comm.pp.forward.send"; ""
/// when none has.
std::string group_of_stream(const std::string& stream);

}  // namespace heddle::ir
