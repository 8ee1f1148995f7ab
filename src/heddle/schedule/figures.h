// The figures of an order for any times of its stages: its bubble, what each rank holds, and which forwards run
// outside of pairs.
//
// The makespan of an order is the longest of its chains of actions. A chain lasts a sum of F, I and W times how
// many of each lie on it. The chains that are longest at some times of equal ranks are kept, as those numbers. The
// bubble at other times is the longest of them less the work. That is exact at the times tried and never too much
// between them. Orders of many microbatches repeat themselves, so two smaller ones are made, and their difference
// is extrapolated.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "heddle/schedule/generators/outline.h"

namespace heddle::schedule {

struct Generator;

/// The figures of one order.
class Figures {
 public:
  explicit Figures(const Schedule& schedule);

  /// Synchronous, a pair lasting its parts.
  double bubble(const StageTimes& rank) const;
  /// Microbatches on all layers of a rank; nearly all of their bytes stay until W.
  double in_flight(int rank) const { return in_flight_[rank]; }
  /// Microbatches whose forward is in no pair, on the rank in the middle.
  double unpaired() const { return unpaired_; }

 private:
  struct Chain {
    double forward = 0, input_grad = 0, weight_grad = 0;  // how many of them, of all layers of a rank
    double last(const StageTimes& t) const {
      return forward * t.forward + input_grad * t.input_grad + weight_grad * t.weight_grad;
    }
  };
  std::vector<Chain> chains_;
  double microbatches_ = 0, unpaired_ = 0;
  std::vector<double> in_flight_;
};

/// The figures of all orders that a generator makes, each made once. Any number of threads may ask.
class FiguresOf {
 public:
  explicit FiguresOf(const Generator& generator);

  double bubble(const PipelineSize& size, const StageTimes& rank) const;
  double in_flight(const PipelineSize& size, int rank) const;
  double unpaired(const PipelineSize& size) const;
  /// The generator's refusal; "" where there is none.
  std::string_view refusal(const PipelineSize& size) const;

 private:
  struct Made {
    std::string refusal;
    double at = 0, beyond = 0;  // microbatches of the two orders, the same where `first` is the very order
    std::unique_ptr<Figures> first, second;
    template <class Of>
    double between(double microbatches, const Of& of) const;
  };
  const Made& of(const PipelineSize& size) const;
  Made make(const PipelineSize& size) const;

  const Generator& generator_;
  const uint64_t number_;  // of all that were ever made, this one
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<int, int, int64_t>, std::unique_ptr<const Made>> made_;
};

}  // namespace heddle::schedule
