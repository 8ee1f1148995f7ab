// One thread's part of a search: it estimates the plans of its families and keeps the best. Of a plan that is to be
// timed it gives all choices.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "heddle/search/plans/search_task.h"

namespace heddle::search {

/// The best few in whatever order they come.
class ShortList {
 public:
  explicit ShortList(size_t most) : most_(most) {}
  void add(const Candidate& plan) {
    if (plans_.size() == most_ && !before(plan, plans_.front())) return;
    if (plans_.size() == most_) {
      std::pop_heap(plans_.begin(), plans_.end(), before);
      plans_.pop_back();
    }
    plans_.push_back(plan);
    std::push_heap(plans_.begin(), plans_.end(), before);
  }
  const std::vector<Candidate>& plans() const { return plans_; }

 private:
  size_t most_;
  std::vector<Candidate> plans_;
};

struct Counts {
  uint64_t plans = 0, fitting = 0, passed_over = 0, layouts = 0;
};

class Estimator {
 public:
  explicit Estimator(const Task& task);

  /// Estimates the plans of a family.
  void family(size_t index);

  /// Choices of the job's layout by estimated time, none above `most_bytes`. Without `all`, only the one that keeps
  /// everything in its usual place, where that fits.
  const std::vector<Choice>& choices(const Job& job, double most_bytes, bool all);

  /// No plan above this is wanted any more.
  double slowest_s = std::numeric_limits<double>::infinity();
  ShortList best;
  Counts counts;
  std::optional<Candidate> least;  // the plan of least memory among those that don't fit

 private:
  void forget();
  const Layers& layers_now(const Choice& choice);
  void weigh(double most_bytes, bool all, bool everywhere);
  void weigh_homes(Choice choice, double most_bytes, bool everywhere);
  enum class Fit : uint8_t { fits, not_on_device, not_on_host };
  Fit weigh_one(Choice choice, double most_bytes);
  bool too_slow_anywhere(Choice choice);
  bool too_large_anywhere(Choice choice, double most_bytes);
  bool goes(size_t sharding);
  uint64_t ways_to_keep() const;
  int best_replicas();
  Estimate usually(Choice choice);
  void layout();

  const Task& task_;
  Job job_;
  double host_bytes_;  // usable memory of a device's host
  struct Known {
    Layers layers;
    int dp = 0;  // that it holds for, where something is sharded
  };
  // By copies, kind of hiding, recomputation, offload, crossing, sharding.
  std::vector<std::optional<Known>> known_;
  std::optional<Prices> prices_[2][3];  // unsharded
  int priced_dp_ = 0;
  std::vector<Choice> fitting_;
  Choice lightest_;           // the lightest one that doesn't fit
  bool passed_over_ = false;  // some choice, as too slow
  size_t family_ = 0;
  int serial_ = 0;
  std::optional<int> replicas_[2];  // the family's best of those that are not the usual ones, by pairs
};

}  // namespace heddle::search
