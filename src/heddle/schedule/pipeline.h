// A row of the table of generators as a search uses it: what all its orders have in common, and the figures of an
// order before it is made. Formulas are those of the row's outline; missing ones are computed from the orders
// themselves.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/schedule/figures.h"
#include "heddle/schedule/generators/generators.h"

namespace heddle::schedule {

class Pipeline {
 public:
  /// The generator must outlive it.
  explicit Pipeline(const Generator& generator);

  const Generator& generator() const { return generator_; }
  std::string_view name() const { return generator_.name; }
  const Outline& outline() const { return generator_.outline; }

  /// Forward and backward of two microbatches run as one, so that each hides the other's exchange.
  bool pairs() const { return pairs_; }
  /// The first rank has both ends of the model.
  bool folded() const { return folded_; }
  /// Copies of weights and gradients that a rank holds, each on a way of its own.
  int routes() const { return routes_; }
  /// Chunks a rank; 0: any number from least_chunks() on.
  int chunks() const { return generator_.any_chunks ? 0 : generator_.chunks; }
  int least_chunks() const { return least_chunks_; }

  /// The reason why such a pipeline can't be; "" when it can.
  std::string_view misfit(const PipelineSize& size) const;
  /// As the members of Outline.
  double bubble(const PipelineSize& size, const StageTimes& rank) const;
  double in_flight(const PipelineSize& size, int rank) const;
  double unpaired(const PipelineSize& size) const;

  /// The schedule of so many ranks, chunks and microbatches. ConfigError where there is none.
  Schedule make(const PipelineSize& size) const;

 private:
  const Generator& generator_;
  std::unique_ptr<FiguresOf> figures_;
  bool pairs_ = false, folded_ = false;
  int routes_ = 1, least_chunks_ = 1;
};

/// Every row of generators(), in its order.
const std::vector<Pipeline>& pipelines();
/// Null where there is none of that name.
const Pipeline* find_pipeline(std::string_view name);
/// The names of those that a search tries by default.
std::vector<std::string> searched_names();

}  // namespace heddle::schedule
