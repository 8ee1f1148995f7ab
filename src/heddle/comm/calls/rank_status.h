// The standing of a job's ranks: the pages of all (call_page.h), read to find out why the job does not move. The
// cause is a rank that has not entered a collective in which others wait, while it waits for nobody itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/comm/calls/call_page.h"

namespace heddle::comm {

/// A call that a rank has entered and not left.
struct OpenCall {
  CallKind kind = CallKind::exchange;
  std::string channel;
  uint64_t members = 0;   // of the channel, as CallPage::Channel
  uint64_t sequence = 0;  // of the channel's collectives
  int peer = -1;          // of a message: its other rank
  int listing = -1, op = 0;
  int64_t entered_ns = 0, left_ns = 0;  // 0: it is in there
  int64_t bytes = 0;
};

/// A page as it was read, its texts as they may be printed.
struct RankStatus {
  int rank = 0, ranks = 0;
  int process = 0;
  int64_t generation = 0;
  std::string host;
  int64_t first_step = 0;  // that it began; 0: none yet
  int64_t step = 0, moved_ns = 0, patience_ms = 0;
  RankState state = RankState::running;
  int accused = -1;
  bool input = false;
  std::string reason;
  struct Channel {
    std::string name;
    uint64_t members = 0;
    uint64_t entered = 0, left = 0;
  };
  std::vector<Channel> channels;
  std::vector<OpenCall> open;
  std::optional<OpenCall> last;  // that it has left
  std::vector<OpenCall> recent;  // that it has left, as far back as the page goes, in the order of their entry
};

/// None where the file is no page, or not yet.
std::optional<RankStatus> read_rank_status(const std::string& path);
/// The standings of all pages in a folder, by rank; of `generation` alone, unless it is −1.
std::vector<RankStatus> read_rank_statuses(const std::string& folder, int64_t generation = -1);
std::string page_path(const std::string& folder, int rank);

/// A collective or a message that is waited for, and who does not come.
struct Awaited {
  OpenCall call;
  std::vector<int> waiting, missing;
  int64_t since_ns = 0;
};
/// The calls that are awaited. Last come those that no rank can be blamed for by itself: a rank that is missing
/// there waits elsewhere.
std::vector<Awaited> awaited(const std::vector<RankStatus>& ranks);
/// A collective that all ranks that report it have left: level 1 of the watch over slow ranks.
struct Meeting {
  std::string channel;
  uint64_t sequence = 0;
  int64_t bytes = 0;       // of the rank that moved most
  std::vector<int> ranks;  // as below
  std::vector<int64_t> entered_ns, left_ns;
  int last = 0;             // the rank that entered last
  int64_t spread_ns = 0;    // between the first and the last to enter, of pages on one clock (same_clock.h)
  int64_t shortest_ns = 0;  // that any was in there: what it takes once all are there
};
/// Meetings of several ranks, in the order in which they began.
std::vector<Meeting> meetings(const std::vector<RankStatus>& ranks);
/// "in exchange 41 of comm.tp since 12.3 s, in step 7", or what it has left last.
std::string place_text(const RankStatus& rank, int64_t now_ns);
/// "rank 2 (host-b) never entered exchange 41 of comm.tp, where ranks 0, 1 wait since 12.3 s".
std::string text_of(const Awaited& awaited, const std::vector<RankStatus>& ranks, int64_t now_ns);

}  // namespace heddle::comm
