// The page of one rank (call_page.h), written by its threads. At first it is in the rank's own memory. Once the
// run's folder is known, it is in a file there, for its owner alone, which goes when the rank has ended well.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/files/pinned_folder.h"
#include "heddle/comm/calls/call_page.h"
#include "heddle/comm/calls/link_log.h"

namespace heddle::comm {

class CallLog {
 public:
  CallLog(int rank, int ranks, const std::string& host, int64_t generation);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  /// From here on the page is this file, which must not be there yet; what was written so far is in it. The first
  /// call holds. SystemError where it can't be made, and the page stays where it is.
  void publish(const std::string& path);
  /// The folder in which that file stands now; "": nowhere that is known, or there is no file.
  std::string folder() const { return folder_ ? folder_->place() : ""; }

  /// The place of a communicator; the same for the same name and ranks. −1: there are more than a page has room
  /// for.
  int channel(std::string_view name, const std::vector<int>& ranks);
  /// Says that a call begins, and which; `end` takes what this returned.
  uint64_t begin(int channel, CallKind kind, int peer, int64_t bytes = 0);
  void end(uint64_t number);

  /// The totals of each channel, since the rank began. By the thread that makes the channels, between steps.
  struct Total {
    std::string_view channel;
    double inside_s = 0, bytes = 0;
  };
  std::vector<Total> totals() const;

  void at_step(int64_t step);
  void set_patience(double seconds);
  void ended(RankState state, std::string_view reason = "", int accused = -1, bool input = false);
  const CallPage& page() const { return *page_; }
  /// Times of the exchanges by peer, in the rank's own memory.
  LinkLog& links() { return links_; }

 private:
  CallPage* page_;
  std::optional<PinnedFolder> folder_;  // of the file; none: the page is not in one
  std::string name_;                    // of the file
  std::mutex mutex_;                    // of the channels' making
  LinkLog links_;
};

}  // namespace heddle::comm
