#include "heddle/data/blend.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::data {
namespace {

constexpr size_t kMostDecimals = 12;
constexpr int64_t kMostShareWeight = int64_t{1} << 52;  // so that a sum of them times a place fits 128 bits by far

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "0.25" as digits and how many of them stand behind the point. False if it is no such number.
bool read_weight(std::string_view text, int64_t& digits, size_t& decimals) {
  digits = 0;
  decimals = 0;
  bool point = false, any = false;
  for (const char c : text) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(c) || digits > kMostShareWeight / 10 || (point && decimals == kMostDecimals)) return false;
    digits = digits * 10 + (c - '0');
    decimals += point;
    any = true;
  }
  return any;
}

}  // namespace

Blend::Blend(std::vector<int64_t> weights) : weights_(std::move(weights)), sums_{0} {
  HEDDLE_CHECK(!weights_.empty(), "a blend of nothing");
  part_of_.resize(parts());
  rank_of_.resize(parts());
  std::iota(part_of_.begin(), part_of_.end(), size_t{0});
  std::stable_sort(part_of_.begin(), part_of_.end(), [&](size_t a, size_t b) { return weights_[a] > weights_[b]; });
  for (size_t rank = 0; rank < parts(); ++rank) {
    const int64_t weight = weights_[part_of_[rank]];
    HEDDLE_CHECK(weight > 0 && weight <= kMostShareWeight, "a weight of {}", weight);
    rank_of_[part_of_[rank]] = rank;
    sums_.push_back(sums_.back() + weight);
  }
  if (parts() > 1) grow(0, parts());
}

int64_t Blend::weight(size_t begin, size_t end) const { return sums_[end] - sums_[begin]; }

double Blend::share(size_t part) const {
  return static_cast<double>(weights_[part]) / static_cast<double>(sums_.back());
}

size_t Blend::grow(size_t begin, size_t end) {
  size_t middle = begin + 1;
  const auto unevenness = [&](size_t cut) { return std::llabs(weight(begin, cut) - weight(cut, end)); };
  for (size_t cut = begin + 1; cut < end; ++cut) {
    if (unevenness(cut) < unevenness(middle)) middle = cut;
  }
  const size_t at = nodes_.size();
  nodes_.push_back({begin, middle, end});
  if (middle - begin > 1) {
    const size_t left = grow(begin, middle);
    nodes_[at].left = left;
  }
  if (end - middle > 1) {
    const size_t right = grow(middle, end);
    nodes_[at].right = right;
  }
  return at;
}

int64_t Blend::left_of(const Node& node, int64_t places) const {
  const __int128 whole = weight(node.begin, node.end), left = weight(node.begin, node.middle);
  return static_cast<int64_t>((2 * __int128{places} * left + whole) / (2 * whole));
}

Blend::Place Blend::at(int64_t place) const {
  HEDDLE_CHECK(place >= 0, "place {} of a blend", place);
  if (parts() == 1) return {0, place};
  for (size_t at = 0;;) {
    const Node& node = nodes_[at];
    const int64_t before = left_of(node, place);
    if (left_of(node, place + 1) > before) {
      place = before;
      if (node.middle - node.begin == 1) return {part_of_[node.begin], place};
      at = node.left;
    } else {
      place -= before;
      if (node.end - node.middle == 1) return {part_of_[node.middle], place};
      at = node.right;
    }
  }
}

int64_t Blend::count(size_t part, int64_t places) const {
  if (parts() == 1) return places;
  for (size_t at = 0;;) {
    const Node& node = nodes_[at];
    const bool left = rank_of_[part] < node.middle;
    const int64_t before = left_of(node, places);
    places = left ? before : places - before;
    if (left ? node.middle - node.begin == 1 : node.end - node.middle == 1) return places;
    at = left ? node.left : node.right;
  }
}

std::vector<BlendPart> parse_blend(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    at = end;
  }
  int64_t digits = 0;
  size_t decimals = 0;
  const bool begins_with_number = !words.empty() && words[0].find_first_not_of("0123456789.") == std::string::npos;
  if (words.size() < 2 || !begins_with_number) return {{std::string(text), 1}};
  if (words.size() % 2 != 0) {
    config_error("'{}': a blend is WEIGHT PATH WEIGHT PATH …, and '{}' has no path behind it", escaped(text, 200),
                 escaped(words.back(), 80));
  }
  if (words.size() / 2 > kMostBlendParts) {
    config_error("a blend of {} texts, at most {} are accepted", words.size() / 2, kMostBlendParts);
  }
  std::vector<BlendPart> parts;
  std::vector<size_t> places;
  for (size_t i = 0; i < words.size(); i += 2) {
    if (!read_weight(words[i], digits, decimals) || digits == 0) {
      config_error("'{}': '{}' is found where a weight is expected, a number above 0 with at most {} decimals",
                   escaped(text, 200), escaped(words[i], 80), kMostDecimals);
    }
    parts.push_back({words[i + 1], digits});
    places.push_back(decimals);
  }
  const size_t most = *std::max_element(places.begin(), places.end());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t missing = places[i]; missing < most; ++missing) {
      if (parts[i].weight > kMostShareWeight / 10)
        config_error("'{}': too many digits in the weights", escaped(text, 200));
      parts[i].weight *= 10;
    }
  }
  return parts;
}

}  // namespace heddle::data
