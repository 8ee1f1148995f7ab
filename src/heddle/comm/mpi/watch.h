// The peers that still answer. A peer that is watched is asked once a period and has to answer within the limit.
// Silence is counted on a clock that stands still while this process does (stopped, or starved of its cores). So a
// process that wakes from a long sleep does not accuse the others of it.
#pragma once

#include <algorithm>
#include <vector>

namespace heddle::comm::mpi {

class Watch {
 public:
  /// `limit_seconds` 0: nobody is ever taken for dead.
  Watch(int size, double limit_seconds)
      : peers_(static_cast<size_t>(size)), limit_(limit_seconds), period_(std::min(1.0, limit_seconds / 5)) {}

  /// Time in seconds of any steady clock, as often as possible.
  void advance(double now) {
    if (last_ >= 0) attentive_ += std::min(now - last_, most_step_);
    last_ = now;
  }
  /// Seconds during which this process has been awake.
  double attentive_seconds() const { return attentive_; }
  double period_seconds() const { return period_; }

  void heard(int peer) { peers_[peer] = {-1, attentive_}; }

  enum class Verdict { wait, ask, dead };
  /// Call it now and then for each peer that matters; after `ask` a question has to be sent.
  Verdict check_peer(int peer) {
    if (limit_ <= 0) return Verdict::wait;
    Peer& p = peers_[peer];
    if (p.asked >= 0) return attentive_ - p.asked > limit_ ? Verdict::dead : Verdict::wait;
    if (attentive_ - p.heard < period_) return Verdict::wait;
    p.asked = attentive_;
    return Verdict::ask;
  }

 private:
  struct Peer {
    double asked = -1;  // when the question went out that has no answer yet
    double heard = 0;
  };
  static constexpr double most_step_ = 0.25;  // s
  std::vector<Peer> peers_;
  double limit_, period_;
  double attentive_ = 0, last_ = -1;
};

}  // namespace heddle::comm::mpi
