#include "heddle/cost/accelerator.h"

#include <gtest/gtest.h>

#include <set>

#include "heddle/cost/collective.h"
#include "heddle/cost/device_time.h"

namespace heddle::cost {
namespace {

TEST(Accelerator, FreeTextsName) {
  EXPECT_EQ(find_accelerator("GB200 NVL72").name, "GB200");
  EXPECT_EQ(find_accelerator("A100 40GB 8-GPU RoCE 1600G").name, "A100-40");
  EXPECT_EQ(find_accelerator("H100 96GB HBM2e 500W (Grand Teton)").name, "H100-500W");
  EXPECT_EQ(find_accelerator("H800 80GB 8-GPU, IB").name, "H800");
  EXPECT_EQ(find_accelerator("Ascend NPU").name, "Ascend-910B");
  EXPECT_EQ(find_accelerator("Ascend 910B (313T FP16 class, 8 NPU/node)").name, "Ascend-910B3");
  EXPECT_EQ(find_accelerator("Ascend 910A 32GB (Atlas 800, 8 NPU/node)").name, "Ascend-910A");
  EXPECT_EQ(find_accelerator("AMD MI350X 8-GPU").name, "MI350X");
  EXPECT_EQ(find_accelerator("Intel Gaudi 2 96GB (8/node)").name, "Gaudi2");
  EXPECT_EQ(find_accelerator("TPU Trillium (v6e) 32 GB").name, "TPU-v6e");
  EXPECT_EQ(find_accelerator("TPU v5p-256 slices (95 GB)").inner.ranks, 128);
  EXPECT_EQ(find_accelerator("TPU v5e-256 slices (16 GB)").inner.ranks, 256);
  EXPECT_EQ(find_accelerator("a toaster").name, "");
  EXPECT_LT(find_accelerator("A100 80GB 8-GPU (Jean Zay)").outer.bytes_per_s,
            find_accelerator("A100 80GB").outer.bytes_per_s);
}

TEST(Accelerator, TablesAreWhole) {
  std::set<std::string> names;
  for (const Accelerator& a : accelerators()) {
    EXPECT_TRUE(names.insert(a.name).second) << a.name;
    EXPECT_GT(a.bf16_flops, 1e14) << a.name;
    EXPECT_GT(a.memory_bytes_per_s, 7e11) << a.name;
    EXPECT_GT(a.units, 0) << a.name;
    EXPECT_GT(a.inner.bytes_per_s, a.outer.bytes_per_s) << a.name;
    EXPECT_EQ(accelerator_named(a.name), &a);
    // A device's share of the host holds more than the device, and more slowly.
    if (a.host_memory_bytes > 0) {
      EXPECT_GT(a.host_memory_bytes, 0.8 * a.memory_bytes) << a.name;
    }
    EXPECT_GT(a.host_memory_bytes_per_s, 40e9) << a.name;
    EXPECT_LT(a.host_memory_bytes_per_s, a.memory_bytes_per_s) << a.name;
    for (const Precision p : {Precision::bf16, Precision::fp8, Precision::nvfp4})
      EXPECT_GE(a.flops(p), a.bf16_flops);
  }
  EXPECT_EQ(precision_named("mxfp8"), Precision::mxfp8);
  EXPECT_FALSE(precision_named("fp7"));
}

TEST(Product, PaysWholeWaves) {
  const Accelerator& a = *accelerator_named("H100");
  const double one = product_s(a, Precision::bf16, 128 * 132, 256, 8192);
  EXPECT_DOUBLE_EQ(product_s(a, Precision::bf16, 128 * 132 + 1, 256, 8192) > one * 1.3, true);
  EXPECT_NEAR(product_s(a, Precision::bf16, 2 * 128 * 132, 256, 8192) / one, 2,
              0.05);  // longer runs fill a little better
  EXPECT_EQ(product_s(a, Precision::bf16, 0, 256, 8192), 0);
  // Short inner lengths run at a lower rate; 8-bit operands at a higher one.
  EXPECT_GT(product_s(a, Precision::bf16, 8192, 8192, 512) * 16, product_s(a, Precision::bf16, 8192, 8192, 8192));
  EXPECT_LT(product_s(a, Precision::fp8, 8192, 8192, 8192), product_s(a, Precision::bf16, 8192, 8192, 8192));
  // Few rows an expert: bound by the weights' bytes.
  const double bytes = 64 * (2.0 * (4 * 2048 + 2048 * 4096) + 2 * 4 * 4096);
  EXPECT_GE(product_s(a, Precision::bf16, 4, 4096, 2048, 64), bytes / a.memory_bytes_per_s);
}

TEST(Collective, CrossesTiers) {
  const Accelerator& h100 = *accelerator_named("H100");
  const Accelerator& gb200 = *accelerator_named("GB200");
  const NetworkEfficiency net;
  EXPECT_EQ(gather_s(h100, net, {1, 1}, 1e9), 0);
  EXPECT_EQ(ranks_inside(h100, {8, 1}), 8);
  EXPECT_EQ(ranks_inside(h100, {32, 1}), 8);
  EXPECT_EQ(ranks_inside(h100, {32, 8}), 1);
  EXPECT_EQ(ranks_inside(gb200, {64, 1}), 64);
  EXPECT_GT(gather_s(h100, net, {64, 1}, 1e9), gather_s(h100, net, {8, 1}, 1e9));
  // Eight groups side by side share a node's eight NICs: no rail helps another.
  EXPECT_GT(gather_s(h100, net, {8, 8}, 1e9), 4 * gather_s(h100, net, {64, 1}, 1e9));
  EXPECT_DOUBLE_EQ(all_reduce_s(h100, net, {8, 1}, 1e9), 2 * gather_s(h100, net, {8, 1}, 1e9));
}

TEST(Collective, PartOfAFullMeshHasItsLinksAlone) {
  const Accelerator& mesh = *accelerator_named("MI355X");
  const NetworkEfficiency net;
  const double bytes = 8e9;
  const auto rate = [&](int ranks) { return bytes * (ranks - 1) / ranks / gather_s(mesh, net, {ranks, 1}, bytes); };
  // Of seven links two ranks share one, four ranks three; five to seven are passed one ring around, at 0.7 of it.
  EXPECT_NEAR(rate(2) / rate(8), 1.0 / 7, 0.01);
  EXPECT_NEAR(rate(4) / rate(8), 3.0 / 7, 0.01);
  for (const int ranks : {5, 6, 7}) EXPECT_NEAR(rate(ranks) / rate(8), 0.1, 0.01) << ranks;
  const Accelerator& switched = *accelerator_named("H100");
  EXPECT_GT(gather_s(mesh, net, {2, 1}, bytes) * mesh.inner.bytes_per_s,
            5 * gather_s(switched, net, {2, 1}, bytes) * switched.inner.bytes_per_s);
}

TEST(ExchangeLoad, SendsARowOnceToANode) {
  const Accelerator& h100 = *accelerator_named("H100");
  const NetworkEfficiency net;
  ExchangeLoad x{4096, 14336, 8, 0, false};
  const double plain = exchange_s(h100, net, {64, 1}, x);
  x.once_a_node = true;
  const double once = exchange_s(h100, net, {64, 1}, x);
  x.most_nodes = 4;
  const double limited = exchange_s(h100, net, {64, 1}, x);
  // 7 rows leave the node when each expert gets its own, 4.6 when each node does, 3.5 with a limit of 4 nodes.
  EXPECT_NEAR(plain / once, 7 / 4.6 * net.exchange / net.outer, 0.05);
  EXPECT_NEAR(once / limited, 4.6 / 3.5, 0.03);
  EXPECT_LT(exchange_s(*accelerator_named("GB200"), net, {64, 1}, x), limited / 4);
}

TEST(Accelerators, NamesInAnyCase) {
  EXPECT_EQ(accelerator_named("h800"), accelerator_named("H800"));
  EXPECT_EQ(accelerator_named("ascend_910b"), accelerator_named("Ascend-910B"));
  EXPECT_EQ(accelerator_named("H8000"), nullptr);
  for (const Accelerator& a : accelerators()) EXPECT_EQ(accelerator_named(a.name), &a) << a.name;
}

}  // namespace
}  // namespace heddle::cost
