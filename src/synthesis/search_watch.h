// The progress of a search, reported now and then to its caller, who may end it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

namespace heddle::schedule {

class SearchWatch {
 public:
  /// Is given the share of the work that is done, 0 to 1, and the shortest makespan so far (infinite: none yet).
  /// False ends the search.
  using Ask = std::function<bool(double share, double makespan)>;

  /// `work`: of the whole search, in tokens timed. `ask` may be empty.
  SearchWatch(int64_t work, Ask ask) : work_(std::max<int64_t>(1, work)), ask_(std::move(ask)) {}

  /// Notes work that was done. False once the caller has ended the search.
  bool goes_on(int64_t tokens) {
    done_ += tokens;
    if (goes_on_ && ask_ && done_ >= next_) {
      next_ = done_ + kBetween;
      goes_on_ = ask_(share(), makespan_);
    }
    return goes_on_;
  }
  bool goes_on() const { return goes_on_; }
  void found(double makespan) { makespan_ = std::min(makespan_, makespan); }
  double share() const { return std::min(1.0, static_cast<double>(done_) / static_cast<double>(work_)); }

 private:
  static constexpr int64_t kBetween = 4'000'000;  // some 20 ms

  int64_t work_, done_ = 0, next_ = 0;
  double makespan_ = std::numeric_limits<double>::infinity();
  bool goes_on_ = true;
  Ask ask_;
};

}  // namespace heddle::schedule
