// Candidates to walk: a residency of what persists, with what the ranks then drop, as far as both can be estimated
// without a walk.
//
// Each word of a residency is lowered by itself: the bytes that it frees on each rank, and the time that it adds to
// the step. The effect of several is taken to be the sum. From the cheapest combination on, the ranks drop what
// they still must, at its price. A combination that costs more by itself than the best few with all they drop is
// skipped. Only these few are lowered and timed.
#pragma once

#include <vector>

#include "heddle/planner/budget/budget_problem.h"

namespace heddle::planner {

using Items = std::vector<Item>;

struct BudgetCandidate {
  StateResidencies residencies;
  std::vector<Items> items;   // items of each family of ranks
  std::vector<double> fixed;  // each rank's bytes beside those that it keeps
  bool fits = false;          // as estimated
  double step_us = 0;

  Items all() const {
    Items joined;
    for (const Items& i : items) joined.insert(joined.end(), i.begin(), i.end());
    return joined;
  }
};

/// One word of a residency.
struct ResidencyPrice {
  StateResidencies residency;
  std::vector<double> frees_bytes;  // bytes that each rank saves
  double costs_us = 0;              // added to the step
};

class Candidates {
 public:
  /// `plain_bytes`: what each rank takes of `plain`, the program without any of this, whose step takes `free_us`.
  Candidates(const BudgetProblem& problem, const plan::Lowered& plain, std::vector<double> plain_bytes,
             double free_us);

  /// The shortest first, as predicted; last those that are estimated not to fit.
  std::vector<BudgetCandidate> best_few(const std::vector<std::vector<StateResidencies>>& rows);
  /// After best_few: what was found of each word that frees anything.
  const std::vector<ResidencyPrice>& prices() const { return prices_; }
  /// Residencies: nothing, each word by itself, and all together of which each frees most.
  std::vector<StateResidencies> residencies_to_refuse_with() const;

  /// A candidate with nothing dropped yet. The residency's words are among prices().
  BudgetCandidate begun_with(const StateResidencies& residencies) const;
  /// Drops more where a rank is estimated to need more than the budget; false where there is nothing left.
  bool drop(BudgetCandidate& c) const;
  bool keep_again(BudgetCandidate& c, double spare_bytes) const;
  /// Learns the bytes beside a rank's kept ones, from a measurement with what `of` drops.
  void learn(BudgetCandidate& c, int rank, double bytes, const BudgetCandidate& of) const;

  size_t family_of(int rank) const { return family_[rank]; }
  const Items& items_of(const BudgetCandidate& c, int rank) const { return c.items[family_of(rank)]; }
  DroppedValues given(const BudgetCandidate& c) const { return in_short(c.all(), problem_.layers()); }

 private:
  struct Combination {
    StateResidencies residencies;
    double costs_us = 0, frees_bytes = 0;
  };
  void find_prices(const std::vector<std::vector<StateResidencies>>& rows);
  std::vector<Combination> combinations() const;
  // True if dropping all that can be dropped is estimated to be enough.
  bool may_fit(const BudgetCandidate& c) const;
  // The time that dropping adds to the step of the rank that pays most.
  double price_us(const BudgetCandidate& c) const;

  const BudgetProblem& problem_;
  const ValueDropper& dropper_;
  const plan::Lowered& plain_;
  const std::vector<double> plain_bytes_;
  const double free_us_;
  std::vector<size_t> family_;  // family of each rank
  std::vector<ResidencyPrice> prices_;
  std::vector<size_t> row_of_;  // row of each price
};

}  // namespace heddle::planner
