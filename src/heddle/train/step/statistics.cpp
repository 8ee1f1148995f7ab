#include "heddle/train/step/statistics.h"

#include <algorithm>

#include "heddle/train/step/numbers.h"

namespace heddle::train {

namespace {

double mean(const model::Statistic& what, double sum, std::span<const double> scales) {
  if (what.scale < 0) return sum;
  return what.weight == 0 ? 0 : sum * scales[static_cast<size_t>(what.scale)] / what.weight;
}

}  // namespace

StepStatistics::StepStatistics(const plan::Lowered& lowered, int first_listing, int listings) {
  for (int s = first_listing; s < first_listing + listings; ++s) {
    const ir::Listing& listing = lowered.program.listings.at(static_cast<size_t>(s));
    for (const model::Statistic& what : lowered.statistics.at(static_cast<size_t>(s))) {
      if (what.kind->largest) largest_.emplace_back(s, what.value);
      if (!what.kind->told) continue;
      const auto before = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
        return place.what.kind == what.kind && place.what.of == what.of;
      });
      const bool again = before != places_.end();
      const auto size = static_cast<size_t>(listing.elements(what.value, ir::FixedRows()));
      places_.push_back({what, s, again ? before->first : size_, size, again});
      if (!again) size_ += size;
    }
  }
}

std::vector<double> StepStatistics::row(const runtime::Executor& executor, int listing) const {
  std::vector<double> row(size_, 0);
  for (const Place& place : places_) {
    if (place.listing != listing) continue;
    const device::TensorView view = executor.view(listing, place.what.value);
    for (size_t i = 0; i < place.size; ++i) row[place.first + i] = number(view, static_cast<int64_t>(i));
  }
  return row;
}

double StepStatistics::largest(const runtime::Executor& executor, int listing) const {
  double most = 0;
  for (const auto& [of, value] : largest_) {
    if (of != listing) continue;
    const device::TensorView view = executor.view(listing, value);
    for (int64_t i = 0; i + 1 < view.elements(); ++i) most = std::max(most, number(view, i));
  }
  return most;
}

std::vector<Reading> StepStatistics::read(std::span<const double> row, std::span<const double> scales,
                                          int ranks) const {
  std::vector<Reading> readings;
  for (const Place& place : places_) {
    if (place.again) continue;
    Reading& reading = readings.emplace_back(Reading{place.what.kind, place.what.of, {}});
    for (const double sum : row.subspan(place.first, place.size)) {
      reading.values.push_back(mean(place.what, place.what.kind->same_on_ranks ? sum / ranks : sum, scales));
    }
  }
  return readings;
}

}  // namespace heddle::train
