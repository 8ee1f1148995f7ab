#include "heddle/search/explain.h"

#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::search {
namespace {

Job job_of(const char* model, const char* device, Layout layout, int microbatch, int global_batch) {
  Job j;
  j.shape = *model::find_shape(model);
  j.device = *cost::accelerator_named(device);
  j.layout = layout;
  j.microbatch = microbatch;
  j.global_batch = global_batch;
  return j;
}

Job deepseek() { return job_of("DeepSeek-V3", "H800", {2048, 1, 16, 2, 1, 128, 64, 1}, 1, 15360); }

TEST(Explain, PartsAddUp) {
  for (const Job& j : {deepseek(), job_of("Llama-3.1-405B", "H100", {1024, 8, 16, 1, 1, 8, 1, 1}, 1, 512),
                       job_of("Llama-3-8B", "H100", {8, 1, 1, 1, 1, 8, 1, 1}, 1, 128)}) {
    const Explanation x = explain(launch_of(j));
    double step = 0, memory = 0;
    for (const StepPart& p : x.parts) step += p.seconds;
    for (const MemoryPart& p : x.memory) memory += p.bytes;
    EXPECT_NEAR(step, x.estimate.step_s, 1e-9 * step);
    EXPECT_NEAR(memory, x.estimate.peak_bytes, 1e-6 * memory);
    EXPECT_EQ(x.fits, x.estimate.peak_bytes <= j.device.memory_bytes);
  }
}

TEST(Explain, SlowerPartsNeverHelp) {
  const Explanation x = explain(launch_of(deepseek()));
  for (const Sensitivity& s : x.sensitivities) {
    if (s.what.starts_with("imbalance")) continue;
    EXPECT_GE(s.less, 1) << s.what;
    EXPECT_LE(s.more, 1) << s.what;
  }
  // A dense model in one node doesn't know the network between nodes beyond its gradients; its products bind it.
  const Explanation dense =
      explain(launch_of(job_of("Llama-3-8B", "H100", {8, 1, 1, 1, 1, 8, 1, 1}, 2, 128)), {.memory_bytes = 1e12});
  EXPECT_EQ(dense.binding, "matrix products");
  EXPECT_LT(dense.sensitivities[3].weight(), 0.01);
  // Few microbatches on many ranks are bound by the bubble.
  const Explanation bubble =
      explain(launch_of(job_of("Llama-3-70B", "H100", {64, 2, 16, 1, 1, 2, 1, 1}, 1, 16)), {.memory_bytes = 1e12});
  EXPECT_EQ(bubble.binding, "the pipeline's bubble");
}

TEST(Explain, NeighboursAreWholeJobsAndSayWhy) {
  const Job j = deepseek();
  const Explanation x = explain(launch_of(j));
  EXPECT_GT(x.neighbours.size(), 10u);
  for (const Neighbour& n : x.neighbours) {
    EXPECT_FALSE(n.why.empty()) << n.change;
    if (!n.estimate.reason.empty()) continue;
    const Layout& l = n.job.layout;
    EXPECT_EQ(l.tp * l.cp * l.pp * l.dp, l.devices) << n.change;
    EXPECT_EQ(n.job.global_batch % (l.dp * n.job.microbatch), 0) << n.change;
    EXPECT_EQ(n.ratio, estimate(n.job).step_s / x.estimate.step_s);
    EXPECT_EQ(!n.fits, n.why.starts_with("needs ")) << n.why;
  }
  // Small memory: what doesn't fit is told with what to do about it.
  const Explanation tight = explain(launch_of(j), {.memory_bytes = x.estimate.peak_bytes * 0.9});
  EXPECT_EQ(tight.binding, "memory");
  ASSERT_FALSE(tight.remedies.empty());
  for (const Remedy& r : tight.remedies) {
    EXPECT_GT(r.frees_bytes, 0) << r.what;
    EXPECT_NEAR(estimate(r.job).peak_bytes, x.estimate.peak_bytes - r.frees_bytes, 1) << r.what;
  }
  EXPECT_LE(tight.remedies.front().peak_bytes, tight.memory_bytes);
}

TEST(Explain, IntervalsWidenWithDistance) {
  const Calibration& c = Calibration::built_in();
  const ScaleInterval near = c.interval(*cost::accelerator_named("H100"), cost::Precision::fp8),
                      far = c.interval(*cost::accelerator_named("Ascend-910B"), cost::Precision::bf16);
  for (const ScaleInterval& i : {near, far}) {
    EXPECT_LT(i.low, i.scale);
    EXPECT_GT(i.high, i.scale);
    EXPECT_FALSE(i.from.empty());
  }
  EXPECT_GT(far.high / far.low, near.high / near.low);
}

TEST(Explain, ImpossibleJobsAreRefused) {
  Job j = deepseek();
  j.layout.dp = 3;
  EXPECT_THROW(explain(launch_of(j)), ConfigError);
}

}  // namespace
}  // namespace heddle::search
