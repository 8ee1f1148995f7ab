// The thread that makes every MPI call of this process, and what other threads hand to it.
//
// Threads that communicate fill a Call with messages, submit it and sleep until it is done. The progress thread
// posts the messages as non-blocking sends and receives and tests them until they complete. Between tests that find
// nothing it naps for a 32nd of the time it has waited so far, 10 to 250 us. So a wait grows by a few percent at
// most and costs little of a core. With nothing under way it looks up every few milliseconds for what peers send.
//
// Names of messages. A channel is (ranks, name). Each rank numbers its channels as it meets them. Before its first
// message to a peer on a channel it sends the number, with a hash of ranks and name; a receive waits for that. So
// making a communicator needs no agreement and can't block. A tag is (the sender's number of the channel, exchange
// or letter, low bits of a count), on one duplicate of MPI_COMM_WORLD. Ranks' notices to each other use another.
//
// Parts. A message travels in parts of part_bytes, the last of which is shorter (maybe empty). So sides that
// disagree on the length notice at the first part, and a long transfer shows signs of life.
//
// Failure. A rank that finds one (a dead peer, a wait past its limit, sides that disagree, abort()) tells all ranks
// the reason and stops making MPI calls. Only then does it wake those who wait: MPI no longer touches their
// buffers. A process that has not ended a while after that is ended by force.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "heddle/comm/mpi/watch.h"
#include "heddle/comm/mpi_world.h"

namespace heddle::comm::mpi {

struct Channel {
  std::string name;
  std::vector<int> ranks;  // of the world
  std::array<uint64_t, 2> hash{};
  int number = 0;
  // The calling thread's; letters by rank in the group.
  uint32_t exchanges = 0;
  std::vector<uint32_t> sent_letters, received_letters;
  // By rank in the group; the progress thread's.
  std::vector<bool> introduced;
  std::vector<int> their_number;  // -1: not told yet
};

enum class Kind : uint8_t { exchange, letter };

struct Message {
  bool out = false;
  Kind kind = Kind::exchange;
  int peer = 0;  // in the channel's group
  uint32_t count = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  // The progress thread's.
  int64_t posted_parts = 0, finished_parts = 0;
  double finished_s = 0;  // when the last part was through; after the call anybody's
};

/// The place where the progress thread reports messages that are through, one by one.
class Completions {
 public:
  /// `wake` is called by that thread when it has reported something.
  explicit Completions(std::function<void()> wake) : wake_(std::move(wake)) {}
  void add(size_t message);
  /// The messages reported since it was last asked. Throws why the call failed.
  std::vector<size_t> take();
  void end(std::exception_ptr failure);
  /// From here on nobody is woken.
  void leave();

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<size_t> completed_;
  std::exception_ptr failure_;
};

/// The channel and the call in which a rank waits for others.
struct Waiting {
  Channel& channel;
  const std::string_view what;
  double moved = 0;  // the progress thread's: when something of it last did
};

/// The bytes that pass between a rank and its peers past the progress thread. It learns of them, so that it finds
/// who is missing.
struct PastIt : Waiting {
  PastIt(Channel& channel, std::string_view what, std::shared_ptr<Completions> completions)
      : Waiting{channel, what}, completions(std::move(completions)), to_come(channel.ranks.size()) {}
  const std::shared_ptr<Completions> completions;  // ends where the world fails

  static constexpr int nobody = -2, any = -1;  // any: all of whom something is still to come
  std::atomic<int> awaits = nobody;            // or a rank of the group
  std::vector<std::atomic<int64_t>> to_come;   // bytes, by rank in the group
  std::atomic<int64_t> moves = 0;              // grows whenever bytes have come or gone
  int64_t seen = -1;                           // the progress thread's: moves when it last looked
};

/// The messages that one call of a communicator waits for.
class Call : public Waiting {
 public:
  Call(Channel& channel, std::string_view what) : Waiting{channel, what} {}
  /// Sleeps until it is done; throws why it failed.
  void wait();

  std::vector<Message> messages;
  std::unique_ptr<std::byte[]> letter;       // a send's own copy
  std::shared_ptr<Completions> completions;  // null: nobody asks before the end
  bool awaited = true;                       // false: nobody waits, and it may stay under way as long as it likes

 private:
  friend class Progress;
  void finish(std::exception_ptr failure);
  size_t finished_messages_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr failure_;
};

class Progress {
 public:
  explicit Progress(const MpiOptions& options);
  ~Progress();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// The number of letters between two ranks that can be told apart while all are under way.
  int letters() const { return 1 << (kind_bits_ - 1); }
  int node_of(int rank) const { return nodes_.at(static_cast<size_t>(rank)); }
  /// True if exchanges by pieces with that rank may go through memory of this node.
  bool shares_window(int rank) const {
    const int each = options_.window_ranks;
    return each > 0 && node_of(rank) == node_of(rank_) && rank / each == rank_ / each;
  }
  const std::string& host_of(int rank) const { return hosts_.at(static_cast<size_t>(rank)); }

  /// Stays where it is as long as this object lives; the same for the same ranks and name.
  Channel& channel(const std::vector<int>& ranks, const std::string& name);
  void submit(std::shared_ptr<Call> call);
  void watch(std::shared_ptr<PastIt> one);
  void unwatch(const std::shared_ptr<PastIt>& one);
  /// Returns when every rank has been told, or can't be. `input`: as World::abort.
  void abort(const std::string& reason, bool input = false);
  void set_patience(double seconds) { patience_s_.store(seconds, std::memory_order_relaxed); }
  /// As World::move_on.
  void move_on(int core);
  /// Throws when the world has failed.
  void check();

 private:
  struct ControlMessage;  // a control message
  struct Slot {
    std::shared_ptr<Call> call;  // none: a control message
    size_t message = 0;
    int64_t at = 0, bytes = 0;  // the part
    std::unique_ptr<ControlMessage> told;
  };

  void run();
  void start();
  void loop();
  void finish_mpi();
  void force_end();

  void post(const std::shared_ptr<Call>& call);
  void post_parts(const std::shared_ptr<Call>& call, size_t message);
  int tag(const Message& message, int number) const;
  bool test();
  void part_done(const Slot& slot, const MPI_Status& status);
  void tell(int peer, const ControlMessage& told);
  void listen();
  void hear(const MPI_Status& status);
  void look_around();
  void check_peer(int peer, const Waiting* waiting);
  void look_past(double now);
  void stop_waiting(int missing, double waited_s, const Waiting& waiting);
  bool ending();
  /// The reason why the world fails.
  struct Failure {
    std::string reason;
    int accused = -1;    // rank at fault; -1: unknown
    bool input = false;  // the user's is to blame
  };
  void fail(const Failure& failure, bool tell_others, std::exception_ptr own = nullptr, const Call* of = nullptr);
  void nap(bool moved);
  std::string named(int rank) const;

  const MpiOptions options_;
  std::atomic<double> patience_s_;
  const int exceptions_at_start_;
  int rank_ = 0;
  std::vector<int> nodes_;
  std::vector<std::string> hosts_;

  std::mutex mutex_;
  std::condition_variable wake_, changed_;
  std::deque<std::shared_ptr<Call>> inbox_;
  std::vector<std::shared_ptr<PastIt>> past_;
  std::optional<Failure> asked_to_abort_;
  std::exception_ptr failure_, start_failure_;
  bool failed_ = false, stopping_ = false, ready_ = false;
  std::map<std::pair<std::vector<int>, std::string>, std::unique_ptr<Channel>> channels_;

  // The progress thread's.
  MPI_Comm data_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  int kind_bits_ = 0, most_channels_ = 0;
  std::vector<MPI_Request> requests_;  // the first listens for control messages
  std::vector<Slot> slots_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::unique_ptr<ControlMessage> heard_;
  std::map<std::pair<int, std::array<uint64_t, 2>>, int> introductions_;
  std::vector<std::shared_ptr<Call>> active_;
  MPI_Request all_end_ = MPI_REQUEST_NULL;
  bool end_posted_ = false, ends_ = false;
  double end_began_ = 0;
  std::unique_ptr<ControlMessage> last_words_;
  std::unique_ptr<Watch> watch_;
  double looked_around_ = 0, moved_at_ = 0;

  std::thread thread_;
};

}  // namespace heddle::comm::mpi
