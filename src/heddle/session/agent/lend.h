// What lies in one host's memory, read from another: agents lend the segments that they hold, their own ranks' and
// those that they keep for a partner, to whoever goes on with the run in a place that lacks them.
//
//   of the borrower                 what comes back
//   'A'                             of each segment 'L' and JSON: what it is (train::LentSegment); then 'K'
//   'V' number, set                 'K' once all bytes of the set have the checksums that they had at the source
//   'R' number, place, count        'B' and the bytes
// To 'V' and 'R' comes 'N' with the reason instead. A number is that of a segment in the last answer to 'A'.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/session/agent/link.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/saved/segment.h"

namespace heddle::session {

/// Answers one that borrows, frame by frame.
class Lending {
 public:
  explicit Lending(std::vector<std::string> folders) : folders_(std::move(folders)) {}
  /// Whether the frame is one of a borrower's.
  static bool is_asked(const Link::Frame& frame);
  /// SystemError when the other has gone.
  void answer(Link& link, const Link::Frame& frame);

 private:
  std::string answered(Link& link, const Link::Frame& frame);
  std::vector<std::string> folders_;
  std::vector<std::shared_ptr<const train::Segment>> lent_;
};

/// What agents of the run hold in memory that is not to be reached from here, those of ranks before what is kept
/// for partners. The token is that of this host's agent; without one nothing is lent. Who does not answer adds its
/// reason to `refused`.
std::vector<std::shared_ptr<const train::Segment>> lent_segments(const RunFolder& folder,
                                                                 std::vector<std::string>* refused);

}  // namespace heddle::session
