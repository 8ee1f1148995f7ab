#include "heddle/comm/nccl/nccl_world.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "heddle/base/failure.h"
#include "heddle/comm/device_world.h"
#include "heddle/comm/nccl/rounds.h"
#include "heddle/device/cuda/cuda_check.h"

namespace heddle::comm {

namespace nccl {

namespace {

using device::check_cuda;

/// Buffers of sends under way, reused once they have left. Their memory comes by a stream that carries nothing: on
/// one that carries messages it would come once the peer has taken them.
class Departures {
 public:
  ~Departures() {
    for (Slot& slot : slots_) {
      cudaEventSynchronize(slot.left);
      cudaFree(slot.bytes);
      cudaEventDestroy(slot.left);
      cudaEventDestroy(slot.filled);
    }
    for (cudaStream_t stream : {stream_, room_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }
  struct Slot {
    void* bytes = nullptr;
    int64_t size = 0;
    cudaEvent_t filled = nullptr, left = nullptr;
  };
  cudaStream_t stream() { return made(stream_); }
  Slot& slot_for(int64_t size) {
    for (Slot& slot : slots_) {
      if (slot.size >= size && device::reached(slot.left)) return slot;
    }
    Slot slot;
    slot.size = size;
    check_cuda(cudaMallocAsync(&slot.bytes, static_cast<size_t>(size), made(room_)), "making room for a message");
    check_cuda(cudaStreamSynchronize(room_), "making room for a message");
    check_cuda(cudaEventCreateWithFlags(&slot.filled, cudaEventDisableTiming), "making an event");
    check_cuda(cudaEventCreateWithFlags(&slot.left, cudaEventDisableTiming), "making an event");
    slots_.push_back(slot);
    return slots_.back();
  }

 private:
  static cudaStream_t made(cudaStream_t& stream) {
    if (stream == nullptr) {
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    }
    return stream;
  }
  cudaStream_t stream_ = nullptr, room_ = nullptr;
  std::list<Slot> slots_;
};

/// A stream on which messages go while the one that was told (run_on) multiplies. Of the first priority, so that
/// NCCL's kernels come in between the launches of a product.
class Beside {
 public:
  ~Beside() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaStream_t stream() {
    if (stream_ == nullptr) {
      int least = 0, greatest = 0;
      check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
      check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "making a stream");
    }
    return stream_;
  }
  /// Makes what comes later on `later` wait for what is on `earlier` now. Such waits keep the record that they saw,
  /// so that an event is free again at once.
  void order(cudaStream_t earlier, cudaStream_t later) { await(later, recorded(0, earlier)); }
  /// The n-th event, recorded anew; that of `order` is the first.
  cudaEvent_t recorded(size_t n, cudaStream_t on) {
    while (events_.size() <= n) {
      check_cuda(cudaEventCreateWithFlags(&events_.emplace_back(), cudaEventDisableTiming), "making an event");
    }
    check_cuda(cudaEventRecord(events_[n], on), "recording an event");
    return events_[n];
  }
  static void await(cudaStream_t stream, cudaEvent_t event) {
    check_cuda(cudaStreamWaitEvent(stream, event, 0), "waiting for an event");
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

/// NCCL connects two ranks at the first message between them, for which the host waits until the other's host is
/// there (NVIDIA/nccl, issue 783). Two ranks whose first messages go to each other would wait for ever: so each
/// sends a byte to all others of the communicator as it is made.
void connect(ncclComm_t comm, int rank, int size) {
  const Library& l = library();
  cudaStream_t stream = nullptr;
  std::byte* bytes = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  check_cuda(cudaMallocAsync(reinterpret_cast<void**>(&bytes), static_cast<size_t>(2 * size), stream),
             "making room for a message");
  check(l.group_start(), "connecting");
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    check(l.send(bytes + peer, 1, ncclInt8, peer, comm, stream), "connecting");
    check(l.receive(bytes + size + peer, 1, ncclInt8, peer, comm, stream), "connecting");
  }
  check(l.group_end(), "connecting");
  check_cuda(cudaStreamSynchronize(stream), "connecting");
  check_cuda(cudaFreeAsync(bytes, stream), "giving back the room for a message");
  check_cuda(cudaStreamDestroy(stream), "connecting");
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(NcclWorld& world, std::unique_ptr<Communicator> control, const std::vector<int>& ranks,
                   bool alone)
      : world_(world), control_(std::move(control)) {
    const int rank = control_->rank(), size = control_->size();
    for (int r : ranks) nodes_.push_back(world.node_of(r));
    if (!alone) {
      all_ = join(0, size, [&](ncclUniqueId& id) {
        std::vector<Piece> sends, receives{{0, 0, sizeof id}};
        for (int r = 0; rank == 0 && r < size; ++r) sends.push_back({r, 0, sizeof id});
        ncclUniqueId found{};
        control_->exchange(&id, sends, &found, receives);
        id = found;
      });
      return;
    }
    // Between neighbours, each way a communicator of its own. All make theirs in the order of the line.
    for (int first = 0; first + 1 < size; ++first) {
      if (rank != first && rank != first + 1) continue;
      const int other = rank == first ? first + 1 : first;
      for (const bool up : {true, false}) {
        auto handle = join(first, 2, [&](ncclUniqueId& id) {
          if (rank == first) {
            control_->send(&id, sizeof id, other);
          } else {
            control_->receive(&id, sizeof id, other);
          }
        });
        const bool sends = up == (rank == first);
        (sends ? to_ : from_)[other] = std::move(handle);
      }
    }
  }

  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }
  int node_of(int rank) const override { return nodes_[rank]; }
  void run_on(void* stream) override { stream_ = static_cast<cudaStream_t>(stream); }
  Traffic traffic() const override { return traffic_; }
  void abort(const std::string& reason) override { world_.abort(reason); }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    world_.check_alive();
    HEDDLE_CHECK(all_ != nullptr, "an exchange on a channel of messages to neighbours");
    const auto from = [&](const Piece& p) { return static_cast<const std::byte*>(send) + p.offset; };
    const auto to = [&](const Piece& p) { return static_cast<std::byte*>(receive) + p.offset; };
    for (const Piece& p : sends) count_sent(traffic_, *this, p.peer, p.bytes);
    const Library& l = library();
    check(l.group_start(), "beginning an exchange");
    for (const Piece& p : sends) {
      if (p.peer == rank() || p.bytes == 0) continue;
      check(l.send(from(p), static_cast<size_t>(p.bytes), ncclInt8, p.peer, all_->get(), stream_), "sending");
    }
    for (const Piece& p : receives) {
      if (p.peer == rank() || p.bytes == 0) continue;
      check(l.receive(to(p), static_cast<size_t>(p.bytes), ncclInt8, p.peer, all_->get(), stream_), "receiving");
    }
    check(l.group_end(), "ending an exchange");
    size_t own = 0;  // what a rank hands to itself, in the order listed
    for (const Piece& p : sends) {
      if (p.peer == rank() && p.bytes > 0) hand_over(p, send, receive, receives, own);
    }
  }

  // The products go on the stream that was told, the messages in rounds on one beside it. Each message is behind
  // the event of the piece that it sends. A product waits for the event of the message that brings its rows. What a
  // rank has for itself goes ahead of what comes from others.
  void exchange_by_pieces(const ByPieces& all) override {
    world_.check_alive();
    HEDDLE_CHECK(all_ != nullptr, "an exchange on a channel of messages to neighbours");
    const std::vector<Round> rounds = rounds_of(all.sends, all.receives, rank(), size());
    std::vector<cudaEvent_t> there;  // of the rounds that are under way
    const auto put = [&](size_t made) {
      while (there.size() < rounds.size()) {
        const Round& round = rounds[there.size()];
        if (round.send != Round::none && round.send >= made) return;
        one_round(round, all);
        there.push_back(beside_.recorded(1 + there.size(), beside_.stream()));
      }
    };
    if (!rounds.empty()) beside_.order(stream_, beside_.stream());
    if (!all.ready) put(all.sends.size());
    for (size_t i = 0; all.arrived && i < all.receives.size(); ++i) {
      if (all.receives[i].bytes == 0) all.arrived(i);
    }
    size_t own = 0;
    for (size_t i = 0; i < all.sends.size(); ++i) {
      const Piece& piece = all.sends[i];
      if (all.ready) all.ready(i);
      if (piece.peer == rank() && piece.bytes > 0) {
        hand_over(piece, all.send, all.receive, all.receives, own);
        if (all.arrived) all.arrived(own - 1);
      } else if (all.ready && piece.bytes > 0) {
        beside_.order(stream_, beside_.stream());
        put(i + 1);
      }
    }
    put(all.sends.size());
    for (size_t n = 0; n < rounds.size(); ++n) {
      const bool last = n + 1 == rounds.size();  // behind it memory that was sent is free, too
      if (rounds[n].receive != Round::none || last) Beside::await(stream_, there[n]);
      if (rounds[n].receive != Round::none && all.arrived) all.arrived(rounds[n].receive);
    }
  }

  void send(const void* data, int64_t bytes, int peer) override {
    world_.check_alive();
    if (bytes == 0) return;
    const auto at = to_.find(peer);
    HEDDLE_CHECK(at != to_.end(), "a message from rank {} to rank {}, which is no neighbour", rank(), peer);
    Departures::Slot& slot = departures_.slot_for(bytes);
    check_cuda(cudaMemcpyAsync(slot.bytes, data, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
               "copying a message");
    check_cuda(cudaEventRecord(slot.filled, stream_), "recording an event");
    check_cuda(cudaStreamWaitEvent(departures_.stream(), slot.filled, 0), "waiting for a message");
    // The lower of the two ranks of this communicator is rank 0.
    check(library().send(slot.bytes, static_cast<size_t>(bytes), ncclInt8, peer > rank() ? 1 : 0, at->second->get(),
                         departures_.stream()),
          "sending");
    check_cuda(cudaEventRecord(slot.left, departures_.stream()), "recording an event");
    count_sent(traffic_, *this, peer, bytes);
  }

  void receive(void* data, int64_t bytes, int peer) override {
    world_.check_alive();
    if (bytes == 0) return;
    const auto at = from_.find(peer);
    HEDDLE_CHECK(at != from_.end(), "a message from rank {} to rank {}, which is no neighbour", peer, rank());
    check(library().receive(data, static_cast<size_t>(bytes), ncclInt8, peer > rank() ? 1 : 0, at->second->get(),
                            stream_),
          "receiving");
  }

 private:
  void one_round(const Round& round, const ByPieces& all) {
    world_.check_alive();
    const Library& l = library();
    check(l.group_start(), "beginning a round");
    if (round.send != Round::none) {
      const Piece& p = all.sends[round.send];
      check(l.send(static_cast<const std::byte*>(all.send) + p.offset, static_cast<size_t>(p.bytes), ncclInt8,
                   p.peer, all_->get(), beside_.stream()),
            "sending");
      count_sent(traffic_, *this, p.peer, p.bytes);
    }
    if (round.receive != Round::none) {
      const Piece& p = all.receives[round.receive];
      check(l.receive(static_cast<std::byte*>(all.receive) + p.offset, static_cast<size_t>(p.bytes), ncclInt8,
                      p.peer, all_->get(), beside_.stream()),
            "receiving");
    }
    check(l.group_end(), "ending a round");
  }

  /// A piece that this rank has for itself, to the next place that it has for one from the `next`-th on; that is
  /// the one behind it then.
  void hand_over(const Piece& piece, const void* send, void* receive, std::span<const Piece> receives,
                 size_t& next) {
    while (next < receives.size() && (receives[next].peer != rank() || receives[next].bytes == 0)) ++next;
    HEDDLE_CHECK(next < receives.size() && receives[next].bytes == piece.bytes,
                 "rank {} sends itself other pieces than it takes", rank());
    const std::byte* const from = static_cast<const std::byte*>(send) + piece.offset;
    std::byte* const to = static_cast<std::byte*>(receive) + receives[next++].offset;
    if (from == to) return;
    check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(piece.bytes), cudaMemcpyDeviceToDevice, stream_),
               "handing on a piece");
  }

  /// Joins a communicator of `size` ranks of the group from `first` on; `share` brings the id of the first to all.
  template <class Share>
  std::unique_ptr<Handle> join(int first, int size, Share share) {
    ncclUniqueId id{};
    if (rank() == first) check(library().get_unique_id(&id), "making the id of a group");
    share(id);
    return std::make_unique<Handle>(world_, id, size, rank() - first);
  }

  NcclWorld& world_;
  std::unique_ptr<Communicator> control_;
  std::vector<int> nodes_;
  std::unique_ptr<Handle> all_;
  std::map<int, std::unique_ptr<Handle>> to_, from_;
  Departures departures_;
  Beside beside_;
  cudaStream_t stream_ = nullptr;
  Traffic traffic_;
};

}  // namespace

Handle::Handle(NcclWorld& world, const ncclUniqueId& id, int size, int rank) : world_(world) {
  check(library().init_rank(&comm_, size, id, rank), "joining a group");
  {
    const std::lock_guard lock(world_.mutex_);
    world_.handles_.push_back(this);
  }
  connect(comm_, rank, size);
}

// To destroy a communicator may take until the peers do, or for ever, if one is gone: the world stays open to who
// ends it.
Handle::~Handle() {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(world_.mutex_);
    world_.handles_.remove(this);
    comm = std::exchange(comm_, nullptr);
  }
  if (comm == nullptr) return;  // the world has ended it
  if (world_.failed_.load()) {
    library().abort(comm);
  } else {
    library().destroy(comm);
  }
}

NcclWorld::NcclWorld(World& control) : control_(control) {
  int devices = 0, here = 0;
  check_cuda(cudaGetDeviceCount(&devices), "counting devices");
  for (int r = 0; r < size(); ++r) here += node_of(r) == node_of(rank());
  if (here > devices) {
    // NCCL refuses two ranks on one device of one host. As a host of its own each talks over sockets.
    setenv("NCCL_HOSTID", fmt::format("heddle-rank-{}", rank()).c_str(), 0);
  }
  watcher_ = std::thread([this] { watch(); });
}

NcclWorld::~NcclWorld() {
  ending_.store(true);
  watcher_.join();
}

std::unique_ptr<Communicator> NcclWorld::communicator(const std::vector<int>& ranks, const std::string& name) {
  check_alive();
  const bool to_neighbours = name.ends_with(".forward") || name.ends_with(".backward");
  return std::make_unique<NcclCommunicator>(*this, control_.communicator(ranks, name + ".control"), ranks,
                                            to_neighbours);
}

void NcclWorld::check_alive() const {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  throw PeerError(reason_);
}

// The peers learn of the reason first: what they say once communicators end would hide it.
void NcclWorld::abort(const std::string& reason, bool input) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load()) return;
    reason_ = reason;
    failed_.store(true, std::memory_order_release);
  }
  control_.abort(reason, input);
  const std::lock_guard lock(mutex_);
  for (Handle* handle : handles_) {  // what waits on a stream for a peer ends
    if (handle->comm_ != nullptr) library().abort(std::exchange(handle->comm_, nullptr));
  }
}

void NcclWorld::watch() {
  while (!ending_.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::string found;
    {
      const std::lock_guard lock(mutex_);
      for (Handle* handle : handles_) {
        ncclResult_t status = ncclSuccess;
        if (handle->comm_ == nullptr || library().async_error(handle->comm_, &status) != ncclSuccess) continue;
        if (status != ncclSuccess && status != ncclInProgress) {
          found = fmt::format("rank {}: NCCL: {}", rank(), library().error_string(status));
        }
      }
    }
    if (!found.empty()) abort(found);
  }
}

}  // namespace nccl

Support device_world_available() {
  const std::string& missing = nccl::library().missing;
  return missing.empty() ? Support::yes() : Support::no(missing);
}

std::string device_world_text() {
  const nccl::Library& found = nccl::library();
  return found.missing.empty() ? found.text : found.missing;
}

std::unique_ptr<World> device_world(World& control) {
  if (const Support there = device_world_available(); !there) {
    config_error("several ranks on device.backend \"cuda\": {}", there.reason);
  }
  return std::make_unique<nccl::NcclWorld>(control);
}

}  // namespace heddle::comm
