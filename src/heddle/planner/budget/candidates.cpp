#include "heddle/planner/budget/candidates.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/parallel.h"

namespace heddle::planner {

namespace {
constexpr size_t kFew = 2;  // that are lowered and timed
}

Candidates::Candidates(const BudgetProblem& problem, const plan::Lowered& plain, std::vector<double> plain_bytes,
                       double free_us)
    : problem_(problem),
      giver_(problem.giver()),
      plain_(plain),
      plain_bytes_(std::move(plain_bytes)),
      free_us_(free_us),
      family_(static_cast<size_t>(problem.ranks())) {
  for (size_t f = 0; f < giver_.families().size(); ++f) {
    for (const int r : giver_.families()[f]) family_[static_cast<size_t>(r)] = f;
  }
}

// What a home frees of what persists it may take in part for what comes and goes instead: that shows in a walk, of
// which the rank with most bytes to free stands for the others.
void Candidates::find_prices(const std::vector<std::vector<StateHomes>>& rows) {
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const StateHomes& home : rows[row]) {
      HomePrice price{home, std::vector<double>(static_cast<size_t>(problem_.ranks()), 0), 0};
      BudgetProblem::Lowered lowered;
      try {
        lowered = problem_.lowered(home, {}, BudgetProblem::Extent::step);
      } catch (const ConfigError&) {  // it does not go with what else is set
        continue;
      }
      for (int r = 0; r < problem_.ranks(); ++r)
        price.frees_bytes[static_cast<size_t>(r)] =
            problem_.persistent_bytes(plain_, r) - problem_.persistent_bytes(*lowered, r);
      const auto most = std::max_element(price.frees_bytes.begin(), price.frees_bytes.end());
      if (*most <= 0) continue;
      const auto rank = static_cast<int>(most - price.frees_bytes.begin());
      const BudgetProblem::Lowered few = problem_.lowered(home, {}, BudgetProblem::Extent::few);
      const double frees =
          plain_bytes_[static_cast<size_t>(rank)] - static_cast<double>(problem_.measured_bytes(*few, rank));
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
        with.homes.of.push_back(prices_[p].home.of[0]);
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

std::vector<StateHomes> Candidates::homes_to_refuse_with() const {
  std::vector<StateHomes> all;
  const std::vector<Combination> together = combinations();
  all.push_back(std::max_element(together.begin(), together.end(), [](const auto& a, const auto& b) {
                  return a.frees_bytes < b.frees_bytes;
                })->homes);
  for (const HomePrice& price : prices_) all.push_back(price.home);
  all.emplace_back();
  return all;
}

BudgetCandidate Candidates::begun_with(const StateHomes& homes) const {
  BudgetCandidate c{homes, std::vector<Items>(giver_.families().size()), plain_bytes_};
  for (int r = 0; r < problem_.ranks(); ++r) {
    double& fixed = c.fixed[static_cast<size_t>(r)];
    fixed -= giver_.kept_bytes(r, Items{});
    for (const HomePrice& price : prices_) {
      if (std::find(homes.of.begin(), homes.of.end(), price.home.of[0]) != homes.of.end())
        fixed -= price.frees_bytes[static_cast<size_t>(r)];
    }
  }
  return c;
}

bool Candidates::give_up(BudgetCandidate& c) const {
  std::vector<char> enough(giver_.families().size(), 1);
  for_each_index(static_cast<int64_t>(giver_.families().size()), [&](int64_t f) {
    const auto at = static_cast<size_t>(f);
    for (const int r : giver_.families()[at]) {
      const double most = static_cast<double>(problem_.budget_bytes()) - c.fixed[static_cast<size_t>(r)];
      if (!giver_.give_up(r, most, c.items[at])) enough[at] = 0;
    }
  });
  return std::all_of(enough.begin(), enough.end(), [](char e) { return e != 0; });
}

bool Candidates::take_back(BudgetCandidate& c, double spare_bytes) const {
  std::vector<double> most;
  for (const double fixed : c.fixed)
    most.push_back(static_cast<double>(problem_.budget_bytes()) - spare_bytes - fixed);
  std::vector<char> any(giver_.families().size(), 0);
  for_each_index(static_cast<int64_t>(giver_.families().size()), [&](int64_t f) {
    const auto at = static_cast<size_t>(f);
    any[at] = static_cast<char>(giver_.take_back(giver_.families()[at], most, c.items[at]));
  });
  return std::any_of(any.begin(), any.end(), [](char a) { return a != 0; });
}

void Candidates::learn(BudgetCandidate& c, int rank, double bytes, const BudgetCandidate& of) const {
  c.fixed[static_cast<size_t>(rank)] = bytes - giver_.kept_bytes(rank, items_of(of, rank));
}

bool Candidates::may_fit(const BudgetCandidate& c) const {
  for (int r = 0; r < problem_.ranks(); ++r) {
    if (c.fixed[static_cast<size_t>(r)] + giver_.kept_bytes(r, giver_.everything(r)) >
        static_cast<double>(problem_.budget_bytes()))
      return false;
  }
  return true;
}

double Candidates::price_us(const BudgetCandidate& c) const {
  double most = 0;
  for (int r = 0; r < problem_.ranks(); ++r)
    most = std::max(most, giver_.kept(r, items_of(c, r)).price_us - giver_.kept(r, Items{}).price_us);
  return most * problem_.microbatches();
}

std::vector<BudgetCandidate> Candidates::best_few(const std::vector<std::vector<StateHomes>>& rows) {
  find_prices(rows);
  const std::vector<Combination> all = combinations();
  std::vector<BudgetCandidate> few;
  const auto shorter = [](const BudgetCandidate& a, const BudgetCandidate& b) {
    return a.fits != b.fits ? a.fits : a.step_us < b.step_us;
  };
  for (const Combination& combination : all) {
    const double alone_us = free_us_ + combination.costs_us;
    if (few.size() == kFew && alone_us >= few.back().step_us) break;
    BudgetCandidate c = begun_with(combination.homes);
    if (!may_fit(c) || !give_up(c)) continue;
    c.fits = true;
    c.step_us = alone_us + price_us(c);
    few.insert(std::upper_bound(few.begin(), few.end(), c, shorter), std::move(c));
    if (few.size() > kFew) few.pop_back();
  }
  if (few.size() < kFew) {  // what frees most: it may fit where it was reckoned not to
    BudgetCandidate c = begun_with(homes_to_refuse_with()[0]);
    const bool new_one = std::none_of(few.begin(), few.end(),
                                      [&](const BudgetCandidate& other) { return other.homes.of == c.homes.of; });
    if (new_one) {
      c.fits = give_up(c);
      few.push_back(std::move(c));
    }
  }
  std::vector<BudgetCandidate> timed;
  for (BudgetCandidate& c : few) {
    if (c.fits) take_back(c, 0);
    try {
      c.step_us = problem_.times(*problem_.lowered(c.homes, given(c), BudgetProblem::Extent::step)).step_us;
    } catch (const ConfigError&) {  // words that don't go together
      continue;
    }
    timed.push_back(std::move(c));
  }
  std::stable_sort(timed.begin(), timed.end(), shorter);
  return timed;
}

}  // namespace heddle::planner
