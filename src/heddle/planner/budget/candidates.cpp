#include "heddle/planner/budget/candidates.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/parallel.h"

namespace heddle::planner {

namespace {
constexpr size_t kFew = 2;  // candidates that are lowered and timed
}

Candidates::Candidates(const BudgetProblem& problem, const plan::Lowered& plain, std::vector<double> plain_bytes,
                       double free_us)
    : problem_(problem),
      dropper_(problem.dropper()),
      plain_(plain),
      plain_bytes_(std::move(plain_bytes)),
      free_us_(free_us),
      family_(static_cast<size_t>(problem.ranks())) {
  for (size_t f = 0; f < dropper_.families().size(); ++f) {
    for (const int r : dropper_.families()[f]) family_[r] = f;
  }
}

// A home's freed persistent bytes may partly go to what comes and goes instead. This shows in a walk, for which the
// rank with most bytes to free stands for the others.
void Candidates::find_prices(const std::vector<std::vector<StateResidencies>>& rows) {
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const StateResidencies& residency : rows[row]) {
      ResidencyPrice price{residency, std::vector<double>(static_cast<size_t>(problem_.ranks()), 0), 0};
      BudgetProblem::Lowered lowered;
      try {
        lowered = problem_.lowered(residency, {}, BudgetProblem::Extent::step);
      } catch (const ConfigError&) {  // it does not go with what else is set
        continue;
      }
      for (int r = 0; r < problem_.ranks(); ++r)
        price.frees_bytes[r] = problem_.persistent_bytes(plain_, r) - problem_.persistent_bytes(*lowered, r);
      const auto most = std::max_element(price.frees_bytes.begin(), price.frees_bytes.end());
      if (*most <= 0) continue;
      const auto rank = static_cast<int>(most - price.frees_bytes.begin());
      const BudgetProblem::Lowered few = problem_.lowered(residency, {}, BudgetProblem::Extent::few);
      const double frees = plain_bytes_[rank] - static_cast<double>(problem_.measured_bytes(*few, rank));
      if (frees <= 0) continue;
      const double part = frees / *most;
      for (double& bytes : price.frees_bytes) bytes *= part;
      price.costs_us = problem_.times(*lowered).step_us - free_us_;
      prices_.push_back(std::move(price));
      row_of_.push_back(row);
    }
  }
}

std::vector<Candidates::Combination> Candidates::combinations() const {
  std::vector<Combination> all{{}};
  for (size_t p = 0; p < prices_.size();) {
    const size_t before = all.size(), row = row_of_[p];
    for (; p < prices_.size() && row_of_[p] == row; ++p) {
      for (size_t i = 0; i < before; ++i) {
        Combination with = all[i];
        with.residencies.of.push_back(prices_[p].residency.of[0]);
        with.costs_us += prices_[p].costs_us;
        for (const double bytes : prices_[p].frees_bytes) with.frees_bytes += bytes;
        all.push_back(std::move(with));
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Combination& a, const Combination& b) { return a.costs_us < b.costs_us; });
  return all;
}

std::vector<StateResidencies> Candidates::residencies_to_refuse_with() const {
  std::vector<StateResidencies> all;
  const std::vector<Combination> together = combinations();
  all.push_back(std::max_element(together.begin(), together.end(), [](const auto& a, const auto& b) {
                  return a.frees_bytes < b.frees_bytes;
                })->residencies);
  for (const ResidencyPrice& price : prices_) all.push_back(price.residency);
  all.emplace_back();
  return all;
}

BudgetCandidate Candidates::begun_with(const StateResidencies& residencies) const {
  BudgetCandidate c{residencies, std::vector<Items>(dropper_.families().size()), plain_bytes_};
  for (int r = 0; r < problem_.ranks(); ++r) {
    double& fixed = c.fixed[r];
    fixed -= dropper_.kept_bytes(r, Items{});
    for (const ResidencyPrice& price : prices_) {
      if (std::find(residencies.of.begin(), residencies.of.end(), price.residency.of[0]) != residencies.of.end())
        fixed -= price.frees_bytes[r];
    }
  }
  return c;
}

bool Candidates::drop(BudgetCandidate& c) const {
  std::vector<char> enough(dropper_.families().size(), 1);
  for_each_index(static_cast<int64_t>(dropper_.families().size()), [&](int64_t f) {
    const auto at = static_cast<size_t>(f);
    for (const int r : dropper_.families()[at]) {
      const double most = static_cast<double>(problem_.budget_bytes()) - c.fixed[r];
      if (!dropper_.drop(r, most, c.items[at])) enough[at] = 0;
    }
  });
  return std::all_of(enough.begin(), enough.end(), [](char e) { return e != 0; });
}

bool Candidates::keep_again(BudgetCandidate& c, double spare_bytes) const {
  std::vector<double> most;
  for (const double fixed : c.fixed)
    most.push_back(static_cast<double>(problem_.budget_bytes()) - spare_bytes - fixed);
  std::vector<char> any(dropper_.families().size(), 0);
  for_each_index(static_cast<int64_t>(dropper_.families().size()), [&](int64_t f) {
    const auto at = static_cast<size_t>(f);
    any[at] = static_cast<char>(dropper_.keep_again(dropper_.families()[at], most, c.items[at]));
  });
  return std::any_of(any.begin(), any.end(), [](char a) { return a != 0; });
}

void Candidates::learn(BudgetCandidate& c, int rank, double bytes, const BudgetCandidate& of) const {
  c.fixed[rank] = bytes - dropper_.kept_bytes(rank, items_of(of, rank));
}

bool Candidates::may_fit(const BudgetCandidate& c) const {
  for (int r = 0; r < problem_.ranks(); ++r) {
    if (c.fixed[r] + dropper_.kept_bytes(r, dropper_.everything(r)) > static_cast<double>(problem_.budget_bytes()))
      return false;
  }
  return true;
}

double Candidates::price_us(const BudgetCandidate& c) const {
  double most = 0;
  for (int r = 0; r < problem_.ranks(); ++r)
    most = std::max(most, dropper_.kept(r, items_of(c, r)).price_us - dropper_.kept(r, Items{}).price_us);
  return most * problem_.microbatches();
}

std::vector<BudgetCandidate> Candidates::best_few(const std::vector<std::vector<StateResidencies>>& rows) {
  find_prices(rows);
  const std::vector<Combination> all = combinations();
  std::vector<BudgetCandidate> few;
  const auto shorter = [](const BudgetCandidate& a, const BudgetCandidate& b) {
    return a.fits != b.fits ? a.fits : a.step_us < b.step_us;
  };
  for (const Combination& combination : all) {
    const double alone_us = free_us_ + combination.costs_us;
    if (few.size() == kFew && alone_us >= few.back().step_us) break;
    BudgetCandidate c = begun_with(combination.residencies);
    if (!may_fit(c) || !drop(c)) continue;
    c.fits = true;
    c.step_us = alone_us + price_us(c);
    few.insert(std::upper_bound(few.begin(), few.end(), c, shorter), std::move(c));
    if (few.size() > kFew) few.pop_back();
  }
  if (few.size() < kFew) {  // the one that frees most: it may fit against the estimate
    BudgetCandidate c = begun_with(residencies_to_refuse_with()[0]);
    const bool new_one = std::none_of(few.begin(), few.end(), [&](const BudgetCandidate& other) {
      return other.residencies.of == c.residencies.of;
    });
    if (new_one) {
      c.fits = drop(c);
      few.push_back(std::move(c));
    }
  }
  std::vector<BudgetCandidate> timed;
  for (BudgetCandidate& c : few) {
    if (c.fits) keep_again(c, 0);
    try {
      c.step_us = problem_.times(*problem_.lowered(c.residencies, given(c), BudgetProblem::Extent::step)).step_us;
    } catch (const ConfigError&) {  // words that don't go together
      continue;
    }
    timed.push_back(std::move(c));
  }
  std::stable_sort(timed.begin(), timed.end(), shorter);
  return timed;
}

}  // namespace heddle::planner
