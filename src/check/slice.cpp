#include "check/slice.h"

#include "heddle/base/error.h"

namespace heddle::check {

int64_t Slice::whole() const {
  int64_t product = 1;
  for (const int64_t dim : of) product *= dim;
  return product;
}

std::vector<int64_t> Slice::dims() const {
  std::vector<int64_t> own;
  for (const std::vector<Range>& ranges : at) {
    int64_t count = 0;
    for (const Range& range : ranges) count += range.end - range.begin;
    own.push_back(count);
  }
  return own;
}

int64_t Slice::elements() const {
  int64_t product = 1;
  for (const int64_t dim : dims()) product *= dim;
  return product;
}

std::vector<int64_t> Slice::places() const {
  std::vector<int64_t> places{0};
  for (size_t d = 0; d < of.size(); ++d) {
    std::vector<int64_t> next;
    next.reserve(places.size());
    for (const int64_t before : places) {
      for (const Range& range : at[d]) {
        for (int64_t i = range.begin; i < range.end; ++i) next.push_back(before * of[d] + i);
      }
    }
    places = std::move(next);
  }
  return places;
}

Slice Slice::all(std::vector<int64_t> dims) {
  Slice slice;
  for (const int64_t dim : dims) slice.at.push_back({{0, dim}});
  slice.of = std::move(dims);
  return slice;
}

std::vector<double> taken(const std::vector<double>& whole, const Slice& slice) {
  std::vector<double> values;
  const std::vector<int64_t> places = slice.places();
  values.reserve(places.size());
  for (const int64_t place : places) {
    HEDDLE_CHECK(place < std::ssize(whole), "element {} of a tensor of {}", place, whole.size());
    values.push_back(whole[static_cast<size_t>(place)]);
  }
  return values;
}

}  // namespace heddle::check
