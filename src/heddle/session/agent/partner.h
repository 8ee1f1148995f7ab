// Copies of one host's segments in the memory of another: the protocol between the agents of the two hosts.
//
//   Frame to the partner            Effect
//   I name, line break, index       A segment of that name is made under the partner's folder.
//   B set, offset, bytes            Bytes of a set are written; the seal goes before the first.
//   S set, text                     The seal is written, if all bytes have the checksums that they had at the
//                                   source.
//
// I and S get K, or N with the reason.
#pragma once

#include <memory>
#include <string>

#include "heddle/session/agent/link.h"
#include "heddle/train/saved/segment.h"

namespace heddle::session {

/// Sends a step of a segment. SystemError when the other has gone or has no room, ConfigError where the step is no
/// longer whole here.
void replicate(Link& link, const train::Segment& segment, int64_t step);

/// Takes what a partner sends into a folder, frame by frame.
class Replicas {
 public:
  explicit Replicas(std::string folder) : folder_(std::move(folder)) {}
  /// Obeys a frame and answers; SystemError when the other has gone.
  void take(Link& link, const Link::Frame& frame);

 private:
  std::string taken(const Link::Frame& frame);
  std::string folder_;
  struct Open {
    train::SegmentFiles files;
    int file = -1;
    int64_t bytes = 0;
    ~Open();
  };
  std::unique_ptr<Open> open_;
};

}  // namespace heddle::session
