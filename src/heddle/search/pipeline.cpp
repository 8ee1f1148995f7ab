#include "heddle/search/pipeline.h"

#include <algorithm>
#include <array>

namespace heddle::search {

namespace {

struct Named {
  Pipeline pipeline;
  std::string_view name;
  int chunks;
};
constexpr std::array<Named, 9> kNames = {{
    {Pipeline::usual, "usual", 0},
    {Pipeline::one_f_one_b, "1f1b", 1},
    {Pipeline::interleaved, "interleaved", 0},
    {Pipeline::interleaved_fused, "interleaved_fused", 0},
    {Pipeline::zb_h1, "zb_h1", 1},
    {Pipeline::zb_h2, "zb_h2", 1},
    {Pipeline::zb_v, "zb_v", 2},
    {Pipeline::dual_pipe, "dual_pipe", 1},
    {Pipeline::dual_pipe_v, "dual_pipe_v", 2},
}};

}  // namespace

std::string_view name_of(Pipeline pipeline) {
  for (const Named& n : kNames)
    if (n.pipeline == pipeline) return n.name;
  return "";
}

std::optional<Pipeline> pipeline_named(std::string_view name) {
  for (const Named& n : kNames)
    if (n.name == name) return n.pipeline;
  return std::nullopt;
}

const std::vector<Pipeline>& pipelines() {
  static const std::vector<Pipeline> all = [] {
    std::vector<Pipeline> list;
    for (const Named& n : kNames)
      if (n.pipeline != Pipeline::usual) list.push_back(n.pipeline);
    return list;
  }();
  return all;
}

bool pairs(Pipeline p) {
  return p == Pipeline::interleaved_fused || p == Pipeline::dual_pipe || p == Pipeline::dual_pipe_v;
}

bool folded(Pipeline p) { return p == Pipeline::zb_v || p == Pipeline::dual_pipe || p == Pipeline::dual_pipe_v; }

int chunks_of(Pipeline pipeline) {
  for (const Named& n : kNames)
    if (n.pipeline == pipeline) return n.chunks;
  return 0;
}

std::string_view misfit(Pipeline p, int ranks, int chunks, double microbatches) {
  if (ranks == 1 && p != Pipeline::one_f_one_b && p != Pipeline::interleaved_fused)
    return "one rank is no pipeline";
  if (p == Pipeline::interleaved && chunks < 2) return "fewer than two chunks";
  if (p == Pipeline::dual_pipe && (ranks % 2 != 0 || static_cast<int64_t>(microbatches) % 2 != 0))
    return "dual_pipe halves ranks and microbatches";
  // Below these a schedule is that of more microbatches, cut: its warm-up doesn't fill.
  if ((p == Pipeline::dual_pipe || p == Pipeline::dual_pipe_v) && microbatches < 2 * ranks)
    return "fewer microbatches than twice the ranks";
  if (p == Pipeline::zb_v && microbatches < 2 * ranks - 1) return "fewer microbatches than twice the ranks";
  if ((p == Pipeline::interleaved || p == Pipeline::interleaved_fused) && microbatches < ranks)
    return "fewer microbatches than ranks";
  return "";
}

double bubble_s(Pipeline p, int ranks, int chunks, const RankTimes& t) {
  const double f = t.forward, i = t.input_grad, w = t.weight_grad;
  switch (p) {
    case Pipeline::zb_h1: return (ranks - 1) * std::max(f, f + i - w);
    case Pipeline::zb_h2: return (ranks - 1) * std::max(f, f + i - 2 * w);
    case Pipeline::zb_v: return (ranks - 1) * std::max({f / 2, i / 2, i - w});
    // (P/2 − 1)(FB + B − 3W) and (P − 1)(fb + b − 3w), the small letters of one of two chunks.
    case Pipeline::dual_pipe: return (ranks / 2.0 - 1) * std::max(f, f + 2 * i - w);
    case Pipeline::dual_pipe_v: return (ranks - 1) * std::max(f, f + 2 * i - w) / 2;
    default: return (ranks - 1) * t.sum() / chunks;
  }
}

double in_flight(Pipeline p, int ranks, int chunks, double m, int rank) {
  if (ranks == 1) return std::min(m, p == Pipeline::interleaved_fused ? 2.0 : 1.0);
  switch (p) {
    case Pipeline::interleaved:
      // The warm-up is 2(P − r − 1) + (v − 1)P chunks, and one more is at work.
      return std::min(m, ((chunks - 1.0) * ranks + 2.0 * (ranks - rank - 1) + 1) / chunks);
    case Pipeline::interleaved_fused:
      return std::min(m, ((chunks - 1.0) * ranks + 2.0 * (ranks - rank - 1) + 2) / chunks);
    // Split backwards: nearly all activations stay until W, so that the later ranks hold as much as the first.
    case Pipeline::zb_h1:
    case Pipeline::zb_v: return std::min<double>(m, ranks);
    case Pipeline::zb_h2: return std::min(m, 2.0 * ranks - 1);
    case Pipeline::dual_pipe: return std::min(m, ranks + 1.0);
    case Pipeline::dual_pipe_v: return std::min(m, ranks + 0.5);
    default: return std::min<double>(m, ranks - rank);
  }
}

double unpaired(Pipeline p, int ranks, int chunks, double m) {
  // (3P − r − 1)/2 of rank r; DualPipe's halves of P/2 ranks and m/2 microbatches come to as many.
  if (p == Pipeline::dual_pipe || p == Pipeline::dual_pipe_v) return std::min(m, 1.25 * ranks);
  return in_flight(p, ranks, chunks, m, ranks / 2);
}

}  // namespace heddle::search
