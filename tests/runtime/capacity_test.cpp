// Experts of a stated capacity on several ranks against one rank: loss, gradients and what is dropped.
#include <functional>

#include "heddle/passes/host/offload.h"
#include "heddle/passes/recompute.h"
#include "heddle/runtime/predict.h"
#include "tests/runtime/kept_bits.h"
#include "tests/runtime/same_batches.h"

namespace heddle::test {
namespace {

struct Way {
  plan::Degrees mesh;
  double factor = 1;
  std::string recompute, schedule = "1f1b";
  Dtype dtype = Dtype::f64;
  bool exact = false;
  std::string offload;
  std::function<void(model::ModelConfig&, plan::Plan&)> with;  // of the one rank too
};

void with_biases(model::ModelConfig& c, plan::Plan&) {
  c.router_bias = c.experts_bias = true;
  c.swiglu_limit = 1;
}
void with_adapters(model::ModelConfig&, plan::Plan& plan) {
  plan.lora.rank = 2;
  plan.lora.targets = "all";
}
void with_quantiles(model::ModelConfig& c, plan::Plan&) {
  c.n_group = c.topk_group = 1;
  c.topk_bias = true;
  c.bias_balance = model::BiasBalance::quantile;
}

model::ModelConfig model_of_eight() {
  model::ModelConfig c = small();
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 3;
  return c;
}

std::map<std::string, std::vector<double>> left_by(const Way& way) {
  model::ModelConfig c = model_of_eight();
  plan::Plan plan = plan_of_four(way.mesh, way.schedule);
  plan.microbatches = 8 / way.mesh.dp;
  plan.dtype = way.dtype;
  plan.exact_sums = way.exact;
  plan.parallel.exchange.capacity_factor = way.factor;
  plan.memory.recompute = passes::recompute_groups(way.recompute);
  plan.memory.offload = passes::offload_groups(way.offload);
  if (way.with) way.with(c, plan);
  TinyRun run(c, plan, "reference", 4 * kArenaBytes);
  fill(run, c, 5);
  run.run(same_batches(c, run));
  std::map<std::string, std::vector<double>> left = gradients_of(run);
  for (int layer = 1; layer < 4 && way.factor > 0; ++layer)
    left["dropped"].push_back(run.total(fmt::format("dropped.{}", layer)));
  return left;
}

void expect_as_on_one_rank(const Way& way) {
  Way one = way;
  one.mesh = {};
  one.recompute.clear();
  one.offload.clear();
  one.schedule = "1f1b";
  const auto here = left_by(one), there = left_by(way);
  ASSERT_EQ(here.size(), there.size());
  for (const auto& [name, values] : here) {
    const std::string text = fmt::format("{} at {}, {}, factor {}, {} {}", name, plan::text_of(way.mesh),
                                         way.schedule, way.factor, way.recompute, way.offload);
    if (name == "dropped" || (way.exact && name != "loss")) {
      EXPECT_EQ(there.at(name), values) << text;
    } else {
      EXPECT_LE(relative(there.at(name), values), way.dtype == Dtype::f64 ? 1e-11 : 1e-5) << text;
    }
  }
}

TEST(CapacityLayout, drops_and_learns_as_one_rank_does) {
  for (const double factor : {0.4, 1.0, 1.25}) {
    expect_as_on_one_rank({.mesh = {.dp = 2, .ep = 2}, .factor = factor});
    expect_as_on_one_rank({.mesh = {.dp = 4, .ep = 4}, .factor = factor, .recompute = "full"});
    expect_as_on_one_rank({.mesh = {.dp = 4, .ep = 2, .etp = 2}, .factor = factor, .recompute = "permute,router"});
    expect_as_on_one_rank({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .factor = factor, .schedule = "zb_h1"});
    expect_as_on_one_rank({.mesh = {.dp = 2}, .factor = factor, .recompute = "layer"});
  }
}

TEST(CapacityLayout, cut_rows_agree_where_nothing_can_be_dropped) {
  expect_as_on_one_rank({.mesh = {.tp = 2, .dp = 2, .ep = 4}, .factor = 8.0 / 3});
}

TEST(CapacityLayout, exact_sums_keep_their_bits) {
  for (const double factor : {0.4, 1.25})
    expect_as_on_one_rank({.mesh = {.dp = 4, .ep = 4}, .factor = factor, .dtype = Dtype::f32, .exact = true});
}

TEST(CapacityLayout, a_wide_capacity_is_none) {
  Way wide{.mesh = {.dp = 2, .ep = 2}, .factor = 8.0 / 3}, none = wide, tight = wide;
  none.factor = 0;
  tight.factor = 0.4;
  auto all = left_by(wide);
  EXPECT_EQ(all.at("dropped"), (std::vector<double>{0, 0, 0}));
  EXPECT_GT(left_by(tight).at("dropped")[0], 0);
  all.erase("dropped");
  for (const auto& [name, values] : left_by(none)) EXPECT_LE(relative(all.at(name), values), 1e-11) << name;
}

TEST(CapacityLayout, goes_with_offload_and_schedules) {
  for (const char* schedule : {"1f1b", "zb_h1", "interleaved", "dual_pipe_v"}) {
    const plan::Degrees mesh{.dp = 2, .pp = 2, .ep = 2};
    expect_as_on_one_rank({.mesh = mesh, .factor = 0.75, .schedule = schedule});
    expect_as_on_one_rank({.mesh = mesh, .factor = 0.75, .schedule = schedule, .offload = "input,layer"});
  }
  expect_as_on_one_rank(
      {.mesh = {.dp = 4, .ep = 4}, .factor = 0.75, .recompute = "expert_up", .offload = "permute"});
}

TEST(CapacityLayout, goes_with_biases_adapters_and_quantiles) {
  for (const auto& with : {with_biases, with_adapters, with_quantiles}) {
    expect_as_on_one_rank({.mesh = {.dp = 4, .ep = 4}, .factor = 0.75, .recompute = "full", .with = with});
    expect_as_on_one_rank({.mesh = {.dp = 4, .ep = 2, .etp = 2}, .factor = 0.75, .with = with});
  }
}

// No row count is dynamic: whatever the router does, a step takes what was foretold before it ran, to the byte.
TEST(CapacityMemory, is_what_was_predicted) {
  struct Case {
    plan::Degrees mesh;
    std::string schedule, recompute, offload;
  };
  constexpr int64_t kRoom = 4 * kArenaBytes;
  const model::ModelConfig c = model_of_eight();
  for (const auto& [mesh, schedule, recompute, offload] :
       {Case{{}, "1f1b", "", ""},
        {{.dp = 4, .ep = 4}, "1f1b", "", ""},
        {{.dp = 4, .ep = 4}, "1f1b", "full", ""},
        {{.tp = 2, .dp = 2, .ep = 4}, "1f1b", "", ""},
        {{.dp = 4, .ep = 2, .etp = 2}, "1f1b", "", ""},
        {{.dp = 2, .pp = 2, .ep = 2}, "zb_h1", "", "input,layer"}}) {
    plan::Plan plan = plan_of_four(mesh, schedule);
    plan.parallel.exchange.capacity_factor = 1.25;
    plan.memory.recompute = passes::recompute_groups(recompute);
    plan.memory.offload = passes::offload_groups(offload);
    for (const char* backend : {"reference", "host"}) {
      plan.dtype = backend == std::string("host") ? Dtype::bf16 : Dtype::f64;
      TinyRun run(c, plan, backend, kRoom);
      fill(run, c, 3);
      run.run(tiny_batches(c, plan, 3));
      for (int r = 0; r < plan.ranks(); ++r) {
        const runtime::MemoryPrediction predicted =
            runtime::predict_memory(run.lowered().program, r, backend, kRoom);
        const ir::Walk& walk = run.executor(r).walk();
        EXPECT_EQ(predicted.peak_live_bytes, walk.storage().peak_live_bytes()) << plan::text_of(mesh) << ' ' << r;
        EXPECT_EQ(predicted.reserved_bytes, walk.storage().reserved_bytes()) << plan::text_of(mesh) << ' ' << r;
        EXPECT_EQ(predicted.host_peak_live_bytes, walk.storage(ir::Space::host).peak_live_bytes()) << r;
        for (const double crowding : {0.5, 4.0}) {  // rows that routing can't make more or fewer
          EXPECT_EQ(runtime::predict_memory(run.lowered().program, r, backend, kRoom, crowding).peak_live_bytes,
                    predicted.peak_live_bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
