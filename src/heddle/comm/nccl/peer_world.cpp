#include "heddle/comm/nccl/peer_world.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <type_traits>

#include "heddle/comm/device_world.h"
#include "heddle/comm/engine/reach.h"
#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/cuda/page_locked.h"

namespace heddle::comm {

namespace nccl {

namespace {

using device::check_cuda;
using device::check_driver;

struct Driver {
  decltype(&cuStreamWaitValue32) wait_value = nullptr;
  decltype(&cuStreamWriteValue32) write_value = nullptr;
  std::string missing;
};
const Driver& driver() {
  static const Driver found = [] {
    Driver d;
    const auto find = [&](auto& function, const char* name) {
      void* at = nullptr;
      cudaDriverEntryPointQueryResult result{};
      const bool there =
          cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &result) == cudaSuccess &&
          result == cudaDriverEntryPointSuccess && at != nullptr;
      if (!there) d.missing = fmt::format("the CUDA driver has no {}", name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(at);
    };
    find(d.wait_value, "cuStreamWaitValue32");
    find(d.write_value, "cuStreamWriteValue32");
    return d;
  }();
  return found;
}

int device_now() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "asking for the device");
  return device;
}

/// Another device is current while it lives: that of the stream on which something is put.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(device_now()), changed_(device != before_) {
    if (changed_) check_cuda(cudaSetDevice(device), "choosing the peer's device");
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
  bool changed_;
};

int64_t bytes_of(const std::vector<CopyRun>& runs) {
  int64_t bytes = 0;
  for (const CopyRun& run : runs) bytes += run.bytes;
  return bytes;
}

}  // namespace

struct PeerHub::Event {
  PeerHub& hub;
  int device = 0;
  cudaEvent_t event = nullptr;
  Event(PeerHub& hub, int device, cudaEvent_t event) : hub(hub), device(device), event(event) {}
  ~Event() {
    const std::lock_guard lock(hub.events_mutex_);
    hub.free_events_[device].push_back(event);
  }
};

struct PeerHub::Pair {
  std::string group;
  int from = 0, to = 0;
  std::deque<Side> sent, awaited;
  uint32_t sends = 0, receives = 0, matched = 0;
  uint32_t* flag = nullptr;  // of the host, which devices reach; how many messages have arrived
};

PeerHub::~PeerHub() {
  for (auto& [key, pair] : pairs_) {
    pair->sent.clear();
    pair->awaited.clear();
  }
  for (const auto& [device, events] : free_events_) {
    for (const cudaEvent_t event : events) cudaEventDestroy(event);
  }
}

PeerHub::Pair& PeerHub::pair(const std::string& group, int from, int to) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Pair>& pair = pairs_[{group, from, to}];
  if (!pair) {
    pair = std::make_unique<Pair>();
    pair->group = group;
    pair->from = from;
    pair->to = to;
    pair->flag = new (device::take_page_locked(sizeof(uint32_t))) uint32_t{0};
  }
  return *pair;
}

std::shared_ptr<PeerHub::Event> PeerHub::recorded(cudaStream_t on) {
  cudaEvent_t event = nullptr;
  const int device = device_now();
  {
    const std::lock_guard lock(events_mutex_);
    std::vector<cudaEvent_t>& free = free_events_[device];
    // An event may be recorded again while what waits for an earlier record still does.
    if (!free.empty()) {
      event = free.back();
      free.pop_back();
    }
  }
  if (event == nullptr) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  auto kept = std::make_shared<Event>(*this, device, event);
  check_cuda(cudaEventRecord(event, on), "recording an event");
  return kept;
}

PeerHub::Ticket PeerHub::post(Pair& pair, bool sends, Side side) {
  const std::lock_guard lock(mutex_);
  (sends ? pair.sent : pair.awaited).push_back(std::move(side));
  const uint32_t number = ++(sends ? pair.sends : pair.receives);
  while (!released_ && !pair.sent.empty() && !pair.awaited.empty()) match(pair);
  return {reinterpret_cast<CUdeviceptr>(pair.flag), number};
}

void PeerHub::match(Pair& pair) {
  const Side out = std::move(pair.sent.front()), in = std::move(pair.awaited.front());
  pair.sent.pop_front();
  pair.awaited.pop_front();
  bool alike = out.runs.size() == in.runs.size();
  for (size_t k = 0; alike && k < in.runs.size(); ++k) alike = out.runs[k].bytes == in.runs[k].bytes;
  HEDDLE_CHECK(alike, "{}: rank {} expects {} bytes from rank {}, which sends {}", pair.group, pair.to,
               bytes_of(in.runs), pair.from, bytes_of(out.runs));
  const OnDevice there(in.device);  // the sender may be who comes second
  check_cuda(cudaStreamWaitEvent(in.copies, out.ready->event, 0), "waiting for a message");
  check_cuda(cudaStreamWaitEvent(in.copies, in.ready->event, 0), "waiting for a message's place");
  for (size_t k = 0; k < in.runs.size(); ++k) {
    check_cuda(cudaMemcpyPeerAsync(in.runs[k].to, in.device, out.runs[k].from, out.device,
                                   static_cast<size_t>(in.runs[k].bytes), in.copies),
               "copying from a peer");
  }
  check_driver(driver().write_value(in.copies, reinterpret_cast<CUdeviceptr>(pair.flag), ++pair.matched,
                                    CU_STREAM_WRITE_VALUE_DEFAULT),
               "reporting that a message has arrived");
}

void PeerHub::wait(cudaStream_t stream, const Ticket& ticket) {
  check_driver(driver().wait_value(stream, ticket.flag, ticket.number, CU_STREAM_WAIT_VALUE_GEQ),
               "waiting for a message");
}

void PeerHub::release() {
  constexpr uint32_t kBeyond = 1u << 30;  // what is waited for counts as reached from there for as much again
  const std::lock_guard lock(mutex_);
  released_ = true;
  for (auto& [key, pair] : pairs_)
    std::atomic_ref(*pair->flag).store(std::max(pair->sends, pair->receives) + kBeyond);
}

class PeerCommunicator : public Communicator {
 public:
  PeerCommunicator(PeerWorld& world, std::unique_ptr<Communicator> usual, std::string group)
      : world_(world), usual_(std::move(usual)), group_(std::move(group)) {}
  int rank() const override { return usual_->rank(); }
  int size() const override { return usual_->size(); }
  int node_of(int rank) const override { return usual_->node_of(rank); }
  void run_on(void* stream) override {
    stream_ = static_cast<cudaStream_t>(stream);
    usual_->run_on(stream);
  }
  Traffic traffic() const override {
    const Traffic a = usual_->traffic();
    return {a.within_node_bytes + moved_.within_node_bytes, a.across_nodes_bytes + moved_.across_nodes_bytes,
            a.messages + moved_.messages};
  }
  void abort(const std::string& reason) override { world_.abort(reason); }
  void send(const void* data, int64_t bytes, int peer) override {
    if (bytes > 0) world_.counts_.farther.add(bytes);
    usual_->send(data, bytes, peer);
  }
  void receive(void* data, int64_t bytes, int peer) override { usual_->receive(data, bytes, peer); }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    const auto n = static_cast<size_t>(size());
    std::vector<std::vector<CopyRun>> out(n), in(n);
    for (const Piece& p : sends) {
      if (p.bytes > 0) out.at(static_cast<size_t>(p.peer)).push_back(sent(send, p));
    }
    for (const Piece& p : receives) {
      if (p.bytes > 0) in.at(static_cast<size_t>(p.peer)).push_back(received(receive, p));
    }
    const std::vector<bool> to = moves(sends), from = moves(receives);
    std::vector<Piece> usual_sends, usual_receives;
    for (const Piece& p : sends) {
      if (!to[p.peer]) usual_sends.push_back(p);
    }
    for (const Piece& p : receives) {
      if (!from[p.peer]) usual_receives.push_back(p);
    }
    count_shorter(out, to);
    std::vector<PeerHub::Ticket> tickets;
    std::shared_ptr<PeerHub::Event> ready;
    const auto post = [&](int peer, bool sends_it, std::vector<CopyRun>& runs) {
      if (!ready) ready = world_.hub_->recorded(stream_);
      tickets.push_back(put(peer, sends_it, std::move(runs), ready));
    };
    for (int peer = 0; peer < size(); ++peer) {
      const auto p = static_cast<size_t>(peer);
      if (to[p]) post(peer, true, out[p]);
      if (from[p]) post(peer, false, in[p]);
    }
    usual_->exchange(send, usual_sends, receive, usual_receives);
    for (const PeerHub::Ticket& ticket : tickets) PeerHub::wait(stream_, ticket);
  }

  // Each piece that is copied is a message, ready behind an event of its own; all places are given at the
  // beginning. Messages of the world within, among them what a rank has for itself, are there ahead of what is
  // copied.
  void exchange_by_pieces(const ByPieces& all) override {
    const std::vector<bool> to = moves(all.sends), from = moves(all.receives);
    std::vector<std::vector<CopyRun>> out(static_cast<size_t>(size()));
    std::vector<Piece> usual_sends, usual_receives;
    std::vector<size_t> usual_send, usual_receive;  // which of the pieces they are
    for (size_t i = 0; i < all.sends.size(); ++i) {
      const Piece& p = all.sends[i];
      out.at(static_cast<size_t>(p.peer)).push_back(sent(all.send, p));
      if (to[p.peer] && p.bytes > 0) continue;
      usual_sends.push_back(p);
      usual_send.push_back(i);
    }
    count_shorter(out, to);
    std::vector<PeerHub::Ticket> tickets;
    std::vector<size_t> awaited;  // pieces that are copied here; their tickets are the first ones
    const auto post = [&](const Piece& p, bool sends_it, const std::shared_ptr<PeerHub::Event>& ready) {
      tickets.push_back(put(p.peer, sends_it, {sends_it ? sent(all.send, p) : received(all.receive, p)}, ready));
    };
    const auto begun = world_.hub_->recorded(stream_);
    for (size_t i = 0; i < all.receives.size(); ++i) {
      const Piece& p = all.receives[i];
      if (from[p.peer] && p.bytes > 0) {
        awaited.push_back(i);
        post(p, false, begun);
      } else {
        usual_receives.push_back(p);
        usual_receive.push_back(i);
      }
    }
    size_t next = 0;  // of all that are sent: is to be made ready
    const auto ready_up_to = [&](size_t end) {
      for (; next < end; ++next) {
        const Piece& p = all.sends[next];
        if (all.ready) all.ready(next);
        if (to[p.peer] && p.bytes > 0) post(p, true, all.ready ? world_.hub_->recorded(stream_) : begun);
      }
    };
    if (!all.ready) ready_up_to(all.sends.size());
    usual_->exchange_by_pieces({.send = all.send,
                                .sends = usual_sends,
                                .receive = all.receive,
                                .receives = usual_receives,
                                .ready = [&](size_t i) { ready_up_to(usual_send[i] + 1); },
                                .arrived =
                                    [&](size_t i) {
                                      if (all.arrived) all.arrived(usual_receive[i]);
                                    }});
    ready_up_to(all.sends.size());
    for (size_t k = 0; k < awaited.size(); ++k) {
      PeerHub::wait(stream_, tickets[k]);
      if (all.arrived) all.arrived(awaited[k]);
    }
    for (size_t k = awaited.size(); k < tickets.size(); ++k) PeerHub::wait(stream_, tickets[k]);
  }

 private:
  static CopyRun sent(const void* base, const Piece& p) {
    return {nullptr, static_cast<const std::byte*>(base) + p.offset, p.bytes};
  }
  static CopyRun received(void* base, const Piece& p) {
    return {static_cast<std::byte*>(base) + p.offset, nullptr, p.bytes};
  }

  /// For each peer, true if what goes to it, or comes from it, is copied. The sum of its bytes decides, which both
  /// sides know.
  std::vector<bool> moves(std::span<const Piece> pieces) const {
    std::vector<int64_t> bytes(static_cast<size_t>(size()), 0);
    for (const Piece& p : pieces) bytes.at(static_cast<size_t>(p.peer)) += p.bytes;
    std::vector<bool> found;
    for (int peer = 0; peer < size(); ++peer) found.push_back(peer != rank() && bytes[peer] >= world_.least_bytes_);
    return found;
  }

  void count_shorter(const std::vector<std::vector<CopyRun>>& out, const std::vector<bool>& copied) {
    for (int peer = 0; peer < size(); ++peer) {
      const auto p = static_cast<size_t>(peer);
      if (const int64_t bytes = bytes_of(out[p]); peer != rank() && bytes > 0 && !copied[p])
        world_.counts_.shorter.add(bytes);
    }
  }

  /// This rank's side of a message that is copied.
  PeerHub::Ticket put(int peer, bool sends_it, std::vector<CopyRun> runs,
                      const std::shared_ptr<PeerHub::Event>& ready) {
    if (sends_it) {
      world_.counts_.moved.add(bytes_of(runs));
      for (const CopyRun& run : runs) count_sent(moved_, *this, peer, run.bytes);
    }
    PeerHub::Pair& pair = world_.hub_->pair(group_, sends_it ? rank() : peer, sends_it ? peer : rank());
    return world_.hub_->post(pair, sends_it,
                             {std::move(runs), ready, world_.device_, sends_it ? nullptr : copies_from(peer)});
  }

  cudaStream_t copies_from(int peer) {
    copies_.resize(static_cast<size_t>(size()), nullptr);
    cudaStream_t& stream = copies_[peer];
    if (stream == nullptr) stream = world_.new_stream();
    return stream;
  }

  PeerWorld& world_;
  std::unique_ptr<Communicator> usual_;
  std::string group_;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaStream_t> copies_;  // by peer, the world's
  Traffic moved_;
};

PeerWorld::PeerWorld(std::unique_ptr<World> usual, std::shared_ptr<PeerHub> hub, int64_t least_bytes,
                     EngineCounts& counts)
    : usual_(std::move(usual)),
      hub_(std::move(hub)),
      least_bytes_(std::max<int64_t>(1, least_bytes)),
      counts_(counts),
      device_(device_now()) {}

cudaStream_t PeerWorld::new_stream() {
  check_cuda(cudaStreamCreateWithFlags(&copies_.emplace_back(), cudaStreamNonBlocking),
             "making a stream for copies");
  return copies_.back();
}

PeerWorld::~PeerWorld() {
  // Peers may have put copies there that still run.
  for (const cudaStream_t stream : copies_) {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

std::unique_ptr<Communicator> PeerWorld::communicator(const std::vector<int>& ranks, const std::string& name) {
  return std::make_unique<PeerCommunicator>(*this, usual_->communicator(ranks, name),
                                            fmt::format("{} of {}", name, fmt::join(ranks, ",")));
}

void PeerWorld::abort(const std::string& reason, bool input) {
  usual_->abort(reason, input);
  hub_->release();
}

}  // namespace nccl

Support peer_copies_available(World& control) {
  Support own = device_world_available();
  if (own && !nccl::driver().missing.empty()) own = Support::no(nccl::driver().missing);
  if (own = all_agree(control, own); !own) return own;
  const Reach reach = find_reach(control);
  const bool one_process =
      std::ranges::all_of(reach.peers, [](const Reach::Peer& peer) { return peer.by == Reach::By::memory; });
  return all_agree(control, one_process ? Support::yes()
                                        : Support::no("copies between GPUs need ranks that are threads of one "
                                                      "process (heddle train --ranks without a launcher)"));
}

std::unique_ptr<World> with_peer_copies(std::unique_ptr<World> device, World& control, int64_t least_bytes,
                                        EngineCounts& counts) {
  // All ranks are of this process: the first one's hub is shared by its address, and kept until all have it.
  std::vector<int> everybody;
  for (int r = 0; r < control.size(); ++r) everybody.push_back(r);
  const auto group = control.communicator(everybody, "engine.hub");
  auto hub = std::make_shared<nccl::PeerHub>();
  const std::shared_ptr<nccl::PeerHub>* at = &hub;
  constexpr auto bytes = static_cast<int64_t>(sizeof at);
  std::vector<Piece> sends;
  for (int r = 0; control.rank() == 0 && r < control.size(); ++r) sends.push_back({r, 0, bytes});
  const std::shared_ptr<nccl::PeerHub>* first = nullptr;
  group->exchange(&at, sends, &first, std::vector<Piece>{{0, 0, bytes}});
  const std::shared_ptr<nccl::PeerHub> shared = *first;
  group->exchange(&at, sends, &first, std::vector<Piece>{{0, 0, bytes}});
  return std::make_unique<nccl::PeerWorld>(std::move(device), shared, least_bytes, counts);
}

}  // namespace heddle::comm
