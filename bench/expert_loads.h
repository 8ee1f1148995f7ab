// What routers send to experts, for benches: loads that are drawn with a stated imbalance of the busiest rank, and
// those that a run has counted. A load is the rows of each expert, by MoE layer and microbatch; every rank has the
// same, and its tokens' choices are laid out so that a token's experts differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/random.h"

namespace heddle::bench {

struct ExpertSizes {
  int64_t experts = 64, chosen = 8, ranks = 8, tokens = 512;  // tokens of a rank and microbatch
  int64_t rows() const { return tokens * chosen; }
};

/// Whole numbers that sum to `sum`, none above `most`, in the proportions of `share`; the largest remainders round
/// up. Shares that exceed `most` give the rest to the others.
inline std::vector<int64_t> apportioned(const std::vector<double>& share, int64_t sum, int64_t most) {
  std::vector<double> wanted(share.size(), 0);
  std::vector<bool> full(share.size(), false);
  for (bool changed = true; changed;) {
    double left = static_cast<double>(sum), shares = 0;
    for (size_t i = 0; i < share.size(); ++i)
      (full[i] ? left : shares) += full[i] ? -static_cast<double>(most) : share[i];
    changed = false;
    for (size_t i = 0; i < share.size(); ++i) {
      wanted[i] = full[i] ? static_cast<double>(most) : left * share[i] / shares;
      if (full[i] || wanted[i] <= static_cast<double>(most)) continue;
      full[i] = changed = true;
    }
  }
  std::vector<int64_t> whole;
  std::vector<size_t> order(share.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (const double w : wanted) whole.push_back(static_cast<int64_t>(std::floor(w)));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return wanted[a] - std::floor(wanted[a]) > wanted[b] - std::floor(wanted[b]);
  });
  int64_t missing = sum - std::accumulate(whole.begin(), whole.end(), int64_t{0});
  for (size_t i = 0; missing > 0; i = (i + 1) % order.size()) {
    if (whole[order[i]] == most) continue;
    ++whole[order[i]];
    --missing;
  }
  return whole;
}

/// Rows of the busiest rank over the mean.
inline double imbalance_of(const std::vector<int64_t>& rows_E, int64_t ranks) {
  const auto each = static_cast<int64_t>(rows_E.size()) / ranks;
  int64_t most = 0, all = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    int64_t rows = 0;
    for (int64_t i = r * each; i < (r + 1) * each; ++i) rows += rows_E[static_cast<size_t>(i)];
    most = std::max(most, rows);
    all += rows;
  }
  return static_cast<double>(most * ranks) / static_cast<double>(all);
}

/// Shares that fall as a power of the place in an order, steep enough for the imbalance: `key` draws the order, but
/// for a rank that it draws too, whose experts have the first place and every second one behind it.
inline std::vector<int64_t> zipf_rows(const ExpertSizes& sizes, double imbalance, const RandomKey& key) {
  const auto experts = static_cast<size_t>(sizes.experts), each = experts / static_cast<size_t>(sizes.ranks);
  std::vector<size_t> order(experts);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i + 1 < experts; ++i) std::swap(order[i], order[i + key.bits(i) % (experts - i)]);
  const size_t rank = key.bits(experts) % static_cast<size_t>(sizes.ranks);
  std::stable_partition(order.begin(), order.end(), [&](size_t e) { return e / each == rank; });
  for (size_t i = 1; i < each; ++i)
    std::rotate(order.begin() + 2 * i - 1, order.begin() + each + i - 1, order.begin() + each + i);
  const auto rows = [&](double steepness) {
    std::vector<double> share(experts);
    for (size_t i = 0; i < experts; ++i) share[order[i]] = std::pow(static_cast<double>(i + 1), -steepness);
    return apportioned(share, sizes.rows(), sizes.tokens);
  };
  double low = 0, high = 8;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (imbalance_of(rows(middle), sizes.ranks) < imbalance ? low : high) = middle;
  }
  return rows(high);
}

/// Rows of each expert by (layer, microbatch).
using ExpertRows = std::map<std::pair<int, int>, std::vector<int64_t>>;

inline ExpertRows even_rows(const ExpertSizes& sizes, int layers, int microbatches) {
  ExpertRows all;
  for (int l = 0; l < layers; ++l) {
    for (int m = 0; m < microbatches; ++m)
      all[{l, m}] =
          apportioned(std::vector<double>(static_cast<size_t>(sizes.experts), 1), sizes.rows(), sizes.tokens);
  }
  return all;
}

/// Hot experts on the first half of the ranks, two a rank, in every layer and microbatch: each has `times` the rows
/// of one that isn't. Elsewhere than on these ranks they would be no trouble.
inline ExpertRows half_hot_rows(const ExpertSizes& sizes, double times, int layers, int microbatches) {
  std::vector<double> share(static_cast<size_t>(sizes.experts), 1);
  const auto each = static_cast<size_t>(sizes.experts / sizes.ranks);
  for (size_t e = 0; e < share.size() / 2; ++e)
    if (e % each < 2) share[e] = times;
  ExpertRows all;
  for (int l = 0; l < layers; ++l)
    for (int m = 0; m < microbatches; ++m) all[{l, m}] = apportioned(share, sizes.rows(), sizes.tokens);
  return all;
}

/// "zipf": the hot experts of a layer stay; "rotating": each microbatch has others; "burst": they are hot in the
/// last microbatch alone.
inline ExpertRows drawn_rows(const ExpertSizes& sizes, const std::string& kind, double imbalance, int layers,
                             int microbatches) {
  ExpertRows all = even_rows(sizes, layers, microbatches);
  for (auto& [of, rows] : all) {
    const auto [layer, microbatch] = of;
    if (kind == "burst" && microbatch + 1 < microbatches) continue;
    const RandomKey key = RandomKey(7).with(kind).with(static_cast<uint64_t>(layer));
    rows = zipf_rows(sizes, imbalance, kind == "rotating" ? key.with(static_cast<uint64_t>(microbatch)) : key);
  }
  return all;
}

/// Of a file {"rows_SLE": …}: each microbatch has the counts of one of its steps, evenly spread over them.
inline ExpertRows recorded_rows(const std::string& path, const ExpertSizes& sizes, int layers, int microbatches) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded() || !json.contains("rows_SLE")) config_error("{} holds no recorded rows of experts", path);
  const auto steps = json.at("rows_SLE").get<std::vector<std::vector<std::vector<double>>>>();
  ExpertRows all;
  for (int l = 0; l < layers; ++l) {
    for (int m = 0; m < microbatches; ++m) {
      const size_t step = steps.size() * static_cast<size_t>(2 * m + 1) / static_cast<size_t>(2 * microbatches);
      const std::vector<double>& share = steps.at(step).at(static_cast<size_t>(l));
      if (std::ssize(share) != sizes.experts)
        config_error("{} has the rows of {} experts, {} expected", path, share.size(), sizes.experts);
      all[{l, m}] = apportioned(share, sizes.rows(), sizes.tokens);
    }
  }
  return all;
}

/// [T, k]: experts in the order of their numbers, each for as many tokens as it has rows, round by round of the
/// tokens, so that no token has one twice.
inline std::vector<int32_t> choices_of(const std::vector<int64_t>& rows_E, const ExpertSizes& sizes) {
  std::vector<int32_t> experts_Tk(static_cast<size_t>(sizes.rows()));
  int64_t at = 0;
  for (size_t e = 0; e < rows_E.size(); ++e) {
    for (int64_t i = 0; i < rows_E[e]; ++i, ++at)
      experts_Tk[static_cast<size_t>((at % sizes.tokens) * sizes.chosen + at / sizes.tokens)] =
          static_cast<int32_t>(e);
  }
  return experts_Tk;
}

}  // namespace heddle::bench
