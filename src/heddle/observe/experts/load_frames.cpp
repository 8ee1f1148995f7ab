#include "heddle/observe/experts/load_frames.h"

namespace heddle::observe {

bool have_layers(int64_t step, size_t numbers) {
  constexpr size_t kNumbersAStep = 4096;
  return step % static_cast<int64_t>(numbers / kNumbersAStep + 1) == 0;
}

void drop_layers(StepMetrics& step) { std::vector<Figures>().swap(step.layers); }

LoadFrames::LoadFrames(std::vector<StepMetrics>& steps) {
  std::vector<StepMetrics> all;
  all.swap(steps);
  for (StepMetrics& step : all) {
    steps.push_back(std::move(step));
    added(steps);
  }
}

void LoadFrames::added(std::vector<StepMetrics>& steps) {
  if (steps.back().layers.empty()) return;
  const auto between = [&](size_t a, size_t b) { return steps[b].step - steps[a].step; };
  const auto drop = [&](size_t place) {
    drop_layers(steps[kept_[place]]);
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(place));
  };
  if (const size_t n = kept_.size(); n >= 2 && between(kept_[n - 2], kept_[n - 1]) < spacing_) drop(n - 1);
  kept_.push_back(steps.size() - 1);
  while (kept_.size() > kMost) {
    spacing_ *= 2;
    for (size_t i = 1; i + 1 < kept_.size();) {
      if (between(kept_[i - 1], kept_[i]) < spacing_) {
        drop(i);
      } else {
        ++i;
      }
    }
  }
}

void LoadFrames::cut(size_t size) {
  while (!kept_.empty() && kept_.back() >= size) kept_.pop_back();
}

}  // namespace heddle::observe
