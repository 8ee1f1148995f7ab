// Models whose linear maps multiply numbers of eight bits: what backward keeps, and how near they learn to those
// that don't.

#include "heddle/backends/backend.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/host/residency_words.h"
#include "heddle/passes/recompute.h"
#include "heddle/simulate/recording.h"
#include "tests/runtime/kept_bits.h"
#include "tests/runtime/same_batches.h"

namespace heddle::test {
namespace {

struct Fp8Way {
  passes::Fp8 fp8 = passes::Fp8::blocks;
  std::string recompute, offload, backend = "reference";
  plan::Degrees mesh;
  Dtype dtype = Dtype::f32;
  int replicas = 0;
  int panels = 0;
  passes::Fp8Weights weights = passes::Fp8Weights::step;
  bool turns = false;
};

model::ModelConfig model_of_eight_fp8() {
  model::ModelConfig c = small();
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 8;  // so that no rounding sends a token elsewhere
  return c;
}

plan::Plan plan_of_fp8(const Fp8Way& way) {
  plan::Plan plan = plan_of_four(way.mesh, "1f1b");
  plan.microbatches = 8 / way.mesh.dp;
  plan.dtype = way.dtype;
  plan.device.fp8 = way.fp8;
  plan.device.fp8_weights = way.weights;
  plan.turns_weights = way.turns;
  plan.memory.recompute = passes::recompute_groups(way.recompute);
  plan.memory.offload = passes::offload_groups(way.offload);
  plan.parallel.exchange.replicas = way.replicas;
  plan.parallel.tp_overlap = way.panels > 0 ? plan::TpOverlap::tiles : plan::TpOverlap::off;
  plan.parallel.tp_panels = way.panels;
  return plan;
}

std::map<std::string, std::vector<double>> left_by_fp8(const Fp8Way& way) {
  const model::ModelConfig c = model_of_eight_fp8();
  const plan::Plan plan = plan_of_fp8(way);
  TinyRun run(c, plan, way.backend, 4 * kArenaBytes);
  fill(run, c, 5);
  run.run(same_batches(c, run));
  return gradients_of(run);
}

// An e4m3 rounds by at most 2^-4 of a number, a bf16 by 2^-9: what that is off by, 32 times.
TEST(Fp8Model, IsNearTheModelItStandsFor) {
  const auto exact = left_by_fp8({.fp8 = passes::Fp8::off}), found = left_by_fp8({});
  const auto narrow = left_by_fp8({.fp8 = passes::Fp8::off, .dtype = Dtype::bf16});
  EXPECT_NE(found.at("loss"), exact.at("loss"));
  EXPECT_LT(relative(found.at("loss"), exact.at("loss")), 0.02);
  for (const auto& [name, gradient] : exact) {
    if (name == "loss") continue;
    EXPECT_LT(relative(found.at(name), gradient), 32 * relative(narrow.at(name), gradient)) << name;
    EXPECT_GT(relative(found.at(name), gradient), 1e-3) << name;  // all of it has gone through eight bits
  }
}

TEST(Fp8Model, HasTheSameBitsHoweverItsRowsAreKept) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const auto kept = left_by_fp8({.dtype = dtype});
    for (const char* recompute : {"norm", "activation", "layer", "full", "norm,expert_up", "permute"})
      EXPECT_EQ(left_by_fp8({.recompute = recompute, .dtype = dtype}), kept) << recompute;
    for (const char* offload : {"layer", "input", "expert_up", "norm,activation"})
      EXPECT_EQ(left_by_fp8({.offload = offload, .dtype = dtype}), kept) << offload;
  }
}

int roundings(const plan::Lowered& lowered) {
  int count = 0;
  for (const ir::Op& op : lowered.program.listings[0].ops) count += op.kind() == "round_weight";
  return count;
}

// Weights that are gathered at the beginning of a step, used by two chunks, made again, from the host, in runs,
// beside copies of experts.
TEST(Fp8Model, HasTheSameBitsWhereWeightsAreRoundedOnceAStep) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (Fp8Way way : {Fp8Way{},
                       {.recompute = "full"},
                       {.offload = "layer"},
                       {.backend = "host"},
                       {.mesh = {.tp = 2}, .panels = 2},
                       {.mesh = {.dp = 2, .pp = 2}},
                       {.mesh = {.dp = 2, .ep = 2}, .replicas = 1}}) {
      way.dtype = dtype;
      way.weights = passes::Fp8Weights::use;
      const auto each = left_by_fp8(way);
      EXPECT_EQ(roundings(plan::lower(model_of_eight_fp8(), plan_of_fp8(way))), 0);
      way.weights = passes::Fp8Weights::step;
      for (const bool turns : {false, true}) {
        if (turns && way.backend == "host") continue;  // reference would multiply, in another order
        way.turns = turns;
        EXPECT_EQ(left_by_fp8(way), each) << plan::text_of(way.mesh) << " " << name_of(dtype) << " " << turns;
        EXPECT_GT(roundings(plan::lower(model_of_eight_fp8(), plan_of_fp8(way))), 0);
      }
    }
  }
}

// A weight that comes to the device for a while is rounded at each use.
TEST(Fp8Model, RoundsAtEachUseWhatComesForAWhile) {
  const plan::Plan whole = plan_of_fp8({.mesh = {.dp = 2}});
  const int all = roundings(plan::lower(model_of_eight_fp8(), whole));
  plan::Plan runs = whole, host = whole;
  runs.parallel.shard = passes::Shard::weights;
  host.memory.weights = passes::residency_groups("experts");
  EXPECT_EQ(roundings(plan::lower(model_of_eight_fp8(), runs)), 0);
  const int rest = roundings(plan::lower(model_of_eight_fp8(), host));
  EXPECT_GT(rest, 0);
  EXPECT_LT(rest, all);
  for (plan::Plan* plan : {&runs, &host}) {
    const auto left = [&](passes::Fp8Weights weights) {
      plan->device.fp8_weights = weights;
      const model::ModelConfig c = model_of_eight_fp8();
      TinyRun run(c, *plan, "reference", 4 * kArenaBytes);
      fill(run, c, 5);
      run.run(same_batches(c, run));
      return gradients_of(run);
    };
    EXPECT_EQ(left(passes::Fp8Weights::step), left(passes::Fp8Weights::use));
  }
}

// Bytes and scales of each rounded weight lie there throughout, and the walk foretells the peak.
TEST(Fp8Memory, RoundedWeightsTakeWhatIsForetold) {
  for (const bool turns : {false, true}) {
    const plan::Plan plan = plan_of_fp8({.turns = turns}), use = plan_of_fp8({.weights = passes::Fp8Weights::use});
    const model::ModelConfig c = model_of_eight_fp8();
    expect_peak_as_predicted(c, plan);
    const auto lasting = [&](const plan::Plan& of) {
      return simulate::record(plan::lower(c, of).program, 0, {}).persistent_bytes;
    };
    const ir::Listing listing = plan::lower(c, plan).program.listings[0];
    int64_t bytes = 0;
    for (const ir::Value& value : listing.values) {
      if (value.name.find(".fp8") != std::string::npos && ir::is_persistent(value.role))
        bytes += ir::place_bytes(listing.bytes(listing.find(value.name), ir::FixedRows()));
    }
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(lasting(plan) - lasting(use), bytes) << turns;
  }
}

// A row's blocks lie within the row, so panels of rows have those of all.
TEST(Fp8Model, HasTheSameBitsInPanels) {
  const auto whole = left_by_fp8({.mesh = {.tp = 2}});
  const auto products = [](int panels) {
    const plan::Lowered lowered =
        plan::lower(model_of_eight_fp8(), plan_of_fp8({.mesh = {.tp = 2}, .panels = panels}));
    const auto& ops = lowered.program.listings[0].ops;
    return std::count_if(ops.begin(), ops.end(), [](const ir::Op& op) { return op.kind() == "linear_fp8"; });
  };
  for (const int panels : {2, 4}) {
    EXPECT_EQ(left_by_fp8({.mesh = {.tp = 2}, .panels = panels}), whole) << panels;
    EXPECT_GT(products(panels), products(0)) << "nothing is cut";
  }
}

// Blocks lie as on one rank: stages and copies of the data.
TEST(Fp8Model, LearnsAsOneRankWhereNothingIsCut) {
  const auto one = left_by_fp8({.dtype = Dtype::f64});
  for (const plan::Degrees& mesh : {plan::Degrees{.pp = 2}, {.dp = 2}, {.dp = 2, .pp = 2}}) {
    for (const auto& [name, values] : left_by_fp8({.mesh = mesh, .dtype = Dtype::f64}))
      EXPECT_LE(relative(values, one.at(name)), 1e-11) << name << " at " << plan::text_of(mesh);
  }
}

// Elsewhere blocks are others: as near to it as it is to what it stands for.
TEST(Fp8Model, LearnsNearOneRankWhereBlocksAreCut) {
  const auto exact = left_by_fp8({.fp8 = passes::Fp8::off}), one = left_by_fp8({});
  for (const plan::Degrees& mesh : {plan::Degrees{.tp = 2},
                                    {.cp = 2},
                                    {.dp = 2, .ep = 2},
                                    {.dp = 4, .ep = 2, .etp = 2},
                                    {.tp = 2, .dp = 2, .ep = 4}}) {
    for (const int replicas : {0, mesh.ep == 2 && mesh.etp == 1 ? 1 : 0}) {
      for (const auto& [name, values] : left_by_fp8({.mesh = mesh, .replicas = replicas})) {
        EXPECT_LE(relative(values, one.at(name)), 3 * relative(one.at(name), exact.at(name)) + 1e-5)
            << name << " at " << plan::text_of(mesh);
      }
    }
  }
}

TEST(Fp8Model, TheHostLearnsAsReference) {
  const auto reference = left_by_fp8({.dtype = Dtype::bf16}),
             host = left_by_fp8({.backend = "host", .dtype = Dtype::bf16});
  const auto exact = left_by_fp8({.fp8 = passes::Fp8::off, .dtype = Dtype::bf16});
  for (const auto& [name, values] : reference)
    EXPECT_LE(relative(host.at(name), values), 3 * relative(values, exact.at(name)) + 1e-5) << name;
}

// Of a step on one rank, by the host's kernels with their scratch.
int64_t peak_of(passes::Fp8 fp8, const std::string& recompute) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 4;
  c.hidden_size = 256;
  c.intermediate_size = 512;
  c.moe_intermediate_size = 128;
  plan::Plan plan = plan_of_four({});
  plan.dtype = Dtype::bf16;
  plan.sequences = 8;
  plan.sequence_length = c.max_position_embeddings;
  plan.device.fp8 = fp8;
  plan.memory.recompute = passes::recompute_groups(recompute);
  const plan::Lowered lowered = plan::lower(c, plan);
  simulate::RecordOptions options;
  options.scratch_bytes = [&](int s, uint32_t i, const ir::RowCounts& rows) -> int64_t {
    const ir::Listing& listing = lowered.program.listings[static_cast<size_t>(s)];
    const kernels::KernelEntry& kernel = backends::named("host").select_kernel(listing, listing.ops[i]);
    return kernel.scratch_bytes ? kernel.scratch_bytes(listing, listing.ops[i], rows) : 0;
  };
  return simulate::record(lowered.program, 0, options).peak_live_bytes;
}

TEST(Fp8Memory, ABackwardThatKeepsEightBitsNeedsLess) {
  for (const char* recompute : {"", "activation"}) {
    const int64_t wide = peak_of(passes::Fp8::off, recompute), narrow = peak_of(passes::Fp8::blocks, recompute);
    EXPECT_LT(narrow, wide) << recompute;
    RecordProperty(std::string("peak_") + recompute, fmt::format("{} {}", wide, narrow));
  }
}

}  // namespace
}  // namespace heddle::test
