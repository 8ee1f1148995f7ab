// A made-up run of the shape and size of a real one, for tests of what draws it. Deterministic.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "heddle/observe/report.h"

namespace heddle::observe {

class SyntheticNoise {
 public:
  /// Uniform in [-1, 1).
  double next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state_ >> 11) / 4503599627370496.0 - 1;
  }

 private:
  uint64_t state_ = 20;
};

/// One step of 1F1B over `ranks` stages with an expert exchange overlapped: compute, exchange and copy streams.
inline Timeline synthetic_timeline(int ranks, int microbatches, int layers) {
  Timeline timeline;
  SyntheticNoise noise;
  struct Work {
    const char* kind;
    double us;
    bool comm;
  };
  const std::vector<Work> forward = {{"rms_norm", 18, false},        {"linear", 95, false},
                                     {"attention", 160, false},      {"router_scores", 22, false},
                                     {"exchange", 120, true},        {"shared_expert", 90, false},
                                     {"grouped_linear", 210, false}, {"exchange", 120, true}};
  for (int rank = 0; rank < ranks; ++rank) {
    const uint32_t compute = timeline.track(rank, "compute"), comm = timeline.track(rank, "comm.ep"),
                   copy = timeline.track(rank, "copy");
    double now_us = rank * 900.0 * layers / 4, comm_us = now_us;
    const auto run = [&](SpanPhase phase, int microbatch, double scale) {
      for (int layer = 0; layer < layers; ++layer) {
        for (const Work& work : forward) {
          const double length_us = work.us * scale * (1 + 0.08 * noise.next());
          double& clock_us = work.comm ? comm_us : now_us;
          if (work.comm) clock_us = std::max(clock_us, now_us - 40);
          const int number = rank * layers + layer;
          timeline.spans.push_back({timeline.intern("moe." + std::to_string(number) + " " + work.kind),
                                    timeline.intern(work.kind), work.comm ? comm : compute, clock_us,
                                    clock_us + length_us, phase, rank, microbatch, number, 5000});
          clock_us += length_us + 2;
        }
        now_us = std::max(now_us, comm_us - 150);
      }
      if (phase == SpanPhase::F) {
        timeline.spans.push_back({timeline.intern("copy_out"), timeline.intern("copy_out"), copy, now_us - 300,
                                  now_us + 250, SpanPhase::other, rank, microbatch, -1, 5000});
      }
    };
    int begun = 0, ended = 0;
    for (; begun < std::min(microbatches, ranks - rank); ++begun) run(SpanPhase::F, begun, 1);
    now_us += (ranks - rank - 1) * 900.0 * layers / 2;
    while (ended < microbatches) {
      run(SpanPhase::I, ended, 1.1);
      run(SpanPhase::W, ended++, 0.8);
      if (begun < microbatches) run(SpanPhase::F, begun++, 1);
    }
    now_us = std::max(now_us, comm_us);
    timeline.spans.push_back({timeline.intern("reduce_scatter gradients"), timeline.intern("reduce_scatter"), comm,
                              now_us, now_us + 2400, SpanPhase::end, rank, -1, -1, 5000});
    timeline.spans.push_back({timeline.intern("adamw"), timeline.intern("adamw"), compute, now_us + 2400,
                              now_us + 4100, SpanPhase::end, rank, -1, -1, 5000});
  }
  return timeline;
}

inline ReportData synthetic_run() {
  constexpr double kMiB = 1048576.0;
  ReportData data;
  SyntheticNoise noise;
  data.run_name = "moe-1b-fineweb · 1F1B, experts over 4";
  data.subtitle = "21 November 2026, 02:10 to 14:26 UTC on 4 ranks of one node";
  data.model = {{"parameters", "1.3 G"},      {"active", "310 M"},          {"layers", "12"},
                {"experts", "64, top 6 + 1"}, {"sequence", "2,048 tokens"}, {"batch", "256 sequences"}};
  for (int i = 1; i <= 5000; ++i) {
    StepMetrics step;
    step.step = i;
    step.wall_time_s = 1.76e9 + i * 8.8;
    const double t = i / 5000.0;
    const double clean = 2.92 + 8.0 * std::exp(-i / 130.0) + 1.1 * std::exp(-i / 1400.0);
    step.set(figures::kLoss, clean + 0.07 * noise.next() + 0.05 * noise.next());
    if (i == 2210) step.set(figures::kLoss, std::numeric_limits<double>::quiet_NaN());
    step.set(figures::kDepthLoss, clean + 0.55 + 0.08 * noise.next());
    step.set(figures::kAuxiliaryLoss, 0.0105 + 0.006 * std::exp(-i / 300.0) + 0.0003 * noise.next());
    if (i % 500 == 0) step.set(figures::kHeldOutLoss, clean + 0.06);
    step.set(figures::kLearningRate,
             i < 200 ? 4.2e-4 * i / 200 : 4.2e-5 + 1.89e-4 * (1 + std::cos(M_PI * (t - 0.04) / 0.96)));
    step.set(figures::kGradientNorm,
             0.35 + 3.0 * std::exp(-i / 90.0) + 0.08 * (1 + noise.next()) + (i % 811 == 0 ? 2.6 : 0));
    step.set(figures::kTokensPerSecond, 59500 + 900 * noise.next() - (i % 1000 < 3 ? 21000 : 0));
    step.set(figures::kFlopsPerSecond, step.get(figures::kTokensPerSecond, 0) * 6 * 3.1e8);
    step.set(figures::kTokens, i * 524288.0);
    step.set(figures::kImbalance, 1.25 + 2.4 * std::exp(-i / 250.0) + 0.12 * (1 + noise.next()));
    step.set(figures::kArenaLivePeak, 5830 * kMiB);
    step.set(figures::kArenaReservedPeak, 6044 * kMiB);
    data.steps.push_back(std::move(step));
  }
  // Loads even out over the run; copies make of eight ranks' rows what is nearly even.
  for (int moment = 1; moment <= 20; ++moment) {
    StepMetrics& step = data.steps[static_cast<size_t>(moment * 250 - 1)];
    const double early = 1.0 / moment;
    for (int layer = 0; layer < 12; ++layer) {
      Figures& told = step.layers.emplace_back();
      std::vector<double> loads_E, routed_H, computed_H;
      for (int expert = 0; expert < 64; ++expert) {
        loads_E.push_back(
            std::round(49152 * std::exp((0.35 + 1.2 * early) * (noise.next() + noise.next()) +
                                        (expert == 3 * layer + 5 ? 1.3 : 0) - (noise.next() > 0.97 ? 2 : 0))));
      }
      double all = 0;
      for (size_t rank = 0; rank < 8; ++rank) {
        const double* first = loads_E.data() + rank * 8;
        all += routed_H.emplace_back(std::accumulate(first, first + 8, 0.0));
      }
      for (size_t rank = 0; rank < 8; ++rank) computed_H.push_back(std::round(all / 8 * (1 + 0.04 * noise.next())));
      told.set_list(figures::kExpertLoads, loads_E);
      told.set_list(figures::kRoutedRows, routed_H);
      told.set_list(figures::kComputedRows, computed_H);
      told.set(figures::kReplicaRows, std::round(all * 0.2 * early));
      told.set(figures::kReplicaCrossingsSaved, std::round(all * 0.05 * early));
      told.set(figures::kReplicaWeightBytes, 900 * kMiB * early);
      told.set(figures::kReplicaGradientBytes, 600 * kMiB * early);
      told.set(figures::kReplicasByCounts, 10 - 4.0 * moment / 20);
      told.set(figures::kReplicasByHistory, 0);
      told.set(figures::kReplicasEven, 4.0 * moment / 20);
      told.set(figures::kReplicasNotWorth, 1);
    }
    add_layers(step, figures::kCopies);
    step.set(figures::kFullestRouted, 1.2 + 1.4 * early);
    step.set(figures::kFullestWithReplicas, 1.03);
  }
  for (int layer = 0; layer < 12; ++layer) data.expert_layers.push_back("moe." + std::to_string(layer));
  data.unigram_entropy = 7.61;
  data.figures = figures_of(data.steps);
  data.figures.set(figures::kPredictedReserved, 6031 * kMiB);
  MemoryView memory{"step 5000, measured", "time in step", {}, {{"capacity", 8192 * kMiB}}};
  simulate::MemoryCurve& curve = memory.curve;
  using simulate::MemoryKind;
  constexpr MemoryKind kKinds[] = {MemoryKind::weights, MemoryKind::optimizer, MemoryKind::weight_gradients,
                                   MemoryKind::feed_forward, MemoryKind::in_flight};
  curve.persistent_bytes = static_cast<int64_t>(2560 * kMiB);
  curve.until_us = 82000;
  for (int i = 0; i < 1800; ++i) {
    const double t = i / 1800.0, wave = std::abs(std::fmod(t * 16, 2.0) - 1);
    const double filling = std::min({1.0, t * 7, (1 - t) * 6});
    const std::vector<double> parts = {
        640, 1280, 640, 2300 * filling * (0.72 + 0.28 * wave) + 30 * noise.next(),
        t > 0.95 ? 0.0 : 480 * std::max(0.0, std::sin(t * 220)) * std::min(1.0, filling * 3)};
    simulate::BytesOfKinds& kinds = curve.bytes.emplace_back();
    for (size_t part = 0; part < parts.size(); ++part)
      kinds[static_cast<size_t>(kKinds[part])] = std::llround(std::max(0.0, parts[part]) * kMiB);
    curve.at_us.push_back(t * curve.until_us);
    if (simulate::sum_of(kinds) <= curve.peak.bytes) continue;
    curve.peak = {curve.at_us.back(), simulate::sum_of(kinds), kinds, "linear_dgrad", ir::Phase::I, 7, 3, {}, {}};
    for (int m = 0; m < 6; ++m)
      curve.peak.microbatches.push_back({m, kinds[static_cast<size_t>(MemoryKind::feed_forward)] / 6});
    curve.peak.values = {{"moe.7.u", ir::Role::activation, 0, 3, static_cast<int64_t>(132 * kMiB)}};
  }
  data.memory = {memory};
  for (int layer = 0; layer < 12; ++layer) {
    const std::string name = "moe." + std::to_string(layer);
    data.peak_tensors.push_back({name + ".u_S2F", "bf16", "[24,576 × 2,816]", "activation", 132.0 * kMiB});
    data.peak_tensors.push_back({name + ".q_SH", "bf16", "[24,576 × 1,024]", "activation", 48.0 * kMiB});
    data.peak_tensors.push_back({name + ".w_gate_up", "bf16", "[16 × 1,024 × 2,816]", "weight", 88.0 * kMiB});
    data.peak_tensors.push_back({name + ".scores_TE", "fp32", "[8,192 × 64]", "activation", 2.0 * kMiB});
  }
  data.timeline_title = "Streams over step 5000";
  data.timeline = synthetic_timeline(4, 8, 3);
  data.samples = {{"The loom was invented ",
                   "to hold the warp threads under tension, so that the weft could be passed "
                   "between them. The first looms stood upright, with stones to weigh the "
                   "threads; the heddle came later, and with it cloth became cheap.",
                   5000},
                  {"def gcd(a, b):\n", "    while b:\n        a, b = b, a % b\n    return a\n", 5000}};
  data.configuration = {{"model.layers", "12"},
                        {"model.hidden", "1024"},
                        {"model.experts", "64"},
                        {"model.top_k", "6"},
                        {"schedule", "1f1b"},
                        {"mesh", "pp 4, ep 4"},
                        {"recompute", "swiglu, norm"},
                        {"offload", "off"},
                        {"optimizer", "adamw, weight decay 0.1"},
                        {"seed", "20"}};
  data.environment = {{"heddle", "0.1.0"},
                      {"compiler", "g++ 12.2"},
                      {"processor", "2 × 32 cores, AMX, AVX-512"},
                      {"memory", "256.0 GiB"},
                      {"kernels", "host, then reference"}};
  return data;
}

}  // namespace heddle::observe
