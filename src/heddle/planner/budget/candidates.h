// What may be walked: a residency of what persists, with what the ranks then give up, as far as both can be
// reckoned without a walk.
//
// Each word of a residency is lowered by itself: what it frees of each rank, and what it adds to the step. What
// several do together is taken to be the sum. From the cheapest combination on, the ranks give up what they still
// must, at its price; combinations that cost more by themselves than the best few with all they give up are not
// looked at. Only these few are lowered and timed.
#pragma once

#include <vector>

#include "heddle/planner/budget/budget_problem.h"

namespace heddle::planner {

using Items = std::vector<Item>;

struct BudgetCandidate {
  StateHomes homes;
  std::vector<Items> items;   // of each family of ranks
  std::vector<double> fixed;  // of each rank: bytes beside those that it keeps
  bool fits = false;          // as reckoned
  double step_us = 0;

  Items all() const {
    Items joined;
    for (const Items& i : items) joined.insert(joined.end(), i.begin(), i.end());
    return joined;
  }
};

/// One word of a residency.
struct HomePrice {
  StateHomes home;
  std::vector<double> frees_bytes;  // of each rank
  double costs_us = 0;              // of the step
};

class Candidates {
 public:
  /// `plain_bytes`: what each rank takes of `plain`, the program without any of this, whose step takes `free_us`.
  Candidates(const BudgetProblem& problem, const plan::Lowered& plain, std::vector<double> plain_bytes,
             double free_us);

  /// The shortest first, as foretold; those last that are reckoned not to fit.
  std::vector<BudgetCandidate> best_few(const std::vector<std::vector<StateHomes>>& rows);
  /// After best_few: what was found of each word that frees anything.
  const std::vector<HomePrice>& prices() const { return prices_; }
  /// Nothing, each word by itself, and all together of which each frees most.
  std::vector<StateHomes> homes_to_refuse_with() const;

  /// Nothing given up yet. The residency's words are among prices().
  BudgetCandidate begun_with(const StateHomes& homes) const;
  /// Gives up more where a rank is reckoned to need more than the budget; false where there is nothing left.
  bool give_up(BudgetCandidate& c) const;
  bool take_back(BudgetCandidate& c, double spare_bytes) const;
  /// What is beside the kept bytes of a rank, from what was measured with what `of` gives up.
  void learn(BudgetCandidate& c, int rank, double bytes, const BudgetCandidate& of) const;

  size_t family_of(int rank) const { return family_[static_cast<size_t>(rank)]; }
  const Items& items_of(const BudgetCandidate& c, int rank) const { return c.items[family_of(rank)]; }
  GivenUp given(const BudgetCandidate& c) const { return in_short(c.all(), problem_.layers()); }

 private:
  struct Combination {
    StateHomes homes;
    double costs_us = 0, frees_bytes = 0;
  };
  void find_prices(const std::vector<std::vector<StateHomes>>& rows);
  std::vector<Combination> combinations() const;
  // Whether all that there is to give up is reckoned to be enough.
  bool may_fit(const BudgetCandidate& c) const;
  // What it gives up adds to the step of the rank that pays most.
  double price_us(const BudgetCandidate& c) const;

  const BudgetProblem& problem_;
  const Giver& giver_;
  const plan::Lowered& plain_;
  const std::vector<double> plain_bytes_;
  const double free_us_;
  std::vector<size_t> family_;  // of each rank
  std::vector<HomePrice> prices_;
  std::vector<size_t> row_of_;  // of each price
};

}  // namespace heddle::planner
