// Products in panels against whole ones: the same bits of every gradient, statistic and state, whatever arrives
// first, on arenas full of NaN.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "heddle/passes/recompute.h"
#include "tests/runtime/kept_bits.h"
#include "tests/support/set_pace.h"

namespace heddle::test {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(RandomKey(seed).with("tiles")) {}
  uint64_t bits() { return key_.bits(at_++); }
  int below(int count) { return static_cast<int>(bits() % static_cast<uint64_t>(count)); }
  template <class T>
  T of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int>(choices.size())))];
  }

 private:
  RandomKey key_;
  uint64_t at_ = 0;
};

int parts_in(const plan::Lowered& lowered) {
  int found = 0;
  for (const ir::Op& op : lowered.program.listings[0].ops) {
    found +=
        op.def->collective && !op.out.empty() && lowered.program.listings[0].value(op.out[0]).part_of != ir::none;
  }
  return found;
}

int64_t fused_in(const plan::Lowered& lowered) {
  const std::vector<ir::Op>& ops = lowered.program.listings[0].ops;
  return std::count_if(ops.begin(), ops.end(), [](const ir::Op& op) { return op.def->by_pieces; });
}

// Every op of every rank lasts for a while of its own, so that ranks come to their meetings in any order.
void delay(TinyRun& run, uint64_t seed) {
  for (int r = 0; r < run.plan().ranks(); ++r) {
    Dice dice(seed * 64 + static_cast<uint64_t>(r));
    std::vector<std::vector<int64_t>> pace_ns;
    for (const ir::Listing& listing : run.lowered().program.listings) {
      pace_ns.emplace_back();
      for (size_t i = 0; i < listing.ops.size(); ++i)
        pace_ns.back().push_back(dice.below(4) == 0 ? dice.below(60'000) : 0);
    }
    set_pace(run.executor(r), pace_ns);
  }
}

Outcome trained(const model::ModelConfig& c, const plan::Plan& plan, const std::string& backend, uint64_t seed,
                bool delayed) {
  TinyRun run(c, plan, backend, kArenaBytes);
  const std::vector<double> table = model::rope_table(c, plan.sequence_length);
  run.fill([&](const model::Parameter& p, int64_t i) {
    if (p.start == model::Parameter::Start::rope_table) return table[static_cast<size_t>(i)];
    return p.start == model::Parameter::Start::ones
               ? 1.0
               : 0.3 * RandomKey(seed).with(p.name).normal(static_cast<uint64_t>(i));
  });
  if (delayed) delay(run, seed);
  run.run(tiny_batches(c, plan, seed));
  Outcome outcome;
  for (int r = 0; r < plan.ranks(); ++r) {
    for (const ir::Value& value : run.listing(r).values) {
      if (value.role < ir::Role::accumulator) continue;
      outcome.values.emplace_back(fmt::format("rank {} {}", r, value.name), run.read(r, value.name));
    }
  }
  return outcome;
}

bool same_bits_tiles(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

struct Drawn {
  model::ModelConfig model;
  plan::Plan plan;
  std::string backend;
};

Drawn draw(uint64_t seed) {
  Dice dice(seed);
  Drawn d;
  d.model = divisible_model();
  d.model.num_hidden_layers = 1 + dice.below(2);
  d.model.first_k_dense_replace = dice.below(3);
  d.model.n_shared_experts = dice.below(2);
  if (dice.below(2) == 0) {
    d.model.attention = model::ModelConfig::Attention::grouped;
    d.model.num_key_value_heads = 12;
    d.model.head_dim = 4;
    d.model.mlp_bias = dice.below(2) == 0;
    d.model.attention_bias = static_cast<model::AttentionBias>(dice.below(3));
  } else {
    d.model.q_lora_rank = dice.of<int>({0, 8});
  }
  if (dice.below(4) == 0) d.model.norm = model::Norm::layer;
  if (dice.below(4) == 0) d.model.activation = model::Activation::gelu;
  plan::Plan& p = d.plan;
  p.mesh.tp = dice.of<int>({2, 2, 3, 4, 6});
  p.microbatches = 1;
  p.sequences = 1 + dice.below(3);
  p.sequence_length = p.mesh.tp * dice.of<int>({2, 3, 5, 8});
  p.dtype = dice.of<Dtype>({Dtype::f64, Dtype::f32, Dtype::bf16});
  d.backend = p.dtype == Dtype::f64 ? "reference" : dice.of<std::string>({"host", "host", "reference"});
  if (dice.below(2) == 0) p.packed_bytes = backends::named(d.backend).packed_bytes;
  if (dice.below(3) == 0) p.fusions.clear();
  p.parallel.weave = dice.of<plan::Weave>({plan::Weave::off, plan::Weave::layers, plan::Weave::pairs});
  p.memory.recompute = passes::recompute_groups(dice.of<std::string>({"", "gather", "layer", "norm, activation"}));
  return d;
}

void expect_same(const Outcome& found, const Outcome& whole, const std::string& of) {
  ASSERT_EQ(found.values.size(), whole.values.size());
  for (size_t i = 0; i < whole.values.size(); ++i) {
    const auto& [name, values] = found.values[i];
    ASSERT_EQ(name, whole.values[i].first);
    ASSERT_TRUE(same_bits_tiles(values, whole.values[i].second)) << name << " of " << of;
    // Shards beyond the end of their tensor hold what was there.
    if (name.find("grad.") == std::string::npos) continue;
    for (const double x : values) ASSERT_TRUE(std::isfinite(x)) << name << " of " << of;
  }
}

TEST(TilesBits, AreThoseOfWholeProducts) {
  const uint64_t draws = std::getenv("HEDDLE_PARITY_DRAWS") == nullptr ? 150 : 500;
  for (uint64_t seed = 1; seed <= draws; ++seed) {
    Drawn d = draw(seed);
    const Outcome whole = trained(d.model, d.plan, d.backend, seed, false);
    d.plan.parallel.tp_overlap = plan::TpOverlap::tiles;
    d.plan.parallel.tp_panels = 2 + static_cast<int>(seed % 5);
    ASSERT_GT(parts_in(plan::lower(d.model, d.plan)), 3) << "draw " << seed;
    const Outcome panels = trained(d.model, d.plan, d.backend, seed, seed % 4 == 0);
    ASSERT_NO_FATAL_FAILURE(expect_same(panels, whole, fmt::format("draw {}", seed)));
    d.plan.parallel.tp_overlap = plan::TpOverlap::fused;
    d.plan.parallel.tp_panels = 1 + static_cast<int>(seed % 5);
    ASSERT_GT(fused_in(plan::lower(d.model, d.plan)), 2) << "draw " << seed;
    const Outcome fused = trained(d.model, d.plan, d.backend, seed, seed % 4 < 2);
    ASSERT_NO_FATAL_FAILURE(expect_same(fused, whole, fmt::format("draw {}, fused", seed)));
  }
}

// Panels live in the places of the whole values: what the walk foretells is what a run takes.
TEST(TilesPeak, IsPredictedToTheByte) {
  plan::Plan plan = plan_of_four({.tp = 2, .pp = 2});
  plan.parallel.tp_overlap = plan::TpOverlap::tiles;
  plan.parallel.tp_panels = 2;
  expect_peak_as_predicted(small(), plan);
  plan.parallel.tp_overlap = plan::TpOverlap::fused;
  expect_peak_as_predicted(small(), plan);
}

}  // namespace
}  // namespace heddle::test
