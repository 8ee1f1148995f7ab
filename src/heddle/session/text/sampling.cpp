#include "heddle/session/text/sampling.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"

namespace heddle::session {

namespace {

bool likelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

double sum_of(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

// How many of the likeliest it takes.
size_t count_within(std::span<const Candidate> sorted, double top_p) {
  const double enough = top_p * sum_of(sorted);
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i].weight;
    if (sum >= enough) return i + 1;
  }
  return sorted.size();
}

}  // namespace

std::vector<Candidate> candidates(std::span<const float> logits, int64_t vocabulary, const Sampling& how) {
  const auto count = static_cast<size_t>(std::min<int64_t>(std::ssize(logits), vocabulary));
  HEDDLE_CHECK(count > 0, "no token to choose from");
  const auto end = logits.begin() + static_cast<std::ptrdiff_t>(count);
  const auto likeliest = std::max_element(logits.begin(), end);
  if (how.temperature <= 0) return {{static_cast<data::TokenId>(likeliest - logits.begin()), 1}};
  const double most = *likeliest;
  std::vector<Candidate> all(count);
  for (size_t i = 0; i < count; ++i)
    all[i] = {static_cast<data::TokenId>(i), std::exp((logits[i] - most) / how.temperature)};
  const bool few = how.top_k > 0 && how.top_k < std::ssize(all);
  if (!few && how.top_p >= 1) return all;
  std::sort(all.begin(), all.end(), likelier);
  if (few) all.resize(static_cast<size_t>(how.top_k));
  if (how.top_p < 1) all.resize(count_within(all, how.top_p));
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return all;
}

data::TokenId draw(std::span<const Candidate> candidates, double uniform) {
  double left = uniform * sum_of(candidates);
  for (const Candidate& c : candidates) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return std::min_element(candidates.begin(), candidates.end(), likelier)->id;  // left over by rounding
}

}  // namespace heddle::session
