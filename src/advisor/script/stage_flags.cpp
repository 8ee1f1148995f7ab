#include "advisor/script/stage_flags.h"

#include <algorithm>
#include <numeric>

namespace heddle::advisor {

namespace {

bool counts_embedding(const Reading& r) { return r.given.has("--account-for-embedding-in-pipeline-split"); }
bool counts_loss(const Reading& r) { return r.given.has("--account-for-loss-in-pipeline-split"); }

// The numbers of "7,8,8,7" and of "[[0,1],[1,1]*2]": lists of lists in order, "*" repeats what stands before it.
std::vector<int> numbers_of(const std::vector<std::string>& values) {
  constexpr size_t kMost = 100000;
  const std::string text = fmt::format("{},", fmt::join(values, ","));
  std::vector<int> numbers;
  std::vector<size_t> open;
  size_t last = 0;  // where the number or list before this place begins
  bool repeats = false;
  int64_t n = -1;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      n = std::min<int64_t>(std::max<int64_t>(n, 0) * 10 + (c - '0'), 1 << 20);
      continue;
    }
    if (n >= 0 && repeats) {
      const std::vector<int> part(numbers.begin() + static_cast<std::ptrdiff_t>(last), numbers.end());
      numbers.resize(last);
      for (int64_t i = 0; i < n && numbers.size() + part.size() <= kMost; ++i)
        numbers.insert(numbers.end(), part.begin(), part.end());
    } else if (n >= 0) {
      last = numbers.size();
      numbers.push_back(static_cast<int>(n));
    }
    if (n >= 0) repeats = false;
    n = -1;
    if (c == '*') repeats = true;
    if (c == '[') open.push_back(numbers.size());
    if (c == ']' && !open.empty()) last = open.back(), open.pop_back();
  }
  return numbers;
}

class Stages {
 public:
  explicit Stages(const Reading& r)
      : r_(r),
        ranks_(r.launch.job.mesh.pp),
        chunks_(std::max(1, pipeline_size(r.launch.job).chunks)),
        places_(places_of(r.launch)) {}

  /// Places of each stage, a rank's chunks one after another; empty: they don't divide.
  std::vector<int> of_ranks() const {
    for (const char* list : {"--num-layer-list", "--pipeline-num-transformer-layers"})
      if (r_.given.has(list)) return listed(list);
    const bool first = r_.given.has(kFirst), last = r_.given.has(kLast);
    if (first || last) return but_ends(first, last);
    const int64_t counted = counted_places(r_), stages = int64_t{ranks_} * chunks_;
    if (counted % stages != 0) return {};
    std::vector<int> places(static_cast<size_t>(stages), static_cast<int>(counted / stages));
    if (counts_embedding(r_)) --places.front();
    if (counts_loss(r_)) --places.back();
    return places;
  }

 private:
  static constexpr const char* kFirst = "--decoder-first-pipeline-num-layers";
  static constexpr const char* kLast = "--decoder-last-pipeline-num-layers";

  std::vector<int> listed(const char* flag) const {
    std::vector<int> numbers = numbers_of(r_.given.all(flag));
    if (static_cast<int64_t>(numbers.size()) != int64_t{ranks_} * chunks_ ||
        std::accumulate(numbers.begin(), numbers.end(), int64_t{0}) != places_)
      r_.given.refuse(flag, fmt::format("{} numbers that together are {}", int64_t{ranks_} * chunks_, places_));
    return numbers;
  }

  std::vector<int> but_ends(bool has_first, bool has_last) const {
    const int64_t first = r_.given.whole(kFirst, 0, 1), last = r_.given.whole(kLast, 0, 1);
    const int64_t others = ranks_ - (has_first ? 1 : 0) - (has_last ? 1 : 0), rest = places_ - first - last;
    const char* const flag = has_first ? kFirst : kLast;
    if (rest < 0 || (others == 0 ? rest != 0 : rest % others != 0))
      r_.given.refuse(flag, fmt::format("what leaves {} of {} layers for each of {} other ranks",
                                        others == 0 ? "none" : "the same part", places_, others));
    std::vector<int> places;
    for (int rank = 0; rank < ranks_; ++rank) {
      const int64_t here = rank == 0 && has_first ? first : rank == ranks_ - 1 && has_last ? last : rest / others;
      if (here % chunks_ != 0)
        r_.given.refuse(flag, fmt::format("with {} chunks a rank a multiple of them on each", chunks_));
      places.insert(places.end(), static_cast<size_t>(chunks_), static_cast<int>(here / chunks_));
    }
    return places;
  }

  const Reading& r_;
  int ranks_, chunks_;
  int64_t places_;
};

}  // namespace

int64_t counted_places(const Reading& r) {
  return places_of(r.launch) + (counts_embedding(r) ? 1 : 0) + (counts_loss(r) ? 1 : 0);
}

std::string layout_by_flags(const Reading& r) {
  const Launch& launch = r.launch;
  const int ranks = launch.job.mesh.pp, chunks = std::max(1, pipeline_size(launch.job).chunks);
  const size_t stages = static_cast<size_t>(ranks) * static_cast<size_t>(chunks);
  const std::vector<int> of_ranks = Stages(r).of_ranks();
  if (of_ranks.empty()) {
    if (!launch.noop.empty())
      r.given.refuse("--noop-layers",
                     fmt::format("with {} layers a multiple of {} stages", places_of(launch), stages));
    r.notes.push_back(fmt::format(
        "{} layers are no multiple of {} stages, which the trainer wants equal: they are balanced by the estimate",
        counted_places(r), stages));
    return launch_of(launch.job).layout;
  }
  // Stages go round the ranks once for each chunk.
  std::vector<int> layers(stages);
  for (size_t s = 0; s < stages; ++s) layers[s] = of_ranks[s % ranks * chunks + s / ranks];
  size_t stage = 0;
  int behind = layers.front();
  const std::vector<int> places = layers;
  for (const int place : launch.noop) {
    while (place >= behind) behind += places[++stage];
    --layers[stage];
  }
  return layout_text(launch.job, layers);
}

}  // namespace heddle::advisor
