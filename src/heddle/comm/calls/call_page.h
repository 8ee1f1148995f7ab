// A rank's report of its communication while it runs, in one page of memory that others may look at: a file that
// outlives the process (call_log.h). It has plain numbers at fixed places, each written by one thread and read by
// any. So nobody waits for a reader, and a rank that was killed in the middle leaves a page that can be read.
//
//   `channel`  Of each communicator: how many collectives this rank has entered and left, how long it was in calls,
//              what it sent and received there.
//   `ring`     The last calls: which channel, which op of the program, how many bytes, when entered, when left
//              (0: it is in there).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace heddle::comm {

enum class CallKind : uint32_t { exchange, send, receive };

/// The end of a rank, if it has ended.
enum class RankState : uint32_t { running, done, failed };

struct CallPage {
  static constexpr uint64_t kMagic = 0x33304c4c41434448;  // "HDCALL03"
  static constexpr uint32_t kChannels = 64, kCalls = 256;
  static constexpr size_t kNameBytes = 40, kReasonBytes = 1024, kHostBytes = 64;

  struct Channel {
    std::array<char, kNameBytes> name;
    uint64_t members = 0;  // a hash of the ranks in their order
    int32_t size = 0;
    std::atomic<uint64_t> entered, left;    // collectives
    std::atomic<int64_t> inside_ns, bytes;  // of all calls that were left
  };
  struct Call {
    std::atomic<uint64_t> number;    // from 1, of this rank; 0 while it is being written
    std::atomic<uint64_t> sequence;  // of the channel's collectives, from 1; of a message the peer's rank
    std::atomic<int32_t> channel, listing, op;  // listing −1: between the ops of a step
    std::atomic<CallKind> kind;
    std::atomic<int64_t> entered_ns, left_ns;  // since 1970
    std::atomic<int64_t> bytes;                // sent to others and received from them
  };

  std::atomic<uint64_t> magic;
  int32_t rank = 0, ranks = 0, process = 0, place = 0;  // place: keeps what follows aligned
  int64_t generation = 0;
  std::array<char, kHostBytes> host;
  std::atomic<int64_t> first_step;  // that the rank began; 0: none yet
  std::atomic<int64_t> step, moved_ns, patience_ms;
  std::atomic<RankState> state;
  std::atomic<int32_t> accused;  // the rank that is at fault, as this one was told; −1: unknown
  std::atomic<uint32_t> input;   // 1: the user's input is to blame
  std::atomic<uint32_t> reason_bytes;
  std::array<char, kReasonBytes> reason;
  std::atomic<uint32_t> channels;
  std::array<Channel, kChannels> channel;
  std::atomic<uint64_t> calls;
  std::array<Call, kCalls> ring;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<RankState>::is_always_lock_free);

}  // namespace heddle::comm
