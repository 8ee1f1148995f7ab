// Whether an update is to run ahead of its norm: not while recent norms say that it would be taken back.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::train {

/// Decides from what all ranks know alike, and so alike on all of them.
class Attempts {
 public:
  /// `clip_norm`: 0 where nothing clips.
  explicit Attempts(double clip_norm) : clip_norm_(clip_norm) {}

  /// As many norms as are asked for lay within the limit, one after the other.
  bool may() const { return clip_norm_ <= 0 || within_ >= wanted_; }
  /// Of a step, in their order. Each one taken back doubles how many are asked for, and as many that held halve it.
  void learn(double norm, bool attempted, bool taken_back) {
    within_ = norm < clip_norm_ ? within_ + 1 : 0;
    held_ = attempted && !taken_back ? held_ + 1 : 0;
    if (taken_back) {
      wanted_ = std::min(kMost, 2 * wanted_);
    } else if (held_ >= wanted_ && wanted_ > kLeast) {
      wanted_ /= 2;
      held_ = 0;
    }
  }

 private:
  static constexpr int64_t kLeast = 2, kMost = 64;
  double clip_norm_;
  int64_t wanted_ = kLeast, within_ = 0, held_ = 0;
};

}  // namespace heddle::train
