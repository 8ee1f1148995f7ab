// Models with replicas of hot experts against those without: all bits but those of sums of weight gradients stay.

#include "heddle/passes/host/offload.h"
#include "heddle/passes/host/residency_words.h"
#include "heddle/passes/recompute.h"
#include "tests/runtime/kept_bits.h"
#include "tests/support/relative.h"

namespace heddle::test {
namespace {

/// What a step leaves, by name: with and without copies.
struct Model {
  plan::Degrees mesh{.dp = 4, .ep = 4};
  std::string topology = "plain", schedule = "1f1b", recompute, offload, weights, gradients;
  std::vector<int> node_of;
  Dtype dtype = Dtype::f64;
  std::string backend = "reference";
  bool exact = false, reuse_lists = true, recalls = false;
  bool biases = false, clamped = false;
  int64_t adapters = 0;  // rank
};

std::map<std::string, std::vector<double>> left_by_replicas_model(const Model& m, int replicas) {
  model::ModelConfig c = small();
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  c.router_bias = c.experts_bias = m.biases;
  if (m.clamped) c.swiglu_limit = 0.05;
  plan::Plan plan = plan_of_four(m.mesh, m.schedule);
  plan.dtype = m.dtype;
  plan.lora.rank = static_cast<int>(m.adapters);
  plan.lora.targets = "all";
  plan.exact_sums = m.exact;
  plan.parallel.exchange.topology = from_word<ir::Topology>(m.topology);
  plan.parallel.exchange.replicas = replicas;
  if (m.recalls) plan.parallel.exchange.replicas_from = model::ReplicasFrom::history;
  plan.parallel.reuse_lists = m.reuse_lists;
  plan.memory.recompute = passes::recompute_groups(m.recompute);
  plan.memory.offload = passes::offload_groups(m.offload);
  plan.memory.weights = passes::residency_groups(m.weights);
  plan.memory.gradients = passes::residency_groups(m.gradients);
  if (m.backend == "host") plan.packed_bytes = backends::named("host").packed_bytes;
  TinyRun run(c, plan, m.backend, 4 * kArenaBytes, 1, true, m.node_of);
  fill(run, c, 5);
  std::map<std::string, std::vector<double>> left;
  std::vector<Batch> batches = tiny_batches(c, plan, 5);
  for (Batch& batch : batches) {
    for (int layer = 0; layer < 8; ++layer) batch.expert_rows[layer] = {9, 1, 2, 1, 3, 0, 1, 7};
  }
  run.run(batches);
  for (const char* prefix : {"grad.", "m.", "v."}) {
    for (int r = 0; r < plan.ranks(); ++r) {
      for (const model::Parameter& p : run.parameters(r)) {
        if (p.trained && !left.contains(prefix + p.name)) left[prefix + p.name] = run.whole(prefix, p.name);
      }
    }
  }
  left["loss.next_token"] = {run.total("loss.next_token")};
  for (int r = 0; r < plan.ranks(); ++r) {
    double bytes = 0;
    for (const auto& [channel, sent] : run.communicators(r).traffic()) {
      if (channel == "comm.experts" || channel == "comm.copies")
        bytes += static_cast<double>(sent.within_node_bytes + sent.across_nodes_bytes);
    }
    left["bytes"].push_back(bytes);
  }
  return left;
}

void expect_the_same(const Model& m) {
  const auto without = left_by_replicas_model(m, 0), with = left_by_replicas_model(m, 2);
  const double tolerance = m.dtype == Dtype::f64 ? 1e-12 : 1e-5;
  ASSERT_EQ(with.size(), without.size());
  EXPECT_NE(with.at("bytes"), without.at("bytes"));
  bool moved = false;
  for (const auto& [name, values] : without) {
    if (name == "bytes") continue;
    const std::string text =
        fmt::format("{} {} {} {} {} {}", name, m.topology, m.schedule, m.recompute, m.offload, m.backend);
    EXPECT_LE(test::relative(with.at(name), values), tolerance) << text;
    moved = moved || with.at(name) != values;
    const bool of_experts = name.find(".experts.") != std::string::npos;
    const bool same = m.exact || (name.starts_with("grad.") && !of_experts) || name == "loss.next_token";
    if (same && m.topology == "plain") {
      EXPECT_EQ(with.at(name), values) << text;
    }
  }
  if (!m.exact && m.dtype != Dtype::f64) {
    EXPECT_TRUE(moved) << "nothing was copied";
  }
}

TEST(Replicas, AreTheSameModelInEveryTopology) {
  for (const char* topology : {"plain", "rank", "node", "merge", "auto"}) {
    expect_the_same({.topology = topology, .node_of = {0, 0, 1, 1}});
    expect_the_same({.mesh = {.dp = 4, .ep = 2, .etp = 2}, .topology = topology, .node_of = {0, 0, 1, 1}});
  }
  expect_the_same({.reuse_lists = false});
}

TEST(Replicas, AreTheSameModelWhereTheyAreChosenByHistory) {
  for (const char* topology : {"plain", "node"}) {
    expect_the_same({.topology = topology, .node_of = {0, 0, 1, 1}, .recalls = true});
    expect_the_same({.mesh = {.dp = 4, .ep = 2, .etp = 2}, .topology = topology, .recalls = true});
  }
  expect_the_same({.dtype = Dtype::bf16, .backend = "host", .recalls = true});
  expect_the_same({.dtype = Dtype::f32, .exact = true, .recalls = true});
  expect_the_same({.dtype = Dtype::f32, .backend = "host", .exact = true, .recalls = true});
  expect_the_same(
      {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "zb_h1", .recompute = "layer", .recalls = true});
  expect_the_same({.offload = "layer", .weights = "all", .gradients = "all", .recalls = true});
}

TEST(Replicas, KeepTheBitsOfActivationsWhereRowsComeHomeOneByOne) {
  expect_the_same({.dtype = Dtype::f32});
  expect_the_same({.dtype = Dtype::f32, .backend = "host"});
  expect_the_same({.dtype = Dtype::bf16, .backend = "host"});
}

TEST(Replicas, KeepAllBitsOfExactSums) {
  for (const char* backend : {"reference", "host"})
    expect_the_same({.dtype = Dtype::f32, .backend = backend, .exact = true});
}

// Biases have copies, too, and gradients of these return.
TEST(Replicas, TakeBiasesAlong) {
  for (const bool clamped : {false, true}) {
    for (const bool recalls : {false, true}) {
      expect_the_same({.recalls = recalls, .biases = true, .clamped = clamped});
      expect_the_same({.mesh = {.dp = 4, .ep = 2, .etp = 2},
                       .topology = "node",
                       .node_of = {0, 0, 1, 1},
                       .recalls = recalls,
                       .biases = true,
                       .clamped = clamped});
      expect_the_same(
          {.dtype = Dtype::bf16, .backend = "host", .recalls = recalls, .biases = true, .clamped = clamped});
      for (const char* backend : {"reference", "host"})
        expect_the_same({.dtype = Dtype::f32,
                         .backend = backend,
                         .exact = true,
                         .recalls = recalls,
                         .biases = true,
                         .clamped = clamped});
    }
  }
  expect_the_same({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "zb_h1", .recompute = "layer", .biases = true});
  expect_the_same({.offload = "layer", .weights = "all", .gradients = "all", .biases = true});
}

// What stands beside a frozen expert goes where its copies go; frozen weights cross, and have no gradient to
// return.
TEST(Replicas, TakeAdaptersAlong) {
  for (const bool recalls : {false, true}) {
    expect_the_same({.recalls = recalls, .adapters = 3});
    expect_the_same({.mesh = {.dp = 4, .ep = 2, .etp = 2},
                     .topology = "node",
                     .node_of = {0, 0, 1, 1},
                     .recalls = recalls,
                     .adapters = 3});
    expect_the_same({.dtype = Dtype::bf16, .backend = "host", .recalls = recalls, .adapters = 3});
    expect_the_same({.dtype = Dtype::f32, .exact = true, .recalls = recalls, .adapters = 3});
    expect_the_same({.recalls = recalls, .biases = true, .adapters = 3});
  }
  expect_the_same({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "zb_h1", .recompute = "layer", .adapters = 3});
}

TEST(Replicas, GoWithSchedulesAndMemory) {
  expect_the_same({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "zb_h1"});
  expect_the_same({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "interleaved"});
  expect_the_same({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "dual_pipe_v"});
  expect_the_same({.recompute = "layer"});
  expect_the_same({.recompute = "expert_up>0.5,permute>1.1"});
  expect_the_same({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "zb_h1", .recompute = "expert_up"});
  expect_the_same({.offload = "layer"});
  expect_the_same({.weights = "all"});
  expect_the_same({.gradients = "all"});
  expect_the_same({.weights = "all", .gradients = "all", .dtype = Dtype::bf16, .backend = "host"});
}

}  // namespace
}  // namespace heddle::test
