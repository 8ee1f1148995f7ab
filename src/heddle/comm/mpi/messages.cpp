// The progress thread's messages: posting them part by part, testing them, and what ranks tell each other.
#include <algorithm>

#include "heddle/base/clock.h"
#include "heddle/comm/mpi/control.h"
#include "heddle/comm/mpi/progress.h"

namespace heddle::comm::mpi {

namespace {

constexpr int64_t parts_under_way = 8;  // of one message

}  // namespace

int Progress::tag(const Message& message, int number) const {
  const int count_bits = kind_bits_ - 1;
  const auto count = static_cast<int>(message.count & ((1u << count_bits) - 1));
  return (number << kind_bits_) | (message.kind == Kind::letter ? 1 << count_bits : 0) | count;
}

void Progress::post(const std::shared_ptr<Call>& call) {
  call->moved = watch_->attentive_seconds();
  active_.push_back(call);
  for (size_t m = 0; m < call->messages.size(); ++m) {
    if (!call->messages[m].out) post_parts(call, m);  // receives first: what arrives finds its place
  }
  for (size_t m = 0; m < call->messages.size(); ++m) {
    if (call->messages[m].out) post_parts(call, m);
  }
}

void Progress::post_parts(const std::shared_ptr<Call>& call, size_t message) {
  Message& m = call->messages[message];
  Channel& channel = call->channel;
  const auto peer = static_cast<size_t>(m.peer);
  const int world_peer = channel.ranks[peer];
  if (m.out && !channel.introduced[peer]) {
    ControlMessage told;
    told.kind = ControlMessage::introduce;
    told.number = channel.number;
    told.hash = channel.hash;
    tell(world_peer, told);
    channel.introduced[peer] = true;
  }
  int& theirs = channel.their_number[peer];
  if (!m.out && theirs < 0) {
    const auto known = introductions_.find({world_peer, channel.hash});
    if (known == introductions_.end()) return;
    theirs = known->second;
  }
  const int with = tag(m, m.out ? channel.number : theirs);
  const int64_t parts = m.bytes / options_.part_bytes + 1;
  while (m.posted_parts < parts && m.posted_parts - m.finished_parts < parts_under_way) {
    const int64_t at = m.posted_parts++ * options_.part_bytes;
    const int64_t bytes = std::min(options_.part_bytes, m.bytes - at);
    MPI_Request request = MPI_REQUEST_NULL;
    if (m.out) {
      must(MPI_Isend(m.data + at, static_cast<int>(bytes), MPI_BYTE, world_peer, with, data_, &request),
           "MPI_Isend");
    } else {
      must(MPI_Irecv(m.data + at, static_cast<int>(bytes), MPI_BYTE, world_peer, with, data_, &request),
           "MPI_Irecv");
    }
    requests_.push_back(request);
    slots_.push_back({call, message, at, bytes, nullptr});
  }
}

bool Progress::test() {
  const auto n = static_cast<int>(requests_.size());
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int done = 0;
  const int code = MPI_Testsome(n, requests_.data(), &done, indices_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) must(code, "MPI_Testsome");
  if (done == MPI_UNDEFINED || done == 0) return false;
  for (int i = 0; i < done && !failed_; ++i) {
    MPI_Status& status = statuses_[i];
    if (code != MPI_ERR_IN_STATUS) status.MPI_ERROR = MPI_SUCCESS;
    const auto at = static_cast<size_t>(indices_[i]);
    const Slot slot = std::move(slots_[at]);  // posting moves the slots
    if (at == 0) {
      must(status.MPI_ERROR, "MPI_Irecv");
      hear(status);
      if (!failed_) listen();
    } else if (slot.call) {
      part_done(slot, status);
    } else {
      must(status.MPI_ERROR, "MPI_Isend");
    }
  }
  if (failed_) return true;
  std::sort(indices_.begin(), indices_.begin() + done, std::greater<>());
  for (int i = 0; i < done; ++i) {
    const auto at = static_cast<size_t>(indices_[i]);
    if (at == 0) continue;
    if (at + 1 < slots_.size()) {
      slots_[at] = std::move(slots_.back());
      requests_[at] = requests_.back();
    }
    slots_.pop_back();
    requests_.pop_back();
  }
  return true;
}

void Progress::part_done(const Slot& slot, const MPI_Status& status) {
  Call& call = *slot.call;
  Message& message = call.messages[slot.message];
  const int peer = call.channel.ranks[message.peer];
  if (!message.out) {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    int kind = MPI_SUCCESS;
    if (status.MPI_ERROR != MPI_SUCCESS) must(MPI_Error_class(status.MPI_ERROR, &kind), "MPI_Error_class");
    if (kind == MPI_ERR_TRUNCATE || (kind == MPI_SUCCESS && bytes != slot.bytes)) {
      const bool all = bytes < options_.part_bytes && bytes != slot.bytes;
      const std::string reason =
          fmt::format("{}: {} expects {} bytes from {}, which sends {}", call.channel.name, named(rank_),
                      message.bytes, named(peer), all ? fmt::format("{}", slot.at + bytes) : "more");
      return fail({reason, peer}, true, std::make_exception_ptr(InternalError(reason)), &call);
    }
  }
  must(status.MPI_ERROR, message.out ? "MPI_Isend" : "MPI_Irecv");
  watch_->heard(peer);
  call.moved = watch_->attentive_seconds();
  ++message.finished_parts;
  post_parts(slot.call, slot.message);
  if (message.finished_parts < message.posted_parts) return;
  message.finished_s = now_s();
  if (call.completions) call.completions->add(slot.message);
  if (++call.finished_messages_ < call.messages.size()) return;
  active_.erase(std::find(active_.begin(), active_.end(), slot.call));
  call.finish(nullptr);
}

void Progress::tell(int peer, const ControlMessage& told) {
  auto copy = std::make_unique<ControlMessage>(told);
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Isend(copy.get(), copy->bytes(), MPI_BYTE, peer, 0, control_, &request), "MPI_Isend");
  requests_.push_back(request);
  slots_.push_back({nullptr, 0, 0, 0, std::move(copy)});
}

void Progress::listen() {
  must(MPI_Irecv(heard_.get(), sizeof(ControlMessage), MPI_BYTE, MPI_ANY_SOURCE, 0, control_, &requests_[0]),
       "MPI_Irecv");
}

void Progress::hear(const MPI_Status& status) {
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const ControlMessage told = *heard_;
  HEDDLE_CHECK(bytes >= static_cast<int>(ControlMessage::head_bytes) && told.text_bytes >= 0 &&
                   told.text_bytes <= static_cast<int>(sizeof(told.text)) && bytes == told.bytes(),
               "{} sends a control message of {} bytes", named(status.MPI_SOURCE), bytes);
  const int peer = status.MPI_SOURCE;
  watch_->heard(peer);
  switch (told.kind) {
    case ControlMessage::ask: {
      ControlMessage answer;
      answer.kind = ControlMessage::answer;
      return tell(peer, answer);
    }
    case ControlMessage::answer: return;
    case ControlMessage::introduce:
      introductions_[{peer, told.hash}] = told.number;
      for (size_t c = 0; c < active_.size(); ++c) {
        const std::shared_ptr<Call> call = active_[c];
        if (call->channel.hash != told.hash) continue;
        for (size_t m = 0; m < call->messages.size(); ++m) {
          const Message& message = call->messages[m];
          const bool from_peer = call->channel.ranks[message.peer] == peer;
          if (!message.out && message.posted_parts == 0 && from_peer) post_parts(call, m);
        }
      }
      return;
    case ControlMessage::abort:
      return fail({std::string(told.text, static_cast<size_t>(told.text_bytes)), told.number, told.input != 0},
                  false);
    default: internal_error("{} sends a control message of kind {}", named(peer), told.kind);
  }
}

/// Finds calls that wait too long, and peers that no longer answer. It watches the rank before this one in the ring
/// of all, so that each is watched by somebody, and those that calls have been waiting for.
void Progress::look_around() {
  const double now = watch_->attentive_seconds();
  if (now - looked_around_ < std::min(0.1, watch_->period_seconds() / 4)) return;
  looked_around_ = now;
  if (size() > 1) check_peer((rank_ + size() - 1) % size(), nullptr);
  for (size_t c = 0; c < active_.size() && !failed_; ++c) {
    const Call& call = *active_[c];
    const double waited = now - (call.awaited ? call.moved : std::max(call.moved, end_began_));
    if ((!call.awaited && !ends_) || waited < watch_->period_seconds()) continue;
    int missing = -1;
    for (const Message& message : call.messages) {
      if (message.finished_parts > message.bytes / options_.part_bytes) continue;
      const int peer = call.channel.ranks[message.peer];
      if (missing < 0) missing = peer;
      check_peer(peer, &call);
      if (failed_) return;
    }
    stop_waiting(missing, waited, call);
  }
  if (!failed_) look_past(now);
  const double patience_s = patience_s_.load(std::memory_order_relaxed);
  if (ends_ && now - end_began_ > patience_s && !failed_) {
    fail({fmt::format("{} waited {:.0f} s at the end for all others", named(rank_), patience_s)}, true);
  }
}

/// A rank that computes while others' bytes are there waits for nobody.
void Progress::look_past(double now) {
  std::vector<std::shared_ptr<PastIt>> all;
  {
    const std::lock_guard lock(mutex_);
    all = past_;
  }
  for (const auto& one : all) {
    const int awaits = one->awaits;
    const int64_t moves = one->moves;
    if (awaits == PastIt::nobody || moves != one->seen) one->moved = now;
    one->seen = moves;
    if (now - one->moved < watch_->period_seconds()) continue;
    int missing = -1;
    for (size_t p = 0; p < one->to_come.size() && !failed_; ++p) {
      if (awaits == PastIt::any ? one->to_come[p] == 0 : awaits != static_cast<int>(p)) continue;
      if (missing < 0) missing = one->channel.ranks[p];
      check_peer(one->channel.ranks[p], one.get());
    }
    if (missing >= 0) stop_waiting(missing, now - one->moved, *one);
  }
}

void Progress::stop_waiting(int missing, double waited_s, const Waiting& waiting) {
  const double patience_s = patience_s_.load(std::memory_order_relaxed);
  if (failed_ || waited_s <= patience_s) return;
  fail({fmt::format("{} has not answered in {:.0f} s on {} ({}); {} waited", named(missing), patience_s,
                    waiting.channel.name, waiting.what, named(rank_)),
        missing},
       true);
}

void Progress::check_peer(int peer, const Waiting* waiting) {
  switch (watch_->check_peer(peer)) {
    case Watch::Verdict::wait: return;
    case Watch::Verdict::ask: return tell(peer, ControlMessage{});
    case Watch::Verdict::dead: break;
  }
  for (const auto& call : active_) {
    for (const Message& message : call->messages) {
      const bool from_peer = call->channel.ranks[message.peer] == peer;
      if (!waiting && call->awaited && from_peer && message.finished_parts < message.posted_parts)
        waiting = call.get();
    }
  }
  const std::string where = waiting ? fmt::format(" on {} ({})", waiting->channel.name, waiting->what) : "";
  fail({fmt::format("{} is dead, stopped or cut off: it has not answered {} for {} s{}", named(peer), named(rank_),
                    options_.silence_seconds, where),
        peer},
       true);
}

}  // namespace heddle::comm::mpi
