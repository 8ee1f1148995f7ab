#include "heddle/session/refit.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/clock.h"

namespace heddle::session {

namespace {

constexpr double kMostFactor = 4;  // one run's limit: more is no error of the profile but a machine that others use
constexpr double kLeastScalar = 0.25, kMostScalar = 4;

cost::MachineProfile scaled(cost::MachineProfile profile, double ops, double messages, cost::Link over) {
  profile.scalar = std::clamp(profile.scalar * ops, kLeastScalar, kMostScalar);
  for (cost::LinkTime& link : profile.links) {
    if (link.over == over) link.us *= messages;
  }
  return profile;
}

double compute_us(const runtime::StepPrediction& prediction) {
  double sum = 0;
  for (const simulate::RankResult& rank : prediction.simulation.ranks) {
    sum += rank.count * rank.streams[ir::StreamTable::compute].busy_us;
  }
  return sum / static_cast<double>(prediction.simulation.kind_of.size());
}

}  // namespace

Refit refit(const std::string& path, const std::vector<std::string>& set, const planner::PlanChoice& choice,
            planner::PlanMode mode, const cost::MachineProfile& profile, cost::Link over,
            const PredictByFn& predict, const FirstSteps& seen, double seconds) {
  const double until_s = now_s() + seconds;
  std::vector<std::string> every = set;
  every.insert(every.end(), choice.chosen.set.begin(), choice.chosen.set.end());
  const config::RunConfig config = config::read_run_config(path, every);
  const runtime::StepPrediction before = predict(config, profile).prediction;
  const auto within = [](double factor) { return std::clamp(factor, 1 / kMostFactor, kMostFactor); };
  const bool alone = config.ranks() == 1 || seen.compute_s <= 0;
  const double whole = within(seen.step_s * 1e6 / before.step_us);
  double ops = alone ? whole : within(seen.compute_s * 1e6 / compute_us(before));
  double messages = 1;
  if (!alone) {
    const auto step_s = [&](double factor) {
      return predict(config, scaled(profile, ops, factor, over)).prediction.step_us * 1e-6;
    };
    double low = std::log(1 / kMostFactor), high = std::log(kMostFactor);
    const double shortest_s = step_s(std::exp(low)), longest_s = step_s(std::exp(high));
    constexpr double kFelt = 0.02;  // a share of a step: messages that change it less can't be told
    constexpr int kHalvings = 6;
    if (seen.step_s < shortest_s || seen.step_s > longest_s || longest_s - shortest_s < kFelt * seen.step_s) {
      ops = whole;  // no message explains it
    } else {
      // A step grows with the messages' time: halve the interval of the factor's logarithm.
      for (int i = 0; i < kHalvings && now_s() < until_s; ++i) {
        const double middle = (low + high) / 2;
        (step_s(std::exp(middle)) < seen.step_s ? low : high) = middle;
      }
      messages = std::exp((low + high) / 2);
    }
  }
  Refit found;
  found.profile = scaled(profile, std::sqrt(ops), std::sqrt(messages), over);
  const planner::PredictFn again = [&](const config::RunConfig& c, bool) { return predict(c, found.profile); };
  found.chosen = planner::predicted(path, set, choice.chosen.set, again);
  found.predicted_s = found.chosen.step_us * 1e-6;
  std::vector<planner::Candidate> left, few{found.chosen};
  for (const planner::Candidate& c : choice.all) {
    if (c.fits() && c.set != choice.chosen.set) left.push_back(c);
  }
  constexpr size_t kFew = 12;
  while (!left.empty() && few.size() < kFew && now_s() < until_s) {
    const planner::Candidate* next =
        planner::best_of(left, few.size() % 2 == 0 ? planner::PlanMode::automatic : mode);
    few.push_back(planner::predicted(path, set, next->set, again));
    left.erase(left.begin() + (next - left.data()));
  }
  constexpr double kNoise = 0.01;  // a share of a step: nearer than that is the same
  const planner::Candidate* best = planner::best_of(few, mode);
  const auto same = [](double a, double b) { return std::abs(a - b) <= kNoise * b; };
  if (best != nullptr && best != &few[0] &&
      !(same(best->step_us, few[0].step_us) &&
        same(static_cast<double>(best->reserved_bytes), static_cast<double>(few[0].reserved_bytes)))) {
    found.better = *best;
  }
  return found;
}

}  // namespace heddle::session
