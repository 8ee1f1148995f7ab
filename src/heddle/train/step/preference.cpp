#include "heddle/train/step/preference.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"

namespace heddle::train {

Preference preference_of(std::span<const double> losses, std::span<const double> references,
                         const model::Objective& objective) {
  HEDDLE_CHECK(losses.size() == references.size() && losses.size() % 2 == 0, "{} losses, {} references of pairs",
               losses.size(), references.size());
  const auto log_sigmoid = [](double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); };
  Preference all;
  for (size_t i = 0; i < losses.size(); i += 2) {
    const double margin = objective.beta * ((references[i] - losses[i]) - (references[i + 1] - losses[i + 1]));
    all.loss -=
        (1 - objective.label_smoothing) * log_sigmoid(margin) + objective.label_smoothing * log_sigmoid(-margin);
    all.margin += margin;
    all.accuracy += margin > 0 ? 1 : 0;
    ++all.pairs;
  }
  const double over = all.pairs > 0 ? 1 / static_cast<double>(all.pairs) : 0;
  all.loss *= over;
  all.margin *= over;
  all.accuracy *= over;
  return all;
}

}  // namespace heddle::train
