#include "heddle/schedule/generators/interleaved.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/trim.h"
#include "heddle/schedule/links.h"

namespace heddle::schedule {

namespace {

struct Step {
  int chunk, microbatch;
};

std::vector<Step> forward_steps(int chunks, int microbatches, int group) {
  std::vector<Step> steps;
  for (int first = 0; first < microbatches; first += group) {
    const int last = std::min(first + group, microbatches);
    for (int c = 0; c < chunks; ++c) {
      for (int m = first; m < last; ++m) steps.push_back({c, m});
    }
  }
  return steps;
}

// The least number from `microbatches` on that leaves no group smaller than the ranks.
int padded(int ranks, int microbatches, int group) {
  const int last = microbatches % group;
  return last == 0 || last >= ranks ? microbatches : microbatches - last + ranks;
}

Schedule make(const char* name, bool fused, int ranks, int chunks, int microbatches, int group) {
  Schedule s{name, loop_placement(ranks, chunks), padded(ranks, microbatches, group), {}};
  const int all = s.microbatches * chunks;
  const std::vector<Step> steps = forward_steps(chunks, s.microbatches, group);
  for (int r = 0; r < ranks; ++r) {
    std::vector<Action>& order = s.order.emplace_back();
    const auto forward = [&](int k) {
      const Step& step = steps[k];
      return Compute{Kind::F, step.chunk * ranks + r, step.microbatch};
    };
    const auto backward = [&](int k) {
      const Step& step = steps[k];
      return Compute{Kind::B, (chunks - 1 - step.chunk) * ranks + r, step.microbatch};
    };
    const int warm_up = std::min(2 * (ranks - 1 - r) + (chunks - 1) * group + (fused ? 1 : 0), all);
    for (int k = 0; k < all + warm_up; ++k) {
      if (fused && k >= warm_up && k < all) {
        order.push_back({forward(k), backward(k - warm_up)});
        continue;
      }
      if (k < all) order.push_back({forward(k), {}});
      if (k >= warm_up) order.push_back({backward(k - warm_up), {}});
    }
  }
  return s.microbatches == microbatches ? s : trimmed(std::move(s), microbatches);
}

Schedule checked(const char* name, bool fused, int ranks, int chunks, int microbatches, int group) {
  const int least = fused ? 1 : 2;
  if (ranks < 1 || ranks > kMostRanks) config_error("{}: {} ranks, accepted 1 to {}", name, ranks, kMostRanks);
  if (chunks < least || chunks > kMostStages / ranks) {
    config_error("{}: {} chunks a rank, accepted {} to {}{}", name, chunks, least, kMostStages / ranks,
                 fused ? "" : " (with one it is 1f1b)");
  }
  if (group == 0) group = ranks;
  if (group < ranks || group > kMostCells)
    config_error("{}: groups of {} microbatches, accepted {} (the ranks) to {}", name, group, ranks, kMostCells);
  check_size(loop_placement(ranks, chunks), static_cast<int64_t>(microbatches) + ranks);
  return make(name, fused, ranks, chunks, microbatches, group);
}

}  // namespace

Schedule interleaved(int ranks, int chunks, int microbatches, int group) {
  return checked("interleaved", false, ranks, chunks, microbatches, group);
}

Schedule interleaved_fused(int ranks, int chunks, int microbatches, int group) {
  return checked("interleaved_fused", true, ranks, chunks, microbatches, group);
}

namespace {

double chunked_bubble(const PipelineSize& p, const StageTimes& t) { return (p.ranks - 1) * t.sum() / p.chunks; }

// The warm-up is 2(P − r − 1) + (v − 1)P chunks, and `at_work` more are at work.
double chunked_in_flight(const PipelineSize& p, int rank, int at_work) {
  return std::min(p.microbatches, ((p.chunks - 1.0) * p.ranks + 2.0 * (p.ranks - rank - 1) + at_work) / p.chunks);
}

std::string_view fewer_microbatches(const PipelineSize& p) {
  return p.microbatches < p.ranks ? "fewer microbatches than ranks" : "";
}

}  // namespace

Outline interleaved_outline() {
  Outline o;
  o.bubble = chunked_bubble;
  o.in_flight = [](const PipelineSize& p, int rank) { return chunked_in_flight(p, rank, 1); };
  o.misfit = fewer_microbatches;
  return o;
}

Outline interleaved_fused_outline() {
  Outline o;
  o.bubble = chunked_bubble;
  o.in_flight = [](const PipelineSize& p, int rank) {
    return p.ranks == 1 ? std::min(p.microbatches, 2.0) : chunked_in_flight(p, rank, 2);
  };
  o.unpaired = [](const PipelineSize& p) { return chunked_in_flight(p, p.ranks / 2, 2); };
  o.misfit = fewer_microbatches;
  o.alone = true;
  return o;
}

}  // namespace heddle::schedule
