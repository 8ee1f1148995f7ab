#include "heddle/cost/product_ways.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/real_text.h"
#include "heddle/base/statistics.h"

namespace heddle::cost {

namespace {

constexpr double kMostMflop = 1e12, kLeastRatio = 1e-3, kMostRatio = 1e6;

double number_of(std::string_view word, double least, double most, std::string_view entry) {
  double x = 0;
  const auto [end, error] = read_real(word.data(), word.data() + word.size(), x);
  if (error != std::errc() || end != word.data() + word.size() || !(x >= least && x <= most)) {
    config_error(
        "'{}', accepted: kind and way, MFLOP of a group, time over that of grouped, such as "
        "grouped_linear.serial 10 1.05",
        escaped(std::string(entry), 80));
  }
  return x;
}

}  // namespace

std::string measured_kind(std::string_view kind, ProductWay way) {
  return way == ProductWay::grouped ? std::string(kind) : fmt::format("{}.{}", kind, word_of(way));
}

void WayRates::set(std::string_view kind, ProductWay way, Points points) {
  std::sort(points.begin(), points.end());
  ratios_[measured_kind(kind, way)] = std::move(points);
}

double WayRates::over_grouped(std::string_view kind, ProductWay way, double flops_of_group) const {
  const auto at = ratios_.find(measured_kind(kind, way));
  if (at == ratios_.end() || at->second.empty() || way == ProductWay::grouped) return 1;
  const Points& points = at->second;
  const double mflop = flops_of_group * 1e-6;
  if (mflop <= points.front().first) return points.front().second;
  if (mflop >= points.back().first) return points.back().second;
  size_t i = 1;
  while (points[i].first < mflop) ++i;
  const auto& [before, low] = points[i - 1];
  const auto& [after, high] = points[i];
  const double part = std::log(mflop / before) / std::log(after / before);
  return low * std::pow(high / low, part);
}

WayRates measured_ways(const OpTimes& times, Dtype dtype, int threads) {
  const auto sizes_of = [](const OpShape& s) { return std::array{s.rows, s.in, s.out, s.groups, s.flops}; };
  std::map<std::pair<std::string, std::array<double, 5>>, double> grouped_us;
  for (const OpTime& time : times.all()) {
    if (time.shape.dtype == dtype && time.threads == threads)
      grouped_us[{time.shape.kind, sizes_of(time.shape)}] = time.us;
  }
  struct Near {
    std::vector<double> log_mflop, ratio;
  };
  std::map<std::string, std::map<int, Near>> near;  // by kind and way, by powers of four
  for (const OpTime& time : times.all()) {
    const OpShape& s = time.shape;
    const size_t dot = s.kind.find('.');
    if (dot == s.kind.npos || s.dtype != dtype || time.threads != threads || s.flops <= 0) continue;
    const auto at = grouped_us.find({s.kind.substr(0, dot), sizes_of(s)});
    if (at == grouped_us.end()) continue;
    const double log_mflop = std::log2(s.flops / std::max(1.0, s.groups) * 1e-6);
    Near& here = near[s.kind][static_cast<int>(std::floor(log_mflop / 2))];
    here.log_mflop.push_back(log_mflop);
    here.ratio.push_back(time.us / at->second);
  }
  WayRates rates;
  for (const auto& [kind, places] : near) {
    WayRates::Points points;
    for (const auto& [place, here] : places)
      points.emplace_back(std::exp2(median(here.log_mflop)),
                          std::clamp(median(here.ratio), kLeastRatio, kMostRatio));
    const size_t dot = kind.find('.');
    rates.set(kind.substr(0, dot), from_word<ProductWay>(kind.substr(dot + 1)), std::move(points));
  }
  return rates;
}

std::string WayRates::text() const {
  std::string text;
  for (const auto& [kind, points] : ratios_) {
    for (const auto& [mflop, ratio] : points) {
      text += fmt::format("{}{} {:.4g} {:.4g}", text.empty() ? "" : ",", kind, mflop, ratio);
    }
  }
  return text;
}

WayRates WayRates::parse(const std::string& text) {
  WayRates rates;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view entry = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const size_t first = entry.find(' '), second = entry.find(' ', first == entry.npos ? first : first + 1);
    const std::string_view kind = entry.substr(0, first);
    if (second == entry.npos) number_of("", 0, 0, entry);
    const bool known = kind.ends_with(".batched") || kind.ends_with(".serial");
    const double mflop =
        number_of(known ? entry.substr(first + 1, second - first - 1) : "", 1e-9, kMostMflop, entry);
    const double ratio = number_of(entry.substr(second + 1), kLeastRatio, kMostRatio, entry);
    rates.ratios_[std::string(kind)].emplace_back(mflop, ratio);
  }
  for (auto& [kind, points] : rates.ratios_) std::sort(points.begin(), points.end());
  return rates;
}

}  // namespace heddle::cost
