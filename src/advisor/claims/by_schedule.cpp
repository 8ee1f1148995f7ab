// Claims that the timing of pipeline schedules answers.
#include <vector>

#include "advisor/claims/computed.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/pipeline.h"
#include "heddle/schedule/timing.h"
#include "heddle/search/block_work.h"

namespace heddle::advisor {

namespace {

constexpr int kRanks = 8, kMicrobatches = 24;  // of the Zero Bubble paper's middle rows

schedule::Timing timing(const char* name, const schedule::StageTimes& rank, int ranks, int microbatches,
                        double hop) {
  schedule::GeneratorOptions options;
  options.ranks = ranks;
  options.microbatches = microbatches;
  const schedule::Schedule s = schedule::make_schedule(name, options);
  return schedule::timing_of(s, schedule::even_times(s.placement, rank, 1, hop));
}

}  // namespace

double gain_of_zero_bubble(int ranks, int microbatches, double f, double i, double w, double hop) {
  const auto rate = [&](const char* name) {
    return 1 - timing(name, {f, i, w, 0}, ranks, microbatches, hop).staggered_rate();
  };
  return rate("zb_h1") / rate("1f1b") - 1;
}

// With forward, input and weight gradients that take as long as each other.
double bubble_of_zero_bubble() {
  const auto bubble = [](const char* name) { return timing(name, {}, kRanks, kMicrobatches, 0).staggered(); };
  return bubble("zb_h1") / bubble("1f1b");
}

double stage_0_of_zero_bubble() {
  schedule::PipelineSize size;
  size.ranks = kRanks;
  size.microbatches = kMicrobatches;
  const auto held = [&](const char* name) { return schedule::find_pipeline(name)->in_flight(size, 0); };
  return held("zb_h1") / held("1f1b") - 1;
}

// 61 layers on eight ranks: two chunks of up to four layers each, three places empty, against one chunk of seven or
// eight, which needs no equal chunks.
double gain_of_empty_layers(int microbatches) {
  search::Job j;
  j.shape = *model::find_shape("DeepSeek-V3");
  j.device = *cost::accelerator_named("C500");
  j.mesh = {.dp = 128, .pp = 8, .ep = 8};
  j.global_batch = 128 * microbatches;
  const search::Behaviour behaviour;
  const search::Layers of =
      search::layers_of(j, search::prices_of(j, model::parameters_of(j.shape), behaviour), behaviour);
  const auto step = [&](const char* name, int chunks, const std::vector<int>& layers) {
    schedule::GeneratorOptions options;
    options.ranks = j.mesh.pp;
    options.microbatches = microbatches;
    options.chunks = chunks;
    const schedule::Schedule s = schedule::make_schedule(name, options);
    schedule::Times times;
    for (const int n : layers)
      times.stages.push_back({n * of.forward_s, n * (of.layer_s - of.forward_s - of.weight_s), n * of.weight_s, 0});
    return schedule::timing_of(s, times).makespan;
  };
  std::vector<int> one(8, 8), two(16, 4);
  one[0] = one[6] = one[7] = 7;  // 61 of 64
  two[0] = two[14] = two[15] = 3;
  return step("1f1b", 1, one) / step("interleaved", 2, two) - 1;
}

}  // namespace heddle::advisor
