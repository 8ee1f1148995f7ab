#include "heddle/config/batch_ramp.h"

#include <algorithm>
#include <charconv>

#include "heddle/base/error.h"
#include "heddle/plan/divisors.h"

namespace heddle::config {

std::vector<int64_t> BatchRamp::batches(int64_t whole) const {
  std::vector<int64_t> all;
  if (*this) {
    for (int64_t batch = start; batch < whole; batch += increment) all.push_back(batch);
  }
  all.push_back(whole);
  return all;
}

// As long as no more than `sequences` were read, ⌊read ÷ (sequences ÷ increments)⌋ increments have been made.
BatchRamp::Place BatchRamp::after(int64_t steps, int64_t whole) const {
  Place place{0, whole};
  const std::vector<int64_t> all = batches(whole);
  const int64_t increments = std::ssize(all) - 1;
  for (int64_t i = 0; i < increments; ++i) {
    // The first number of sequences at which i + 1 increments have been made.
    const int64_t end = (sequences * (i + 1) + increments - 1) / increments;
    const int64_t batch = all[i];
    const int64_t here = std::max<int64_t>(0, (end - place.consumed + batch - 1) / batch);
    if (steps < here) return {place.consumed + steps * batch, batch};
    place.consumed += here * batch;
    steps -= here;
  }
  place.consumed += steps * whole;
  return place;
}

int64_t BatchRamp::steps_to(int64_t consumed, int64_t whole) const {
  int64_t most = 1;
  while (after(most, whole).consumed < consumed) most *= 2;
  int64_t least = most / 2;  // have not read them
  while (most - least > 1) {
    const int64_t middle = least + (most - least) / 2;
    (after(middle, whole).consumed < consumed ? least : most) = middle;
  }
  return most;
}

BatchRamp parse_batch_ramp(std::string_view text) {
  BatchRamp ramp;
  std::vector<int64_t> numbers;
  const char *at = text.data(), *const end = text.data() + text.size();
  const auto blanks = [&] {
    while (at != end && (*at == ' ' || *at == ',')) ++at;
  };
  for (blanks(); at != end; blanks()) {
    int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    const bool whole = error == std::errc() && (next == end || *next == ' ' || *next == ',');
    if (!whole || number < 1 || number > (int64_t{1} << 40)) break;
    numbers.push_back(number);
    at = next;
  }
  if (numbers.empty() && at == end) return ramp;
  if (numbers.size() != 3 || at != end) {
    config_error("'{}' is not three numbers: \"START INCREMENT SEQUENCES\", such as \"16 16 100000\"", text);
  }
  return {numbers[0], numbers[1], numbers[2]};
}

std::string text_of(const BatchRamp& ramp) {
  return ramp ? fmt::format("{} {} {}", ramp.start, ramp.increment, ramp.sequences) : "";
}

void check_batch_ramp(const BatchRamp& ramp, int64_t whole, int64_t unit) {
  if (!ramp) return;
  if (ramp.start > whole) config_error("it begins at {}, above train.global_batch ({})", ramp.start, whole);
  if ((whole - ramp.start) % ramp.increment != 0) {
    config_error("from {} by {} a step's sequences don't come to train.global_batch ({}); increments that do: {}",
                 ramp.start, ramp.increment, whole, plan::divisors_text(whole - ramp.start));
  }
  if (ramp.start % unit != 0 || (ramp.start < whole && ramp.increment % unit != 0)) {
    config_error(
        "its batches, {} and {} more each time, must be multiples of train.microbatch × the data parallel "
        "ranks ({})",
        ramp.start, ramp.increment, unit);
  }
  if ((whole - ramp.start) / ramp.increment > kMostBatches) {
    config_error("{} batches on the way to train.global_batch, at most {} are accepted",
                 (whole - ramp.start) / ramp.increment, kMostBatches);
  }
}

}  // namespace heddle::config
