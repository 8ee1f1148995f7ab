// The ops that bench_gpu times, as small as can be, in the emulator: each is taken by a kernel of the device.
#include <gtest/gtest.h>

#include "bench/gpu_ops/op_bench.h"

namespace heddle::bench {
namespace {

TEST(BenchOps, AreTakenByTheDevicesKernels) {
  const V2LiteSizes small{.tokens = 64,
                          .hidden = 64,
                          .expert = 32,
                          .heads = 1,
                          .experts = 8,
                          .chosen = 2,
                          .vocabulary = 256,
                          .updated = 4096};
  OpBench ops("cuda", 1);
  for (const OpToTime& op : v2_lite_ops(small)) {
    const OpTime time = ops.time(op);
    EXPECT_EQ(time.refused, "") << op.name;
    EXPECT_GT(time.seconds, 0) << op.name;
  }
}

}  // namespace
}  // namespace heddle::bench
