// Room for experts' rows that is made before they are counted (moe.room_factor): the bits of the path on which the
// host waits for the counts, no stall, the memory that was predicted. So it is where more rows come than have room,
// which a second round takes, or at which the run ends.
#include <algorithm>
#include <bit>
#include <functional>

#include "heddle/passes/host/offload.h"
#include "heddle/passes/recompute.h"
#include "heddle/runtime/predict.h"
#include "tests/runtime/kept_bits.h"

namespace heddle::test {
namespace {

constexpr double kWhatever = 64;   // room for all rows, wherever they go
constexpr double kUsual = 1.1;     // for the rows of some ranks
constexpr double kScarce = 0.375;  // for those of no rank whose share is near the even one

struct RoomWay {
  plan::Degrees mesh;
  std::string schedule = "1f1b", recompute, offload, backend = "reference";
  Dtype dtype = Dtype::f64;
  std::function<void(model::ModelConfig&, plan::Plan&)> with;
};

model::ModelConfig model_of_eight_room() {
  model::ModelConfig c = small();
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 3;
  return c;
}

std::pair<model::ModelConfig, plan::Plan> made_of(const RoomWay& way, double factor) {
  model::ModelConfig c = model_of_eight_room();
  plan::Plan plan = plan_of_four(way.mesh, way.schedule);
  plan.dtype = way.dtype;
  plan.parallel.exchange.room_factor = factor;
  plan.memory.recompute = passes::recompute_groups(way.recompute);
  plan.memory.offload = passes::offload_groups(way.offload);
  if (way.with) way.with(c, plan);
  return {c, plan};
}

struct Left {
  std::map<std::string, std::vector<double>> values;
  int64_t stalls = 0;
  double rounds = 0, of = 0;  // second rounds, of so many rounds
};

Left left_by_room(const RoomWay& way, double factor) {
  const auto [c, plan] = made_of(way, factor);
  TinyRun run(c, plan, way.backend, 4 * kArenaBytes);
  fill(run, c, 5);
  run.run(tiny_batches(c, plan, 5));
  Left left;
  for (int r = 0; r < plan.ranks(); ++r) {
    left.stalls += run.executor(r).host_stalls();
    for (const ir::Value& value : run.listing(r).values) {
      if (value.role < ir::Role::accumulator || value.space == ir::Space::nowhere) continue;
      if (value.name.starts_with("beyond")) {
        left.rounds += run.read(r, value.name).at(0);
        left.of += plan.microbatches;
        continue;
      }
      left.values[fmt::format("rank {} {}", r, value.name)] = run.read(r, value.name);
    }
  }
  return left;
}

// Also of what no op has written.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  return std::ranges::equal(a, b, {}, bits, bits);
}

// Rooms for all rows, for those of some ranks and of hardly any. Returns the share of ranks, layers and
// microbatches that had a second round in the room for some.
double expect_same_without_stalls(const RoomWay& way) {
  const Left waits = left_by_room(way, 0);
  std::map<double, double> share;  // of second rounds, by room
  for (const double factor : {kWhatever, kUsual, kScarce}) {
    const Left roomy = left_by_room(way, factor);
    const std::string text = fmt::format("{}, {}, {} {}, {} {}, room {}", plan::text_of(way.mesh), way.schedule,
                                         way.recompute, way.offload, name_of(way.dtype), way.backend, factor);
    EXPECT_GT(waits.stalls, 0) << text;
    EXPECT_EQ(roomy.stalls, 0) << text;
    EXPECT_EQ(roomy.values.size(), waits.values.size()) << text;
    for (const auto& [name, values] : waits.values) {
      const auto at = roomy.values.find(name);
      EXPECT_TRUE(at != roomy.values.end() && same_bits(at->second, values)) << name << " at " << text;
    }
    share[factor] = roomy.rounds / roomy.of;
  }
  EXPECT_EQ(share.at(kWhatever), 0);
  EXPECT_GT(share.at(kScarce), 0.5);
  return share.at(kUsual);
}

const std::vector<plan::Degrees>& meshes() {
  static const std::vector<plan::Degrees> all{{.dp = 2, .ep = 2},           {.dp = 4, .ep = 4},
                                              {.dp = 4, .ep = 2, .etp = 2}, {.tp = 2, .dp = 2, .ep = 4},
                                              {.cp = 2, .dp = 2, .ep = 4},  {.dp = 2, .pp = 2, .ep = 2}};
  return all;
}

TEST(Room, keeps_the_bits_on_every_axis) {
  double some = 0;
  for (const plan::Degrees& mesh : meshes()) {
    some += expect_same_without_stalls({.mesh = mesh});
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      some += expect_same_without_stalls({.mesh = mesh, .backend = "host", .dtype = dtype});
  }
  some /= 3 * static_cast<double>(meshes().size());
  EXPECT_GT(some, 0.05);
  EXPECT_LT(some, 0.95);
}

TEST(Room, keeps_the_bits_beside_schedules_recomputation_and_offload) {
  for (const char* schedule : {"zb_h1", "interleaved", "dual_pipe_v"})
    expect_same_without_stalls({.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = schedule});
  for (const char* recompute : {"full", "layer", "expert_up,permute"})
    expect_same_without_stalls({.mesh = {.dp = 4, .ep = 4}, .recompute = recompute});
  expect_same_without_stalls(
      {.mesh = {.dp = 4, .ep = 4}, .offload = "input,layer,permute", .backend = "host", .dtype = Dtype::bf16});
}

TEST(Room, keeps_the_bits_of_all_that_concerns_experts) {
  const std::vector<std::function<void(model::ModelConfig&, plan::Plan&)>> kinds{
      [](model::ModelConfig&, plan::Plan& plan) { plan.exact_sums = true; },
      [](model::ModelConfig&, plan::Plan& plan) { plan.device.fp8 = passes::Fp8::blocks; },
      [](model::ModelConfig&, plan::Plan& plan) { plan.parallel.exchange.replicas = 2; },
      [](model::ModelConfig& c, plan::Plan& plan) {
        plan.parallel.exchange.replicas = 2;
        plan.exact_sums = c.experts_bias = true;
      },
      [](model::ModelConfig& c, plan::Plan&) { c.router_bias = c.experts_bias = true; },
      [](model::ModelConfig&, plan::Plan& plan) { plan.parallel.reuse_lists = false; },
      [](model::ModelConfig&, plan::Plan& plan) { plan.parallel.shard = passes::Shard::gradients; },
      [](model::ModelConfig&, plan::Plan& plan) { plan.parallel.exchange.topology = ir::Topology::node; }};
  for (const auto& with : kinds) {
    for (const plan::Degrees& mesh : {plan::Degrees{.dp = 4, .ep = 4}, plan::Degrees{.dp = 4, .ep = 2, .etp = 2}}) {
      expect_same_without_stalls({.mesh = mesh, .dtype = Dtype::f32, .with = with});
    }
  }
}

// Rows beyond the even share have room, in a step that takes what was predicted whatever the router does.
TEST(Room, takes_the_memory_that_was_predicted) {
  constexpr int64_t kArena = 4 * kArenaBytes;
  for (const double factor : {kScarce, kUsual, 2.0, kWhatever}) {
    for (const RoomWay& way :
         {RoomWay{.mesh = {.dp = 2, .ep = 2}}, RoomWay{.mesh = {.dp = 4, .ep = 2, .etp = 2}},
          RoomWay{.mesh = {.dp = 2, .pp = 2, .ep = 2}, .schedule = "zb_h1", .offload = "input,layer"}}) {
      const auto [c, plan] = made_of(way, factor);
      TinyRun run(c, plan, way.backend, kArena);
      fill(run, c, 3);
      run.run(tiny_batches(c, plan, 3));
      for (int r = 0; r < plan.ranks(); ++r) {
        const ir::Walk& walk = run.executor(r).walk();
        for (const double crowding : {0.5, 1.0, 4.0}) {
          const auto predicted = runtime::predict_memory(run.lowered().program, r, way.backend, kArena, crowding);
          EXPECT_EQ(predicted.peak_live_bytes, walk.storage().peak_live_bytes()) << plan::text_of(way.mesh) << r;
          EXPECT_EQ(predicted.host_peak_live_bytes, walk.storage(ir::Space::host).peak_live_bytes()) << r;
        }
      }
    }
  }
}

TEST(Room, ends_the_run_where_more_rows_come_and_there_is_no_second_round) {
  const auto [c, plan] =
      made_of({.mesh = {.dp = 4, .ep = 4},
               .with = [](model::ModelConfig&, plan::Plan& p) { p.parallel.exchange.second_round = false; }},
              0.25);
  TinyRun run(c, plan, "reference", 4 * kArenaBytes);
  fill(run, c, 5);
  try {
    run.run(tiny_batches(c, plan, 5));
    FAIL() << "rows were lost";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moe.room_factor has room for"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace heddle::test
