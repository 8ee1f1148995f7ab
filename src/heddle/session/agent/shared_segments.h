// Reads the memory of one host from another. Agents share the segments that they hold, their own ranks' and those
// that they keep for a partner, with a run that goes on in a place that lacks them.
//
//   The borrower's frame        The agent's frames
//   A                           For each segment L and JSON: what it is (train::SharedSegment). Then K.
//   V number, set               K once all bytes of the set have the checksums that they had at the source.
//   R number, place, count      B and the bytes.
//
// V and R may get N with the reason instead. A number is that of a segment in the last answer to A.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/session/agent/link.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/saved/segment.h"

namespace heddle::session {

/// Answers one that borrows, frame by frame.
class SegmentServer {
 public:
  explicit SegmentServer(std::vector<std::string> folders) : folders_(std::move(folders)) {}
  /// True if the frame is a borrower's.
  static bool is_asked(const Link::Frame& frame);
  /// SystemError when the other has gone.
  void answer(Link& link, const Link::Frame& frame);

 private:
  std::string answered(Link& link, const Link::Frame& frame);
  std::vector<std::string> folders_;
  std::vector<std::shared_ptr<const train::Segment>> remote_;
};

/// Segments that agents of the run hold in memory out of reach from here; those of ranks come before those kept for
/// partners. The token is that of this host's agent; without one nothing is shared. An agent that does not answer
/// adds its reason to `refused`.
std::vector<std::shared_ptr<const train::Segment>> shared_segments(const RunFolder& folder,
                                                                   std::vector<std::string>* refused);

}  // namespace heddle::session
