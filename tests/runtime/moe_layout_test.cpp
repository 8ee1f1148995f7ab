// MoE models whose experts are spread over ranks, in every topology of the exchange: against one rank, and among
// themselves to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "heddle/base/random.h"
#include "tests/runtime/tiny_run.h"
#include "tests/support/relative.h"
#include "tests/support/tiny_models.h"
#include "tests/support/usual_start.h"

namespace heddle {
namespace {

using test::relative;

constexpr int64_t kSequenceMoeLayout = 16;
constexpr int kMicrobatchesMoeLayout = 8;  // of one sequence, in the whole batch

model::ModelConfig tiny_moe_layout() {
  model::ModelConfig c = test::tiny_balanced_model();
  c.num_experts_per_tok = 4;
  return c;
}

struct MoeLayoutSetting {
  plan::Degrees mesh;
  std::string topology = "plain";
  std::vector<int> node_of;
  Dtype dtype = Dtype::f64;
  std::string backend = "reference";
  bool reuse_lists = true;
  std::set<std::string> fusions{passes::fusion_names().begin(), passes::fusion_names().end()};
};

std::unique_ptr<test::TinyRun> make(const model::ModelConfig& c, const MoeLayoutSetting& s) {
  plan::Plan plan;
  plan.mesh = s.mesh;
  plan.microbatches = kMicrobatchesMoeLayout / s.mesh.dp;
  plan.sequence_length = kSequenceMoeLayout;
  plan.dtype = s.dtype;
  plan.fusions = s.fusions;
  plan.parallel.exchange.topology = from_word<ir::Topology>(s.topology);
  plan.parallel.reuse_lists = s.reuse_lists;
  auto run = std::make_unique<test::TinyRun>(c, plan, s.backend, 1 << 24, 1, true, s.node_of);
  run->fill(test::UsualStart(c, kSequenceMoeLayout, 3));
  return run;
}

std::vector<test::Batch> batches_for(const model::ModelConfig& c, const test::TinyRun& run) {
  std::vector<test::Batch> batches;
  for (int r = 0; r < run.plan().ranks(); ++r) {
    const int data_rank = run.mesh().at(r).at(ir::Axis::dp);
    test::Batch& batch = batches.emplace_back();
    for (int m = 0; m < run.plan().microbatches; ++m) {
      const int whole = m * run.plan().mesh.dp + data_rank;
      runtime::Microbatch& micro = batch.microbatches.emplace_back();
      for (int64_t i = 0; i < kSequenceMoeLayout + 1; ++i) {
        // Every third sequence repeats one token, so that a few experts take all of its rows.
        const uint64_t bits = RandomKey(7).bits(static_cast<uint64_t>(whole * (kSequenceMoeLayout + 1) + i));
        micro.tokens.push_back(whole % 3 == 0 ? 11
                                              : static_cast<int32_t>(bits % static_cast<uint64_t>(c.vocab_size)));
      }
    }
    const double tokens = static_cast<double>(kMicrobatchesMoeLayout * kSequenceMoeLayout);
    batch.scales = {1 / tokens, 1.0 / kMicrobatchesMoeLayout, 1 / tokens};
    batch.hyper = {1e-3, 0.1, 0.05};
  }
  return batches;
}

void expect_equal_to_one_rank_moe_layout(const MoeLayoutSetting& setting) {
  const model::ModelConfig c = tiny_moe_layout();
  const auto one = make(c, {.fusions = setting.fusions}), many = make(c, setting);
  one->run(batches_for(c, *one));
  many->run(batches_for(c, *many));
  for (const model::Parameter& p : one->parameters(0)) {
    if (!p.trained) continue;
    EXPECT_LT(relative(many->whole("grad.", p.name), one->whole("grad.", p.name)), 1e-10)
        << "gradient of " << p.name;
    EXPECT_LT(relative(many->whole("master.", p.name), one->whole("master.", p.name)), 1e-10) << p.name;
  }
  for (const char* name : {"loss.next_token", "loss.sequence_aux.1", "loss.z.0"}) {
    EXPECT_NEAR(many->total(name), one->total(name), 1e-11 * std::abs(one->total(name))) << name;
  }
}

class MoeLayout : public testing::TestWithParam<std::string> {};

TEST_P(MoeLayout, EqualsOneRank) {
  const std::string& topology = GetParam();
  expect_equal_to_one_rank_moe_layout({{.dp = 2, .ep = 2}, topology, {0, 1}});
  expect_equal_to_one_rank_moe_layout({{.dp = 4, .ep = 4}, topology, {0, 0, 1, 1}});
  expect_equal_to_one_rank_moe_layout({{.dp = 8, .ep = 8}, topology, {0, 0, 0, 1, 1, 1, 2, 2}});
  expect_equal_to_one_rank_moe_layout({{.tp = 2, .dp = 2, .ep = 4}, topology, {0, 1, 0, 1}});
}

TEST_P(MoeLayout, EqualsOneRankWithWidthsCut) {
  const std::string& topology = GetParam();
  expect_equal_to_one_rank_moe_layout({{.dp = 2, .etp = 2}, topology, {0, 1}});
  expect_equal_to_one_rank_moe_layout({{.dp = 4, .ep = 2, .etp = 2}, topology, {0, 0, 1, 1}});
  expect_equal_to_one_rank_moe_layout({{.dp = 4, .ep = 2, .etp = 2}, topology, {0, 1, 1, 0}});
  expect_equal_to_one_rank_moe_layout({{.tp = 2, .dp = 4, .ep = 4, .etp = 2}, topology, {0, 0, 0, 0, 1, 1, 1, 1}});
  expect_equal_to_one_rank_moe_layout(
      {{.tp = 2, .dp = 2, .pp = 2, .ep = 2, .etp = 2}, topology, {0, 0, 1, 1, 2, 2, 3, 3}});
}

TEST_P(MoeLayout, EqualsOneRankUnfused) {
  expect_equal_to_one_rank_moe_layout(
      {.mesh = {.dp = 4, .ep = 2, .etp = 2}, .topology = GetParam(), .node_of = {0, 0, 1, 1}, .fusions = {}});
}

INSTANTIATE_TEST_SUITE_P(Topologies, MoeLayout, testing::Values("plain", "rank", "node", "merge", "auto"),
                         [](const auto& info) { return info.param; });

/// Every activation, gradient and loss of a step whose shape the layout does not change: by rank, microbatch and
/// name.
using Seen = std::map<std::tuple<int, int, std::string>, std::vector<std::byte>>;
struct StepSeen {
  Seen values;
  int stalls = 0;  // of rank 0
};

StepSeen look(const MoeLayoutSetting& setting) {
  const model::ModelConfig c = tiny_moe_layout();
  const auto run = make(c, setting);
  const std::vector<test::Batch> batches = batches_for(c, *run);
  std::vector<StepSeen> seen(batches.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < batches.size(); ++r) {
    threads.emplace_back([&, r] {
      const ir::Listing& listing = run->listing(static_cast<int>(r));
      runtime::Executor& executor = run->executor(static_cast<int>(r));
      executor.run_step(
          test::inputs_of(batches[r], executor), [&](const ir::Issue& issue, const device::KernelCall& call) {
            seen[r].stalls += issue.op->def->host_stall;
            const ir::Phase phase = issue.op->phase;
            for (size_t i = 0; i < call.out.size() && (phase == ir::Phase::F || phase == ir::Phase::I); ++i) {
              const ir::Value& value = listing.value(issue.op->out[i]);
              const bool fixed = std::all_of(value.shape.begin(), value.shape.end(),
                                             [](const ir::Dim& d) { return d.is_static(); });
              if (!fixed || (value.role != ir::Role::activation && value.role != ir::Role::gradient)) continue;
              const auto* bytes = call.out[i].as<const std::byte>();
              seen[r].values[{static_cast<int>(r), issue.microbatch, value.name}].assign(
                  bytes, bytes + call.out[i].elements() * size_of(value.dtype));
            }
          });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t r = 1; r < seen.size(); ++r) seen[0].values.merge(seen[r].values);
  return std::move(seen[0]);
}

void expect_same_bits(const StepSeen& a, const StepSeen& b, size_t at_least, const std::string& what) {
  size_t compared = 0;
  std::string differ;
  for (const auto& [key, bytes] : a.values) {
    const auto other = b.values.find(key);
    if (other == b.values.end() || other->second.size() != bytes.size()) continue;
    ++compared;
    if (other->second != bytes && differ.size() < 400)
      differ += fmt::format(" rank {} {}", std::get<0>(key), std::get<2>(key));
  }
  EXPECT_EQ(differ, "") << what;
  EXPECT_GE(compared, at_least) << what;
}

TEST(MoeBits, AreTheSameForEveryExpertDegreeAndTopology) {
  const std::vector<int> two_nodes{0, 0, 0, 0, 1, 1, 1, 1};
  const std::vector<std::pair<Dtype, std::string>> kinds{
      {Dtype::f64, "reference"}, {Dtype::bf16, "reference"}, {Dtype::f32, "host"}, {Dtype::bf16, "host"}};
  for (const auto& [dtype, backend] : kinds) {
    const StepSeen one = look({{.dp = 8}, "plain", two_nodes, dtype, backend});
    EXPECT_TRUE(one.values.contains({7, 0, "1.x"}) || one.values.contains({7, 0, "1.y"}));
    for (const int ep : {2, 4, 8}) {
      for (const std::string topology : {"plain", "rank", "node", "merge", "auto"}) {
        if (ep < 8 && topology != "plain" && topology != "node") continue;
        expect_same_bits(one, look({{.dp = 8, .ep = ep}, topology, two_nodes, dtype, backend}), 8 * 40,
                         fmt::format("ep {} {} {} {}", ep, topology, name_of(dtype), backend));
      }
    }
  }
}

TEST(MoeBits, AreTheSameForEveryTopologyWithWidthsCut) {
  const std::vector<int> nodes{0, 0, 0, 1, 1, 2, 2, 2};
  const plan::Degrees mesh{.dp = 8, .ep = 4, .etp = 2};
  const StepSeen plain = look({mesh, "plain", nodes, Dtype::f32});
  for (const char* topology : {"rank", "node", "merge", "auto"}) {
    expect_same_bits(plain, look({mesh, topology, nodes, Dtype::f32}), 8 * 40, topology);
  }
}

TEST(ReuseLists, LeavesOneStallALayerAndMicrobatch) {
  const plan::Degrees mesh{.dp = 4, .ep = 4};
  const auto stalls = [](const ir::Listing& listing, ir::Phase phase) {
    return std::count_if(listing.ops.begin(), listing.ops.end(),
                         [&](const ir::Op& op) { return op.def->host_stall && op.phase == phase; });
  };
  const model::ModelConfig c = tiny_moe_layout();
  const int64_t layers = c.num_hidden_layers;
  for (const std::string topology : {"plain", "node"}) {
    const MoeLayoutSetting with{mesh, topology, {0, 0, 1, 1}, Dtype::f32};
    MoeLayoutSetting without = with;
    without.reuse_lists = false;
    const auto reused = make(c, with), anew = make(c, without);
    EXPECT_EQ(stalls(reused->listing(0), ir::Phase::F), layers);
    EXPECT_EQ(stalls(reused->listing(0), ir::Phase::I), 0);
    EXPECT_EQ(stalls(reused->listing(0), ir::Phase::W), 0);
    EXPECT_EQ(stalls(anew->listing(0), ir::Phase::F), 2 * layers);
    EXPECT_EQ(stalls(anew->listing(0), ir::Phase::I), 2 * layers);
    const StepSeen a = look(with), b = look(without);
    const int64_t microbatches = kMicrobatchesMoeLayout / mesh.dp;
    EXPECT_EQ(a.stalls, layers * microbatches);
    EXPECT_EQ(b.stalls, 4 * layers * microbatches);
    expect_same_bits(a, b, 4 * 40, topology);
  }
}

}  // namespace
}  // namespace heddle
