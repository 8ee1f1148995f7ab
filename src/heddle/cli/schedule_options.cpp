#include "heddle/cli/schedule_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/plan/layout.h"

namespace heddle::cli {

using schedule::GeneratorOptions, schedule::Placement;

std::vector<double> numbers_of(const char* flag, const std::string& text, size_t least, size_t most) {
  std::vector<double> numbers;
  const char *at = text.data(), *end = at + text.size();
  bool ok = true;
  while (ok) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    ok = error == std::errc{} && std::isfinite(number) && number >= 0;
    if (ok) numbers.push_back(number);
    if (!ok || stop == end) break;
    ok = *stop == ',';
    at = stop + 1;
  }
  if (!ok || numbers.size() < least || numbers.size() > most) {
    config_error("schedule: {} '{}', accepted {} numbers of at least 0 with commas between them", flag,
                 text.substr(0, 60),
                 least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most));
  }
  return numbers;
}

Given given_by(const ScheduleOptions& options) {
  const std::vector<double> times = numbers_of("--times", options.times, 3, 5);
  const std::vector<double> memory = numbers_of("--memory", options.memory, 2, 2);
  Given given;
  given.rank = {times[0], times[1], times[2], options.all_to_all};
  given.pair = times.size() > 3 ? times[3] : times[0] + times[1] + times[2];
  given.hop = times.size() > 4 ? times[4] : 0;
  given.bytes = {memory[0], memory[1]};
  if (times[0] + times[1] + times[2] <= 0)
    config_error("schedule: --times '{}', accepted a sum above 0", options.times);
  return given;
}

namespace {

// Returns the part of each stage in what all stages of one rank take.
std::vector<double> shares_of(const Placement& placement, const std::string& layout) {
  std::vector<double> shares(static_cast<size_t>(placement.stages),
                             static_cast<double>(placement.ranks) / placement.stages);
  if (layout.empty()) return shares;
  const std::vector<std::string> letters = plan::letters_of_layout(layout, placement.stages);
  double layers = 0;
  for (size_t s = 0; s < shares.size(); ++s) {
    shares[s] = static_cast<double>(
        std::count_if(letters[s].begin(), letters[s].end(), [](char c) { return c == 't' || c == 'm'; }));
    layers += shares[s];
  }
  if (layers == 0) config_error("schedule: --layout '{}' has no layers", layout.substr(0, 60));
  for (double& share : shares) share *= placement.ranks / layers;
  return shares;
}

}  // namespace

OfStages of_stages(const Placement& placement, const Given& given, const ScheduleOptions& options) {
  OfStages of;
  for (const double share : shares_of(placement, options.layout)) {
    of.times.stages.push_back({given.rank.forward * share, given.rank.input_grad * share,
                               given.rank.weight_grad * share, given.rank.all_to_all * share});
    of.bytes.push_back({given.bytes.until_input_grad * share, given.bytes.until_weight_grad * share});
  }
  of.times.pair = given.pair / (given.rank.forward + given.rank.input_grad + given.rank.weight_grad);
  of.times.hop = given.hop;
  return of;
}

GeneratorOptions generator_options(const ScheduleOptions& options, const Given& given) {
  const auto number = [](const char* flag, int64_t value) {
    if (value > schedule::kMostCells)
      config_error("schedule: {} {}, accepted up to {}", flag, value, schedule::kMostCells);
    return static_cast<int>(value);
  };
  constexpr int kUsualRanks = 4;
  const double held = given.bytes.until_input_grad + given.bytes.until_weight_grad;
  const int ranks = options.ranks > 0 ? number("--ranks", options.ranks) : kUsualRanks;
  return {.ranks = ranks,
          .microbatches = options.microbatches > 0 ? number("--microbatches", options.microbatches) : 2 * ranks,
          .chunks = number("--chunks", options.chunks),
          .group = number("--group", options.group),
          .rank = given.rank,
          .hop = given.hop,
          .kept_for_w = held > 0 ? given.bytes.until_weight_grad / held : 1};
}

}  // namespace heddle::cli
